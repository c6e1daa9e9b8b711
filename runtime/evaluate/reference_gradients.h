#pragma once
// Gradients of a run by the plainest means, for `run --verify` and the tests: the reference's trajectory, and back over
// it step by step and number by number in f64 (plain_sweep.h). No adjoint cell, no strategy, no sums that were taken
// apart, no arrays of other steps; what it shares with the gradients that it checks are the values of the step.
#include "runtime/gradient/adjoint_run.h"
#include "runtime/gradient/through_defaults.h"

namespace cellc {

/// What AdjointRun::gather and through_defaults make of the same run, in f64. Arrays of `run` may have any dtype.
/// Cotangents have the shapes of the results.
Gradients reference_gradients(const CellGraph& cell, const BoundRun& run, const GivenSymbols& given,
                              const Cotangents& cotangents);

}  // namespace cellc
