#include "compiler/graph/operator_value.h"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace cellc {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// What the column `value` of ops.def is written in. Zeros keep their sign, as the emitted code has it: the bits of a
// run and of its reference then differ by rounding only.

// NaN passes through.
double least(double x, double y) { return x < y || std::isnan(x) ? x : y; }
double greatest(double x, double y) { return x > y || std::isnan(x) ? x : y; }

// exp of a negative number only: nothing overflows to inf/inf.
double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return (std::signbit(x) ? e : 1.0) / (1 + e);
}

// At -inf the product is -inf·0; the limit is zero, reached from below.
double silu(double x) { return x == -kInf ? -0.0 : x * sigmoid(x); }
double gelu(double x) { return x == -kInf ? -0.0 : 0.5 * x * std::erfc(-x * M_SQRT1_2); }

double softplus(double x) {
  if (std::isnan(x)) return x;
  return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

/// `value` of the operands that there are.
template <int arity, typename Value>
double at(const double* x, Value value) {
  return value(x[0], arity > 1 ? x[arity > 1 ? 1 : 0] : 0, arity > 2 ? x[arity > 2 ? 2 : 0] : 0);
}

}  // namespace

double operator_value(Op op, const double* x) {
  switch (op) {
#define CELLC_OP(Name, text, arity, slope, values, cost, bits, zero, range, llvm, cuda, latex, value)                \
  case Op::Name:                                                                                                     \
    return at<arity>(x,                                                                                              \
                     []([[maybe_unused]] double a, [[maybe_unused]] double b, [[maybe_unused]] double c) -> double { \
                       return value;                                                                                 \
                     });
#define CELLC_NODE(Name) case Op::Name:
#include "compiler/graph/ops.def"
    break;
  }
  throw std::logic_error("operator_value: not an elementwise operator");
}

}  // namespace cellc
