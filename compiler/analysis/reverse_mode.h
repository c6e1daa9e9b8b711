#pragma once
// Reverse accumulation over one step: from cotangents of some values, those of all that the step reads. For gradients;
// the Jacobian itself is made forwards, by differentiate.cc. Follows lower; precedes derive (adjoint_cell.h).
//
// The cotangent of a value is a node over that value's own free axes. Every rule is the transpose of one of index
// notation: what a value repeats is summed on the way back, a sum is repeated, an index list that picks or ties places
// spreads them again. Slopes are those of the one table (derivative_rules.h), with the two things that hold in
// gradients alone: a declared derivative takes the place of the true one, and stop_gradient has the slope 0.
#include <map>
#include <tuple>
#include <vector>

#include "compiler/analysis/chain_rule.h"
#include "compiler/graph/graph.h"

namespace cellc {

/// What a step reads of one array: its own step (lag 0), or an earlier one, which may be a row of them along an axis.
struct ArrayRead {
  int symbol = -1;
  int lag = 0;
  AxisId lag_axis = kNoAxis;
  bool operator<(const ArrayRead& o) const {
    return std::tie(symbol, lag, lag_axis) < std::tie(o.symbol, o.lag, o.lag_axis);
  }
};

class ReverseMode {
 public:
  using Terms = std::map<ArrayRead, std::vector<NodeId>>;

  /// Adds nodes to the graph of `cell`, which must outlive this.
  explicit ReverseMode(CellGraph& cell)
      : cell_(cell), g_(cell.graph), chain_(cell.graph, SlopeRule::True, ChainRule::Walk::Backwards) {}

  /// `cotangent`, over the axes of `index`, of `node` as it is written to a place of that index: axes that the node
  /// lacks are repeated there, so they are summed here.
  void seed(NodeId node, const std::vector<AxisId>& index, NodeId cotangent);

  /// The terms whose sum is the cotangent of each array that is read and reached, over the symbol's own index (and
  /// behind it the axis of lags). A term may lack axes: then it is the same along them.
  Terms run();

 private:
  using Places = std::vector<std::pair<AxisId, Index>>;  ///< a place of what is read, and where it is read

  void pass(NodeId node);
  void add(NodeId node, NodeId term);
  void add_summed(NodeId node, const std::vector<AxisId>& axes_of_term, NodeId term);
  /// All terms of a node as one.
  NodeId total(NodeId node);
  /// `term`, over the axes that `places` name, as one over the places themselves.
  NodeId spread(NodeId term, const Places& places);
  /// `term` at other indices. Of a sum the body is read there, under other names of what is bound: a product over all
  /// steps stays one that plans recognise.
  NodeId renamed(NodeId term, const std::vector<std::pair<AxisId, Index>>& map);

  CellGraph& cell_;
  Graph& g_;
  ChainRule chain_;
  std::map<NodeId, std::vector<NodeId>> terms_;  ///< by node, in the order in which users add them
};

/// The sum of `terms`, which are not none.
NodeId sum_of(Graph& graph, const std::vector<NodeId>& terms);

}  // namespace cellc
