#pragma once
// The f64 value of each row of ops.def. It serves both the folding of constants and the evaluation of
// graphs, so that the two cannot differ.
#include "compiler/graph/graph.h"

namespace cellc {

/// The value of an elementwise operator at `x`, one number per operand. IEEE throughout: relu, min
/// and max pass a NaN on, sign(0) = 0, where(c, a, b) asks c != 0.
double operator_value(Op op, const double* x);

}  // namespace cellc
