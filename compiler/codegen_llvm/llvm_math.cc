#include "compiler/codegen_llvm/llvm_math.h"

#include <fmt/format.h>

#include <stdexcept>

#include "compiler/codegen_llvm/llvm_math_body.h"

namespace cellc::llvm_math {

namespace {

struct Function {
  Op op;
  const char* name;
  int arity;
};

constexpr Function kFunctions[] = {
    {Op::Exp, "exp", 1},           {Op::Log, "log", 1},         {Op::Sin, "sin", 1},     {Op::Cos, "cos", 1},
    {Op::Tanh, "tanh", 1},         {Op::Sigmoid, "sigmoid", 1}, {Op::Silu, "silu", 1},   {Op::Gelu, "gelu", 1},
    {Op::Softplus, "softplus", 1}, {Op::Erf, "erf", 1},         {Op::Rsqrt, "rsqrt", 1}, {Op::Pow, "pow", 2},
};

const Function* find(Op op) {
  for (const Function& function : kFunctions) {
    if (function.op == op) return &function;
  }
  return nullptr;
}

const Function& need(Op op) {
  const Function* function = find(op);
  if (!function) throw std::logic_error(fmt::format("llvm_math: no function for operator {}", static_cast<int>(op)));
  return *function;
}

Term compute(Op op, const Term& x, const Term& y) {
  switch (op) {
    case Op::Exp:
      return exp(x);
    case Op::Log:
      return log(x);
    case Op::Sin:
      return sine(x, false);
    case Op::Cos:
      return sine(x, true);
    case Op::Tanh:
      return tanh(x);
    case Op::Sigmoid:
      return sigmoid(x);
    case Op::Silu:
      return silu(x);
    case Op::Gelu:
      return gelu(x);
    case Op::Softplus:
      return softplus(x);
    case Op::Erf:
      return erf(x);
    case Op::Rsqrt:
      return rsqrt(x);
    case Op::Pow:
      return pow(x, y);
    default:
      throw std::logic_error("llvm_math: function named but not defined");
  }
}

}  // namespace

bool has_function(Op op) { return find(op) != nullptr; }

std::string function_name(Op op, bool f64, int lanes) {
  const Body shape(f64, lanes);
  return fmt::format("@cellc.{}.{}", need(op).name, shape.suffix(shape.real()));
}

std::string definitions(const std::set<Request>& functions) {
  std::string text;
  bool scalar_done[2] = {false, false};
  for (const Request& request : functions) {
    const Function& function = need(request.op);
    Body body(request.f64, request.lanes);
    const Term x = body.argument("%x", body.real());
    const Term y = body.argument("%y", body.real());
    const Term result = compute(request.op, x, y);
    const std::string type = body.type(body.real());
    text += fmt::format("define internal {0} {1}({0} %x{2}) alwaysinline nounwind {{\nentry:\n{3}  ret {0} {4}\n}}\n\n",
                        type, function_name(request.op, request.f64, request.lanes),
                        function.arity == 2 ? fmt::format(", {} %y", type) : "", body.code(), result.text);
    if (request.op != Op::Sin && request.op != Op::Cos) continue;
    const bool cosine = request.op == Op::Cos;
    text += trig_lanes(cosine, request.f64, request.lanes) + "\n";
    if (!scalar_done[cosine]) text += trig_scalar(cosine) + "\n";
    scalar_done[cosine] = true;
  }
  return text;
}

}  // namespace cellc::llvm_math
