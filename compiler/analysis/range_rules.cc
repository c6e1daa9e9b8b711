#include "compiler/analysis/range_rules.h"

#include <cmath>
#include <stdexcept>

#include "compiler/graph/operator_value.h"

namespace cellc {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Interval rising(Op op, int arity, const Interval* x) {
  double low[3] = {}, high[3] = {};
  for (int i = 0; i < arity; ++i) low[i] = x[i].low, high[i] = x[i].high;
  return {operator_value(op, low), operator_value(op, high)};
}

// What has Own in its column of ops.def has its rule here.
template <Op op>
Interval own_range(const Interval* x) = delete;

template <>
Interval own_range<Op::Sub>(const Interval* x) {
  return {x[0].low - x[1].high, x[0].high - x[1].low};
}
template <>
Interval own_range<Op::Mul>(const Interval* x) {
  return times(x[0], x[1]);
}
template <>
Interval own_range<Op::Div>(const Interval* x) {
  if (x[1].low <= 0 && x[1].high >= 0) return {};
  return times(x[0], {1 / x[1].high, 1 / x[1].low});
}
template <>
Interval own_range<Op::Neg>(const Interval* x) {
  return {-x->high, -x->low};
}
template <>
Interval own_range<Op::Pow>(const Interval* x) {
  const Interval v = x[0];
  const double e = x[1].low;
  if (e == x[1].high && e == std::round(e) && e > 0) {
    if (std::fmod(e, 2) != 0 || v.low >= 0) return {std::pow(v.low, e), std::pow(v.high, e)};
    return {0, std::pow(std::max(-v.low, v.high), e)};
  }
  return v.low > 0 ? Interval{0, kInf} : Interval{};
}
template <>
Interval own_range<Op::Square>(const Interval* x) {
  const double a = product(x->low, x->low), b = product(x->high, x->high);
  return {x->low <= 0 && x->high >= 0 ? 0 : std::min(a, b), std::max(a, b)};
}
template <>
Interval own_range<Op::Log>(const Interval* x) {
  return x->low > 0 ? Interval{std::log(x->low), std::log(x->high)} : Interval{};
}
template <>
Interval own_range<Op::Sqrt>(const Interval* x) {
  return {x->low > 0 ? std::sqrt(x->low) : 0, x->high > 0 ? std::sqrt(x->high) : 0};
}
template <>
Interval own_range<Op::Rsqrt>(const Interval* x) {
  return x->low > 0 ? Interval{1 / std::sqrt(x->high), 1 / std::sqrt(x->low)} : Interval{0, kInf};
}
template <>
Interval own_range<Op::Abs>(const Interval* x) {
  if (x->low >= 0) return *x;
  if (x->high <= 0) return {-x->high, -x->low};
  return {0, std::max(-x->low, x->high)};
}
template <>
Interval own_range<Op::Where>(const Interval* x) {
  return {std::min(x[1].low, x[2].low), std::max(x[1].high, x[2].high)};
}

}  // namespace

double product(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

Interval times(Interval a, Interval b) {
  const double p[] = {product(a.low, b.low), product(a.low, b.high), product(a.high, b.low), product(a.high, b.high)};
  return {*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
}

Interval range_of(Op op, const Interval* x) {
  switch (op) {
#define CELLC_RANGE_Rising rising(op, kArity, x)
#define CELLC_RANGE_Within(low, high) \
  Interval { low, high }
#define CELLC_RANGE_Dips(low) \
  Interval { low, std::max(x->high, 0.0) }
#define CELLC_RANGE_Own own_range<kOp>(x)
#define CELLC_OP(Name, text, arity, slope, values, cost, bits, zero, range, ...) \
  case Op::Name: {                                                               \
    [[maybe_unused]] constexpr Op kOp = Op::Name;                                \
    [[maybe_unused]] constexpr int kArity = arity;                               \
    return CELLC_RANGE_##range;                                                  \
  }
#define CELLC_NODE(Name) case Op::Name:
#include "compiler/graph/ops.def"
    break;
  }
  throw std::logic_error("range_of: not an elementwise operator");
}

}  // namespace cellc
