#include "compiler/analysis/formula.h"

#include <vector>

namespace cellc {

namespace {

NodeId product(Graph& graph, NodeId a, NodeId b) {
  if (graph.is_constant(a, 1)) return b;
  if (graph.is_constant(b, 1)) return a;
  if (graph.is_constant(a, 0) || graph.is_constant(b, 0)) return graph.constant(0);
  return graph.op(Op::Mul, {a, b});
}

}  // namespace

NodeId Formula::build(Graph& graph, NodeId node, NodeId jump) const {
  const std::vector<NodeId>& operands = graph[node].args;
  std::vector<NodeId> stack;
  for (int k = 0; k < size_; ++k) {
    const Token& t = tokens_[static_cast<std::size_t>(k)];
    switch (t.kind) {
      case Token::Number:
        stack.push_back(graph.constant(t.number));
        break;
      case Token::Operand:
        stack.push_back(operands[static_cast<std::size_t>(t.operand)]);
        break;
      case Token::Value:
        stack.push_back(node);
        break;
      case Token::Jump:
        stack.push_back(jump);
        break;
      case Token::Apply: {
        const auto first = stack.end() - op_info(t.op).arity;
        const std::vector<NodeId> args(first, stack.end());
        stack.erase(first, stack.end());
        stack.push_back(t.op == Op::Mul ? product(graph, args[1], args[0]) : graph.op(t.op, args));
        break;
      }
    }
  }
  return stack.back();
}

}  // namespace cellc
