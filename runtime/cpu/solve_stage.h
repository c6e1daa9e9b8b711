#pragma once
// Runs one stage over all steps by one strategy: sweeps over segments, checks every step that the
// step code did not make, and repairs the steps that fail. docs/notes/strategies.md describes the
// strategies.
#include <vector>

#include "compiler/analysis/structure.h"
#include "runtime/cpu/stage_data.h"
#include "runtime/cpu/stage_kernels.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

struct StageOutcome {
  StageReport report;
  std::vector<Unconverged> unconverged;
};

/// Writes the stage's trajectories. `tolerance` > 0.
StageOutcome solve_stage(StageData& data, StageKernels& kernels, const StagePlan& plan, const SolveOptions& options,
                         double tolerance, int threads);

}  // namespace cellc
