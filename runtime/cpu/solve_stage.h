#pragma once
// One stage over all steps by one strategy: sweeps over segments, the check of every step that was
// not made by the step code itself, and the repair of what fails it. The strategies are told in
// docs/notes/strategies.md.
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
