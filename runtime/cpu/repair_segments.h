#pragma once
// The repair of segments that do not continue what is before them: each is run again from its left neighbour's end,
// until what it writes agrees with what was there.
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/cpu/segment_sweep.h"

namespace cellc {

/// How a strategy goes on from round to round.
struct RepairRules {
  /// After a round, with what misses now and how many missed before: true hands what is left back to the strategy.
  std::function<bool(const std::vector<Miss>& misses, std::size_t before)> hands_back;
  /// Where a round halves nothing, the rest is repaired chain by chain. Otherwise rounds go on.
  bool by_chains = true;
};

using LaneSet = std::set<std::pair<std::int32_t, std::int32_t>>;  ///< segment and channel

struct Repaired {
  std::vector<Miss> left;
  bool handed_back = false;
  LaneSet partly;  ///< lanes that were run again in part, or are behind such a one
};

template <typename Number>
class SegmentRepair {
 public:
  explicit SegmentRepair(SegmentSweep<Number>& sweep) : sweep_(sweep), segments_(sweep.segments()) {}

  /// Repairs in rounds: every segment that misses is run again from its left neighbour's end, and the boundary behind
  /// it is looked at. The first miss of a sequence is right after a round, so the rounds end; a contractive cell needs
  /// one or two.
  Repaired run(std::vector<Miss> misses, const RepairRules& rules = {});

 private:
  /// Those boundaries behind repaired segments that now end elsewhere, and what misses there.
  struct Behind {
    std::vector<SegmentLane> lanes;
    std::vector<Miss> misses;
  };
  Behind repair_round(const std::vector<Miss>& misses);

  /// Of every chain (a channel of a sequence) only the first miss at a time, so that no segment runs more than once.
  /// All of them in every round would run each as often as there are segments before it that miss: 4070 segments of 6
  /// steps of a cell that forgets in hundreds took a minute and a half.
  void repair_chains(const std::vector<Miss>& misses);

  /// Runs segments again from their starts, in spans of doubling length, until what is written agrees with what was
  /// there: a contractive cell merges long before a segment ends. Returns the lanes that ran to the end. Past the last
  /// bad step, that is: where a lane merges before it, Newton's trajectory goes wrong again.
  LaneSet run_until_merged(std::vector<Miss> lanes);
  /// Steps behind one where lanes merge may read, through lags, rows that were made again: their residuals count.
  void look_behind(const std::vector<Miss>& lanes, std::int64_t step, std::vector<double>& residuals);
  void copy_lane(const SegmentStates& from, SegmentStates& to, const Lane& lane);

  SegmentSweep<Number>& sweep_;
  Segments<Number>& segments_;
  SegmentStates at_;  ///< scratch: where a repair has come to
  LaneSet partly_;
};

}  // namespace cellc
