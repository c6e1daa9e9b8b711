#include "compiler/analysis/forward_mode.h"

#include "compiler/analysis/derivative_rules.h"
#include "compiler/graph/graph_walk.h"

namespace cellc {

std::vector<NodeId> ForwardMode::operator()(const std::vector<NodeId>& values) {
  // Operands have smaller ids than their users.
  for (const NodeId node : reachable(g_, values))
    if (!tangents_.contains(node)) tangents_.emplace(node, make(node));
  std::vector<NodeId> result;
  for (const NodeId value : values) result.push_back(of(value));
  return result;
}

NodeId ForwardMode::plus(NodeId a, NodeId b) {
  if (g_.is_constant(a, 0)) return b;
  if (g_.is_constant(b, 0)) return a;
  return g_.op(Op::Add, {a, b});
}

NodeId ForwardMode::make(NodeId node) {
  const Node n = g_[node];  // a copy: the graph grows
  const NodeId zero = g_.constant(0);
  switch (n.op) {
    case Op::Constant:
    case Op::Size:
    case Op::Eye:
    case Op::OneHot:
    case Op::MaxShare:  // which entries are the largest jumps
    case Op::StopGradient:
      return zero;
    case Op::Read: {
      const NodeId tangent = of_read_(n);
      return tangent == kNoNode ? zero : tangent;
    }
    case Op::ReduceSum:
      return g_.is_constant(of(n.args[0]), 0) ? zero : g_.reduce_sum(n.bound, of(n.args[0]));
    case Op::ReduceMax: {
      if (g_.is_constant(of(n.args[0]), 0)) return zero;
      const NodeId share = g_.max_share(n.bound, n.args[0]);
      return g_.reduce_sum(n.bound, chain_(node, 0, share, of(n.args[0])));
    }
    case Op::Softmax: {
      // ∂s = s (∂e − Σ s ∂e)
      const NodeId inner = of(n.args[0]);
      if (g_.is_constant(inner, 0)) return zero;
      const NodeId mean = g_.reduce_sum(n.bound, product_of(g_, node, inner));
      return product_of(g_, node, g_.op(Op::Sub, {inner, mean}));
    }
    case Op::Reindex:
      return g_.is_constant(of(n.args[0]), 0) ? zero : g_.reindex(of(n.args[0]), n.map);
    case Op::Surrogate: {
      NodeId total = zero;
      const std::size_t count = (n.args.size() - 1) / 2;
      for (std::size_t i = 0; i < count; ++i)
        total = plus(total, product_of(g_, n.args[1 + count + i], of(n.args[1 + i])));
      return total;
    }
    default:
      return elementwise(node);
  }
}

NodeId ForwardMode::elementwise(NodeId node) {
  const Node n = g_[node];
  const NodeId zero = g_.constant(0);
  if (n.op == Op::Where) {  // what is not taken gives nothing, though its tangent be no number
    const NodeId yes = of(n.args[1]), no = of(n.args[2]);
    return yes == no ? yes : g_.op(Op::Where, {n.args[0], yes, no});
  }
  NodeId total = zero;
  // The same operand twice (h*h) is met at both places; each contributes its own slope.
  for (int i = 0; i < static_cast<int>(n.args.size()); ++i) {
    const NodeId inner = of(n.args[static_cast<std::size_t>(i)]);
    if (g_.is_constant(inner, 0)) continue;
    const NodeId slope = slope_of(g_, node, i, SlopeRule::True);
    if (g_.is_constant(slope, 0)) continue;
    if (slope_formula(n.op, i).chooses())
      total = plus(total, g_.op(Op::Where, {slope, inner, zero}));
    else
      total = plus(total, g_.is_constant(slope, -1) ? g_.op(Op::Neg, {inner}) : chain_(node, i, slope, inner));
  }
  return total;
}

}  // namespace cellc
