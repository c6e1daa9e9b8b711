#pragma once
// A plain f64 interpreter of graph nodes. It computes starts and defaults, the reference of `run --verify`,
// and the finite differences of `check`. Slow and obvious. (The tests' oracle is another program: it
// walks the tree and shares nothing with this.)
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

/// A dense f64 tensor over an ordered list of axes (row-major, last axis fastest).
struct Tensor {
  std::vector<AxisId> axes;
  std::vector<std::int64_t> shape;
  std::vector<double> data;
};

/// What the leaves of a graph mean during one step.
struct Environment {
  /// Length of each header axis (by AxisId of the header axis).
  std::map<AxisId, std::int64_t> sizes;
  /// Entry of a symbol: `position` has one number per declared axis; `lag` steps back (inputs).
  std::function<double(int symbol, const std::vector<std::int64_t>& position, int lag)> read;
  /// What a machine of less precision makes of each intermediate value and each partial sum; empty: f64 throughout.
  std::function<double(double)> rounded{};
};

class Evaluator {
 public:
  Evaluator(const CellGraph& cell, Environment environment);
  /// Value of a node for all positions of its free axes; memoised until `reset`.
  const Tensor& value(NodeId node);
  /// The same, laid out over `axes` (axes that the node lacks are repeated).
  Tensor value_over(NodeId node, const std::vector<AxisId>& axes);
  void reset();
  std::int64_t length(AxisId axis) const;

 private:
  double rounded(double value) const { return environment_.rounded ? environment_.rounded(value) : value; }
  const Tensor& argument(const Node& node, std::size_t i) const { return memo_.at(node.args[i]); }
  std::int64_t entry(const Index& index, AxisId axis) const;
  // What a node is worth whose arguments are known: `to` has its axes and room.
  void compute(const Node& node, Tensor& to);
  void compute_elementwise(const Node& node, Tensor& to) const;
  void compute_read(const Node& node, Tensor& to) const;
  void compute_equal(const Node& node, Tensor& to) const;
  void compute_reduced(const Node& node, Tensor& to);
  void compute_reindexed(const Node& node, Tensor& to) const;

  const CellGraph& cell_;
  Environment environment_;
  std::unordered_map<NodeId, Tensor> memo_;
};

}  // namespace cellc
