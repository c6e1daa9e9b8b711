#pragma once
// Copies between a tile, whose rows are a step of its lanes side by side, and the arrays and states that its lanes are
// of. Private to the lane kernel.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/cpu/gather_rows.h"
#include "runtime/cpu/lane_tiles.h"

namespace cellc {

/// Arrays from this size on are written past the caches.
inline constexpr std::int64_t kStreamBytes = 8 << 20;

class TileCopies {
 public:
  TileCopies(const LaneData& data, std::int64_t entry_bytes) : data_(data) {
    for (const LaneArray& a : data.symbols) {
      in_order_.push_back(channels_in_order(a));
      large_.push_back(data.rows * a.row_entries * entry_bytes >= kStreamBytes);
    }
  }
#ifdef __SSE2__
  ~TileCopies() { _mm_sfence(); }  // streamed rows are seen by whoever joins this thread
#endif
  TileCopies(const TileCopies&) = delete;

  static constexpr int kFewestTurned = 4;  ///< single lanes; fewer are copied entry by entry in less time

  /// The tile that is copied from now on; its rows have room for `lanes`.
  void begin(const LaneTile& tile, std::int64_t lanes) { tile_ = &tile, lanes_ = lanes; }

  std::int64_t mixed(int s) const { return static_cast<std::int64_t>(data_.symbols[s].mixed.size()); }
  /// Entries of a symbol's row in the tile.
  std::int64_t width(int s) const { return mixed(s) * lanes_; }

  template <typename Number>
  void gather_param(int s, Number* to) const {
    const LaneArray& a = data_.symbols[s];
    const Number* from = reinterpret_cast<const Number*>(a.data);
    for (const LaneRun& r : tile_->runs)
      for (std::int64_t m = 0; m < mixed(s); ++m)
        for (std::int64_t c = 0; c < r.count; ++c)
          to[m * lanes_ + r.first_lane + c] = from[a.mixed[m] + a.channel[r.lane.channel + c]];
  }

  template <typename Number>
  void gather_states(int s, const Array& states, Number* to) const {
    const Number* from = static_cast<const Number*>(states.data());
    for (const LaneRun& r : tile_->runs)
      for (std::int64_t m = 0; m < mixed(s); ++m)
        std::copy_n(from + state_entry(s, r, m), r.count, to + m * lanes_ + r.first_lane);
  }

  /// Rows of steps [done, done + n) of an input.
  template <typename Number>
  void gather_input(int s, std::int64_t done, std::int64_t n, Number* to) const {
    const LaneArray& a = data_.symbols[s];
    const std::int64_t width = this->width(s);
    const Number* const all = reinterpret_cast<const Number*>(a.data);
    const std::int64_t move = data_.direction * a.row_entries;
    std::size_t turned = 0;
    if (a.mixed.size() == 1 && !a.shifted) {
      // Single lanes that all have the whole chunk, sixteen at a time.
      while (const std::size_t count = block_from(turned, done + n)) {
        const Number* lanes[kBlock];
        for (std::size_t l = 0; l < kBlock; ++l) {
          // Where lanes are missing the last one is there again: nobody looks at what it computes.
          const LaneRun& r = tile_->runs[turned + std::min(l, count - 1)];
          lanes[l] = all + r.lane.row * a.row_entries + done * move + a.mixed[0] + a.channel[r.lane.channel];
        }
        lanes_to_rows(lanes, move, n, to + tile_->runs[turned].first_lane, width);
        turned += count;
      }
    }
    for (std::size_t i = turned; i < tile_->runs.size(); ++i) {
      const LaneRun& r = tile_->runs[i];
      if (r.lane.steps == 0) {
        for (std::int64_t t = 0; t < n; ++t)
          for (std::int64_t m = 0; m < mixed(s); ++m)
            std::fill_n(to + t * width + m * lanes_ + r.first_lane, r.count, Number{});
        continue;
      }
      const std::int64_t* const channel = a.channel.data() + r.lane.channel;
      // A lane that is done goes on reading its last row; nobody looks at what it computes.
      const std::int64_t last = r.lane.steps - 1;
      const Number* const row = all + (r.lane.row - (a.shifted ? data_.direction : 0)) * a.row_entries;
      const Number* const first =
          a.shifted ? reinterpret_cast<const Number*>(a.first) + r.lane.sequence * a.row_entries : nullptr;
      const bool only_first = a.shifted && r.lane.at_start && last == 0;  // the array may have no row before it
      const std::int64_t valid = std::clamp<std::int64_t>(last + 1 - done, 0, n);
      for (std::int64_t m = 0; m < static_cast<std::int64_t>(a.mixed.size()); ++m) {
        Number* const here = to + m * lanes_ + r.first_lane;
        const auto rows = [&](const Number* from, std::int64_t step, std::int64_t begin, std::int64_t end) {
          if (in_order_[s])
            return copy_rows(from + channel[0], step, here + begin * width, width, end - begin, r.count);
          for (std::int64_t t = begin; t < end; ++t, from += step)
            for (std::int64_t c = 0; c < r.count; ++c) here[t * width + c] = from[channel[c]];
        };
        std::int64_t begin = 0;
        if (a.shifted && done == 0 && r.lane.at_start) rows(first + a.mixed[m], 0, begin++, 1);
        rows(row + (done + begin) * move + a.mixed[m], move, begin, std::max(begin, valid));
        if (valid < n) rows((only_first ? first : row + last * move) + a.mixed[m], 0, std::max(begin, valid), n);
      }
    }
  }

  /// Steps [done, done + n) of a state, as far as each lane goes, to its array.
  template <typename Number>
  void scatter_rows(int s, std::int64_t done, std::int64_t n, const Number* from) const {
    const LaneArray& a = data_.symbols[s];
    const std::int64_t width = this->width(s);
    std::size_t turned = 0;
    const std::int64_t step = data_.direction * a.row_entries;
    while (const std::size_t count = a.mixed.size() == 1 ? block_from(turned, done + n) : 0) {
      if (count < kBlock && step != 1 && step != -1) break;  // entry by entry, only what is wanted
      Number* lanes[kBlock];
      Number nowhere[kChunkSteps];  // what missing lanes would write
      for (std::size_t l = 0; l < kBlock; ++l) {
        lanes[l] = step == 1 ? nowhere : nowhere + kChunkSteps - 1;
        if (l >= count) continue;
        const LaneRun& r = tile_->runs[turned + l];
        lanes[l] = reinterpret_cast<Number*>(a.data) + r.lane.row * a.row_entries + done * step + a.mixed[0] +
                   a.channel[r.lane.channel];
      }
      rows_to_lanes(from + tile_->runs[turned].first_lane, width, n, lanes, step, large_[s] && count == kBlock);
      turned += count;
    }
    for (std::size_t i = turned; i < tile_->runs.size(); ++i) {
      const LaneRun& r = tile_->runs[i];
      const std::int64_t* const channel = a.channel.data() + r.lane.channel;
      const std::int64_t stop = std::min(n, r.lane.steps - done);
      const std::int64_t move = data_.direction * a.row_entries;
      Number* const row = reinterpret_cast<Number*>(a.data) + r.lane.row * a.row_entries + done * move;
      for (std::int64_t m = 0; m < mixed(s); ++m) {
        const Number* here = from + m * lanes_ + r.first_lane;
        Number* there = row + a.mixed[m];
        if (in_order_[s]) {
          if (stop <= 0) continue;
          if (!large_[s] || !stream_rows(here, width, there + channel[0], move, stop, r.count))
            copy_rows(here, width, there + channel[0], move, stop, r.count);
          continue;
        }
        for (std::int64_t t = 0; t < stop; ++t, here += width, there += move)
          for (std::int64_t c = 0; c < r.count; ++c) there[channel[c]] = here[c];
      }
    }
  }

  /// The states of lanes that end within steps [done, done + n).
  template <typename Number>
  void keep_ends(int s, std::int64_t done, std::int64_t n, const Number* rows, Array& ends) const {
    if (done + n < tile_->shortest) return;
    Number* const to = static_cast<Number*>(ends.data());
    for (const LaneRun& r : tile_->runs) {
      const std::int64_t t = r.lane.steps - 1 - done;
      if (t < 0 || t >= n) continue;
      for (std::int64_t m = 0; m < mixed(s); ++m)
        std::copy_n(rows + (t * mixed(s) + m) * lanes_ + r.first_lane, r.count, to + state_entry(s, r, m));
    }
  }

  /// Where there is nothing to run, the end is the start.
  template <typename Number>
  void keep_starts(int s, const Array& starts, Array& ends) const {
    const Number* from = static_cast<const Number*>(starts.data());
    for (const LaneRun& r : tile_->runs)
      for (std::int64_t m = 0; r.lane.steps <= 0 && m < mixed(s); ++m)
        for (std::int64_t c = 0, at = state_entry(s, r, m); c < r.count; ++c, ++at)
          static_cast<Number*>(ends.data())[at] = from[at];
  }

 private:
  /// How many of the tile's runs from the `first`-th on are turned as one block: sixteen single lanes that have all
  /// steps before `end`; or fewer, if those are the last and the rows have room for sixteen. 0: none.
  std::size_t block_from(std::size_t first, std::int64_t end) const {
    const std::size_t count = std::min<std::size_t>(kBlock, tile_->runs.size() - first);
    if (count < kFewestTurned || (count < kBlock && tile_->runs[first].first_lane + kBlock > lanes_)) return 0;
    for (std::size_t l = 0; l < count; ++l)
      if (const LaneRun& r = tile_->runs[first + l]; r.count != 1 || r.lane.steps < end) return 0;
    return count;
  }
  static bool channels_in_order(const LaneArray& a) {
    for (std::size_t c = 1; c < a.channel.size(); ++c)
      if (a.channel[c] != a.channel[0] + static_cast<std::int64_t>(c)) return false;
    return true;
  }
  std::int64_t state_entry(int s, const LaneRun& r, std::int64_t m) const {
    return (r.lane.segment * mixed(s) + m) * data_.channels + r.lane.channel;
  }

  const LaneData& data_;
  const LaneTile* tile_ = nullptr;
  std::int64_t lanes_ = 0;
  std::vector<char> in_order_, large_;
};

}  // namespace cellc
