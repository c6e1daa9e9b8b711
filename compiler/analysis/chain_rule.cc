// The product of a slope and a coefficient, where one of them may be 0 because something was not taken.
#include "compiler/analysis/chain_rule.h"

#include "compiler/analysis/derivative_rules.h"

namespace cellc {

NodeId product_of(Graph& graph, NodeId a, NodeId b) {
  if (graph.is_constant(a, 1)) return b;
  if (graph.is_constant(b, 1)) return a;
  if (graph.is_constant(a, 0) || graph.is_constant(b, 0)) return graph.constant(0);
  return graph.op(Op::Mul, {a, b});
}

bool ChainRule::may_be_singular(NodeId node) {
  for (NodeId id = static_cast<NodeId>(singular_.size()); id < g_.size(); ++id) {
    const Op o = g_[id].op;
    bool result = is_elementwise(o) && op_info(o).values == ValueKind::Singular;
    if (o == Op::Div) {  // by what is known not to be zero?
      const Node& below = g_[g_[id].args[1]];
      result = below.op != Op::Size && (below.op != Op::Constant || below.number == 0);
    }
    for (NodeId a : g_[id].args) result = result || singular_[a];
    singular_.push_back(result);
  }
  return singular_[node];
}

bool ChainRule::has_pole(NodeId node) {
  for (NodeId id = static_cast<NodeId>(poles_.size()); id < g_.size(); ++id) {
    const Node& n = g_[id];
    bool result = n.op == Op::Log || n.op == Op::Rsqrt || n.op == Op::Pow;
    if (n.op == Op::Div) {
      const Node& below = g_[n.args[1]];
      result = below.op != Op::Size && (below.op != Op::Constant || below.number == 0);
    }
    for (NodeId a : n.args) result = result || poles_[a];
    poles_.push_back(result);
  }
  return poles_[node];
}

NodeId ChainRule::taken(NodeId coefficient, int depth) {
  constexpr int kDeepest = 64;  // further down than anybody nests choices
  if (depth > kDeepest) return kNoNode;
  if (const auto known = taken_.find(coefficient); known != taken_.end()) return known->second;
  return taken_[coefficient] = find_taken(coefficient, depth + 1);
}

NodeId ChainRule::find_taken(NodeId coefficient, int depth) {
  const Node& n = g_[coefficient];
  const auto both = [&](Op o, NodeId a, NodeId b) {
    return g_.op(o, {g_.op(Op::Ne, {a, g_.constant(0)}), g_.op(Op::Ne, {b, g_.constant(0)})});
  };
  if (is_elementwise(n.op) && op_info(n.op).slope == Slope::Step) return coefficient;
  switch (n.op) {
    case Op::MaxShare:
      return coefficient;
    case Op::Where:
      // Either branch may be the one that hands on nothing.
      if (g_.is_constant(n.args[1], 0)) return g_.op(Op::Eq, {n.args[0], g_.constant(0)});
      return g_.is_constant(n.args[2], 0) ? n.args[0] : kNoNode;
    case Op::Neg:
    case Op::Square:
      return taken(n.args[0], depth);
    case Op::Div:
      return taken(n.args[0], depth);
    case Op::ReduceSum: {
      const auto bound = n.bound;
      const NodeId inner = taken(n.args[0], depth);
      return inner == kNoNode ? kNoNode : g_.reduce_max(bound, g_.op(Op::Ne, {inner, g_.constant(0)}));
    }
    case Op::Reindex: {
      const auto map = n.map;
      const NodeId inner = taken(n.args[0], depth);
      return inner == kNoNode ? kNoNode : g_.reindex(inner, map);
    }
    case Op::Mul:
    case Op::Add:
    case Op::Sub: {
      const std::vector<NodeId> args = n.args;
      const NodeId first = taken(args[0], depth), second = taken(args[1], depth);
      if (n.op == Op::Mul && (first == kNoNode || second == kNoNode)) return first == kNoNode ? second : first;
      if (first == kNoNode || second == kNoNode) return kNoNode;
      return first == second ? first : both(n.op == Op::Mul ? Op::Min : Op::Max, first, second);
    }
    default:
      return kNoNode;
  }
}

NodeId ChainRule::operator()(NodeId node, int i, NodeId slope, NodeId coefficient) {
  if (rule_ == SlopeRule::Structural) return product_of(g_, slope, coefficient);
  const auto choose = [&](NodeId condition, NodeId value, bool where_it_holds = true) {
    chooses_ = true;
    const NodeId zero = g_.constant(0);
    return g_.op(Op::Where, {condition, where_it_holds ? value : zero, where_it_holds ? zero : value});
  };
  // Forwards a slope that is no number for other reasons is met as a coefficient, behind the choice.
  if (walk_ == Walk::Backwards ? may_be_singular(slope) : has_pole(slope))
    if (const NodeId condition = taken(coefficient); condition != kNoNode)
      return choose(condition, product_of(g_, slope, coefficient));
  if (g_[slope].op == Op::Constant || !may_be_singular(coefficient)) return product_of(g_, slope, coefficient);
  const Node& n = g_[node];
  if (n.op == Op::Where && i == 1) return choose(n.args[0], coefficient);
  if (n.op == Op::Where && i == 2) return choose(n.args[0], coefficient, false);
  if (n.op == Op::ReduceMax) return choose(slope, product_of(g_, slope, coefficient));  // equal entries share it
  if (slope_formula(n.op, i).chooses()) return choose(slope, coefficient);
  return product_of(g_, slope, coefficient);
}

}  // namespace cellc
