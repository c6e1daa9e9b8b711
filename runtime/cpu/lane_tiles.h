#pragma once
// Lanes in tiles: what one thread runs side by side, in vectors. Private to the lane kernel.
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/cpu/lane_kernel.h"

namespace cellc {

/// Neighbouring channels of one segment.
struct LaneRun {
  std::int64_t first_lane, count;
  Lane lane;  ///< of the first channel
};

struct LaneTile {
  std::vector<LaneRun> runs;
  std::int64_t lanes = 0, steps = 0;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();  ///< no lane ends before
  bool in_place = false;
};

/// Lanes in tiles of about equal length for `threads`. With `in_place`, neighbours in vectors of `vector_lanes` may be
/// run where they lie.
std::vector<LaneTile> tiles_by_length(const std::vector<Lane>& lanes, bool in_place, std::int64_t vector_lanes,
                                      int threads);

/// Lanes in the order in which they are given, in tiles of `tile_lanes` or a few more.
std::vector<LaneTile> tiles_in_order(const std::vector<Lane>& lanes, std::int64_t tile_lanes);

}  // namespace cellc
