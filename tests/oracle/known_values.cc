// Larger than most (known_values): one table, a row a value.
#include "tests/oracle/known_values.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace cellc::oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 0x1.921fb54442d18p+1;  // below pi by 1.2246e-16

}  // namespace

const std::vector<KnownValue>& known_values() {
  // At ±0 the functions with a kink or a jump pass their argument on; which of two equal zeros min
  // and max give is not said.
  static const std::vector<KnownValue> rows = {
      {"+", {1, 2}, 3},
      {"+", {0.1, 0.2}, 0.30000000000000004},
      {"+", {0, -0.0}, 0},
      {"+", {-0.0, -0.0}, -0.0},
      {"+", {kInf, 1}, kInf},
      {"+", {kInf, -kInf}, kNan},
      {"+", {kNan, 1}, kNan},
      {"+", {1, kNan}, kNan},

      {"-", {1, 3}, -2},
      {"-", {0, 0}, 0},
      {"-", {-0.0, 0}, -0.0},
      {"-", {1, kInf}, -kInf},
      {"-", {kInf, kInf}, kNan},
      {"-", {kNan, 1}, kNan},
      {"-", {1, kNan}, kNan},

      {"*", {-3, 0.5}, -1.5},
      {"*", {0, -1}, -0.0},
      {"*", {-kInf, 2}, -kInf},
      {"*", {0, kInf}, kNan},
      {"*", {1e200, 1e200}, kInf},
      {"*", {1e-200, 1e-200}, 0},
      {"*", {kNan, 0}, kNan},
      {"*", {0, kNan}, kNan},

      {"/", {1, 3}, 0.33333333333333333},
      {"/", {1, 0}, kInf},
      {"/", {1, -0.0}, -kInf},
      {"/", {0, 0}, kNan},
      {"/", {-1, kInf}, -0.0},
      {"/", {kInf, kInf}, kNan},
      {"/", {kNan, 1}, kNan},
      {"/", {1, kNan}, kNan},

      {"neg", {2}, -2},
      {"neg", {0}, -0.0},
      {"neg", {-0.0}, 0},
      {"neg", {kInf}, -kInf},
      {"neg", {kNan}, kNan},

      {"pow", {2, 10}, 1024},
      {"pow", {2, 0.5}, 1.4142135623730951},
      {"pow", {10, -2.5}, 0.0031622776601683794},
      {"pow", {1.5, 7}, 17.0859375},
      {"pow", {-2, 3}, -8},
      {"pow", {-2, 4}, 16},
      {"pow", {-8, 0.3333}, kNan},
      {"pow", {0, 0}, 1},
      {"pow", {kNan, 0}, 1},
      {"pow", {1, kNan}, 1},
      {"pow", {0, 2}, 0},
      {"pow", {-0.0, 3}, -0.0},
      {"pow", {0, -1}, kInf},
      {"pow", {-0.0, -1}, -kInf},
      {"pow", {-0.0, -2}, kInf},
      {"pow", {kInf, 0.5}, kInf},
      {"pow", {kInf, -1}, 0},
      {"pow", {-kInf, 3}, -kInf},
      {"pow", {0.5, kInf}, 0},
      {"pow", {2, -kInf}, 0},
      {"pow", {-1, kInf}, 1},
      {"pow", {kNan, 1}, kNan},
      {"pow", {2, kNan}, kNan},

      {"square", {-3}, 9},
      {"square", {-0.0}, 0},
      {"square", {-kInf}, kInf},
      {"square", {1e200}, kInf},
      {"square", {kNan}, kNan},

      {"exp", {0}, 1},
      {"exp", {-0.0}, 1},
      {"exp", {1}, 2.718281828459045},
      {"exp", {-1}, 0.36787944117144233},
      {"exp", {700}, 1.0142320547350045e+304},
      {"exp", {-700}, 9.85967654375977e-305},
      {"exp", {710}, kInf},
      {"exp", {-746}, 0},
      {"exp", {kInf}, kInf},
      {"exp", {-kInf}, 0},
      {"exp", {kNan}, kNan},

      {"log", {1}, 0},
      {"log", {2}, 0.6931471805599453},
      {"log", {10}, 2.302585092994046},
      {"log", {1e-300}, -690.7755278982137},
      {"log", {0}, -kInf},
      {"log", {-0.0}, -kInf},
      {"log", {-1}, kNan},
      {"log", {kInf}, kInf},
      {"log", {-kInf}, kNan},
      {"log", {kNan}, kNan},

      {"sqrt", {2}, 1.4142135623730951},
      {"sqrt", {0}, 0},
      {"sqrt", {-0.0}, -0.0},
      {"sqrt", {-1}, kNan},
      {"sqrt", {kInf}, kInf},
      {"sqrt", {kNan}, kNan},

      {"rsqrt", {4}, 0.5},
      {"rsqrt", {2}, 0.7071067811865476},
      {"rsqrt", {0}, kInf},
      {"rsqrt", {-1}, kNan},
      {"rsqrt", {kInf}, 0},
      {"rsqrt", {kNan}, kNan},

      {"sin", {0}, 0},
      {"sin", {-0.0}, -0.0},
      {"sin", {1}, 0.8414709848078965},
      {"sin", {kPi}, 1.2246467991473532e-16},
      {"sin", {kPi / 2}, 1},
      {"sin", {1e22}, -0.8522008497671888},
      {"sin", {kInf}, kNan},
      {"sin", {kNan}, kNan},

      {"cos", {0}, 1},
      {"cos", {1}, 0.5403023058681398},
      {"cos", {kPi}, -1},
      {"cos", {kPi / 2}, 6.123233995736766e-17},
      {"cos", {1e22}, 0.523214785395139},
      {"cos", {-kInf}, kNan},
      {"cos", {kNan}, kNan},

      {"tanh", {0}, 0},
      {"tanh", {-0.0}, -0.0},
      {"tanh", {0.5}, 0.46211715726000974},
      {"tanh", {-1}, -0.7615941559557649},
      {"tanh", {1e-300}, 1e-300},
      {"tanh", {25}, 1},
      {"tanh", {kInf}, 1},
      {"tanh", {-kInf}, -1},
      {"tanh", {kNan}, kNan},

      {"sigmoid", {0}, 0.5},
      {"sigmoid", {-0.0}, 0.5},
      {"sigmoid", {1}, 0.7310585786300049},
      {"sigmoid", {-1}, 0.2689414213699951},
      {"sigmoid", {-700}, 9.85967654375977e-305},
      {"sigmoid", {-1000}, 0},
      {"sigmoid", {1000}, 1},
      {"sigmoid", {kInf}, 1},
      {"sigmoid", {-kInf}, 0},
      {"sigmoid", {kNan}, kNan},

      // Negative arguments approach zero from below, so their limit at -inf is -0.
      {"silu", {0}, 0},
      {"silu", {-0.0}, -0.0},
      {"silu", {1}, 0.7310585786300049},
      {"silu", {-1}, -0.2689414213699951},
      {"silu", {5}, 4.966535745378576},
      {"silu", {-5}, -0.03346425462142428},
      {"silu", {-700}, -6.90177358063184e-302},
      {"silu", {-1000}, -0.0},
      {"silu", {1000}, 1000},
      {"silu", {kInf}, kInf},
      {"silu", {-kInf}, -0.0},
      {"silu", {kNan}, kNan},

      {"gelu", {0}, 0},
      {"gelu", {-0.0}, -0.0},
      {"gelu", {1}, 0.8413447460685429},
      {"gelu", {2}, 1.9544997361036416},
      {"gelu", {-1}, -0.15865525393145705},
      {"gelu", {10}, 10},
      {"gelu", {-100}, -0.0},
      {"gelu", {1e300}, 1e300},
      {"gelu", {kInf}, kInf},
      {"gelu", {-kInf}, -0.0},
      {"gelu", {kNan}, kNan},

      {"softplus", {0}, 0.6931471805599453},
      {"softplus", {1}, 1.3132616875182228},
      {"softplus", {-1}, 0.3132616875182228},
      {"softplus", {-40}, 4.248354255291589e-18},
      {"softplus", {40}, 40},
      {"softplus", {1e300}, 1e300},
      {"softplus", {kInf}, kInf},
      {"softplus", {-kInf}, 0},
      {"softplus", {kNan}, kNan},

      {"erf", {0}, 0},
      {"erf", {-0.0}, -0.0},
      {"erf", {0.5}, 0.5204998778130465},
      {"erf", {1}, 0.8427007929497149},
      {"erf", {-2}, -0.9953222650189527},
      {"erf", {1e-300}, 1.1283791670955126e-300},
      {"erf", {kInf}, 1},
      {"erf", {-kInf}, -1},
      {"erf", {kNan}, kNan},

      {"abs", {-2.5}, 2.5},
      {"abs", {-0.0}, 0},
      {"abs", {-kInf}, kInf},
      {"abs", {kNan}, kNan},

      {"relu", {2}, 2},
      {"relu", {-2}, 0},
      {"relu", {0}, 0},
      {"relu", {-0.0}, -0.0},
      {"relu", {kInf}, kInf},
      {"relu", {-kInf}, 0},
      {"relu", {kNan}, kNan},

      {"min", {1, 2}, 1},
      {"min", {2, -1}, -1},
      {"min", {3, 3}, 3},
      {"min", {kInf, -kInf}, -kInf},
      {"min", {kNan, 1}, kNan},
      {"min", {1, kNan}, kNan},

      {"max", {1, 2}, 2},
      {"max", {2, -1}, 2},
      {"max", {3, 3}, 3},
      {"max", {kInf, -kInf}, kInf},
      {"max", {kNan, 1}, kNan},
      {"max", {1, kNan}, kNan},

      // With lo > hi the upper bound wins.
      {"clip", {0.5, -1, 1}, 0.5},
      {"clip", {7, -1, 1}, 1},
      {"clip", {-7, -1, 1}, -1},
      {"clip", {1, -1, 1}, 1},
      {"clip", {-1, -1, 1}, -1},
      {"clip", {0, 1, -1}, -1},
      {"clip", {5, 1, -1}, -1},
      {"clip", {-5, 1, -1}, -1},
      {"clip", {3, 2, 2}, 2},
      {"clip", {kInf, -1, 1}, 1},
      {"clip", {5, -kInf, kInf}, 5},
      {"clip", {kNan, -1, 1}, kNan},
      {"clip", {0, kNan, 1}, kNan},
      {"clip", {0, -1, kNan}, kNan},

      {"sign", {3}, 1},
      {"sign", {-1e-320}, -1},
      {"sign", {0}, 0},
      {"sign", {-0.0}, -0.0},
      {"sign", {kInf}, 1},
      {"sign", {-kInf}, -1},
      {"sign", {kNan}, kNan},

      {"<", {1, 2}, 1},
      {"<", {2, 2}, 0},
      {"<", {-0.0, 0}, 0},
      {"<", {-kInf, kInf}, 1},
      {"<", {kNan, 1}, 0},
      {"<", {1, kNan}, 0},
      {"<=", {1, 2}, 1},
      {"<=", {2, 2}, 1},
      {"<=", {0, -0.0}, 1},
      {"<=", {3, 2}, 0},
      {"<=", {kNan, kNan}, 0},
      {">", {1, 2}, 0},
      {">", {2, 2}, 0},
      {">", {0, -0.0}, 0},
      {">", {kInf, 1e308}, 1},
      {">", {kNan, 1}, 0},
      {">", {1, kNan}, 0},
      {">=", {1, 2}, 0},
      {">=", {2, 2}, 1},
      {">=", {-0.0, 0}, 1},
      {">=", {3, 2}, 1},
      {">=", {kNan, kNan}, 0},
      {"==", {1, 2}, 0},
      {"==", {-0.0, 0}, 1},
      {"==", {kInf, kInf}, 1},
      {"==", {kNan, kNan}, 0},
      {"!=", {1, 2}, 1},
      {"!=", {-0.0, 0}, 0},
      {"!=", {kInf, kInf}, 0},
      {"!=", {kNan, kNan}, 1},

      {"where", {1, 2, 3}, 2},
      {"where", {0, 2, 3}, 3},
      {"where", {-0.0, 2, 3}, 3},
      {"where", {kNan, 2, 3}, 2},
      {"where", {1e-320, 2, 3}, 2},
      {"where", {0, kNan, 3}, 3},
      {"where", {-kInf, 2, kNan}, 2},
      {"where", {1, -0.0, 3}, -0.0},

      {"stop_gradient", {2.5}, 2.5},
      {"stop_gradient", {-0.0}, -0.0},
      {"stop_gradient", {kInf}, kInf},
      {"stop_gradient", {kNan}, kNan},
  };
  return rows;
}

std::string to_string(const KnownValue& known) { return fmt::format("{}({})", known.f, fmt::join(known.args, ", ")); }

bool agrees(double got, const KnownValue& known) {
  const double want = known.value;
  if (std::isnan(want)) return std::isnan(got);
  if (want == 0 || std::isinf(want)) return got == want && std::signbit(got) == std::signbit(want);
  return std::fabs(got - want) <= 1e-14 * std::fabs(want);
}

}  // namespace cellc::oracle
