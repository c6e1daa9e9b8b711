#include "runtime/cpu/lane_kernel.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "runtime/cpu/lane_arguments.h"
#include "runtime/cpu/lane_tiles.h"
#include "runtime/cpu/tile_copies.h"
#include "runtime/data/run_control.h"
#include "runtime/data/threads.h"

namespace cellc {

namespace {

constexpr std::int64_t kChunkBytes = 768 << 10;
}  // namespace

/// Runs tiles on one thread, each in the same buffers.
class TileRunner {
 public:
  TileRunner(const LaneKernel& kernel, const LaneData& data, const SegmentStates& from, SegmentStates& to, bool write)
      : kernel_(kernel),
        plan_(kernel.compiled_.plan),
        data_(data),
        from_(from),
        to_(to),
        write_(write),
        size_(static_cast<std::int64_t>(size_of(kernel.compiled_.dtype))),
        copies_(data, size_),
        arguments_(kernel, data, kernel.flushes_) {}

  void run(const LaneTile& tile) {
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
  int states() const { return arguments_.states(); }
  int symbol_of_state(int position) const { return static_cast<int>(arguments_.symbol_of_state(position)); }

  // In place ---------------------------------------------------------------------------------------

  void run_in_place(const LaneTile& tile) {
    const LaneRun& r = tile.runs[0];
    lanes_ = data_.channels;
    arguments_.begin(lanes_);
    bool all_written = write_;
    for (int s = 0; s < static_cast<int>(arguments_.places.size()); ++s) {
      const LaneArray& a = data_.symbols[s];
      LanePlace& p = arguments_.places[s];
      if (symbol(s).kind == SymbolKind::State) {
        all_written &= a.data != nullptr;
        continue;
      }
      p.row = a.data + r.lane.row * a.row_entries * size_;
      p.step = data_.direction * a.row_entries * size_;
    }
    if (!once_in_place_) arguments_.call_once();
    once_in_place_ = true;
    for (int i = 0; i < states(); ++i)
      arguments_.places[symbol_of_state(i)].old =
          static_cast<std::byte*>(const_cast<void*>(from_.arrays[i].data())) + r.lane.segment * data_.channels * size_;
    const std::int64_t begin = r.lane.channel, end = begin + r.count;
    const std::int64_t chunk = all_written ? r.lane.steps : kChunkSteps;
    for (std::int64_t done = 0; done < r.lane.steps;) {
      const std::int64_t n = std::min(chunk, r.lane.steps - done);
      for (int i = 0; i < states(); ++i) {
        LanePlace& p = arguments_.places[symbol_of_state(i)];
        const LaneArray& a = data_.symbols[symbol_of_state(i)];
        if (write_ && a.data) {
          p.step = data_.direction * a.row_entries * size_;
          p.row = a.data + r.lane.row * a.row_entries * size_ + done * p.step;
        } else {
          // By turns, so that the old state is not overwritten while it is read.
          p.step = data_.channels * size_;
          p.row = arguments_.grown(rows_, static_cast<std::size_t>(2 * i + (done / chunk) % 2),
                                   kChunkSteps * data_.channels);
        }
      }
      arguments_.call_steps(n, begin, end);
      done += n;
      for (auto& p : arguments_.places) {
        p.old = p.row + (n - 1) * p.step;
      }
      for (int s = 0; s < static_cast<int>(arguments_.places.size()); ++s)
        if (symbol(s).kind == SymbolKind::Input) arguments_.places[s].row += n * arguments_.places[s].step;
    }
    for (int i = 0; i < states(); ++i)
      std::memmove(static_cast<std::byte*>(to_.arrays[i].data()) + (r.lane.segment * data_.channels + begin) * size_,
                   arguments_.places[symbol_of_state(i)].old + begin * size_,
                   static_cast<std::size_t>(r.count * size_));
  }

  // Gathered ---------------------------------------------------------------------------------------

  template <typename Number>
  void run_gathered(const LaneTile& tile) {
    open<Number>(tile, 0);
    for (std::int64_t done = 0; done < tile.steps; done += chunk_) {
      const std::int64_t n = std::min(chunk_, tile.steps - done);
      load<Number>(done, n, 0);
      advance<Number>(done, n, 0);
    }
    for (int i = 0; i < states(); ++i) copies_.keep_starts<Number>(symbol_of_state(i), from_.arrays[i], to_.arrays[i]);
  }

 public:
  /// Buffers, params and starts of a tile. `input_rows`: rows of inputs that are kept, 0: a chunk.
  template <typename Number>
  void open(const LaneTile& tile, std::int64_t input_rows) {
    // Whole vectors: what fills the last one up is computed and never looked at.
    // Single lanes are turned sixteen at a time, and rows have room for that where it is less than copying them.
    const std::int64_t rest = tile.lanes % kBlock;
    const bool turns = rest >= TileCopies::kFewestTurned && tile.lanes == static_cast<std::int64_t>(tile.runs.size());
    const std::int64_t wide = turns ? kBlock : kernel_.compiled_.vector_lanes;
    lanes_ = (tile.lanes + wide - 1) / wide * wide;
    copies_.begin(tile, lanes_);
    arguments_.begin(lanes_);
    std::int64_t row = 0;
    for (int s = 0; s < static_cast<int>(arguments_.places.size()); ++s)
      if (symbol(s).kind != SymbolKind::Param) row += copies_.width(s) * size_;
    // Large blocks: fewer steps at a time.
    chunk_ = std::clamp<std::int64_t>(kChunkBytes / std::max<std::int64_t>(row, 1), 2, kChunkSteps);
    for (int s = 0; s < static_cast<int>(arguments_.places.size()); ++s) {
      const LaneArray& a = data_.symbols[s];
      LanePlace& p = arguments_.places[s];
      if (symbol(s).kind == SymbolKind::Param) {
        p.row = a.data;
        if (!has_lane(s)) continue;
        p.row = arguments_.grown(params_, static_cast<std::size_t>(s), copies_.width(s));
        copies_.gather_param(s, reinterpret_cast<Number*>(p.row));
        continue;
      }
      const bool is_input = symbol(s).kind == SymbolKind::Input;
      const std::int64_t rows = is_input ? std::max(chunk_, input_rows) : chunk_;
      p.step = copies_.width(s) * size_;
      p.row = arguments_.grown(rows_, static_cast<std::size_t>(s), rows * copies_.width(s));
      if (is_input) continue;
      p.old = arguments_.grown(old_, static_cast<std::size_t>(s), copies_.width(s));
      copies_.gather_states(s, from_.arrays[position_of(s)], reinterpret_cast<Number*>(p.old));
    }
    arguments_.call_once();
    once_in_place_ = false;  // the same buffers, laid out for this tile's lanes
  }

  /// Gathers steps [done, done + n) of the inputs into rows from `at` on.
  template <typename Number>
  void load(std::int64_t done, std::int64_t n, std::int64_t at) {
    for (int s = 0; s < static_cast<int>(arguments_.places.size()); ++s)
      if (symbol(s).kind == SymbolKind::Input)
        copies_.gather_input(s, done, n, reinterpret_cast<Number*>(arguments_.places[s].row) + at * copies_.width(s));
  }

  /// The same inputs as a tile of the same lanes has them at hand; symbols of a name have one number.
  void borrow_inputs(const TileRunner& other) {
    for (int s = 0; s < static_cast<int>(arguments_.places.size()); ++s)
      if (symbol(s).kind == SymbolKind::Input) arguments_.places[s] = other.arguments_.places[s];
  }

  /// Runs steps [done, done + n), n at most a chunk, over inputs that lie from row `at` on.
  template <typename Number>
  void advance(std::int64_t done, std::int64_t n, std::int64_t at) {
    const auto move_inputs = [&](std::int64_t rows) {
      for (int s = 0; s < static_cast<int>(arguments_.places.size()); ++s)
        if (symbol(s).kind == SymbolKind::Input) arguments_.places[s].row += rows * arguments_.places[s].step;
    };
    move_inputs(at);
    arguments_.call_steps(n, 0, lanes_);
    move_inputs(-at);
    for (int i = 0; i < states(); ++i) {
      const int s = symbol_of_state(i);
      const Number* const rows = reinterpret_cast<const Number*>(arguments_.places[s].row);
      if (write_ && data_.symbols[s].data) copies_.scatter_rows(s, done, n, rows);
      copies_.keep_ends(s, done, n, rows, to_.arrays[i]);
      // The scratch rows are written again from the front: the last one moves out of their way.
      std::memcpy(arguments_.places[s].old, arguments_.places[s].row + (n - 1) * arguments_.places[s].step,
                  static_cast<std::size_t>(arguments_.places[s].step));
    }
  }

  std::int64_t chunk() const { return chunk_; }

 private:
  int position_of(int symbol) const {
    for (int i = 0; i < states(); ++i)
      if (plan_.cell.updates[i].symbol == symbol) return i;
    return -1;
  }

  const LaneKernel& kernel_;
  const Plan& plan_;
  const LaneData& data_;
  const SegmentStates& from_;
  SegmentStates& to_;
  const bool write_;
  const std::int64_t size_;
  TileCopies copies_;
  LaneArguments arguments_;
  std::int64_t lanes_ = 0, chunk_ = kChunkSteps;
  std::vector<Array> rows_, params_, old_;
  bool once_in_place_ = false;  ///< values of params only are those of all channels where they lie
};

LaneKernel LaneKernel::compile(const CellGraph& cell, AxisId lane, const CompileOptions& options) {
  LaneKernel result;
  // Lanes would be an axis that a matrix does not have, and its product could leave the step; but no BLAS runs in a
  // lane.
  CompileOptions own = options;
  own.own_products = true;
  result.compiled_ = compile_plan(cell, Structure{}, own, lane, true);
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
  const std::vector<LaneTile> tiles = tiles_by_length(lanes, in_place, compiled_.vector_lanes, threads);
  threads = static_cast<int>(std::min<std::int64_t>(threads, static_cast<std::int64_t>(tiles.size())));
  std::atomic<std::size_t> next{0};
  run_on_threads(std::max(threads, 1), [&](int) {
    TileRunner worker(*this, data, from, to, write);
    for (std::size_t t; (t = next.fetch_add(1)) < tiles.size();) {
      worker.run(tiles[t]);
      go_on_after(tiles[t].steps);
    }
  });
}

void LaneKernel::scan(const ScanKernels& kernels, const SegmentStates& from, SegmentStates& swept,
                      const SegmentStates& starts, SegmentStates& ends, const std::vector<Lane>& lanes,
                      std::int64_t tile_lanes, int threads,
                      const std::function<void(std::int64_t, std::int64_t)>& compose) {
  const std::vector<LaneTile> tiles = tiles_in_order(lanes, tile_lanes);
  // Tiles are taken in the order of time, so whoever waits for its turn waits for one that runs.
  std::atomic<std::int64_t> next{0}, turn{0};
  const bool wide = size_of(kernels.step->compiled_.dtype) == 8;
  run_on_threads(
      static_cast<int>(std::clamp<std::int64_t>(threads, 1, static_cast<std::int64_t>(tiles.size()))), [&](int) {
        TileRunner carrying(*kernels.transitions, *kernels.carried, from, swept, false);
        TileRunner stepping(*kernels.step, *kernels.data, starts, ends, true);
        const auto work = [&]<typename Number>(Number, std::int64_t t) {
          const LaneTile& tile = tiles[static_cast<std::size_t>(t)];
          bool composed = false;
          try {
            carrying.open<Number>(tile, tile.steps);
            // All steps of some lanes after each other: few enough streams for the hardware to follow.
            carrying.load<Number>(0, tile.steps, 0);
            for (std::int64_t done = 0; done < tile.steps; done += carrying.chunk())
              carrying.advance<Number>(done, std::min(carrying.chunk(), tile.steps - done), done);
            for (std::int64_t at; (at = turn.load(std::memory_order_acquire)) != t;)
              turn.wait(at, std::memory_order_acquire);
            compose(tile.runs.front().lane.segment, tile.runs.back().lane.segment + 1);
            composed = true;
            turn.store(t + 1, std::memory_order_release);
            turn.notify_all();
            stepping.open<Number>(tile, 0);
            stepping.borrow_inputs(carrying);
            for (std::int64_t done = 0; done < tile.steps; done += stepping.chunk())
              stepping.advance<Number>(done, std::min(stepping.chunk(), tile.steps - done), done);
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
        for (std::int64_t t; go_on_after(0), (t = next.fetch_add(1)) < static_cast<std::int64_t>(tiles.size());) {
          if (wide)
            work(double{}, t);
          else
            work(float{}, t);
        }
      });
}

}  // namespace cellc
