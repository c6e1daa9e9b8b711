// Scan: the exact composition of a stage whose step is an affine, clip or Möbius map of its state. One sweep computes
// the map of every segment, their composition gives every start, and the step code writes the rows from there.
//
// Linear stages and those that are proved clip or Möbius maps have it; all others lack it, and dense stages too. It
// costs 2 + N passes (one lane of one state 1 to 2, in vectors along time: scan_along_time.h), never iterates, and
// saves the idle vectors of few lanes. What composition rounds is checked and repaired like everything else.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/repair_segments.h"
#include "runtime/cpu/scan_along_time.h"
#include "runtime/cpu/transition_sweep.h"

namespace cellc {

namespace {

/// A segment: short enough that a tile's inputs stay in cache between the sweep with transitions and the steps, and of
/// an odd number of cache lines (f32, one channel): at a distance of 4,096 bytes all lanes of a tile would share one
/// set of the first-level cache.
constexpr std::int64_t kSteps = 1008, kStepsOfBlocks = 256;
/// Along time nothing is kept between sweeps; what a segment is taken from a wrong start for is done again, once.
constexpr std::int64_t kStepsAlongTime = 16384;
/// Steps of a tile whose inputs are kept between its two sweeps: in the second-level cache.
constexpr std::int64_t kKeptSteps = 1024;

template <typename Number>
class Scan {
 public:
  explicit Scan(StageToSolve& run) : run_(run), sweep_(run, run.plan.segment), segments_(sweep_.segments()) {}

  StageOutcome solve() {
    if (!along_time()) over_segments();
    std::vector<Miss> misses = sweep_.check(sweep_.boundaries());
    sweep_.report().misses = static_cast<std::int64_t>(misses.size());
    return sweep_.finish(SegmentRepair<Number>(sweep_).run(std::move(misses)).left);
  }

 private:
  /// One lane along time, where it can be.
  bool along_time() {
    if (run_.plan.segment <= kKeptSteps || !scans_along_time(sweep_.data(), run_.kernels.transitions().cell))
      return false;
    StageReport& report = sweep_.report();
    AlongTime along = scan_along_time<Number>(sweep_.data(), run_.kernels, segments_, run_.tolerance, run_.threads);
    if (along.checked) {
      report.lyapunov = along.log_product / static_cast<double>(sweep_.data().rows());
      report.contraction = std::exp(*report.lyapunov);
      sweep_.set_inner(std::move(along.residual));
      return true;
    }
    // What rounds too much in vectors, or is not finite, is left to the step code.
    report.plan.reason += "; a sum over steps in vectors is off by more than the tolerance, so segment by segment";
    for (std::int64_t s = 0; s < segments_.count(); ++s)
      sweep_.data().put_start(segments_.starts(), s, segments_[s].sequence);
    return false;
  }

  /// Once over the inputs where segments are short enough to be kept; otherwise twice.
  void over_segments() {
    const StageKernels::Carrying& cell = run_.kernels.transitions();
    const LaneData arrays = sweep_.data().extended(cell.cell.cell);
    TransitionSweep<Number> transitions(sweep_, cell, arrays);
    if (run_.plan.segment > 0 && run_.plan.segment <= kKeptSteps) {
      transitions.scan_in_tiles();
      transitions.observe(sweep_.all_chains());
      return;
    }
    if (transitions.advance(sweep_.all_chains(), 0).lanes > 0) transitions.observe(sweep_.all_chains());
    sweep_.write(segments_.all());
  }

  StageToSolve& run_;
  SegmentSweep<Number> sweep_;
  Segments<Number>& segments_;
};

class ScanStrategy final : public CpuStrategy {
 public:
  std::optional<std::string> refusal(StagesOfRun& cell, int k) const override {
    if (auto why = CpuStrategy::refusal(cell, k)) return why;
    return no_scan(cell.stage(k), cell.states(k));
  }

  StagePlan forced(StagesOfRun& cell, int k, const SolveOptions&) const override {
    const StageShape shape = cell.shape(k);
    return {Strategy::Scan,
            shape.along_time && cell.stage(k).linear ? kStepsAlongTime : std::min(segment_length(shape, 1), kSteps), 0,
            "asked for"};
  }

  std::optional<Offer> offer(const Stage& stage, const StageShape& shape) const override {
    if (!stage.linear && stage.scannable == Scannable::No) return std::nullopt;
    const bool along_time = shape.along_time && stage.linear;
    const std::int64_t steps =
        along_time ? kStepsAlongTime : std::min(segment_length(shape, 1), shape.block <= 4 ? kSteps : kStepsOfBlocks);
    // A sweep with transitions costs 1 + N passes.
    return Offer{
        along_time ? 1.5 : lane_pass(shape) * (2.0 + static_cast<double>(shape.block)),
        {Strategy::Scan, steps, 0,
         fmt::format("{} stage, {} lanes: one exact scan over {} segments", stage.linear ? "linear" : "scannable",
                     shape.sequences * shape.channels, (shape.longest + steps - 1) / steps)}};
  }

  StageOutcome run(StageToSolve& run) const override {
    return in_precision_of(run.data(), [&](auto number) { return Scan<decltype(number)>(run).solve(); });
  }
};

}  // namespace

const CpuStrategy& scan_on_cpu() {
  static const ScanStrategy strategy;
  return strategy;
}

}  // namespace cellc
