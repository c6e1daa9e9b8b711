// Segmented: time is cut into segments that run side by side. Each is started some steps early from the start of its
// sequence, so that a cell that forgets comes to the right state before its segment begins; every boundary is checked,
// and what missed is repaired. Where nobody wants the states and lanes can make the outs, these alone are written, as
// long as no boundary misses.
//
// Stages with blocks of up to 64 coupled entries have it (the repair may change over to shooting, which multiplies
// transitions of blocks); dense stages lack it. It costs 1 + early/segment passes and saves the idle vectors of few
// lanes. It pays where a cell contracts: one that remembers longer than a segment misses its boundaries, and a miss
// wanders through its sequence a segment a round. Where that would be more work than shooting, the run changes over.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/repair_segments.h"
#include "runtime/cpu/transition_sweep.h"

namespace cellc {

namespace {

template <typename Number>
class Segmented {
 public:
  explicit Segmented(StageToSolve& run) : run_(run), sweep_(run, run.plan.segment), segments_(sweep_.segments()) {}

  StageOutcome solve() {
    sweep_.warm_up(run_.plan.burn_in);
    sweep_.write(segments_.all());
    std::vector<Miss> misses = sweep_.check(sweep_.boundaries());
    sweep_.report().misses = static_cast<std::int64_t>(misses.size());
    if (run_.outs) {
      // A repair reads the rows around it; and what is within the tolerance beside rows before it only, is a miss here.
      if (!misses.empty()) return {};
      StageOutcome outcome = sweep_.finish({});
      outcome.finals = sweep_.finals();
      return outcome;
    }
    RepairRules rules;
    rules.by_chains = false;
    rules.hands_back = [&](const std::vector<Miss>& left, std::size_t before) {
      return shooting_is_shorter(left, before);
    };
    SegmentRepair<Number> repair(sweep_);
    Repaired repaired = repair.run(std::move(misses), rules);
    if (repaired.handed_back) repaired = repair.run(change_over(repaired.left));
    return sweep_.finish(repaired.left);
  }

 private:
  /// Whether shooting is now less work than the rounds that are left: what goes on missing wanders through its sequence
  /// a segment a round, and few lanes leave vectors idle. Counted in segments of one lane, and the same for any number
  /// of threads.
  bool shooting_is_shorter(const std::vector<Miss>& misses, std::size_t before) const {
    if (misses.size() * 2 < before) return false;
    constexpr std::int64_t kIdle = 64, kSweeps = 4;
    const StageData& data = sweep_.data();
    std::vector<std::int64_t> last(static_cast<std::size_t>(data.sequences()), 0);
    std::vector<std::int64_t> segments(last);
    for (std::int64_t s = 0; s < segments_.count(); ++s) {
      last[static_cast<std::size_t>(segments_[s].sequence)] = s;
      ++segments[static_cast<std::size_t>(segments_[s].sequence)];
    }
    std::int64_t rounds = 0, lanes = 0, block = 0;
    std::vector<char> seen = sweep_.no_chains();
    for (const Miss& m : misses) {
      const auto sequence = static_cast<std::size_t>(segments_[m.at.segment].sequence);
      rounds = std::max(rounds, last[sequence] - m.at.segment + 1);
      if (!std::exchange(seen[sweep_.chain_of(m.at)], char{1})) lanes += segments[sequence];
    }
    for (int i = 0; i < data.states(); ++i) block += data.mixed(i);
    return rounds * std::max(static_cast<std::int64_t>(misses.size()), kIdle) >
           (kSweeps * (1 + block) + 1) * std::max(lanes, kIdle);
  }

  /// Goes on from what the rounds so far have reached, with the chains that miss. What misses then.
  std::vector<Miss> change_over(const std::vector<Miss>& misses) {
    StageReport& report = sweep_.report();
    report.changed_over = report.repair_rounds;
    report.plan.reason +=
        fmt::format("; {} boundaries missed and went on missing, so by shooting after {} round{} of repair",
                    report.misses, report.repair_rounds, report.repair_rounds == 1 ? "" : "s");
    std::vector<char> active = sweep_.no_chains();
    for (const Miss& m : misses) {
      active[sweep_.chain_of(m.at)] = 1;
      segments_.put_left_end(segments_.starts(), m.at);
    }
    std::vector<SegmentLane> lanes;
    for (const SegmentLane at : segments_.all()) {
      if (!active[sweep_.chain_of(at)]) continue;
      lanes.push_back(at);
      sweep_.residual(at) = sweep_.kNone;
    }
    shoot(sweep_, std::move(active));
    sweep_.write(lanes);
    report.boundaries = 0;
    return sweep_.check(sweep_.boundaries());
  }

  StageToSolve& run_;
  SegmentSweep<Number> sweep_;
  Segments<Number>& segments_;
};

class SegmentedStrategy final : public CpuStrategy {
 public:
  StagePlan forced(StagesOfRun& cell, int k, const SolveOptions&) const override {
    return {Strategy::Segmented, requested_segment(cell.shape(k)), requested_burn_in(cell.stage(k)), "asked for"};
  }

  std::optional<Offer> offer(const Stage& stage, const StageShape& shape) const override {
    if (!feeds_no_state(stage)) return std::nullopt;
    // Nothing is faster: each step is made once and is right.
    return Offer{0, {Strategy::Segmented, segment_length(shape, 1), 1, "no state feeds itself: one step back decides"}};
  }

  std::optional<Offer> offer(const StageShape& shape, const Forgetting& seen) const override {
    const std::int64_t steps = segment_length(shape, 2);
    const double segment = static_cast<double>(steps);
    const double burn_in = std::ceil(std::min(std::max(seen.most, seen.remembered), segment));
    const double passes =
        lane_pass(shape) * (1 + burn_in / segment + seen.slow * 5 * (1 + static_cast<double>(shape.block)));
    std::string reason =
        seen.typical > segment
            ? fmt::format(
                  "{}; {:.0f} % of them remember longer than half a segment of {} steps, the others forget in {:.0f}",
                  idle_lanes(shape), 100 * seen.slow, steps, seen.most)
            : fmt::format("{}; half of them forget in {:.0f} steps, all but one in a hundred in {:.0f}",
                          idle_lanes(shape), seen.typical, seen.most);
    return Offer{passes, {Strategy::Segmented, steps, static_cast<std::int64_t>(burn_in), std::move(reason)}};
  }

  StageOutcome run(StageToSolve& run) const override {
    return in_precision_of(run.data(), [&](auto number) { return Segmented<decltype(number)>(run).solve(); });
  }
};

}  // namespace

const CpuStrategy& segmented_on_cpu() {
  static const SegmentedStrategy strategy;
  return strategy;
}

}  // namespace cellc
