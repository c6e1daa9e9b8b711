#pragma once
// What the strategies over segments share: the segments of a stage, sweeps of the step code over them, the check of
// every step that the step code did not make, and the report of what is left.
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "runtime/cpu/cpu_strategy.h"
#include "runtime/cpu/lagged_rows.h"
#include "runtime/cpu/lane_sizes.h"
#include "runtime/cpu/segments.h"

namespace cellc {

/// A segment of one channel that does not continue what is before it.
struct Miss {
  SegmentLane at;
  double residual;
  std::int64_t step;       ///< the first bad one, within the segment
  std::int64_t until = 0;  ///< no step from here on is bad; 0 where the step code made the segment
};

template <typename Number>
class SegmentSweep {
 public:
  static constexpr double kNone = -1;  ///< the residual of a lane that the step code made

  /// `length`: steps of a segment; 0: a sequence is one.
  SegmentSweep(StageToSolve& run, std::int64_t length);

  StageToSolve& run() { return run_; }
  StageData& data() { return data_; }
  const StageData& data() const { return data_; }
  Segments<Number>& segments() { return segments_; }
  const Segments<Number>& segments() const { return segments_; }
  StageReport& report() { return outcome_.report; }
  const StageReport& report() const { return outcome_.report; }
  const LaneKernel& step() { return run_.kernels.step(); }

  int iterations() const { return run_.options.fixed_iterations.value_or(run_.options.max_iterations); }
  /// No repair where a fixed number of iterations was requested: that is the papers' behaviour.
  bool repairs() const { return run_.options.repair && !run_.options.fixed_iterations; }

  std::int64_t lane_number(SegmentLane at) const { return at.segment * data_.channels() + at.channel; }
  /// By sequence and channel.
  std::size_t chain_of(SegmentLane at) const {
    return static_cast<std::size_t>(segments_[at.segment].sequence * data_.channels() + at.channel);
  }
  std::vector<char> all_chains() const { return chains(1); }
  std::vector<char> no_chains() const { return chains(0); }

  /// The step code over some segments, writing.
  void write(const std::vector<SegmentLane>& lanes);
  /// Starts each segment some steps early from the sequence's start: a contractive cell forgets it.
  void warm_up(std::int64_t steps);
  /// Boundaries at which a segment does not begin with its left neighbour's bits; counts all.
  std::vector<SegmentLane> boundaries();
  /// One step of the step code from the left neighbour's end, against the row that was written.
  std::vector<Miss> check(const std::vector<SegmentLane>& lanes);

  /// By lane: the residual of steps that the step code did not make, or kNone.
  double& residual(SegmentLane at) { return residual_[static_cast<std::size_t>(lane_number(at))]; }
  /// By segment, where all steps but the first have residuals of their own (of a scan along time, one channel).
  void set_inner(std::vector<double> inner) { residual_ = inner_ = std::move(inner); }

  SegmentStates& probe();  ///< scratch: the outcome of a step
  /// What the probe holds for a lane, against the row of a step of its segment.
  double probed_residual(SegmentLane at, std::int64_t step);

  /// Steps after one that was made otherwise whose lags may still read what is not written: none where nothing lags.
  std::int64_t deepest_lag() const { return deepest_lag_; }
  /// One step of the step code from the rows before it as they were written, lags among them: its residuals.
  std::vector<double> residuals_at(const std::vector<SegmentLane>& lanes, const std::vector<std::int64_t>& steps);
  /// How far a segment began from where the one before it ended, over what it began with.
  double start_residual(SegmentLane at);
  /// What precedes a step of a segment, by the rows that were written.
  void put_written(SegmentStates& to, SegmentLane at, std::int64_t step);

  /// A lane's rows are made anew, from what is before them: nothing of it is left to look at.
  void made_again(SegmentLane at);
  /// Boundaries that were within the tolerance of rows that a repair has made smaller.
  std::vector<Miss> stale();
  /// The size of an entry before a segment, of all rows of its sequence; of its first rows, where it is the first.
  double size_before(int state, std::int64_t mixed, SegmentLane at) {
    const std::int64_t first_rows =
        segments_.is_first(at.segment) ? std::min(kBeginning, segments_[at.segment].steps) : 0;
    return sizes_.before(state, mixed, at, first_rows, std::numeric_limits<double>::infinity());
  }
  /// The whole trajectory is another.
  void all_made_again() {
    sizes_.all_rewritten();
    lenient_.clear();
  }

  /// Of a run without rows: where every sequence ends.
  std::vector<Array> finals();

  /// Reports the residuals and what is still missed. `every_step`: residuals are the largest of a segment's steps.
  StageOutcome finish(const std::vector<Miss>& left, bool every_step = false);

 private:
  std::vector<char> chains(char value) const {
    return std::vector<char>(static_cast<std::size_t>(data_.sequences() * data_.channels()), value);
  }

  StageToSolve& run_;
  StageData& data_;
  Segments<Number> segments_;
  SegmentStates probe_, first_;  ///< first_: of a run without rows, what a segment's first step makes
  LaneSizes<Number> sizes_;
  LaggingStates lagged_;
  std::int64_t deepest_lag_ = 0;
  /// A residual that is within the tolerance because of rows before its own: how large they have to be.
  struct Lenient {
    SegmentLane at;
    int state;
    std::int64_t mixed, step;
    double size, residual;
  };
  std::multimap<std::int64_t, Lenient> lenient_;  ///< by lane
  std::vector<double> residual_, inner_;
  StageOutcome outcome_;
};

/// `solve` with a zero of the type that the stage computes in.
template <typename Solve>
StageOutcome in_precision_of(const StageData& data, Solve solve) {
  return data.dtype() == Dtype::F64 ? solve(double{}) : solve(float{});
}

}  // namespace cellc
