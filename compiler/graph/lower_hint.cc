// What is called otherwise elsewhere, or is missing here: functions with the formula that gives them, and names that
// other languages have ready. A name of these is never taken for a slip of another: cosh is not cos.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "compiler/graph/lower_internal.h"

namespace cellc::lowering {

namespace {

struct Elsewhere {
  std::string_view name;
  std::string_view call;     ///< as it would be called; empty: no formula of the language gives it
  std::string_view formula;  ///< in words of the language
};

constexpr Elsewhere kFunctions[] = {
    {"cosh", "cosh(x)", "(exp(x) + exp(-x))/2"},
    {"sinh", "sinh(x)", "(exp(x) - exp(-x))/2"},
    {"tan", "tan(x)", "sin(x)/cos(x)"},
    {"cot", "cot(x)", "cos(x)/sin(x)"},
    {"sec", "sec(x)", "1/cos(x)"},
    {"csc", "csc(x)", "1/sin(x)"},
    {"sech", "sech(x)", "2/(exp(x) + exp(-x))"},
    {"coth", "coth(x)", "1/tanh(x)"},
    {"asinh", "asinh(x)", "log(x + sqrt(x^2 + 1))"},
    {"acosh", "acosh(x)", "log(x + sqrt(x^2 - 1))"},
    {"atanh", "atanh(x)", "0.5*log((1 + x)/(1 - x))"},
    {"sinc", "sinc(x)", "where(x == 0, 1, sin(x)/x)"},
    {"log10", "log10(x)", "log(x)/2.302585092994046"},
    {"log2", "log2(x)", "log(x)/0.6931471805599453"},
    {"ln", "ln(x)", "log(x)"},
    {"log1p", "log1p(x)", "log(1 + x)"},
    {"expm1", "expm1(x)", "exp(x) - 1"},
    {"exp2", "exp2(x)", "exp(0.6931471805599453*x)"},
    {"exp10", "exp10(x)", "exp(2.302585092994046*x)"},
    {"erfc", "erfc(x)", "1 - erf(x)"},
    {"cbrt", "cbrt(x)", "sign(x)*pow(abs(x), 1/3)"},
    {"hypot", "hypot(x, y)", "sqrt(x^2 + y^2)"},
    {"power", "power(x, y)", "pow(x, y)"},
    {"reciprocal", "reciprocal(x)", "1/x"},
    {"sqr", "sqr(x)", "square(x)"},
    {"fabs", "fabs(x)", "abs(x)"},
    {"sgn", "sgn(x)", "sign(x)"},
    {"minimum", "minimum(x, y)", "min(x, y)"},
    {"maximum", "maximum(x, y)", "max(x, y)"},
    {"fmin", "fmin(x, y)", "min(x, y)"},
    {"fmax", "fmax(x, y)", "max(x, y)"},
    {"clamp", "clamp(x, lo, hi)", "clip(x, lo, hi)"},
    {"step", "step(x)", "x > 0"},
    {"heaviside", "heaviside(x, y)", "where(x == 0, y, x > 0)"},
    {"logistic", "logistic(x)", "sigmoid(x)"},
    {"expit", "expit(x)", "sigmoid(x)"},
    {"logit", "logit(x)", "log(x/(1 - x))"},
    {"logsigmoid", "logsigmoid(x)", "-softplus(-x)"},
    {"log_sigmoid", "log_sigmoid(x)", "-softplus(-x)"},
    {"logaddexp", "logaddexp(x, y)", "x + softplus(y - x)"},
    {"swish", "swish(x)", "silu(x)"},
    {"mish", "mish(x)", "x*tanh(softplus(x))"},
    {"elu", "elu(x)", "where(x > 0, x, exp(min(x, 0)) - 1)"},
    {"selu", "selu(x)", "1.0507009873554805*where(x > 0, x, 1.6732632423543772*(exp(min(x, 0)) - 1))"},
    {"relu6", "relu6(x)", "clip(x, 0, 6)"},
    {"leaky_relu", "leaky_relu(x)", "max(x, 0.01*x)"},
    {"leakyrelu", "leakyrelu(x)", "max(x, 0.01*x)"},
    {"softsign", "softsign(x)", "x/(1 + abs(x))"},
    {"hardtanh", "hardtanh(x)", "clip(x, -1, 1)"},
    {"hardsigmoid", "hardsigmoid(x)", "clip(x/6 + 0.5, 0, 1)"},
    {"hard_sigmoid", "hard_sigmoid(x)", "clip(x/6 + 0.5, 0, 1)"},
    {"norm", "the norm along an axis k", "sqrt(sum[k](x^2))"},
    {"var", "the variance along an axis k", "mean[k](square(x - mean[k](x)))"},
    {"std", "the deviation along an axis k", "sqrt(mean[k](square(x - mean[k](x))))"},
    {"log_softmax", "log_softmax along an axis k", "x - max[k](x) - log(sum[k](exp(x - max[k](x))))"},
    {"dot", "dot(a, b)", "a@b"},
    {"matmul", "matmul(A, x)", "A@x"},
    {"outer", "outer(a, b)", "a[i]*b[j]"},
    {"transpose", "the transpose of A", "A[j,i]"},
    {"trace", "trace(A)", "sum[i](A[i,i])"},
    {"floor", "", ""},
    {"ceil", "", ""},
    {"round", "", ""},
    {"trunc", "", ""},
    {"mod", "", ""},
    {"fmod", "", ""},
    {"asin", "", ""},
    {"acos", "", ""},
    {"atan", "", ""},
    {"atan2", "", ""},
    {"gamma", "", ""},
    {"lgamma", "", ""},
    {"erfinv", "", ""},
    {"inv", "", ""},
    {"det", "", ""},
    {"argmax", "", ""},
    {"argmin", "", ""},
    {"sort", "", ""},
    {"cumsum", "a running sum", "a state: state s, then s' = s + x"},
    {"cumprod", "a running product", "a state: state p = 1, then p' = p*x"},
    {"delay", "what x was n steps before", "lag(x, n)"},
    {"shift", "what x was n steps before", "lag(x, n)"},
    {"diff", "the change since the step before", "x - lag(x, 1)"},
};

constexpr std::string_view kRandom[] = {"rand",    "randn",  "random",    "normal",    "uniform", "gauss",
                                        "noise",   "rnorm",  "runif",     "bernoulli", "dropout", "randint",
                                        "poisson", "sample", "rand_like", "randn_like"};

constexpr Elsewhere kNames[] = {
    {"pi", "pi", "3.141592653589793"},
    {"PI", "PI", "3.141592653589793"},
    {"e", "e", "2.718281828459045, and its power exp(x)"},
    {"true", "true", "1"},
    {"True", "True", "1"},
    {"false", "false", "0"},
    {"False", "False", "0"},
};

constexpr std::string_view kClock[] = {"t", "time", "step", "timestep", "T"};

template <std::size_t n>
bool among(const std::string_view (&list)[n], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

}  // namespace

std::string function_elsewhere(const std::string& name) {
  if (among(kRandom, name))
    return "a cell has no random numbers of its own: declare an input, and give it the noise as an array";
  for (const Elsewhere& f : kFunctions) {
    if (f.name != name) continue;
    if (f.call.empty()) return fmt::format("the language has no {}, under no other name either", name);
    return fmt::format("{} is {}", f.call, f.formula);
  }
  return {};
}

std::string name_elsewhere(const std::string& name) {
  if (among(kClock, name))
    return fmt::format("the number of the step is a state of its own: state {0}, then {0}' = {0} + 1", name);
  for (const Elsewhere& n : kNames)
    if (n.name == name) return fmt::format("{} is {}", n.call, n.formula);
  return {};
}

}  // namespace cellc::lowering
