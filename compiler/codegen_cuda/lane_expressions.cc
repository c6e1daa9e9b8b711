#include "compiler/codegen_cuda/lane_expressions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "compiler/graph/axes.h"

namespace cellc {

namespace {

/// Leaves of what is joined: a gate of more has its own scale, and a product of more is multiplied as it stands.
constexpr int kMostJoined = 8;

bool is_arithmetic(Op op) { return op == Op::Add || op == Op::Sub || op == Op::Mul || op == Op::Neg; }

}  // namespace

void LaneExpressions::measure(const std::vector<SymbolEntry>& states, std::size_t own, const std::vector<bool>& apart) {
  depth_.assign(scalars_.scalars.size(), 0);
  for (std::size_t i = 0; i < scalars_.scalars.size(); ++i) {
    const Scalar& s = scalars_.scalars[i];
    if (s.op == Op::Read) {
      depth_[i] = std::find(states.begin(), states.end(), s.entry) != states.end();
      continue;
    }
    int most = 0;
    for (int k = 0; k < s.arity; ++k) most = std::max(most, depth_[static_cast<std::size_t>(s.args[k])]);
    depth_[i] = most == 0 ? 0 : most + (op_info(s.op).cost == Cost::Basic ? 1 : 8);
  }
  join(own, apart);
}

void LaneExpressions::join(std::size_t own, const std::vector<bool>& apart) {
  const std::size_t count = scalars_.scalars.size();
  // Readers of the step itself come first; of values that it has not, all.
  std::vector<int> of_step(count, 0), of_all(count, 0);
  const auto count_readers = [&](std::vector<int>& readers, std::size_t states) {
    for (std::size_t i = 0; i < states; ++i) ++readers[static_cast<std::size_t>(scalars_.next[i])];
    for (std::size_t i = count; i-- > 0;)
      for (int k = 0; readers[i] > 0 && k < scalars_.scalars[i].arity; ++k)
        ++readers[static_cast<std::size_t>(scalars_.scalars[i].args[k])];
  };
  count_readers(of_step, std::min(own, scalars_.next.size()));
  count_readers(of_all, scalars_.next.size());
  joined_.assign(count, false);
  std::vector<int> leaves(count, 1);
  for (std::size_t i = 0; i < count; ++i) {
    const Scalar& s = scalars_.scalars[i];
    if (!is_arithmetic(s.op)) continue;
    int all = 0;
    for (int k = 0; k < s.arity; ++k) all += leaves[static_cast<std::size_t>(s.args[k])];
    const int readers = of_step[i] > 0 ? of_step[i] : of_all[i];
    joined_[i] = readers == 1 && !apart[i] && all <= kMostJoined;
    if (joined_[i]) leaves[i] = all;
  }
}

void LaneExpressions::begin(bool prologue) {
  prologue_ = prologue;
  texts_.assign(scalars_.scalars.size(), {});
}

std::vector<int> LaneExpressions::reads(int i) const {
  const Scalar& s = scalar(i);
  if (s.op == Op::Mul) return factors(i);
  std::vector<int> all;
  if (scales_gate(s)) {
    add_scaled_reads(s.args[0], all);
    return all;
  }
  const std::optional<Fused> of = fused(s);
  for (int k = 0; k < s.arity; ++k) {
    if (!of || k != of->place) {
      all.push_back(s.args[k]);
      continue;
    }
    const std::vector<int> by = factors(of->product);
    all.insert(all.end(), by.begin(), by.end());
  }
  return all;
}

void LaneExpressions::add_scaled_reads(int i, std::vector<int>& to) const {
  if (!joined(i)) {
    to.push_back(i);
  } else if (scalar(i).op == Op::Mul) {
    for (const int k : factors(i)) to.push_back(k);
  } else {
    for (int k = 0; k < scalar(i).arity; ++k) add_scaled_reads(scalar(i).args[k], to);
  }
}

std::vector<int> LaneExpressions::uses() const {
  std::vector<int> uses(scalars_.scalars.size(), 0);
  for (const int n : scalars_.next) ++uses[static_cast<std::size_t>(n)];
  for (std::size_t i = uses.size(); i-- > 0;) {
    if (uses[i] == 0 && !held_.is_held[i]) continue;
    for (const int k : reads(static_cast<int>(i))) ++uses[static_cast<std::size_t>(k)];
  }
  return uses;
}

const std::string& LaneExpressions::write(int i) {
  Text& text = texts_[static_cast<std::size_t>(i)];
  text = expression(i);
  return text.text;
}

void LaneExpressions::name(std::size_t i, std::string name) { texts_[i] = {std::move(name), kPrimary, ""}; }

std::vector<int> LaneExpressions::factors(int i) const {
  if (scalar(i).op == Op::Square) return {scalar(i).args[0], scalar(i).args[0]};
  std::vector<int> result;
  const auto add = [&](auto&& self, int k) -> void {
    if (scalar(k).op == Op::Mul && (k == i || joined(k))) {
      self(self, scalar(k).args[0]);
      self(self, scalar(k).args[1]);
    } else {
      result.push_back(k);
    }
  };
  add(add, i);
  if (result.size() > 2)
    std::stable_sort(result.begin(), result.end(), [&](int a, int b) { return depth(a) < depth(b); });
  return result;
}

std::vector<int> LaneExpressions::terms(int i) const {
  std::vector<int> result;
  for (int k = 0; k < 2; ++k) {
    const int a = scalar(i).args[k];
    if (scalar(a).op != Op::Add || !joined(a)) {
      result.push_back(a);
      continue;
    }
    for (const int inner : terms(a)) result.push_back(inner);
  }
  return result;
}

std::vector<int> LaneExpressions::ordered_factors(int i) const {
  std::vector<int> result = factors(i);
  if (result.size() == 2 && depth(result[1]) < depth(result[0])) std::swap(result[0], result[1]);
  return result;
}

LaneExpressions::Text LaneExpressions::product(const std::vector<int>& of, const char* scale) const {
  if (of.empty()) return {scale, kPrimary, ""};
  std::string text = scale ? scale : "";
  for (const int k : of)
    text += (text.empty() ? "" : " * ") + within(texts_[static_cast<std::size_t>(k)], text.empty() ? kProduct : kSign);
  return {text, scale || of.size() > 1 ? kProduct : texts_[static_cast<std::size_t>(of[0])].precedence, ""};
}

LaneExpressions::Text LaneExpressions::scaled(int i, const char* scale) const {
  const Scalar& s = scalar(i);
  if (joined(i)) {
    if (s.op == Op::Neg) return {"-" + within(scaled(s.args[0], scale), kPrimary), kSign, ""};
    if (s.op == Op::Sub) return scaled_sum({s.args[0], s.args[1]}, true, scale);
    if (s.op == Op::Add) {
      // The latest is added last, by one fma.
      std::vector<int> of = terms(i);
      std::stable_sort(of.begin(), of.end(), [&](int a, int b) { return depth(a) < depth(b); });
      return scaled_sum(of, false, scale);
    }
    if (s.op == Op::Mul) return product(ordered_factors(i), scale);
  }
  return product({i}, scale);
}

std::optional<LaneExpressions::Fused> LaneExpressions::scaled_product(int i) const {
  bool negative = false;
  for (; joined(i) && scalar(i).op == Op::Neg; i = scalar(i).args[0]) negative = !negative;
  if (joined(i) && (scalar(i).op == Op::Add || scalar(i).op == Op::Sub)) return std::nullopt;
  return Fused{i, 0, negative};
}

LaneExpressions::Text LaneExpressions::scaled_sum(const std::vector<int>& of, bool minus, const char* scale) const {
  const auto factors_of = [&](const Fused& f) {
    const bool several = joined(f.product) && (scalar(f.product).op == Op::Mul || scalar(f.product).op == Op::Square);
    return several ? ordered_factors(f.product) : std::vector<int>{f.product};
  };
  Text sum = scaled(of[0], scale);
  for (std::size_t k = 1; k < of.size(); ++k) {
    const std::optional<Fused> first = k == 1 ? scaled_product(of[0]) : std::nullopt, now = scaled_product(of[k]);
    if (now) {
      sum = add_product(factors_of(*now), now->negative != minus, sum.text, scale);
      continue;
    }
    const Text other = scaled(of[k], scale);
    if (first)
      sum = add_product(factors_of(*first), first->negative, minus ? "-" + within(other, kPrimary) : other.text, scale);
    else
      sum = {within(sum, kSum) + (minus ? " - " : " + ") + within(other, kProduct), kSum, ""};
  }
  return sum;
}

int LaneExpressions::scalings(int i) const {
  const Scalar& s = scalar(i);
  if (is_held(i)) return 0;
  if (joined(i)) {
    if (s.op == Op::Neg) return scalings(s.args[0]);
    if (s.op == Op::Add || s.op == Op::Sub) return scalings(s.args[0]) + scalings(s.args[1]);
    if (s.op == Op::Mul) {
      for (const int k : factors(i))
        if (scalings(k) == 0) return 0;
      return 1;
    }
  }
  return s.op == Op::Constant || (s.op == Op::Read && cell_.symbols[s.entry.symbol].kind == SymbolKind::Param &&
                                  contains(cell_.symbols[s.entry.symbol].axes, lane_))
             ? 0
             : 1;
}

bool LaneExpressions::scales_gate(const Scalar& s) const {
  return (s.op == Op::Sigmoid || s.op == Op::Tanh) && joined(s.args[0]) && scalings(s.args[0]) <= 2;
}

LaneExpressions::Text LaneExpressions::scaled_gate(const Scalar& s, const char* function, const char* scale) const {
  return {fmt::format("cellc::{}({})", function, scaled(s.args[0], scale).text), kPrimary, ""};
}

std::string LaneExpressions::number(double value) const {
  if (std::isnan(value)) return "Real(cellc::not_a_number())";
  if (std::isinf(value)) return value > 0 ? "Real(cellc::infinity())" : "Real(-cellc::infinity())";
  if (value == 0 && std::signbit(value)) return "Real(-0.0)";
  if (storage_ != Storage::F64) {
    // The shortest that reads as this f32 also does through a double, which is rounded once more.
    const std::string text = fmt::format("{}", static_cast<float>(value));
    if (static_cast<float>(std::stod(text)) == static_cast<float>(value)) return "Real(" + text + ")";
  }
  return fmt::format("Real({})", value);
}

std::optional<LaneExpressions::Fused> LaneExpressions::fused(const Scalar& s) const {
  if (s.op != Op::Add && s.op != Op::Sub) return std::nullopt;
  const auto product_of = [&](int place) -> std::optional<Fused> {
    int i = s.args[place];
    bool negative = place == 1 && s.op == Op::Sub;
    const auto made_before = [&](int k) { return held_.is_held[static_cast<std::size_t>(k)]; };
    for (; scalar(i).op == Op::Neg && !made_before(i); i = scalar(i).args[0]) negative = !negative;
    const bool product = scalar(i).op == Op::Mul || scalar(i).op == Op::Square;
    return product && !made_before(i) ? std::optional(Fused{i, place, negative}) : std::nullopt;
  };
  const std::optional<Fused> first = product_of(0), second = product_of(1);
  if (first && second) return depth(second->product) > depth(first->product) ? second : first;
  return first ? first : second;
}

LaneExpressions::Text LaneExpressions::add_product(std::vector<int> factors, bool negative, const std::string& sum,
                                                   const char* scale) const {
  const int last = factors.back();
  factors.pop_back();
  const Text by = product(factors, scale);
  return {fmt::format("cellc::fma({}, {}, {})", negative ? "-" + within(by, kPrimary) : by.text,
                      texts_[static_cast<std::size_t>(last)].text, sum),
          kPrimary, ""};
}

LaneExpressions::Text LaneExpressions::sum(const Scalar& s) const {
  const std::optional<Fused> of = fused(s);
  if (!of) return binary(s, kSum);
  const Text& other = texts_[static_cast<std::size_t>(s.args[1 - of->place])];
  const bool minus = s.op == Op::Sub && of->place == 0;
  return add_product(ordered_factors(of->product), of->negative, minus ? "-" + within(other, kPrimary) : other.text);
}

LaneExpressions::Text LaneExpressions::binary(const Scalar& s, int precedence) const {
  return {fmt::format("{} {} {}", operand(s, 0, precedence), op_info(s.op).text, operand(s, 1, precedence + 1)),
          precedence, ""};
}

LaneExpressions::Text LaneExpressions::comparison(const Scalar& s) const {
  const std::string condition = fmt::format("{} {} {}", operand(s, 0, kSum), op_info(s.op).text, operand(s, 1, kSum));
  return {"(" + condition + " ? Real(1) : Real(0))", kPrimary, condition};
}

LaneExpressions::Text LaneExpressions::selection(const Scalar& s) const {
  const Text& c = texts_[static_cast<std::size_t>(s.args[0])];
  const std::string condition = c.condition.empty() ? operand(s, 0, kSum) + " != Real(0)" : c.condition;
  return {"(" + condition + " ? " + operand(s, 1, kSum) + " : " + operand(s, 2, kSum) + ")", kPrimary, ""};
}

LaneExpressions::Text LaneExpressions::call(const Scalar& s) const {
  if (scales_gate(s))
    return s.op == Op::Sigmoid ? scaled_gate(s, "scaled_sigmoid", "cellc::kSigmoidScale")
                               : scaled_gate(s, "scaled_tanh", "cellc::kTanhScale");
  std::string args;
  for (int k = 0; k < s.arity; ++k) args += (k ? ", " : "") + operand(s, k, kSum);
  return {fmt::format("cellc::{}({})", op_info(s.op).text, args), kPrimary, ""};
}

LaneExpressions::Text LaneExpressions::expression(int i) const {
  const Scalar& s = scalar(i);
  switch (s.op) {
    case Op::Constant:
      return {number(s.number), kPrimary, ""};
    case Op::Read:
      return {read_(s.entry), kPrimary, ""};
    case Op::Add:
    case Op::Sub:
      return sum(s);
    case Op::Mul:
      return product(factors(i));
    case Op::Div:
      return binary(s, kProduct);
    case Op::Neg:
      return {"-" + operand(s, 0, kPrimary), kSign, ""};
    case Op::Lt:
    case Op::Le:
    case Op::Gt:
    case Op::Ge:
    case Op::Eq:
    case Op::Ne:
      return comparison(s);
    case Op::Where:
      return selection(s);
#define CELLC_CUDA_Inline(Name)  // above
#define CELLC_CUDA_Function(Name) case Op::Name:
#define CELLC_OP(Name, text, arity, slope, values, cost, bits, zero, range, llvm, cuda, ...) CELLC_CUDA_##cuda(Name)
#include "compiler/graph/ops.def"
      return call(s);
    case Op::StopGradient:
    case Op::Size:
    case Op::Eye:
    case Op::OneHot:
    case Op::ReduceSum:
    case Op::ReduceMax:
    case Op::Softmax:
    case Op::MaxShare:
    case Op::Reindex:
    case Op::Surrogate:
      break;  // a scalar is none of these
  }
  throw std::logic_error(fmt::format("emit_cuda_lane: a {} of '{}'", op_name(s.op), cell_.name));
}

}  // namespace cellc
