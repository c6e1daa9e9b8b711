#pragma once
// Gradients of params: products of two arrays over steps, summed over all steps and sequences.
#include "runtime/gradient/adjoint_run.h"

namespace cellc {

/// Adds to `sum.into`. Where both factors have axes of their own it is a matrix product over all steps, by the BLAS;
/// else a sum of columns. Work is cut by the shapes alone and added up in one order, so the bits do not depend on the
/// number of threads.
void sum_over_steps(const StepSum& sum);

}  // namespace cellc
