#pragma once
// Sums of a semiring as nodes of a graph: the greatest, the least, or the log of a sum of exponentials. Products are
// sums of numbers. Infinities are numbers here: what is added to no term is the neutral element, and log(0).
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"

namespace cellc {

/// What changes no sum: -infinity, of the minimum infinity. 0 is what changes no product.
double semiring_zero(Scannable kind);
NodeId semiring_sum(Graph& graph, Scannable kind, NodeId a, NodeId b);
/// Along axes that `body` has; none: `body`.
NodeId semiring_sum_over(Graph& graph, Scannable kind, const std::vector<AxisId>& bound, NodeId body);

}  // namespace cellc
