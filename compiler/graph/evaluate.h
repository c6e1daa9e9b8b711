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
  const CellGraph& cell_;
  Environment environment_;
  std::unordered_map<NodeId, Tensor> memo_;
};

}  // namespace cellc
