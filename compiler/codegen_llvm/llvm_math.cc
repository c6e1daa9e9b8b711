#include "compiler/codegen_llvm/llvm_math.h"

#include <fmt/format.h>

#include <stdexcept>

#include "compiler/codegen_llvm/llvm_math_body.h"

namespace cellc::llvm_math {

namespace {

Term apply(Term (*f)(const Term&), const Term& x, const Term&) { return f(x); }
Term apply(Term (*f)(const Term&, const Term&), const Term& x, const Term& y) { return f(x, y); }

Term compute(Op op, const Term& x, const Term& y) {
  switch (op) {
#define CELLC_LLVM_Inline(Name, text) \
  case Op::Name:                      \
    break;
#define CELLC_LLVM_Function(Name, text) \
  case Op::Name:                        \
    return apply(text, x, y);
#define CELLC_OP(Name, ...) CELLC_LLVM_Inline(Name, )
#define CELLC_CALL(Name, text, arity, slope, values, cost, bits, zero, range, llvm, ...) CELLC_LLVM_##llvm(Name, text)
#define CELLC_NODE(Name) CELLC_LLVM_Inline(Name, )
#include "compiler/graph/ops.def"
#undef CELLC_LLVM_Inline
#undef CELLC_LLVM_Function
  }
  throw std::logic_error(fmt::format("llvm_math: no function for {}", op_name(op)));
}

}  // namespace

bool has_function(Op op) {
  switch (op) {
#define CELLC_LLVM_Inline false
#define CELLC_LLVM_Function true
#define CELLC_OP(Name, text, arity, slope, values, cost, bits, zero, range, llvm, ...) \
  case Op::Name:                                                                       \
    return CELLC_LLVM_##llvm;
#define CELLC_NODE(Name) case Op::Name:
#include "compiler/graph/ops.def"
    break;
  }
  return false;
}

std::string function_name(Op op, bool f64, int lanes) {
  if (!has_function(op)) throw std::logic_error(fmt::format("llvm_math: no function for {}", op_name(op)));
  const Body shape(f64, lanes);
  return fmt::format("@cellc.{}.{}", op_info(op).text, shape.suffix(shape.real()));
}

std::string definitions(const std::set<Request>& functions) {
  std::string text;
  bool scalar_done[2] = {false, false};
  for (const Request& request : functions) {
    Body body(request.f64, request.lanes);
    const Term x = body.argument("%x", body.real());
    const Term y = body.argument("%y", body.real());
    const Term result = compute(request.op, x, y);
    const std::string type = body.type(body.real());
    text += fmt::format("define internal {0} {1}({0} %x{2}) alwaysinline nounwind {{\nentry:\n{3}  ret {0} {4}\n}}\n\n",
                        type, function_name(request.op, request.f64, request.lanes),
                        op_info(request.op).arity == 2 ? fmt::format(", {} %y", type) : "", body.code(), result.text);
    if (request.op != Op::Sin && request.op != Op::Cos) continue;
    const bool cosine = request.op == Op::Cos;
    text += trig_lanes(cosine, request.f64, request.lanes) + "\n";
    if (!scalar_done[cosine]) text += trig_scalar(cosine) + "\n";
    scalar_done[cosine] = true;
  }
  return text;
}

}  // namespace cellc::llvm_math
