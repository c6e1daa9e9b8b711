#include "compiler/codegen_cuda/lane_expressions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "compiler/graph/axes.h"

namespace cellc {

void LaneExpressions::begin(bool prologue, const std::vector<SymbolEntry>& states) {
  prologue_ = prologue;
  texts_.assign(scalars_.scalars.size(), {});
  named_.assign(scalars_.scalars.size(), false);
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
}

const std::string& LaneExpressions::write(int i) {
  Text& text = texts_[static_cast<std::size_t>(i)];
  text = expression(i);
  return text.text;
}

void LaneExpressions::name(std::size_t i, std::string name) {
  texts_[i] = {std::move(name), kPrimary, ""};
  named_[i] = true;
}

std::vector<int> LaneExpressions::factors(int i) const {
  std::vector<int> result;
  const auto add = [&](auto&& self, int k) -> void {
    if (scalar(k).op == Op::Mul && (k == i || inlined(k))) {
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
    if (scalar(a).op != Op::Add || !inlined(a)) {
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
  if (inlined(i)) {
    if (s.op == Op::Neg) return {"-" + within(scaled(s.args[0], scale), kPrimary), kSign, ""};
    if (s.op == Op::Sub)
      return {within(scaled(s.args[0], scale), kSum) + " - " + within(scaled(s.args[1], scale), kProduct), kSum, ""};
    if (s.op == Op::Add) {
      // The latest is added last, by one fma.
      std::vector<int> of = terms(i);
      std::stable_sort(of.begin(), of.end(), [&](int a, int b) { return depth(a) < depth(b); });
      Text sum = scaled(of[0], scale);
      for (std::size_t k = 1; k < of.size(); ++k) {
        const bool a_product = !inlined(of[k]) || scalar(of[k]).op == Op::Mul;
        if (!a_product) {
          sum = {within(sum, kSum) + " + " + within(scaled(of[k], scale), kProduct), kSum, ""};
          continue;
        }
        std::vector<int> by = inlined(of[k]) ? ordered_factors(of[k]) : std::vector<int>{of[k]};
        const int last = by.back();
        by.pop_back();
        sum = {fmt::format("cellc::fma({}, {}, {})", product(by, scale).text,
                           texts_[static_cast<std::size_t>(last)].text, sum.text),
               kPrimary, ""};
      }
      return sum;
    }
    if (s.op == Op::Mul) return product(ordered_factors(i), scale);
  }
  return product({i}, scale);
}

int LaneExpressions::scalings(int i) const {
  const Scalar& s = scalar(i);
  if (is_held(i)) return 0;
  if (inlined(i)) {
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

std::optional<LaneExpressions::Text> LaneExpressions::scaled_gate(const Scalar& s, const char* function,
                                                                  const char* scale) const {
  const int i = s.args[0];
  if (!inlined(i) || scalings(i) > 2) return std::nullopt;
  return Text{fmt::format("cellc::{}({})", function, scaled(i, scale).text), kPrimary, ""};
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

std::optional<LaneExpressions::Text> LaneExpressions::fused(const Scalar& s) const {
  int late = s.args[0], other = s.args[1];
  if (depth(other) > depth(late)) std::swap(late, other);
  if (scalar(late).op != Op::Mul || !inlined(late) || scalar(other).op != Op::Mul || !inlined(other) ||
      depth(late) == 0)
    return std::nullopt;
  std::vector<int> of = ordered_factors(late);
  const int last = of.back();
  of.pop_back();
  return Text{fmt::format("cellc::fma({}, {}, {})", product(of).text, texts_[static_cast<std::size_t>(last)].text,
                          texts_[static_cast<std::size_t>(other)].text),
              kPrimary, ""};
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
  if (s.op == Op::Sigmoid)
    if (auto text = scaled_gate(s, "scaled_sigmoid", "cellc::kSigmoidScale")) return *text;
  if (s.op == Op::Tanh)
    if (auto text = scaled_gate(s, "scaled_tanh", "cellc::kTanhScale")) return *text;
  // Of 16 bits alone, where the exponent's base is changed by a multiplication of its own: of s6 by one for all states
  // of a channel.
  if (s.op == Op::Exp && (storage_ == Storage::BF16 || storage_ == Storage::F16) && scalings(s.args[0]) == 0)
    if (auto text = scaled_gate(s, "scaled_exp", "cellc::kExpScale")) return *text;
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
      if (auto text = fused(s)) return *text;
      return binary(s, kSum);
    case Op::Sub:
      return binary(s, kSum);
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
