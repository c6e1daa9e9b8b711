#pragma once
// Forward accumulation over one step: from tangents of what the step reads, those of all that it makes of it. For
// directional derivatives of runs; the Jacobian is made entry by entry, by differentiate.cc. Follows lower; precedes
// derive (tangent_cell.h).
//
// The tangent of a value is a node over that value's own free axes, or over some of them: then it is the same along the
// others. Rules and slopes are those that reverse_mode.h transposes: the one table, with a declared derivative in the
// place of the true one and the slope 0 of stop_gradient. So <v, J u> = <Jᵀ v, u> holds of the two but for rounding.
#include <functional>
#include <unordered_map>
#include <vector>

#include "compiler/analysis/chain_rule.h"
#include "compiler/graph/graph.h"

namespace cellc {

class ForwardMode {
 public:
  /// The tangent of a Read of the graph, a node of the same graph; kNoNode: it has none.
  using OfRead = std::function<NodeId(const Node&)>;

  /// Adds nodes to `graph`, which must outlive this.
  ForwardMode(Graph& graph, OfRead of_read) : g_(graph), chain_(graph, SlopeRule::True), of_read_(std::move(of_read)) {}

  /// The tangents of `values`, a constant 0 of what nothing moves.
  std::vector<NodeId> operator()(const std::vector<NodeId>& values);
  NodeId operator()(NodeId value) { return (*this)(std::vector<NodeId>{value}).front(); }

 private:
  NodeId of(NodeId node) const { return tangents_.at(node); }
  NodeId make(NodeId node);
  NodeId elementwise(NodeId node);
  NodeId plus(NodeId a, NodeId b);

  Graph& g_;
  ChainRule chain_;
  OfRead of_read_;
  std::unordered_map<NodeId, NodeId> tangents_;
};

}  // namespace cellc
