#pragma once
// Gradients without trajectories on a CPU: segments are run again by a Solver, in arithmetic precision.
#include "runtime/cpu/backward_on_cpu.h"
#include "runtime/gradient/segment_gradients.h"

namespace cellc {

/// Compiled once, run often. All references must outlive it.
class RecomputeBackward : public SegmentGradients {
 public:
  RecomputeBackward(const CellGraph& cell, const Structure& structure, const AdjointRun& adjoint,
                    const CompileOptions& options);
};

}  // namespace cellc
