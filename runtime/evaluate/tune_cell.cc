#include "runtime/evaluate/tune_cell.h"

#include <algorithm>

#include "runtime/data/errors.h"

namespace cellc {

namespace {

/// A plan must be faster than the planner's choice by more than timing varies.
constexpr double kGain = 0.97;
constexpr std::int64_t kShortest = 16;

class Tuner {
 public:
  Tuner(TimedCell& cell, std::int64_t longest, const SolveOptions& options, int calls,
        const std::function<void(const TuneTrial&)>& tried)
      : cell_(cell), longest_(longest), options_(options), calls_(calls), tried_(tried) {}

  TuneResult run(int stages) {
    SolveReport report;
    SolveOptions planner = options_;
    planner.solver = Strategy::Auto;
    planner.plan.clear();
    // First, so that what the planner learns from are calls of its own.
    const double planner_ms = cell_.time(planner, calls_, report);
    for (const StageReport& s : report.stages) result_.planned.push_back(s.plan);
    best_ = {result_.planned, planner_ms, true};
    for (const StrategyFacts& f : strategies()) tune_together(stages, f);
    for (int k = 0; k < stages; ++k) tune_stage(k);
    result_.best.ms = planner_ms;
    result_.best.planner_ms = planner_ms;
    if (best_.ms < kGain * planner_ms) {
      result_.best.ms = best_.ms;
      result_.best.stages = best_.stages;
    }
    return std::move(result_);
  }

 private:
  /// All stages by one strategy. Where one stage leaves the kernel of the whole step, all do and lose by it: stage
  /// after stage such plans are not found.
  void tune_together(int stages, const StrategyFacts& f) {
    if (f.tries != StrategyFacts::Tries::Lengths) return;
    for (int k = 0; k < stages; ++k)
      if (cell_.refusal(k, f.strategy)) return;
    const auto together = [&](std::int64_t segment, std::int64_t burn_in) {
      attempt(std::vector<StagePlan>(static_cast<std::size_t>(stages), {f.strategy, segment, burn_in, ""}));
    };
    const bool has_burn_in = f.pins == StrategyFacts::Pins::SegmentAndBurnIn;
    // A segment a lane: sequences side by side, and nothing to check.
    if (whole_segments(f)) together(longest_, 0);
    if (stages < 2) return;
    for (const std::int64_t segment : {256, 2048})
      if (2 * segment <= longest_) together(segment, has_burn_in ? 64 : 0);
  }

  /// Whether a segment may be a whole sequence. On a GPU that is its sequential kernel.
  bool whole_segments(const StrategyFacts& f) const {
    return f.pins == StrategyFacts::Pins::SegmentAndBurnIn && !f.iterates && longest_ > 0 && cell_.device() == "cpu";
  }

  void tune_stage(int k) {
    using Tries = StrategyFacts::Tries;
    for (const StrategyFacts& f : strategies())
      if (f.tries == Tries::Once && !cell_.refusal(k, f.strategy)) attempt(k, {f.strategy, 0, 0, ""});
    for (const StrategyFacts& f : strategies()) {
      if (f.tries == Tries::Lengths && whole_segments(f) && !cell_.refusal(k, f.strategy))
        attempt(k, {f.strategy, longest_, 0, ""});
      if (f.tries != Tries::Lengths || longest_ < 2 * kShortest || cell_.refusal(k, f.strategy)) continue;
      const Strategy strategy = f.strategy;
      const bool has_burn_in = f.pins == StrategyFacts::Pins::SegmentAndBurnIn;
      Best best;
      const auto attempt_at = [&](std::int64_t segment, std::int64_t burn_in) {
        segment = std::clamp<std::int64_t>(segment / 8 * 8, kShortest, longest_);
        const StagePlan plan{strategy, segment, std::min(burn_in, segment), ""};
        const double ms = attempt(k, plan);
        if (ms < best.ms) best = {ms, plan};
      };
      // What iterates comes to the right starts by itself.
      const std::int64_t early = has_burn_in && !f.iterates ? 32 : 0;
      for (std::int64_t segment = kShortest; segment < longest_; segment *= 4) attempt_at(segment, early);
      if (const StagePlan planned = result_.planned[static_cast<std::size_t>(k)]; planned.segment)
        attempt_at(planned.segment, planned.burn_in);
      if (!(best.ms < kNever)) continue;
      if (has_burn_in)
        for (const std::int64_t burn_in : {8, 16, 64, 128, 256})
          if (burn_in <= best.plan.segment) attempt_at(best.plan.segment, burn_in);
      const StagePlan about = best.plan;
      if (about.segment / 2 >= kShortest) attempt_at(about.segment / 2, about.burn_in);
      if (about.segment * 2 < longest_) attempt_at(about.segment * 2, about.burn_in);
    }
  }

  /// Milliseconds of the best plan so far with this for its stage k.
  double attempt(int k, const StagePlan& plan) {
    std::vector<StagePlan> stages = best_.stages;
    stages[static_cast<std::size_t>(k)] = plan;
    return attempt(stages);
  }

  /// Of a whole plan.
  double attempt(const std::vector<StagePlan>& stages) {
    TuneTrial trial;
    trial.stages = stages;
    const auto same = [&](const TuneTrial& t) {
      return std::equal(t.stages.begin(), t.stages.end(), trial.stages.begin(),
                        [](const StagePlan& a, const StagePlan& b) {
                          return a.strategy == b.strategy && a.segment == b.segment && a.burn_in == b.burn_in;
                        });
    };
    if (const auto before = std::find_if(result_.trials.begin(), result_.trials.end(), same);
        before != result_.trials.end())
      return before->converged ? before->ms : kNever;
    SolveOptions options = options_;
    options.solver = Strategy::Auto;
    options.plan = trial.stages;
    SolveReport report;
    try {
      trial.ms = cell_.time(options, calls_, report);
    } catch (const SolverError&) {
      return kNever;  // the stage does not admit it
    } catch (const MemoryError&) {
      return kNever;  // short segments keep as much as the arrays themselves
    }
    trial.converged = report.converged;
    result_.trials.push_back(trial);
    if (tried_) tried_(trial);
    if (!trial.converged) return kNever;
    if (trial.ms < best_.ms) best_ = trial;
    return trial.ms;
  }

  static constexpr double kNever = 1e300;
  struct Best {
    double ms = kNever;
    StagePlan plan;
  };

  TimedCell& cell_;
  const std::int64_t longest_;
  const SolveOptions options_;
  const int calls_;
  const std::function<void(const TuneTrial&)>& tried_;
  TuneResult result_;
  TuneTrial best_;
};

}  // namespace

TuneResult tune_cell(TimedCell& cell, int stages, std::int64_t longest, const SolveOptions& options, int calls,
                     const std::function<void(const TuneTrial&)>& tried) {
  return Tuner(cell, longest, options, calls, tried).run(stages);
}

}  // namespace cellc
