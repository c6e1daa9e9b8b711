#pragma once
// Finds the fastest plan for a cell, a shape and a device by timing. It tries every strategy that a stage admits,
// with several lengths of segments and, where segments have a burn-in, several of those. It goes stage by stage;
// the other stages run the best plan found so far.
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
