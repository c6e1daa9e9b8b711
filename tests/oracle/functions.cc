#include "tests/oracle/functions.h"

#include <cmath>
#include <map>

namespace cellc::oracle {

// A NaN goes through min, max, clip and relu: std::max would drop it on one side.
double maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  return a > b ? a : b;
}

double minimum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  return a < b ? a : b;
}

namespace {

using Args = const std::vector<double>&;

double sigmoid(double x) {
  // Each branch takes the exponential of a number below zero, so neither overflows.
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return std::isnan(x) ? x : e / (1 + e);
}

// -inf: silu and gelu have a limit there, which is a zero from below; their formulas give NaN.
bool below_all(double x) { return std::isinf(x) && x < 0; }

struct Function {
  std::size_t arity;
  Elementwise f;
};

const std::map<std::string, Function>& table() {
  static const std::map<std::string, Function> functions = {
      {"+", {2, [](Args a) { return a[0] + a[1]; }}},
      {"-", {2, [](Args a) { return a[0] - a[1]; }}},
      {"*", {2, [](Args a) { return a[0] * a[1]; }}},
      {"/", {2, [](Args a) { return a[0] / a[1]; }}},
      {"neg", {1, [](Args a) { return -a[0]; }}},
      {"<", {2, [](Args a) { return a[0] < a[1] ? 1.0 : 0.0; }}},
      {"<=", {2, [](Args a) { return a[0] <= a[1] ? 1.0 : 0.0; }}},
      {">", {2, [](Args a) { return a[0] > a[1] ? 1.0 : 0.0; }}},
      {">=", {2, [](Args a) { return a[0] >= a[1] ? 1.0 : 0.0; }}},
      {"==", {2, [](Args a) { return a[0] == a[1] ? 1.0 : 0.0; }}},
      {"!=", {2, [](Args a) { return a[0] != a[1] ? 1.0 : 0.0; }}},
      {"where", {3, [](Args a) { return a[0] != 0 ? a[1] : a[2]; }}},
      {"pow", {2, [](Args a) { return std::pow(a[0], a[1]); }}},
      {"square", {1, [](Args a) { return a[0] * a[0]; }}},
      {"exp", {1, [](Args a) { return std::exp(a[0]); }}},
      {"log", {1, [](Args a) { return std::log(a[0]); }}},
      {"sqrt", {1, [](Args a) { return std::sqrt(a[0]); }}},
      {"rsqrt", {1, [](Args a) { return 1 / std::sqrt(a[0]); }}},
      {"sin", {1, [](Args a) { return std::sin(a[0]); }}},
      {"cos", {1, [](Args a) { return std::cos(a[0]); }}},
      {"tanh", {1, [](Args a) { return std::tanh(a[0]); }}},
      {"sigmoid", {1, [](Args a) { return sigmoid(a[0]); }}},
      {"silu", {1, [](Args a) { return below_all(a[0]) ? -0.0 : a[0] * sigmoid(a[0]); }}},
      {"gelu", {1, [](Args a) { return below_all(a[0]) ? -0.0 : 0.5 * a[0] * std::erfc(-a[0] / std::sqrt(2.0)); }}},
      {"softplus", {1, [](Args a) { return maximum(a[0], 0) + std::log1p(std::exp(-std::fabs(a[0]))); }}},
      {"erf", {1, [](Args a) { return std::erf(a[0]); }}},
      {"abs", {1, [](Args a) { return std::fabs(a[0]); }}},
      {"relu", {1, [](Args a) { return a[0] < 0 ? 0.0 : a[0]; }}},
      {"min", {2, [](Args a) { return minimum(a[0], a[1]); }}},
      {"max", {2, [](Args a) { return maximum(a[0], a[1]); }}},
      {"clip", {3, [](Args a) { return minimum(maximum(a[0], a[1]), a[2]); }}},
      {"sign", {1, [](Args a) { return a[0] > 0   ? 1.0
                                       : a[0] < 0 ? -1.0
                                                  : a[0]; }}},
      {"stop_gradient", {1, [](Args a) { return a[0]; }}},
  };
  return functions;
}

}  // namespace

Elementwise find_elementwise(const std::string& f, std::size_t arity) {
  const auto found = table().find(f);
  return found != table().end() && found->second.arity == arity ? found->second.f : nullptr;
}

std::optional<double> apply(const std::string& f, const std::vector<double>& args) {
  const Elementwise function = find_elementwise(f, args.size());
  if (!function) return std::nullopt;
  return function(args);
}

}  // namespace cellc::oracle
