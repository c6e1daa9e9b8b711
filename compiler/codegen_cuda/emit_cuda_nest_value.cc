// Values of a row kernel as C++ expressions: the spelling of ops.def, with functions from math.cuh.
//
// NaN, infinities and signed zeros mean what IEEE says; a product and a sum may become one rounding.
#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "compiler/codegen_cuda/emit_cuda_nest_kernel.h"

namespace cellc {

std::string NestEmitter::literal(double value) const {
  if (!f64_) value = static_cast<float>(value);
  if (!std::isfinite(value))
    return fmt::format("cellc::number_of_bits(0x{:016x}ull)", std::bit_cast<std::uint64_t>(value));
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return fmt::format("Real({})", text);
}

/// 1 where two indices are equal, else 0.
std::string NestEmitter::position_value(const Node& n) {
  std::vector<std::string> sides;
  for (const Index& i : n.index) {
    if (!i.is_axis()) {
      sides.push_back(fmt::format("{}", i.literal));
      continue;
    }
    sides.push_back(position_of(i.axis));
  }
  // OneHot has its literal beside its only axis.
  return fmt::format("({} == {} ? Real(1) : Real(0))", sides.at(0), sides.at(1));
}

NestEmitter::Text NestEmitter::value(NodeId id) {
  const Node& n = node(id);
  switch (n.op) {
    case Op::Constant:
      return {literal(n.number), false};
    case Op::Eye:
    case Op::OneHot:
      return {position_value(n), false};
    case Op::Size:
      return {fmt::format("Real({})", length(n.index[0].axis)), false};
    default:
      break;
  }
  const auto known = values_.find(id);
  if (known == values_.end()) throw std::logic_error("emit: a value is used before it is computed");
  return known->second;
}

std::string NestEmitter::operand(NodeId id) {
  const Text v = value(id);
  return v.compound ? "(" + v.text + ")" : v.text;
}

NestEmitter::Text NestEmitter::expression(const Node& n) {
  const auto sign = [&](const char* text) {
    return fmt::format("{} {} {}", operand(n.args[0]), text, operand(n.args[1]));
  };
  switch (n.op) {
    case Op::Add:
    case Op::Sub:
    case Op::Mul:
    case Op::Div:
      return {sign(op_info(n.op).text), true};
    case Op::Neg:
      return {fmt::format("-{}", operand(n.args[0])), true};
    case Op::Lt:
    case Op::Le:
    case Op::Gt:
    case Op::Ge:
    case Op::Eq:
    case Op::Ne:
      return {fmt::format("({} ? Real(1) : Real(0))", sign(op_info(n.op).text)), false};
    case Op::Where:
      return {fmt::format("({} != Real(0) ? {} : {})", operand(n.args[0]), operand(n.args[1]), operand(n.args[2])),
              false};
    case Op::StopGradient:
      break;                     // the plan has none
#define CELLC_CUDA_Inline(Name)  // above
#define CELLC_CUDA_Function(Name) case Op::Name:
#define CELLC_OP(Name, text, arity, slope, values, cost, bits, zero, range, llvm, cuda, ...) CELLC_CUDA_##cuda(Name)
#include "compiler/graph/ops.def"
      return {call(n), false};
#define CELLC_NODE(Name) case Op::Name:
#include "compiler/graph/ops.def"
      break;
  }
  throw std::logic_error(fmt::format("emit: a {} in a nest", op_name(n.op)));
}

/// Of a function of math.cuh.
std::string NestEmitter::call(const Node& n) {
  std::string list;
  for (const NodeId a : n.args) list += (list.empty() ? "" : ", ") + value(a).text;
  return fmt::format("cellc::{}({})", op_info(n.op).text, list);
}

}  // namespace cellc
