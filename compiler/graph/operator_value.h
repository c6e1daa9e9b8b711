#pragma once
// What each row of ops.def means as an f64 number: used to fold constants and to evaluate graphs,
// so that folding and running cannot differ.
#include "compiler/graph/graph.h"

namespace cellc {

/// The value of an elementwise operator at `x`, one number per operand. IEEE throughout: relu, min
/// and max pass a NaN on, sign(0) = 0, where(c, a, b) asks c != 0.
double operator_value(Op op, const double* x);

}  // namespace cellc
