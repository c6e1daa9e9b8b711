#pragma once
// Measures what passes over a run cost on this machine, by a few steps of the run itself: the sequential kernel, and
// every stage lane by lane. What a plan costs follows from that (weigh_plans.h).
#include <functional>
#include <optional>
#include <vector>

#include "runtime/cpu/cpu_strategy.h"
#include "runtime/strategy/pass_costs.h"

namespace cellc {

/// The part of a run that is measured: the first steps of the first sequences.
struct MeasuredPart {
  std::int64_t sequences = 0, steps = 0;
};

/// nullopt: the run is too short, or its blocks too large, for lanes to be worth a measurement.
std::optional<MeasuredPart> part_to_measure(StagesOfRun& cell);

/// What measure_passes() asks of the solver, over the part.
struct PassesOfRun {
  std::function<void()> fused;                               ///< the sequential kernel
  std::function<StageData(int)> data;                        ///< a stage's data; with that, what is computed before it
  std::function<void(int, StageData&, std::int64_t)> sweep;  ///< a stage lane by lane, in segments of so many steps
  std::function<void(int, StageData&, std::int64_t)> scan;   ///< a stage by a scan over such segments
  std::function<void()> after;                               ///< the outs
  std::function<void()> check;                               ///< every whole step again; empty: no run looks at them
  std::function<void()>
      together;  ///< all stages as one, a segment a sequence, or a single one with its outs; empty: they cannot be
};

PassCosts measure_passes(StagesOfRun& cell, const MeasuredPart& part, std::int64_t rows, const PassesOfRun& passes);

}  // namespace cellc
