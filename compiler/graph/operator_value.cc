#include "compiler/graph/operator_value.h"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace cellc {

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();
}

double operator_value(Op op, const double* x) {
  switch (op) {
    case Op::Add:
      return x[0] + x[1];
    case Op::Sub:
      return x[0] - x[1];
    case Op::Mul:
      return x[0] * x[1];
    case Op::Div:
      return x[0] / x[1];
    case Op::Neg:
      return -x[0];
    case Op::Pow:
      return std::pow(x[0], x[1]);
    case Op::Square:
      return x[0] * x[0];
    case Op::Exp:
      return std::exp(x[0]);
    case Op::Log:
      return std::log(x[0]);
    case Op::Sqrt:
      return std::sqrt(x[0]);
    case Op::Rsqrt:
      return 1 / std::sqrt(x[0]);
    case Op::Sin:
      return std::sin(x[0]);
    case Op::Cos:
      return std::cos(x[0]);
    case Op::Tanh:
      return std::tanh(x[0]);
    // exp of a negative number only: nothing overflows to inf/inf.
    case Op::Sigmoid: {
      const double e = std::exp(-std::fabs(x[0]));
      return (std::signbit(x[0]) ? e : 1.0) / (1 + e);
    }
    // At -inf the product is -inf·0; the limit is zero, reached from below.
    case Op::Silu: {
      if (x[0] == -kInf) return -0.0;
      const double e = std::exp(-std::fabs(x[0]));
      return x[0] * ((std::signbit(x[0]) ? e : 1.0) / (1 + e));
    }
    case Op::Gelu:
      return x[0] == -kInf ? -0.0 : 0.5 * x[0] * std::erfc(-x[0] * M_SQRT1_2);
    case Op::Softplus:
      if (std::isnan(x[0])) return x[0];
      return std::fmax(x[0], 0.0) + std::log1p(std::exp(-std::fabs(x[0])));
    case Op::Erf:
      return std::erf(x[0]);
    case Op::Abs:
      return std::fabs(x[0]);
    // Zeros keep their sign here and in sign, as the emitted code has it: the bits of a run and of its
    // reference then differ by rounding only.
    case Op::Relu:
      return x[0] < 0 ? 0.0 : x[0];
    case Op::Min:
      return x[0] < x[1] || std::isnan(x[0]) ? x[0] : x[1];
    case Op::Max:
      return x[0] > x[1] || std::isnan(x[0]) ? x[0] : x[1];
    case Op::Clip: {
      const double low = x[0] > x[1] || std::isnan(x[0]) ? x[0] : x[1];
      return low < x[2] || std::isnan(low) ? low : x[2];
    }
    case Op::Sign:
      return x[0] > 0 ? 1 : x[0] < 0 ? -1 : x[0];
    case Op::Lt:
      return x[0] < x[1];
    case Op::Le:
      return x[0] <= x[1];
    case Op::Gt:
      return x[0] > x[1];
    case Op::Ge:
      return x[0] >= x[1];
    case Op::Eq:
      return x[0] == x[1];
    case Op::Ne:
      return x[0] != x[1];
    case Op::Where:
      return x[0] != 0 ? x[1] : x[2];
    case Op::StopGradient:
      return x[0];
    default:
      throw std::logic_error("operator_value: not an elementwise operator");
  }
}

}  // namespace cellc
