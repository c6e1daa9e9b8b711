#pragma once
// Code that calls may need, before the first of them. Private to capi/.
#include <utility>

#include "capi/kernel.h"
#include "runtime/data/errors.h"
#include "runtime/strategy/strategy.h"

namespace cellc::capi {

/// Of such runs: enough for segments of every strategy.
inline constexpr std::int64_t kFewSteps = 96;

/// Makes a short run as `given` says, and by every way that such runs may take: code does not depend on how many steps
/// they have, and a way that was asked for changes over to others where data call for it. `run` takes a SolveOptions,
/// and throws SolverError where the cell does not admit them.
template <typename Run>
void run_every_way(const SolveOptions& given, std::size_t stages, Run run) {
  const auto runs = [&](const SolveOptions& solve) {
    try {
      run(solve);
      return true;
    } catch (const SolverError&) {
      return false;
    }
  };
  run(given);
  // Segments of whole sequences have code of their own.
  SolveOptions whole = given;
  whole.solver = Strategy::Auto;
  whole.plan.assign(stages, {Strategy::Segmented, kFewSteps, 0, ""});
  runs(whole);
  for (const StrategyFacts& facts : strategies()) {
    if (!facts.on_cpu) continue;
    SolveOptions solve = given;
    solve.solver = facts.strategy;
    solve.plan.clear();
    if (runs(solve) || stages < 2) continue;
    // Some stages may admit it where others do not.
    solve.solver = Strategy::Auto;
    for (std::size_t s = 0; s < stages; ++s) {
      solve.plan.assign(stages, {});
      solve.plan[s].strategy = facts.strategy;
      if (facts.pins != StrategyFacts::Pins::Nothing) solve.plan[s].segment = 32;
      if (facts.pins == StrategyFacts::Pins::SegmentAndBurnIn) solve.plan[s].burn_in = 8;
      runs(solve);
    }
  }
}

/// The same of backward or tangent calls, on arrays of a few steps, by all ways that there are.
cellc_status compile_derivatives(cellc_kernel* kernel, CallDirection direction, const cellc_shape& shape,
                                 const cellc_array* arrays, int count);

}  // namespace cellc::capi
