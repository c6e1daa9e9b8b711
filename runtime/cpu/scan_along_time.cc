#include "runtime/cpu/scan_along_time.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>

#include "runtime/cpu/compose_steps.h"
#include "runtime/cpu/flush_to_zero.h"
#include "runtime/cpu/lane_arguments.h"
#include "runtime/data/run_control.h"
#include "runtime/data/threads.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace cellc {

namespace {

/// Steps side by side: the arrays of two kernels in the first-level cache.
constexpr std::int64_t kChunk = 512;
/// Arrays from this size on are written past the caches.
constexpr std::int64_t kStreamBytes = 8 << 20;

}  // namespace

/// A lane kernel called for one step of many lanes, where lane t is step t.
class StepsAsLanes {
 public:
  StepsAsLanes(const LaneKernel& kernel, const LaneData& data)
      : kernel_(kernel),
        plan_(kernel.compiled_.plan),
        data_(data),
        size_(static_cast<std::int64_t>(size_of(kernel.compiled_.dtype))),
        arguments_(kernel, data, false) {
    arguments_.begin(kChunk);
    for (std::size_t s = 0; s < arguments_.places.size(); ++s) {
      const Symbol& symbol = plan_.cell.symbols[s];
      if (symbol.kind == SymbolKind::Param)
        arguments_.places[s].row =
            symbol.axes.empty() || symbol.axes.back() != kernel.lane_ ? data.symbols[s].data : repeated(s);
    }
    arguments_.call_once();
  }

  void set_state(int position, const void* before, void* after) {
    LanePlace& p = arguments_.places[arguments_.symbol_of_state(position)];
    p.old = static_cast<std::byte*>(const_cast<void*>(before));
    p.row = static_cast<std::byte*>(after);
  }

  /// Steps [row, row + steps), steps at most a chunk; states as if there were whole vectors.
  void run(std::int64_t row, std::int64_t steps) {
    const std::int64_t wide = kernel_.compiled_.vector_lanes, whole = (steps + wide - 1) / wide * wide;
    for (std::size_t s = 0; s < arguments_.places.size(); ++s) {
      if (plan_.cell.symbols[s].kind != SymbolKind::Input) continue;
      const std::byte* const from = input(s, row);
      arguments_.places[s].row = const_cast<std::byte*>(from);
      if (whole == steps) continue;
      // The last vector reaches past the array.
      std::byte* const padded = arguments_.grown(padded_, s, kChunk);
      std::copy_n(from, steps * size_, padded);
      arguments_.places[s].row = padded;
    }
    arguments_.call_steps(1, 0, whole);
  }

  /// Where the inputs of a row are.
  void lines_of(std::int64_t row, std::vector<const std::byte*>& lines) const {
    lines.clear();
    for (std::size_t s = 0; s < arguments_.places.size(); ++s)
      if (plan_.cell.symbols[s].kind == SymbolKind::Input) lines.push_back(input(s, row));
  }

 private:
  const std::byte* input(std::size_t s, std::int64_t row) const {
    const LaneArray& a = data_.symbols[s];
    return a.data + (row + a.mixed[0] + a.channel[0]) * size_;
  }

  /// A param of the only channel, for every lane.
  std::byte* repeated(std::size_t s) {
    const LaneArray& a = data_.symbols[s];
    std::byte* const to = arguments_.grown(params_, s, static_cast<std::int64_t>(a.mixed.size()) * kChunk);
    for (std::size_t m = 0; m < a.mixed.size(); ++m)
      for (std::int64_t l = 0; l < kChunk; ++l)
        std::copy_n(a.data + (a.mixed[m] + a.channel[0]) * size_, size_,
                    to + (static_cast<std::int64_t>(m) * kChunk + l) * size_);
    return to;
  }

  const LaneKernel& kernel_;
  const Plan& plan_;
  const LaneData& data_;
  const std::int64_t size_;
  LaneArguments arguments_;
  std::vector<Array> params_, padded_;
};

namespace {

/// Of a product that f64 may be too short for only by what a logarithm hides.
double logarithm(double product) {
  constexpr double kSmallest = -700;
  return product == 0 ? kSmallest : std::log(std::fabs(product));
}

/// One thread's buffers.
template <typename Number>
class Worker {
 public:
  Worker(const StageData& data, const StageKernels::Carrying& carrying, const LaneData& carried, const LaneKernel& step)
      : data_(data),
        composer_(*step_composer<Number>()),
        transitions_(carrying.kernel, carried),
        step_(step, data.lanes()) {
    std::fill_n(zero_, kChunk, Number{0});
    std::fill_n(one_, kChunk, Number{1});
    transitions_.set_state(0, zero_, offset_);
    transitions_.set_state(carrying.cell.position[0][0], one_, factor_);
    step_.set_state(0, state_, stepped_);
    const LaneArray& a = data.lanes().symbols[0];
    trajectory_ = reinterpret_cast<Number*>(a.data) + a.mixed[0] + a.channel[0];
    large_ = data.rows() * static_cast<std::int64_t>(sizeof(Number)) >= kStreamBytes;
  }

  struct Chunk {
    Number end = 0, size = 0;
    double product = 1, residual = 0;
  };

  /// Steps [row, row + steps) from a state, written and checked. `size`: the largest |s| of the segment before them.
  Chunk run(std::int64_t row, std::int64_t steps, Number from, Number size) {
    Chunk result;
    transitions_.run(row, steps);
    const std::int64_t whole = (steps + composer_.width - 1) / composer_.width * composer_.width;
    std::fill(factor_ + steps, factor_ + whole, Number{1});  // what fills the last vector up changes nothing
    std::fill(offset_ + steps, offset_ + whole, Number{0});
    transitions_.lines_of(row + kChunk, lines_);
    state_[0] = from;
    {
      const FlushToZero flushed(true);  // products of factors, as everywhere
      result.product = composer_.compose(factor_, offset_, whole, from, state_ + 1,
                                         {lines_.data(), static_cast<int>(lines_.size())});
    }
    result.end = state_[steps];
    step_.run(row, steps);
    std::copy(state_ + 1 + steps, state_ + 1 + whole, stepped_ + steps);
    // Rows of one chunk follow from the one state that it starts from: none is larger because of a wrong guess that
    // another would have shown. A chunk of zeros may be off by no number but zero.
    const Number here = composer_.largest(state_ + 1, whole);
    result.size = here < std::numeric_limits<Number>::infinity() ? std::max(size, here) : size;
    const Number own = std::max(result.size, std::numeric_limits<Number>::min());
    if (whole == steps) {
      result.residual = composer_.check_and_copy(stepped_, state_ + 1, steps, own, trajectory_ + row, large_);
    } else {
      result.residual = composer_.check_and_copy(stepped_, state_ + 1, whole, own, last_, false);
      std::copy_n(last_, steps, trajectory_ + row);
    }
    return result;
  }

 private:
  const StageData& data_;
  const StepComposer<Number>& composer_;
  StepsAsLanes transitions_, step_;
  std::vector<const std::byte*> lines_;
  Number* trajectory_ = nullptr;
  bool large_ = false;
  alignas(64) Number zero_[kChunk], one_[kChunk], offset_[kChunk], factor_[kChunk], stepped_[kChunk], last_[kChunk];
  alignas(64) Number state_[kChunk + 1];
};

}  // namespace

bool has_step_composer(Dtype dtype) {
  return dtype == Dtype::F64 ? step_composer<double>() != nullptr : step_composer<float>() != nullptr;
}

bool scans_along_time(const StageData& data, const TransitionCell& transitions) {
  if (!has_step_composer(data.dtype()) || transitions.kind != Scannable::Affine || data.channels() != 1 ||
      data.states() != 1 || data.mixed(0) != 1 || transitions.position[0][0] < 0 || data.lanes().direction != 1)
    return false;
  const StageCells& stage = data.stage();
  for (std::size_t s = 0; s < stage.lanes.cell.symbols.size(); ++s) {
    const Symbol& symbol = stage.lanes.cell.symbols[s];
    const LaneArray& a = data.lanes().symbols[s];
    if (symbol.kind == SymbolKind::Param) continue;
    if (a.row_entries != 1 || a.mixed.size() != 1 || symbol.axes.empty() || symbol.axes.back() != stage.lane)
      return false;
  }
  return true;
}

template <typename Number>
AlongTime scan_along_time(const StageData& data, StageKernels& kernels, Segments<Number>& segments, double tolerance,
                          int threads) {
  const StageKernels::Carrying& carrying = kernels.transitions();
  const LaneData carried = data.extended(carrying.cell.cell);
  const LaneKernel& step = kernels.step();
  const std::int64_t count = segments.count();
  AlongTime result;
  result.residual.assign(static_cast<std::size_t>(count), 0);
  std::vector<double> logs(static_cast<std::size_t>(count), 0);
  std::vector<Number> reached(static_cast<std::size_t>(count));  // the end, had the segment begun where it does
  // Segments are taken in the order of time, so whoever waits for its turn waits for one that runs.
  std::atomic<std::int64_t> next{0}, turn{0};
  std::atomic<bool> failed{false};
  run_on_threads(static_cast<int>(std::clamp<std::int64_t>(threads, 1, count)), [&](int) {
    const auto worker = std::make_unique<Worker<Number>>(data, carrying, carried, step);
    std::vector<typename Worker<Number>::Chunk> chunks;
    for (std::int64_t k; go_on_after(0), (k = next.fetch_add(1)) < count;) {
      const Segment& segment = segments[k];
      Number& start = segments.start(0)[segments.entry(0, k, 0, 0)];
      const bool first = segments.is_first(k);
      const std::size_t pieces = static_cast<std::size_t>((segment.steps + kChunk - 1) / kChunk);
      const auto run = [&](std::size_t c, Number from) {
        const std::int64_t at = static_cast<std::int64_t>(c) * kChunk;
        return worker->run(segment.row + at, std::min(kChunk, segment.steps - at), from,
                           c > 0 ? chunks[c - 1].size : Number{0});
      };
      const auto run_again = [&] {
        Number from = start;
        for (std::size_t c = 0; c < pieces; ++c) {
          const Number before = chunks[c].end;
          chunks[c] = run(c, from);
          from = chunks[c].end;
          if (from == before) break;  // what follows has the same bits again
        }
      };
      bool passed = false;
      const auto wait_for_turn = [&] {
        for (std::int64_t at; (at = turn.load(std::memory_order_acquire)) != k;)
          turn.wait(at, std::memory_order_acquire);
      };
      const auto pass_on = [&] {
        passed = true;
        turn.store(k + 1, std::memory_order_release);
        turn.notify_all();
      };
      try {
        chunks.assign(pieces, {});
        const Number guess = start;
        double product = 1;
        if (!failed.load(std::memory_order_relaxed)) {
          Number from = guess;
          for (std::size_t c = 0; c < pieces; ++c) {
            chunks[c] = run(c, from);
            from = chunks[c].end;
            product *= chunks[c].product;
            logs[static_cast<std::size_t>(k)] += logarithm(chunks[c].product);
          }
        }
        wait_for_turn();
        bool done = first || failed.load(std::memory_order_relaxed);
        Number to = chunks.back().end;
        if (!done) {
          start = reached[static_cast<std::size_t>(k - 1)];
          const Number change = start - guess;
          done = change == 0;
          if (product != 0) to += static_cast<Number>(product * change);
          if (!std::isfinite(to)) {
            run_again();
            to = chunks.back().end;
            done = true;
          }
        }
        reached[static_cast<std::size_t>(k)] = to;
        pass_on();
        if (!done) run_again();
      } catch (...) {
        // Nobody may wait for a turn that never comes.
        if (!passed) {
          failed = true;
          wait_for_turn();
          pass_on();
        }
        throw;
      }
      segments.end(0)[segments.entry(0, k, 0, 0)] = chunks.back().end;
      double& residual = result.residual[static_cast<std::size_t>(k)];
      for (const auto& chunk : chunks) residual = std::max(residual, chunk.residual);
      if (!(residual <= tolerance)) failed = true;
    }
#ifdef __SSE2__
    _mm_sfence();  // streamed rows are seen by whoever joins this thread
#endif
  });
  for (const double l : logs) result.log_product += l;
  result.checked = !failed;
  return result;
}

template AlongTime scan_along_time(const StageData&, StageKernels&, Segments<float>&, double, int);
template AlongTime scan_along_time(const StageData&, StageKernels&, Segments<double>&, double, int);

}  // namespace cellc
