#include "runtime/evaluate/plain_slopes.h"

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "compiler/graph/operator_value.h"

namespace cellc {
namespace {

using Part = std::optional<double>;

Part only_if(bool taken) { return taken ? Part(1) : std::nullopt; }

double logistic(double v) { return 1 / (1 + std::exp(-v)); }

/// e^-v/(1 + e^-v)^2 without an overflow.
double bell(double v) {
  const double e = std::exp(-std::fabs(v));
  return e / ((1 + e) * (1 + e));
}

}  // namespace

Part plain_slope(Op op, int i, const double* x, double y) {
  const double a = x[0], b = x[1], c = x[2];
  switch (op) {
    case Op::Add:
      return 1;
    case Op::Sub:
      return i == 0 ? 1 : -1;
    case Op::Mul:
      return x[1 - i];
    case Op::Div:
      return i == 0 ? 1 / b : -a / b / b;
    case Op::Neg:
      return -1;
    case Op::Pow:
      return i == 1 ? y * std::log(a) : b == 0 ? 0 : b * std::pow(a, b - 1);  // x^0 is 1 for every x
    case Op::Square:
      return a + a;
    case Op::Exp:
      return std::exp(a);
    case Op::Log:
      return 1 / a;
    case Op::Sqrt:
      return 1 / (2 * std::sqrt(a));
    case Op::Rsqrt:
      return -1 / (2 * a * std::sqrt(a));
    case Op::Sin:
      return std::cos(a);
    case Op::Cos:
      return -std::sin(a);
    case Op::Tanh:
      return 1 / (std::cosh(a) * std::cosh(a));
    case Op::Sigmoid:
      return bell(a);
    case Op::Silu:
      return logistic(a) + a * bell(a);
    case Op::Gelu:
      return std::erfc(-a / std::sqrt(2)) / 2 + a * std::exp(-a * a / 2) / std::sqrt(2 * M_PI);
    case Op::Softplus:
      return logistic(a);
    case Op::Erf:
      return 2 / std::sqrt(M_PI) * std::exp(-a * a);
    case Op::Abs:
      return a > 0 ? 1 : a < 0 ? -1 : a;
    case Op::Relu:
      return only_if(a > 0);
    case Op::Min:
      return only_if(i == 0 ? a <= b : b < a);
    case Op::Max:
      return only_if(i == 0 ? a >= b : b > a);
    case Op::Clip:  // min(max(a, b), c): at a tie the first
      return only_if(i == 0 ? a >= b && a <= c : i == 1 ? b > a && b <= c : std::fmax(a, b) > c);
    case Op::Where:  // what is no number counts as a condition that holds
      return only_if(i == 1 ? a != 0 : i == 2 && a == 0);
    default:
      break;
  }
  // A function that is not written out here: a new row of ops.def.
  const Slope kind = op_info(op).slope;
  if (kind == Slope::Smooth) return slope_by_differences(op, i, x);
  if (kind == Slope::Step || kind == Slope::Identity) return std::nullopt;
  throw std::logic_error(std::string("plain_slope: nobody says which operands have part in ") + op_name(op));
}

double slope_by_differences(Op op, int i, const double* x) {
  constexpr int kSteps = 12;
  std::array<double, 3> moved = {x[0], x[1], x[2]};
  const auto value = [&](double at) {
    moved[static_cast<std::size_t>(i)] = at;
    return operator_value(op, moved.data());
  };
  double found = std::numeric_limits<double>::quiet_NaN(), least = std::numeric_limits<double>::infinity();
  double step = 0.125 * std::fmax(1, std::fabs(x[i]));
  std::array<double, kSteps> before{}, now{};
  for (int n = 0; n < kSteps; ++n, step /= 2) {
    const double above = x[i] + step, below = x[i] - step;
    now[0] = (value(above) - value(below)) / (above - below);
    // Each column cancels the next even power of the step.
    double power = 1;
    for (int k = 1; k <= n; ++k) {
      power *= 4;
      now[k] = now[k - 1] + (now[k - 1] - before[k - 1]) / (power - 1);
      const double change = std::fmax(std::fabs(now[k] - now[k - 1]), std::fabs(now[k] - before[k - 1]));
      if (change < least) found = now[k], least = change;
    }
    before = now;
  }
  return found;
}

}  // namespace cellc
