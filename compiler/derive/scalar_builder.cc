#include "compiler/derive/scalar_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "compiler/graph/operator_value.h"

namespace cellc {

ScalarBuilder::ScalarBuilder(std::string cell, const ScalarizeOptions& options)
    : cell_(std::move(cell)), options_(options) {
  scalars_.emplace_back();
}

int ScalarBuilder::constant(double number) {
  Scalar s;
  s.number = options_.f64 ? number : static_cast<float>(number);
  return intern(std::move(s));
}

int ScalarBuilder::read(SymbolEntry entry) {
  if (options_.zero.contains(entry)) return kProvedZero;
  Scalar s;
  s.op = Op::Read;
  s.entry = entry;
  return intern(std::move(s));
}

int ScalarBuilder::operation(Op op, std::initializer_list<int> args) {
  int list[3] = {-1, -1, -1};
  std::copy(args.begin(), args.end(), list);
  return operation(op, list, static_cast<int>(args.size()));
}

int ScalarBuilder::operation(Op op, const int (&args)[3], int arity) {
  const int a = args[0], b = args[1];
  if (op == Op::Mul && (a == kProvedZero || b == kProvedZero)) return kProvedZero;
  if (op == Op::Mul && for_transitions_ && (is_zero_by_form(a) || is_zero_by_form(b))) return kProvedZero;
  if (op == Op::Add && a == kProvedZero) return b;
  if ((op == Op::Add || op == Op::Sub) && b == kProvedZero) return a;
  if (op == Op::Neg && a == kProvedZero) return kProvedZero;
  if (op == Op::Mul && is_number(a, 1)) return b;
  if (op == Op::Mul && is_number(b, 1)) return a;
  if (op == Op::Where && is_constant(a)) return scalar(a).number != 0 ? b : args[2];
  if (std::all_of(args, args + arity, [&](int x) { return is_constant(x); }) && op_info(op).bits == Bits::Exact) {
    double x[3] = {};
    for (int i = 0; i < arity; ++i) x[i] = scalar(args[i]).number;
    return constant(operator_value(op, x));
  }
  Scalar s;
  s.op = op;
  s.arity = arity;
  std::copy(args, args + 3, s.args.begin());
  return intern(std::move(s));
}

int ScalarBuilder::reduce(Op op, const std::vector<int>& values) {
  // From zero and from -infinity, as the CPU's kernels: a sum of nothing but -0 is +0. The sign of a
  // transition's zero says nothing.
  if (op == Op::ReduceSum) {
    if (values.empty()) return constant(0);
    if (std::all_of(values.begin(), values.end(), [](int v) { return v == kProvedZero; })) return kProvedZero;
    std::size_t first = 0;
    int sum = for_transitions_ || is_never_negative_zero(values[0]) ? values[first++] : constant(0);
    for (; first < values.size(); ++first) sum = operation(Op::Add, {sum, values[first]});
    return sum;
  }
  if (values.empty()) return constant(-std::numeric_limits<double>::infinity());
  int most = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) most = operation(Op::Max, {most, values[i]});
  return most;
}

bool ScalarBuilder::is_number(int id, double number) const {
  const Scalar& s = scalar(id);
  return id != kProvedZero && s.op == Op::Constant &&
         std::bit_cast<std::uint64_t>(s.number) == std::bit_cast<std::uint64_t>(number);
}

/// A value that is never -0: adding it to zero changes nothing.
bool ScalarBuilder::is_never_negative_zero(int id) const {
  const Op op = scalar(id).op;
  return is_elementwise(op) && op_info(op).zero == Zero::Plus;
}

/// Zero whatever finite values it is made of: 0*w, of an identity's entry.
bool ScalarBuilder::is_zero_by_form(int id) const {
  const Scalar& s = scalar(id);
  switch (s.op) {
    case Op::Constant:
      return s.number == 0;
    case Op::Mul:
      return is_zero_by_form(s.args[0]) || is_zero_by_form(s.args[1]);
    case Op::Neg:
      return is_zero_by_form(s.args[0]);
    default:
      return false;
  }
}

int ScalarBuilder::intern(Scalar s) {
  const Key key{s.op, s.args, std::bit_cast<std::uint64_t>(s.number), s.entry};
  const auto [it, fresh] = table_.emplace(key, static_cast<int>(scalars_.size()));
  if (!fresh) return it->second;
  if (static_cast<std::int64_t>(scalars_.size()) > most_values()) too_long();
  s.span = span_;
  scalars_.push_back(std::move(s));
  return it->second;
}

void ScalarBuilder::too_long() const {
  throw ScalarizedTooLong(fmt::format("a step of '{}' takes more than {} scalar operations", cell_, options_.limit));
}

std::vector<Scalar> ScalarBuilder::finish(std::vector<int>& roots) {
  std::vector<char> used(scalars_.size(), 0);
  for (int r : roots) used[static_cast<std::size_t>(r)] = 1;
  std::int64_t operations = 0;
  for (std::size_t i = used.size(); i-- > 0;) {
    if (!used[i]) continue;
    const Scalar& s = scalars_[i];
    operations += s.arity > 0;
    for (int k = 0; k < s.arity; ++k) used[static_cast<std::size_t>(s.args[k])] = 1;
  }
  if (operations > options_.limit) too_long();
  std::vector<int> image(used.size(), -1);
  std::vector<Scalar> kept;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    image[i] = static_cast<int>(kept.size());
    Scalar s = std::move(scalars_[i]);
    for (int k = 0; k < s.arity; ++k) s.args[k] = image[static_cast<std::size_t>(s.args[k])];
    kept.push_back(std::move(s));
  }
  for (int& r : roots) r = image[static_cast<std::size_t>(r)];
  return kept;
}

}  // namespace cellc
