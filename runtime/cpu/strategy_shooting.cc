// Shooting: Newton's method for the starts of segments (multiple shooting). Each segment runs from a guessed start
// together with the derivative of its end by its start; the composition of these over all segments gives better starts,
// again until none moves. The step code then writes the rows, and every boundary is checked.
//
// Stages with blocks of up to 64 coupled entries have it; dense stages lack it, since a sweep carries N numbers for
// each entry of a block of N. It costs 1 + N passes a sweep, of which smooth cells need three or four, and one more. It
// is for cells that remember: it saves the rounds of repair in which `segmented` walks after what it missed.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/cpu/repair_segments.h"
#include "runtime/cpu/transition_sweep.h"

namespace cellc {

namespace {

class ShootingStrategy final : public CpuStrategy {
 public:
  StagePlan forced(StagesOfRun& cell, int k, const SolveOptions&) const override {
    return {Strategy::Shooting, requested_segment(cell.shape(k)), requested_burn_in(cell.stage(k)), "asked for"};
  }

  std::optional<Offer> offer(const StageShape& shape, const Forgetting& seen) const override {
    const std::int64_t steps = segment_length(shape, 2);
    return Offer{lane_pass(shape) * (2 + 4 * (1 + static_cast<double>(shape.block))),
                 {Strategy::Shooting, steps, std::min<std::int64_t>(64, steps),
                  fmt::format("{}; {:.0f} % of them remember longer than half a segment of {} steps", idle_lanes(shape),
                              100 * seen.slow, steps)}};
  }

  StageOutcome run(StageToSolve& run) const override {
    return in_precision_of(run.data(), [&](auto number) {
      using Number = decltype(number);
      SegmentSweep<Number> sweep(run, run.plan.segment);
      sweep.warm_up(run.plan.burn_in);
      shoot(sweep, sweep.all_chains());
      sweep.write(sweep.segments().all());
      std::vector<Miss> misses = sweep.check(sweep.boundaries());
      sweep.report().misses = static_cast<std::int64_t>(misses.size());
      return sweep.finish(SegmentRepair<Number>(sweep).run(std::move(misses)).left);
    });
  }
};

}  // namespace

const CpuStrategy& shooting_on_cpu() {
  static const ShootingStrategy strategy;
  return strategy;
}

}  // namespace cellc
