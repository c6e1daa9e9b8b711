#include "runtime/cpu/lane_kernel.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "runtime/cpu/flush_to_zero.h"
#include "runtime/cpu/gather_rows.h"
#include "runtime/data/threads.h"

namespace cellc {

namespace {

constexpr std::int64_t kChunkBytes = 768 << 10;
/// Arrays from this size on are written past the caches.
constexpr std::int64_t kStreamBytes = 8 << 20;
/// Neighbouring channels from which on a segment is run where it lies.
constexpr std::int64_t kInPlaceLanes = 64;

/// Neighbouring channels of one segment.
struct LaneRun {
  std::int64_t first_lane, count;
  Lane lane;  ///< of the first channel
};

struct Tile {
  std::vector<LaneRun> runs;
  std::int64_t lanes = 0, steps = 0;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();  ///< no lane ends before
  bool in_place = false;
};

bool channels_in_order(const LaneArray& a) {
  for (std::size_t c = 1; c < a.channel.size(); ++c)
    if (a.channel[c] != a.channel[0] + static_cast<std::int64_t>(c)) return false;
  return true;
}

}  // namespace

/// One thread's tile: its buffers and the gathering in and out of them.
class LaneTile {
 public:
  LaneTile(const LaneKernel& kernel, const LaneData& data, const SegmentStates& from, SegmentStates& to, bool write)
      : kernel_(kernel),
        plan_(kernel.compiled_.plan),
        data_(data),
        from_(from),
        to_(to),
        write_(write),
        size_(static_cast<std::int64_t>(size_of(kernel.compiled_.dtype))) {
    for (const LaneArray& a : data.symbols) {
      in_order_.push_back(channels_in_order(a));
      large_.push_back(data.rows * a.row_entries * size_ >= kStreamBytes);
    }
  }
#ifdef __SSE2__
  ~LaneTile() { _mm_sfence(); }  // streamed rows are seen by whoever joins this thread
#endif

  void run(const Tile& tile) {
    if (tile.in_place)
      run_in_place(tile);
    else if (size_ == 4)
      run_gathered<float>(tile);
    else
      run_gathered<double>(tile);
  }

 private:
  const Symbol& symbol(int s) const { return plan_.cell.symbols[s]; }
  bool has_lane(int s) const { return !symbol(s).axes.empty() && symbol(s).axes.back() == kernel_.lane_; }
  std::int64_t mixed(int s) const { return static_cast<std::int64_t>(data_.symbols[s].mixed.size()); }
  int states() const { return static_cast<int>(plan_.cell.updates.size()); }

  std::int64_t entries(const std::vector<AxisId>& axes) const {
    std::int64_t n = 1;
    for (AxisId a : axes) {
      const AxisId extent = plan_.cell.graph.axis(a).extent_of;
      n *= extent == kernel_.lane_ ? lanes_ : data_.sizes.at(extent);
    }
    return n;
  }

  std::byte* grown(std::vector<Array>& buffers, std::size_t i, std::int64_t count) {
    if (buffers.size() <= i) buffers.resize(i + 1);
    if (!buffers[i].data() || buffers[i].count() < count)
      buffers[i] = Array(kernel_.compiled_.dtype, {count});  // zeros: lanes that only fill up stay harmless
    return static_cast<std::byte*>(buffers[i].data());
  }

  // What the kernel is called with ---------------------------------------------------------------

  struct Pointers {
    std::byte* row = nullptr;
    std::int64_t step = 0;
    std::byte* old = nullptr;
  };

  std::uint64_t slot_value(const Slot& slot) {
    const auto address = [](const void* p) { return std::bit_cast<std::uint64_t>(p); };
    const auto id = static_cast<std::size_t>(slot.id);
    switch (slot.kind) {
      case SlotKind::Length: {
        const AxisId axis = static_cast<AxisId>(slot.id);
        return static_cast<std::uint64_t>(axis == kernel_.lane_ ? lanes_ : data_.sizes.at(axis));
      }
      case SlotKind::Param:
      case SlotKind::InputRow:
        return address(pointers_[id].row);
      case SlotKind::InputStep:
        return static_cast<std::uint64_t>(pointers_[id].step);
      case SlotKind::Once:
        return address(grown(once_, id, entries(plan_.once[id].dims)));
      case SlotKind::Temp:
        return address(grown(temps_, id, entries(plan_.temps[id].dims)));
      case SlotKind::Time:
        return 0;
      case SlotKind::StateOld:
        return address(pointers_[state_symbol(slot.id)].old);
      case SlotKind::StateRow:
        return address(pointers_[state_symbol(slot.id)].row);
      case SlotKind::StateStep:
        return static_cast<std::uint64_t>(pointers_[state_symbol(slot.id)].step);
      default:
        throw std::logic_error("lanes: no such slot");
    }
  }

  std::size_t state_symbol(int position) const { return static_cast<std::size_t>(plan_.cell.updates[position].symbol); }

  void call(int kernel, std::int64_t steps, std::int64_t begin, std::int64_t end) {
    const KernelFunction function = kernel_.compiled_.functions[kernel];
    if (!function) return;
    values_.clear();
    for (const Slot& slot : kernel_.compiled_.kernels[kernel].slots) values_.push_back(slot_value(slot));
    const FlushToZero flushed(kernel_.flushes_);
    function(values_.data(), steps, begin, end);
  }

  // In place ---------------------------------------------------------------------------------------

  void run_in_place(const Tile& tile) {
    const LaneRun& r = tile.runs[0];
    lanes_ = data_.channels;
    pointers_.assign(plan_.cell.symbols.size(), {});
    bool all_written = write_;
    for (int s = 0; s < static_cast<int>(pointers_.size()); ++s) {
      const LaneArray& a = data_.symbols[s];
      Pointers& p = pointers_[s];
      if (symbol(s).kind == SymbolKind::State) {
        all_written &= a.data != nullptr;
        continue;
      }
      p.row = a.data + r.lane.row * a.row_entries * size_;
      p.step = data_.direction * a.row_entries * size_;
    }
    if (plan_.once_kernel >= 0 && !once_in_place_) call(plan_.once_kernel, 1, 0, 0);
    once_in_place_ = true;
    for (int i = 0; i < states(); ++i)
      pointers_[state_symbol(i)].old =
          static_cast<std::byte*>(const_cast<void*>(from_.arrays[i].data())) + r.lane.segment * data_.channels * size_;
    const std::int64_t begin = r.lane.channel, end = begin + r.count;
    const std::int64_t chunk = all_written ? r.lane.steps : kChunkSteps;
    for (std::int64_t done = 0; done < r.lane.steps;) {
      const std::int64_t n = std::min(chunk, r.lane.steps - done);
      for (int i = 0; i < states(); ++i) {
        Pointers& p = pointers_[state_symbol(i)];
        const LaneArray& a = data_.symbols[state_symbol(i)];
        if (write_ && a.data) {
          p.step = data_.direction * a.row_entries * size_;
          p.row = a.data + r.lane.row * a.row_entries * size_ + done * p.step;
        } else {
          // By turns, so that the old state is not overwritten while it is read.
          p.step = data_.channels * size_;
          p.row = grown(rows_, static_cast<std::size_t>(2 * i + (done / chunk) % 2), kChunkSteps * data_.channels);
        }
      }
      call(kernel_.kernel_, n, begin, end);
      done += n;
      for (auto& p : pointers_) {
        p.old = p.row + (n - 1) * p.step;
      }
      for (int s = 0; s < static_cast<int>(pointers_.size()); ++s)
        if (symbol(s).kind == SymbolKind::Input) pointers_[s].row += n * pointers_[s].step;
    }
    for (int i = 0; i < states(); ++i)
      std::memmove(static_cast<std::byte*>(to_.arrays[i].data()) + (r.lane.segment * data_.channels + begin) * size_,
                   pointers_[state_symbol(i)].old + begin * size_, static_cast<std::size_t>(r.count * size_));
  }

  // Gathered ---------------------------------------------------------------------------------------

  template <typename Number>
  void run_gathered(const Tile& tile) {
    open<Number>(tile, 0);
    for (std::int64_t done = 0; done < tile.steps; done += chunk_) {
      const std::int64_t n = std::min(chunk_, tile.steps - done);
      load<Number>(tile, done, n, 0);
      advance<Number>(tile, done, n, 0);
    }
    for (const LaneRun& r : tile.runs) {
      if (r.lane.steps > 0) continue;  // nothing to run: the end is the start
      for (int i = 0; i < states(); ++i)
        for (std::int64_t m = 0; m < mixed(static_cast<int>(state_symbol(i))); ++m)
          for (std::int64_t c = 0; c < r.count; ++c) {
            const std::int64_t at = state_entry(i, r, m) + c;
            static_cast<Number*>(to_.arrays[i].data())[at] = static_cast<const Number*>(from_.arrays[i].data())[at];
          }
    }
  }

 public:
  /// Buffers, params and starts of a tile. `input_rows`: rows of inputs that are kept, 0: a chunk.
  template <typename Number>
  void open(const Tile& tile, std::int64_t input_rows) {
    // Whole vectors: what fills the last one up is computed and never looked at.
    const std::int64_t wide = kernel_.compiled_.vector_lanes;
    lanes_ = (tile.lanes + wide - 1) / wide * wide;
    pointers_.assign(plan_.cell.symbols.size(), {});
    std::int64_t row = 0;
    for (int s = 0; s < static_cast<int>(pointers_.size()); ++s)
      if (symbol(s).kind != SymbolKind::Param) row += mixed(s) * lanes_ * size_;
    // Large blocks: fewer steps at a time.
    chunk_ = std::clamp<std::int64_t>(kChunkBytes / std::max<std::int64_t>(row, 1), 2, kChunkSteps);
    for (int s = 0; s < static_cast<int>(pointers_.size()); ++s) {
      const LaneArray& a = data_.symbols[s];
      Pointers& p = pointers_[s];
      switch (symbol(s).kind) {
        case SymbolKind::Param:
          p.row = has_lane(s) ? gather_param<Number>(tile, s) : a.data;
          break;
        case SymbolKind::Input:
          p.step = mixed(s) * lanes_ * size_;
          p.row = grown(rows_, static_cast<std::size_t>(s), std::max(chunk_, input_rows) * mixed(s) * lanes_);
          break;
        case SymbolKind::State:
          p.step = mixed(s) * lanes_ * size_;
          p.row = grown(rows_, static_cast<std::size_t>(s), chunk_ * mixed(s) * lanes_);
          p.old = gather_states<Number>(tile, s);
          break;
      }
    }
    if (plan_.once_kernel >= 0) call(plan_.once_kernel, 1, 0, 0);
    once_in_place_ = false;  // the same buffers, laid out for this tile's lanes
  }

  /// Gathers steps [done, done + n) of the inputs into rows from `at` on.
  template <typename Number>
  void load(const Tile& tile, std::int64_t done, std::int64_t n, std::int64_t at) {
    for (int s = 0; s < static_cast<int>(pointers_.size()); ++s)
      if (symbol(s).kind == SymbolKind::Input) gather_input<Number>(tile, s, done, n, at);
  }

  /// The same inputs as a tile of the same lanes has them at hand; symbols of a name have one number.
  void borrow_inputs(const LaneTile& other) {
    for (int s = 0; s < static_cast<int>(pointers_.size()); ++s)
      if (symbol(s).kind == SymbolKind::Input) pointers_[s] = other.pointers_[s];
  }

  /// Runs steps [done, done + n), n at most a chunk, over inputs that lie from row `at` on.
  template <typename Number>
  void advance(const Tile& tile, std::int64_t done, std::int64_t n, std::int64_t at) {
    const auto move_inputs = [&](std::int64_t rows) {
      for (int s = 0; s < static_cast<int>(pointers_.size()); ++s)
        if (symbol(s).kind == SymbolKind::Input) pointers_[s].row += rows * pointers_[s].step;
    };
    move_inputs(at);
    call(kernel_.kernel_, n, 0, lanes_);
    move_inputs(-at);
    for (int i = 0; i < states(); ++i) {
      const int s = static_cast<int>(state_symbol(i));
      if (write_ && data_.symbols[s].data) scatter_rows<Number>(tile, s, done, n);
      keep_ends<Number>(tile, i, done, n);
      // The scratch rows are written again from the front: the last one moves out of their way.
      std::memcpy(pointers_[s].old, pointers_[s].row + (n - 1) * pointers_[s].step,
                  static_cast<std::size_t>(pointers_[s].step));
    }
  }

  std::int64_t chunk() const { return chunk_; }

 private:
  std::int64_t state_entry(int state, const LaneRun& r, std::int64_t m) const {
    return (r.lane.segment * mixed(static_cast<int>(state_symbol(state))) + m) * data_.channels + r.lane.channel;
  }
  int position_of(int symbol) const {
    for (int i = 0; i < states(); ++i)
      if (plan_.cell.updates[i].symbol == symbol) return i;
    return -1;
  }

  template <typename Number>
  std::byte* gather_param(const Tile& tile, int s) {
    const LaneArray& a = data_.symbols[s];
    std::byte* buffer = grown(params_, static_cast<std::size_t>(s), mixed(s) * lanes_);
    Number* to = reinterpret_cast<Number*>(buffer);
    const Number* from = reinterpret_cast<const Number*>(a.data);
    for (const LaneRun& r : tile.runs)
      for (std::int64_t m = 0; m < mixed(s); ++m)
        for (std::int64_t c = 0; c < r.count; ++c)
          to[m * lanes_ + r.first_lane + c] = from[a.mixed[m] + a.channel[r.lane.channel + c]];
    return buffer;
  }

  template <typename Number>
  std::byte* gather_states(const Tile& tile, int s) {
    const int state = position_of(s);
    std::byte* buffer = grown(old_, static_cast<std::size_t>(s), mixed(s) * lanes_);
    Number* to = reinterpret_cast<Number*>(buffer);
    const Number* from = static_cast<const Number*>(from_.arrays[state].data());
    for (const LaneRun& r : tile.runs)
      for (std::int64_t m = 0; m < mixed(s); ++m)
        std::copy_n(from + state_entry(state, r, m), r.count, to + m * lanes_ + r.first_lane);
    return buffer;
  }

  template <typename Number>
  void gather_input(const Tile& tile, int s, std::int64_t done, std::int64_t n, std::int64_t at) {
    const LaneArray& a = data_.symbols[s];
    const std::int64_t width = mixed(s) * lanes_;
    Number* const to = reinterpret_cast<Number*>(pointers_[s].row) + at * width;
    const Number* const all = reinterpret_cast<const Number*>(a.data);
    const std::int64_t move = data_.direction * a.row_entries;
    std::size_t turned = 0;
    if (a.mixed.size() == 1 && !a.shifted) {
      // Single lanes that all have the whole chunk, sixteen at a time.
      while (turned + kBlock <= tile.runs.size()) {
        const Number* lanes[kBlock];
        bool all_whole = true;
        for (std::size_t l = 0; l < kBlock && all_whole; ++l) {
          const LaneRun& r = tile.runs[turned + l];
          all_whole = r.count == 1 && r.lane.steps >= done + n;
          lanes[l] = all + r.lane.row * a.row_entries + done * move + a.mixed[0] + a.channel[r.lane.channel];
        }
        if (!all_whole) break;
        lanes_to_rows(lanes, move, n, to + tile.runs[turned].first_lane, width);
        turned += kBlock;
      }
    }
    for (std::size_t i = turned; i < tile.runs.size(); ++i) {
      const LaneRun& r = tile.runs[i];
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

  template <typename Number>
  void scatter_rows(const Tile& tile, int s, std::int64_t done, std::int64_t n) {
    const LaneArray& a = data_.symbols[s];
    const Number* const from = reinterpret_cast<const Number*>(pointers_[s].row);
    const std::int64_t width = mixed(s) * lanes_;
    std::size_t turned = 0;
    while (a.mixed.size() == 1 && turned + kBlock <= tile.runs.size()) {
      Number* lanes[kBlock];
      bool all = true;
      const std::int64_t step = data_.direction * a.row_entries;
      for (std::size_t l = 0; l < kBlock && all; ++l) {
        const LaneRun& r = tile.runs[turned + l];
        all = r.count == 1 && r.lane.steps >= done + n;
        lanes[l] = reinterpret_cast<Number*>(a.data) + r.lane.row * a.row_entries + done * step + a.mixed[0] +
                   a.channel[r.lane.channel];
      }
      if (!all) break;
      rows_to_lanes(from + tile.runs[turned].first_lane, width, n, lanes, step, large_[s] != 0);
      turned += kBlock;
    }
    for (std::size_t i = turned; i < tile.runs.size(); ++i) {
      const LaneRun& r = tile.runs[i];
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

  template <typename Number>
  void keep_ends(const Tile& tile, int state, std::int64_t done, std::int64_t n) {
    if (done + n < tile.shortest) return;
    const int s = static_cast<int>(state_symbol(state));
    const Number* const rows = reinterpret_cast<const Number*>(pointers_[s].row);
    Number* const to = static_cast<Number*>(to_.arrays[state].data());
    for (const LaneRun& r : tile.runs) {
      const std::int64_t t = r.lane.steps - 1 - done;
      if (t < 0 || t >= n) continue;
      for (std::int64_t m = 0; m < mixed(s); ++m)
        std::copy_n(rows + (t * mixed(s) + m) * lanes_ + r.first_lane, r.count, to + state_entry(state, r, m));
    }
  }

  const LaneKernel& kernel_;
  const Plan& plan_;
  const LaneData& data_;
  const SegmentStates& from_;
  SegmentStates& to_;
  const bool write_;
  const std::int64_t size_;
  std::int64_t lanes_ = 0, chunk_ = kChunkSteps;
  std::vector<char> in_order_, large_;
  std::vector<Pointers> pointers_;
  std::vector<std::uint64_t> values_;
  std::vector<Array> rows_, params_, old_, once_, temps_;
  bool once_in_place_ = false;  ///< once_ holds the values of all channels where they lie
};

LaneKernel LaneKernel::compile(const CellGraph& cell, AxisId lane, const CompileOptions& options) {
  LaneKernel result;
  result.compiled_ = compile_plan(cell, Structure{}, options, lane, true);
  const Plan& plan = result.compiled_.plan;
  if (!plan.products.empty() || !plan.chunks.empty()) throw std::logic_error("lanes: a product in a lane cell");
  result.lane_ = lane;
  for (const int k : plan.state_kernel) result.kernel_ = k;
  return result;
}

void LaneKernel::run(const LaneData& data, const std::vector<Lane>& lanes, const SegmentStates& from, SegmentStates& to,
                     bool write, int threads) const {
  const Plan& plan = compiled_.plan;
  bool in_place = plan.split_axis == lane_;
  for (std::size_t s = 0; s < data.symbols.size(); ++s) {
    const Symbol& symbol = plan.cell.symbols[s];
    const bool has_lane = !symbol.axes.empty() && symbol.axes.back() == lane_;
    in_place &= !has_lane || (data.symbols[s].in_place && !data.symbols[s].shifted);
  }
  // Longest first, so that lanes of a tile end together.
  std::vector<std::int32_t> order(lanes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  const auto longer = [&](std::int32_t a, std::int32_t b) { return lanes[a].steps > lanes[b].steps; };
  if (!std::is_sorted(order.begin(), order.end(), longer)) std::stable_sort(order.begin(), order.end(), longer);

  const std::int64_t count = static_cast<std::int64_t>(lanes.size());
  // Few lanes: smaller tiles, so that every thread has one; in whole vectors.
  const std::int64_t share = (count + threads - 1) / std::max(threads, 1);
  const std::int64_t tile_lanes = std::clamp<std::int64_t>((share + 15) / 16 * 16, 16, kTileLanes);
  std::vector<Tile> tiles;
  Tile open;
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
      n -= n % compiled_.vector_lanes;  // the rest of the channels is gathered
      const std::int64_t piece =
          std::max<std::int64_t>(kInPlaceLanes, std::min<std::int64_t>(1024, (share + 63) / 64 * 64));
      for (std::int64_t at = 0; at < n;) {
        const std::int64_t take =
            n - at < 2 * piece ? (n - at <= piece ? n - at : ((n - at) / 2 + 63) / 64 * 64) : piece;
        Tile tile;
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
  threads = static_cast<int>(std::min<std::int64_t>(threads, static_cast<std::int64_t>(tiles.size())));
  std::atomic<std::size_t> next{0};
  run_on_threads(std::max(threads, 1), [&](int) {
    LaneTile worker(*this, data, from, to, write);
    for (std::size_t t; (t = next.fetch_add(1)) < tiles.size();) worker.run(tiles[t]);
  });
}

void LaneKernel::scan(const ScanKernels& kernels, const SegmentStates& from, SegmentStates& swept,
                      const SegmentStates& starts, SegmentStates& ends, const std::vector<Lane>& lanes,
                      std::int64_t tile_lanes, int threads,
                      const std::function<void(std::int64_t, std::int64_t)>& compose) {
  std::vector<Tile> tiles;
  const std::int64_t count = static_cast<std::int64_t>(lanes.size());
  for (std::int64_t i = 0; i < count;) {
    Tile tile;
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
  // Tiles are taken in the order of time, so whoever waits for its turn waits for one that runs.
  std::atomic<std::int64_t> next{0}, turn{0};
  const bool wide = size_of(kernels.step->compiled_.dtype) == 8;
  run_on_threads(static_cast<int>(std::clamp<std::int64_t>(threads, 1, static_cast<std::int64_t>(tiles.size()))),
                 [&](int) {
                   LaneTile carrying(*kernels.transitions, *kernels.carried, from, swept, false);
                   LaneTile stepping(*kernels.step, *kernels.data, starts, ends, true);
                   const auto work = [&]<typename Number>(Number, std::int64_t t) {
                     const Tile& tile = tiles[static_cast<std::size_t>(t)];
                     bool composed = false;
                     try {
                       carrying.open<Number>(tile, tile.steps);
                       // All steps of some lanes after each other: few enough streams for the hardware to follow.
                       carrying.load<Number>(tile, 0, tile.steps, 0);
                       for (std::int64_t done = 0; done < tile.steps; done += carrying.chunk())
                         carrying.advance<Number>(tile, done, std::min(carrying.chunk(), tile.steps - done), done);
                       for (std::int64_t at; (at = turn.load(std::memory_order_acquire)) != t;)
                         turn.wait(at, std::memory_order_acquire);
                       compose(tile.runs.front().lane.segment, tile.runs.back().lane.segment + 1);
                       composed = true;
                       turn.store(t + 1, std::memory_order_release);
                       turn.notify_all();
                       stepping.open<Number>(tile, 0);
                       stepping.borrow_inputs(carrying);
                       for (std::int64_t done = 0; done < tile.steps; done += stepping.chunk())
                         stepping.advance<Number>(tile, done, std::min(stepping.chunk(), tile.steps - done), done);
                     } catch (...) {
                       // Nobody may wait for a turn that never comes.
                       if (!composed) {
                         for (std::int64_t at; (at = turn.load(std::memory_order_acquire)) != t;)
                           turn.wait(at, std::memory_order_acquire);
                         turn.store(t + 1, std::memory_order_release);
                         turn.notify_all();
                       }
                       throw;
                     }
                   };
                   for (std::int64_t t; (t = next.fetch_add(1)) < static_cast<std::int64_t>(tiles.size());) {
                     if (wide)
                       work(double{}, t);
                     else
                       work(float{}, t);
                   }
                 });
}

}  // namespace cellc
