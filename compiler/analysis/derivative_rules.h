#pragma once
// The slope of every elementwise operator by each of its operands: the one place that knows derivatives. Whoever
// walks a graph forwards (differentiate.cc) or backwards asks here.
#include "compiler/analysis/formula.h"
#include "compiler/analysis/jacobian.h"

namespace cellc {

/// ∂op/∂(its i-th operand), entry by entry.
const Formula& slope_formula(Op op, int i);

/// That formula as a node of the graph, at `node`.
NodeId slope_of(Graph& graph, NodeId node, int i, SlopeRule rule);

}  // namespace cellc
