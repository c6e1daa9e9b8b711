#pragma once
// The fastest plan for a cell, a shape and a device, found by timing: every strategy that a stage admits, over
// lengths of segments and, where segments start early, over how early. Stage after stage, the others as they
// are best so far.
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/errors.h"
#include "runtime/evaluate/timed_cell.h"
#include "runtime/strategy/tuned_plans.h"

namespace cellc {

struct TuneTrial {
  std::vector<StagePlan> stages;
  double ms = 0;
  bool converged = true;  ///< to the tolerance; a plan that does not is no candidate
};

struct TuneResult {
  std::vector<StagePlan> planned;  ///< what the planner chose
  std::vector<TuneTrial> trials;   ///< in the order in which they were timed
  TunedPlan best;
};

/// `longest`: steps of the longest sequence. `tried` is told of each trial as it ends. Throws DeviceError.
TuneResult tune_cell(TimedCell& cell, int stages, std::int64_t longest, const SolveOptions& options, int calls,
                     const std::function<void(const TuneTrial&)>& tried = {});

}  // namespace cellc
