#pragma once
// The slopes of elementwise operators as numbers, written out once more: what is checked by them comes from
// compiler/analysis/derivative_rules.cc, and neither looks at the other.
#include <optional>

#include "compiler/graph/graph.h"

namespace cellc {

/// The slope of an operator with the operands x and the value y by its i-th operand, in gradients. nullopt: that
/// operand has no part in the value where it is now (a branch that is not taken, a comparison, what is stopped).
std::optional<double> plain_slope(Op op, int i, const double* x, double y);

/// The same from the operator's definition alone: central differences, extrapolated to no step (Ridders, 1982). For
/// smooth functions that nobody has written out, to some 1e-10; NaN where operands are infinite.
double slope_by_differences(Op op, int i, const double* x);

}  // namespace cellc
