#pragma once
// Which stages a value of a step reads and which it feeds: what decides where it may be computed.
#include <cstdint>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"

namespace cellc {

/// Stages as bits; a cell with more stages than bits shares the last one, which only costs hoisting.
using StageSet = std::uint64_t;

/// By node.
struct StepDependencies {
  std::vector<char> needed;     ///< for some result of the step
  std::vector<char> once;       ///< follows from params alone
  std::vector<StageSet> reads;  ///< stages whose old states a value depends on
  std::vector<StageSet> feeds;  ///< stages whose new states depend on a value
};

/// `stage_of` is by position among the updates, as `position_of_symbol` is.
StepDependencies step_dependencies(const CellGraph& cell, const std::vector<int>& stage_of,
                                   const std::vector<int>& position_of_symbol);

/// What the updates and outs of a cell are, in this order.
std::vector<NodeId> step_roots(const CellGraph& cell);

/// By node: is it needed for `roots`?
std::vector<char> needed_for(const Graph& graph, const std::vector<NodeId>& roots);

}  // namespace cellc
