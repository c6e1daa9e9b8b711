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

/// How the rows of its result lie.
std::vector<AxisId> result_dims(const Product& product);

/// Every W@v in which W follows from params alone and that no stage reads and feeds.
MatrixProducts find_products(const Graph& graph, const StepDependencies& of);

/// The out that a product is as it stands and is written as, if PlanOptions ask for that; -1: none. Rows of narrow
/// storage have lost bits, so nobody else may want those that it has. `needed`: by node.
int out_of_product(const Plan& plan, const Product& product, const std::vector<char>& needed);
bool is_left_by_product(const Plan& plan, const Home& home);

/// Has what kernels leave for products alone stored as those round it to. What a product leaves is of arithmetic
/// precision, but in a cell between stages, all of whose results are rounded: so is all that its kernels pass on.
void store_rounded_rows(Plan& plan);

/// How many products stand one behind the other before a value is known.
struct StepLevels {
  std::vector<int> of_node, of_state;  ///< of a state: that of its stage, whose states run together
  int count = 1;
};

/// `stage_of` is by position among the updates, as `position_of_symbol` is.
StepLevels step_levels(const CellGraph& cell, const StepDependencies& of, const std::vector<int>& stage_of,
                       const std::vector<int>& position_of_symbol, const MatrixProducts& products);

/// The value under a Reindex, and the index of each of its own axes.
std::pair<NodeId, std::vector<Index>> under_reindex(const Graph& graph, NodeId id);

bool has_distinct_axes(const std::vector<Index>& index);

}  // namespace cellc
