#pragma once
// Matrix products that leave the recurrence: found among the values of a step, for plan.cc.
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/plan/plan.h"
#include "compiler/plan/step_dependencies.h"

namespace cellc {

struct MatrixProducts {
  std::vector<Product> products;
  std::vector<int> of_node;                       ///< by node: its product, or -1
  std::vector<NodeId> operand_root, matrix_root;  ///< by product
  /// The order in which a value must lie in memory that products read.
  std::unordered_map<NodeId, std::vector<AxisId>> operand_dims, once_dims;
};

/// Every W@v in which W follows from params alone and that no stage reads and feeds.
MatrixProducts find_products(const Graph& graph, const StepDependencies& of);

/// The value under a Reindex, and the index of each of its own axes.
std::pair<NodeId, std::vector<Index>> under_reindex(const Graph& graph, NodeId id);

bool has_distinct_axes(const std::vector<Index>& index);

}  // namespace cellc
