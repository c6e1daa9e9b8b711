#include "runtime/cpu/lane_tiles.h"

#include <algorithm>
#include <utility>

namespace cellc {
namespace {

/// Neighbouring channels from which on a segment is run where it lies.
constexpr std::int64_t kInPlaceLanes = 64;

}  // namespace

std::vector<LaneTile> tiles_by_length(const std::vector<Lane>& lanes, bool in_place, std::int64_t vector_lanes,
                                      int threads) {
  // Longest first, so that lanes of a tile end together.
  std::vector<std::int32_t> order(lanes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  const auto longer = [&](std::int32_t a, std::int32_t b) { return lanes[a].steps > lanes[b].steps; };
  if (!std::is_sorted(order.begin(), order.end(), longer)) std::stable_sort(order.begin(), order.end(), longer);

  const std::int64_t count = static_cast<std::int64_t>(lanes.size());
  // Few lanes: smaller tiles, so that every thread has one; in whole vectors.
  const std::int64_t share = (count + threads - 1) / std::max(threads, 1);
  const std::int64_t tile_lanes = std::clamp<std::int64_t>((share + 15) / 16 * 16, 16, LaneKernel::kTileLanes);
  std::vector<LaneTile> tiles;
  LaneTile open;
  const auto close = [&] {
    if (open.lanes) tiles.push_back(std::exchange(open, {}));
  };
  for (std::int64_t i = 0; i < count;) {
    const Lane& first = lanes[order[i]];
    std::int64_t n = 1;
    while (i + n < count) {
      const Lane& next = lanes[order[i + n]];
      if (next.segment != first.segment || next.channel != first.channel + n || next.steps != first.steps ||
          next.row != first.row)
        break;
      ++n;
    }
    if (in_place && n >= kInPlaceLanes && first.steps > 0) {
      n -= n % vector_lanes;  // the rest of the channels is gathered
      const std::int64_t piece =
          std::max<std::int64_t>(kInPlaceLanes, std::min<std::int64_t>(1024, (share + 63) / 64 * 64));
      for (std::int64_t at = 0; at < n;) {
        const std::int64_t take =
            n - at < 2 * piece ? (n - at <= piece ? n - at : ((n - at) / 2 + 63) / 64 * 64) : piece;
        LaneTile tile;
        tile.in_place = true;
        tile.lanes = take;
        tile.steps = first.steps;
        LaneRun r{0, take, first};
        r.lane.channel += static_cast<std::int32_t>(at);
        tile.runs.push_back(r);
        tiles.push_back(std::move(tile));
        at += take;
      }
      i += n;
      continue;
    }
    for (std::int64_t at = 0; at < n;) {
      const std::int64_t take = std::min(n - at, tile_lanes - open.lanes);
      LaneRun r{open.lanes, take, first};
      r.lane.channel += static_cast<std::int32_t>(at);
      open.runs.push_back(r);
      open.lanes += take;
      open.steps = std::max(open.steps, first.steps);
      open.shortest = std::min(open.shortest, first.steps);
      at += take;
      if (open.lanes == tile_lanes) close();
    }
    i += n;
  }
  close();
  return tiles;
}

std::vector<LaneTile> tiles_in_order(const std::vector<Lane>& lanes, std::int64_t tile_lanes) {
  std::vector<LaneTile> tiles;
  const std::int64_t count = static_cast<std::int64_t>(lanes.size());
  for (std::int64_t i = 0; i < count;) {
    LaneTile tile;
    while (i < count && tile.lanes < tile_lanes) {
      const Lane& first = lanes[i];
      std::int64_t n = 1;
      while (i + n < count && lanes[i + n].segment == first.segment && lanes[i + n].channel == first.channel + n) ++n;
      tile.runs.push_back({tile.lanes, n, first});
      tile.lanes += n;
      tile.steps = std::max(tile.steps, first.steps);
      tile.shortest = std::min(tile.shortest, first.steps);
      i += n;
    }
    tiles.push_back(std::move(tile));
  }
  return tiles;
}

}  // namespace cellc
