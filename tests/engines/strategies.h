#pragma once
// One cell of a file, ready to be run by every strategy that it admits.
#include <optional>
#include <string>
#include <vector>

#include "runtime/cpu/solve.h"
#include "tests/engines/against_oracle.h"
#include "tests/engines/lowered_cell.h"
#include "tests/oracle/examples.h"

namespace cellc {

/// All that run over the lanes of a stage, and the planner's choice.
inline const std::vector<Strategy> kStrategies = [] {
  std::vector<Strategy> all;
  for (const StrategyFacts& f : strategies())
    if (f.on_cpu && f.takes == StrategyFacts::Takes::EveryStage) all.push_back(f.strategy);
  all.push_back(Strategy::Auto);
  return all;
}();

/// What asks for `strategy` on every stage that admits it; on the others, if `mixed`, nothing but the
/// step code. nullopt where no stage (not mixed: not every stage) admits it.
std::optional<SolveOptions> forced(Solver& solver, const LoweredCell& cell, Strategy strategy, const BoundRun& run,
                                   bool mixed);

/// The same with the plan spelled out.
std::optional<SolveOptions> planned(Solver& solver, const LoweredCell& cell, Strategy strategy, const BoundRun& run,
                                    std::int64_t segment, std::int64_t burn_in);

/// One sequence, every axis of `length` where the cell does not fix it, all arrays in [-1, 1].
BoundRun filled_run(const LoweredCell& cell, std::int64_t steps, std::int64_t length, Dtype dtype);

}  // namespace cellc
