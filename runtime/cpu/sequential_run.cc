#include "runtime/cpu/sequential_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "runtime/cpu/products.h"
#include "runtime/data/threads.h"

namespace cellc {

namespace {

/// Steps [begin, end) of a sequence.
struct Chunk {
  std::int64_t sequence, begin, end;
};

/// Chunks in neighbouring rows, run phase by phase: many short sequences, or a part of a long one.
struct Span {
  std::vector<Chunk> chunks;
  std::int64_t row_begin, row_end;
};

/// Spans that must follow each other.
using Task = std::vector<Span>;

/// Memory of one task at a time.
struct Scratch {
  std::vector<Array> temps, chunks;
  std::vector<Array> carried[2];  ///< by state, narrow storage: step t writes carried[t % 2]
};

constexpr std::int64_t kChunkRows = 512;
constexpr std::int64_t kChunkBytes = 8 << 20;
/// Work (entries of states and outs times rows) below which more threads cost more than they bring.
constexpr std::int64_t kWorkPerThread = 1 << 15;

template <typename Number>
Array widened(const Array& array, Dtype dtype) {
  Array result = Array::uninitialised(dtype, array.shape());
  Number* to = static_cast<Number*>(result.data());
  const std::int64_t count = array.count();
  if (array.dtype() == Dtype::F16 || array.dtype() == Dtype::BF16) {
    // Decoding is slow and there are only so many values.
    std::vector<Number> table(1 << 16);
    Array each(Dtype::U16, {1 << 16});
    auto* raw = static_cast<std::uint16_t*>(each.data());
    for (int i = 0; i < 1 << 16; ++i) raw[i] = static_cast<std::uint16_t>(i);
    each.reinterpret(array.dtype());
    for (int i = 0; i < 1 << 16; ++i) table[i] = static_cast<Number>(each.get(i));
    const auto* from = static_cast<const std::uint16_t*>(array.data());
    for (std::int64_t i = 0; i < count; ++i) to[i] = table[from[i]];
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Number>(array.get(i));
  }
  return result;
}

class SequentialRun {
 public:
  SequentialRun(const CompiledPlan& compiled, const BoundRun& run, RunOutput reuse)
      : compiled_(compiled),
        plan_(compiled.plan),
        run_(run),
        reuse_(std::move(reuse)),
        narrow_(plan_.options.narrow_storage),
        arithmetic_(compiled.dtype == Dtype::F64 ? Dtype::F64 : Dtype::F32) {}

  RunOutput operator()() {
    bind();
    allocate_outputs();
    run_once();
    make_jobs();
    if (!tasks_.empty()) {
      const int threads = choose_threads();
      if (by_lanes_) {
        run_by_lanes(threads);
      } else {
        run_by_jobs(threads);
      }
    }
    write_finals();
    return std::move(output_);
  }

 private:
  // Sizes and arrays ---------------------------------------------------------------------------

  std::int64_t length(AxisId axis) const { return run_.sizes.at(plan_.cell.graph.axis(axis).extent_of); }

  std::int64_t entries(const std::vector<AxisId>& axes) const {
    std::int64_t n = 1;
    for (const AxisId a : axes) n *= length(a);
    return n;
  }

  std::vector<std::int64_t> shape(std::vector<std::int64_t> before, const std::vector<AxisId>& axes) const {
    for (const AxisId a : axes) before.push_back(length(a));
    return before;
  }

  Array checked(const Symbol& symbol, const Array& given, std::vector<std::int64_t> before, Dtype dtype,
                const char* what) const {
    const std::vector<std::int64_t> wanted = shape(std::move(before), symbol.axes);
    if (!given.data()) {
      if (symbol.kind == SymbolKind::State || *what) return Array(dtype, wanted);
      throw RequestError(fmt::format("{} is not given", symbol.name));
    }
    std::int64_t count = 1;
    for (const std::int64_t n : wanted) count *= n;
    if (given.count() != count) {
      throw RequestError(fmt::format("{}{}: expected {} entries, found {}", symbol.name, what, count, given.count()));
    }
    if (given.dtype() == dtype) return given;
    if (size_of(dtype) == 2)
      throw RequestError(
          fmt::format("{}{}: expected {}, found {}", symbol.name, what, to_string(dtype), to_string(given.dtype())));
    return dtype == Dtype::F64 ? widened<double>(given, dtype) : widened<float>(given, dtype);
  }

  void bind() {
    if (run_.offsets.empty()) throw RequestError("a run needs the offsets of its sequences");
    sequences_ = static_cast<std::int64_t>(run_.offsets.size()) - 1;
    rows_ = run_.offsets.back();
    const auto& symbols = plan_.cell.symbols;
    if (run_.symbols.size() != symbols.size()) throw std::logic_error("run: arrays and symbols do not match");
    for (std::size_t s = 0; s < symbols.size(); ++s) {
      const Symbol& symbol = symbols[s];
      const Array& given = run_.symbols[s];
      switch (symbol.kind) {
        case SymbolKind::Input:
          arrays_.push_back(checked(symbol, given, {rows_}, compiled_.dtype, ""));
          break;
        case SymbolKind::State:
          arrays_.push_back(checked(symbol, given, {sequences_}, arithmetic_, ""));
          break;
        case SymbolKind::Param:
          arrays_.push_back(checked(symbol, given, {}, arithmetic_, ""));
          break;
      }
      Array history;
      std::int64_t depth = symbol.max_lag;
      if (symbol.kind == SymbolKind::Input && depth != 0) {
        const Array none;
        const Array& past = s < run_.histories.size() ? run_.histories[s] : none;
        if (past.shape().size() >= 2) depth = past.shape()[1];
        history = checked(symbol, past, {sequences_, depth}, compiled_.dtype, ".lag");
      }
      histories_.push_back(history);
      history_depth_.push_back(depth);
    }
  }

  void allocate_outputs() {
    for (const StateUpdate& u : plan_.cell.updates) {
      const Symbol& symbol = plan_.cell.symbols[u.symbol];
      add_output(output_.states, reuse_.states, compiled_.dtype, shape({rows_}, symbol.axes));
      add_output(output_.finals, reuse_.finals, arithmetic_, shape({sequences_}, symbol.axes));
      work_ += entries(symbol.axes) * rows_;
    }
    for (const Out& o : plan_.cell.outs) {
      add_output(output_.outs, reuse_.outs, compiled_.dtype, shape({rows_}, o.index));
      work_ += entries(o.index) * rows_;
    }
  }

  static void add_output(std::vector<Array>& outputs, std::vector<Array>& earlier, Dtype dtype,
                         const std::vector<std::int64_t>& shape) {
    const std::size_t i = outputs.size();
    const bool fits =
        i < earlier.size() && earlier[i].dtype() == dtype && earlier[i].shape() == shape && earlier[i].is_sole_owner();
    outputs.push_back(fits ? std::move(earlier[i]) : Array::uninitialised(dtype, shape));
  }

  // Slots --------------------------------------------------------------------------------------

  std::int64_t steps_of(std::int64_t sequence) const { return run_.offsets[sequence + 1] - run_.offsets[sequence]; }
  /// The row of a sequence's step, in the order of the run.
  std::int64_t row_of(std::int64_t sequence, std::int64_t step) const {
    return run_.reverse ? run_.offsets[sequence + 1] - 1 - step : run_.offsets[sequence] + step;
  }

  static std::uint64_t at(const Array& array, std::int64_t entry) {
    return std::bit_cast<std::uint64_t>(static_cast<const std::byte*>(array.data()) +
                                        entry * static_cast<std::int64_t>(size_of(array.dtype())));
  }

  std::int64_t row_bytes(SlotKind kind, int id) const {
    switch (kind) {
      case SlotKind::InputRow:
      case SlotKind::InputStep:
        return entries(plan_.cell.symbols[id].axes) * static_cast<std::int64_t>(size_of(compiled_.dtype));
      case SlotKind::StateRow:
      case SlotKind::StateStep:
        return entries(plan_.cell.symbols[plan_.cell.updates[id].symbol].axes) *
               static_cast<std::int64_t>(size_of(compiled_.dtype));
      case SlotKind::OutRow:
      case SlotKind::OutStep:
        return entries(plan_.cell.outs[id].index) * static_cast<std::int64_t>(size_of(compiled_.dtype));
      default:
        return entries(plan_.chunks[id].dims) * static_cast<std::int64_t>(size_of(arithmetic_));
    }
  }

  std::uint64_t slot_value(const Slot& slot, const Scratch& scratch, const Span& span, const Chunk& chunk) const {
    const std::int64_t row = row_of(chunk.sequence, chunk.begin);
    const int id = slot.id;
    const auto base_and_row = [&](const Array& array, std::int64_t at_row) {
      return at(array, 0) + static_cast<std::uint64_t>(at_row * row_bytes(slot.kind, id));
    };
    switch (slot.kind) {
      case SlotKind::Length:
        return static_cast<std::uint64_t>(length(static_cast<AxisId>(id)));
      case SlotKind::Param:
        return at(arrays_[id], 0);
      case SlotKind::Once:
        return at(once_[id], 0);
      case SlotKind::Temp:
        return at(scratch.temps[id], 0);
      case SlotKind::InputRow:
        return base_and_row(arrays_[id], row);
      case SlotKind::History:
        return at(histories_[id], chunk.sequence * history_depth_[id] * entries(plan_.cell.symbols[id].axes));
      case SlotKind::Time:
        return static_cast<std::uint64_t>(chunk.begin);
      case SlotKind::StateOld: {
        const StateUpdate& u = plan_.cell.updates[id];
        const std::int64_t n = entries(plan_.cell.symbols[u.symbol].axes);
        if (chunk.begin == 0) return at(arrays_[u.symbol], chunk.sequence * n);
        if (narrow_) return at(scratch.carried[(chunk.begin - 1) % 2][id], 0);
        return at(output_.states[id], row_of(chunk.sequence, chunk.begin - 1) * n);
      }
      case SlotKind::StateNew:
        return at(scratch.carried[chunk.begin % 2][id], 0);
      case SlotKind::StateSpare:
        return at(scratch.carried[(chunk.begin + 1) % 2][id], 0);
      case SlotKind::StateRow:
        return base_and_row(output_.states[id], row);
      case SlotKind::OutRow:
        return base_and_row(output_.outs[id], row);
      case SlotKind::ChunkRow:
        return base_and_row(scratch.chunks[id], row - span.row_begin);
      case SlotKind::InputStep:
      case SlotKind::StateStep:
      case SlotKind::OutStep:
      case SlotKind::ChunkStep: {
        const std::int64_t bytes = row_bytes(slot.kind, id);
        return static_cast<std::uint64_t>(run_.reverse ? -bytes : bytes);
      }
    }
    throw std::logic_error("run: no such slot");
  }

  void call(int kernel, const Scratch& scratch, const Span& span, const Chunk& chunk, std::int64_t lane_begin,
            std::int64_t lane_end) const {
    const KernelFunction function = compiled_.functions[kernel];
    if (!function) return;
    const std::vector<Slot>& slots = compiled_.kernels[kernel].slots;
    std::vector<std::uint64_t> values(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) values[i] = slot_value(slots[i], scratch, span, chunk);
    function(values.data(), chunk.end - chunk.begin, lane_begin, lane_end);
  }

  void run_once() {
    for (const Buffer& b : plan_.once) once_.push_back(Array::uninitialised(arithmetic_, shape({}, b.dims)));
    if (plan_.once_kernel < 0) return;
    const Scratch scratch = make_scratch();
    // Its slots are sizes, params and buffers: the chunk is not looked at.
    const KernelFunction function = compiled_.functions[plan_.once_kernel];
    std::vector<std::uint64_t> values;
    for (const Slot& slot : compiled_.kernels[plan_.once_kernel].slots) {
      switch (slot.kind) {
        case SlotKind::Length:
          values.push_back(static_cast<std::uint64_t>(length(static_cast<AxisId>(slot.id))));
          break;
        case SlotKind::Param:
          values.push_back(at(arrays_[slot.id], 0));
          break;
        case SlotKind::Once:
          values.push_back(at(once_[slot.id], 0));
          break;
        case SlotKind::Temp:
          values.push_back(at(scratch.temps[slot.id], 0));
          break;
        default:
          throw std::logic_error("run: a value of params reads a row");
      }
    }
    function(values.data(), 1, 0, 0);
  }

  // Spans of time -----------------------------------------------------------------------------

  void make_jobs() {
    chunk_rows_ = std::numeric_limits<std::int64_t>::max();
    if (!plan_.chunks.empty()) {
      std::int64_t bytes = 0;
      for (std::size_t c = 0; c < plan_.chunks.size(); ++c) bytes += row_bytes(SlotKind::ChunkRow, static_cast<int>(c));
      chunk_rows_ = std::clamp<std::int64_t>(kChunkBytes / std::max<std::int64_t>(bytes, 1), 1, kChunkRows);
      if (chunk_rows_ > kProductRows) chunk_rows_ -= chunk_rows_ % kProductRows;
    }
    // Without states no step waits for another: every thread finds spans of its own.
    const bool stateless = plan_.cell.updates.empty();
    const bool chunked = chunk_rows_ != std::numeric_limits<std::int64_t>::max();
    if (stateless && chunked && run_.product_rows > kProductRows && chunk_rows_ >= run_.product_rows) {
      product_rows_ = run_.product_rows;
      chunk_rows_ -= chunk_rows_ % product_rows_;
    }
    const bool joins = chunked && product_rows_ == kProductRows;
    // What may share one leaves work for so many threads, however many there are: where a row lies in a product,
    // and so its bits, must not follow from them.
    constexpr std::int64_t kShares = 32;
    const std::int64_t joined_rows = std::max(2 * kProductRows, rows_ / kShares);
    for (std::int64_t s = 0; s < sequences_; ++s) {
      const std::int64_t steps = steps_of(s);
      if (steps == 0) continue;
      // Short sequences share a span, so that a product of theirs is one product.
      const std::int64_t first_row = run_.offsets[s];
      if (joins && !tasks_.empty() && tasks_.back().size() == 1 && tasks_.back()[0].row_end == first_row &&
          first_row + steps - tasks_.back()[0].row_begin <= std::min(chunk_rows_, joined_rows)) {
        tasks_.back()[0].chunks.push_back({s, 0, steps});
        tasks_.back()[0].row_end += steps;
        continue;
      }
      Task task;
      for (std::int64_t begin = 0; begin < steps; begin += std::min(chunk_rows_, steps - begin)) {
        const std::int64_t end = begin + std::min(chunk_rows_, steps - begin);
        const std::int64_t low = row_of(s, run_.reverse ? end - 1 : begin);
        task.push_back({{{s, begin, end}}, low, low + (end - begin)});
        if (stateless && end < steps) tasks_.push_back(std::exchange(task, {}));
      }
      tasks_.push_back(std::move(task));
    }
    if (stateless) share_blocks();
    for (const Task& task : tasks_) {
      for (const Span& span : task) largest_span_ = std::max(largest_span_, span.row_end - span.row_begin);
    }
  }

  /// Cuts tasks of one span without states into smaller ones, in whole products, so that every thread finds some.
  void share_blocks() {
    const std::int64_t share = rows_ / (8 * thread_count(run_.threads));
    const std::int64_t rows = std::max<std::int64_t>(product_rows_, share - share % product_rows_);
    std::vector<Task> tasks;
    for (Task& task : tasks_) {
      const Chunk whole = task[0].chunks[0];
      if (task[0].chunks.size() > 1 || whole.end - whole.begin <= rows) {
        tasks.push_back(std::move(task));
        continue;
      }
      for (std::int64_t begin = whole.begin; begin < whole.end; begin += std::min(rows, whole.end - begin)) {
        const std::int64_t end = begin + std::min(rows, whole.end - begin);
        const std::int64_t low = row_of(whole.sequence, run_.reverse ? end - 1 : begin);
        tasks.push_back({{{{whole.sequence, begin, end}}, low, low + (end - begin)}});
      }
    }
    tasks_ = std::move(tasks);
  }

  Scratch make_scratch() const {
    Scratch scratch;
    for (const Buffer& b : plan_.temps) scratch.temps.push_back(Array::uninitialised(arithmetic_, shape({}, b.dims)));
    for (const Buffer& b : plan_.chunks) {
      scratch.chunks.push_back(Array::uninitialised(arithmetic_, shape({largest_span_}, b.dims)));
    }
    if (narrow_) {
      for (const StateUpdate& u : plan_.cell.updates) {
        for (auto& half : scratch.carried) {
          half.push_back(Array::uninitialised(arithmetic_, shape({}, plan_.cell.symbols[u.symbol].axes)));
        }
      }
    }
    return scratch;
  }

  // Phases -------------------------------------------------------------------------------------

  /// Every `of`-th group of rows, from the `part`-th on.
  void multiply(const Product& p, const Scratch& scratch, const Span& span, int part, int of) const {
    const ProductShape shape = product_shape(plan_, p, run_.sizes);
    const void* matrix = p.matrix.place == Place::Param ? arrays_[p.matrix.id].data() : once_[p.matrix.id].data();
    const std::int64_t size = static_cast<std::int64_t>(size_of(arithmetic_));
    const std::int64_t in = shape.batch * shape.depth * size, out = shape.batch * shape.width * size;
    const std::byte* operand = nullptr;
    switch (p.operand.place) {
      case Place::Input:
        operand = bytes(arrays_[p.operand.id]) + span.row_begin * in;
        break;
      case Place::StateNew:
        operand = bytes(output_.states[p.operand.id]) + span.row_begin * in;
        break;
      case Place::Out:
        operand = bytes(output_.outs[p.operand.id]) + span.row_begin * in;
        break;
      case Place::Chunk:
        operand = bytes(scratch.chunks[p.operand.id]);
        break;
      default:
        throw std::logic_error("run: a product of something without rows");
    }
    std::byte* result = const_cast<std::byte*>(bytes(scratch.chunks[p.chunk]));
    const std::int64_t rows = span.row_end - span.row_begin;
    // Which rows share a call follows from the sequences alone: neither from the threads nor from who is asked.
    const std::int64_t rest = rows % product_rows_, first = run_.reverse ? rest : 0;
    const auto groups = [&](std::int64_t begin, std::int64_t end, std::int64_t each) {
      for (std::int64_t r = begin + part * each; r < end; r += of * each)
        multiply_rows(shape, p.sum_last, arithmetic_, matrix, operand + r * in, result + r * out,
                      std::min(each, end - r));
    };
    groups(first, first + rows - rest, product_rows_);
    groups(run_.reverse ? 0 : rows - rest, run_.reverse ? rest : rows, kProductRows);
  }

  static const std::byte* bytes(const Array& array) { return static_cast<const std::byte*>(array.data()); }

  /// Narrow storage has the last state only in the carried buffers, until the next sequence takes them.
  void keep_finals(int kernel, const Scratch& scratch, const Chunk& chunk) {
    if (!narrow_ || chunk.end != steps_of(chunk.sequence)) return;
    for (std::size_t i = 0; i < plan_.cell.updates.size(); ++i) {
      if (plan_.state_kernel[i] == kernel) copy_final(i, chunk.sequence, scratch.carried[(chunk.end - 1) % 2][i], 0);
    }
  }

  void copy_final(std::size_t position, std::int64_t sequence, const Array& from, std::int64_t entry) {
    const std::int64_t n = entries(plan_.cell.symbols[plan_.cell.updates[position].symbol].axes);
    const std::int64_t size = static_cast<std::int64_t>(size_of(arithmetic_));
    std::memcpy(static_cast<std::byte*>(output_.finals[position].data()) + sequence * n * size,
                bytes(from) + entry * size, static_cast<std::size_t>(n * size));
  }

  void write_finals() {
    for (std::size_t i = 0; i < plan_.cell.updates.size(); ++i) {
      const int symbol = plan_.cell.updates[i].symbol;
      const std::int64_t n = entries(plan_.cell.symbols[symbol].axes);
      for (std::int64_t s = 0; s < sequences_; ++s) {
        const std::int64_t steps = steps_of(s);
        if (steps == 0) {
          copy_final(i, s, arrays_[symbol], s * n);
        } else if (!narrow_) {
          copy_final(i, s, output_.states[i], row_of(s, steps - 1) * n);
        }
      }
    }
  }

  // Threads ------------------------------------------------------------------------------------

  int choose_threads() {
    int threads = thread_count(run_.threads);
    threads = static_cast<int>(std::clamp<std::int64_t>(work_ / kWorkPerThread, 1, threads));
    const std::int64_t tasks = static_cast<std::int64_t>(tasks_.size());
    // Sequences need no agreement between threads, but few of them leave threads idle.
    const bool uneven = tasks < 4 * threads && tasks % threads != 0;
    by_lanes_ = threads > 1 && uneven && plan_.split_axis != kNoAxis &&
                length(plan_.split_axis) >= 4 * static_cast<std::int64_t>(threads);
    if (!by_lanes_) threads = static_cast<int>(std::min<std::int64_t>(threads, tasks));
    return threads;
  }

  void run_by_jobs(int threads) {
    std::vector<Scratch> scratches;
    for (int i = 0; i < threads; ++i) scratches.push_back(make_scratch());
    const std::int64_t all = plan_.split_axis == kNoAxis ? 0 : length(plan_.split_axis);
    std::atomic<std::size_t> next{0};
    run_on_threads(threads, [&](int thread) {
      const Scratch& scratch = scratches[thread];
      for (std::size_t j; (j = next.fetch_add(1)) < tasks_.size();) {
        for (const Span& span : tasks_[j]) {
          for (const Phase& phase : plan_.phases) {
            if (phase.product) {
              multiply(plan_.products[phase.index], scratch, span, 0, 1);
              continue;
            }
            for (const Chunk& chunk : span.chunks) {
              call(phase.index, scratch, span, chunk, 0, all);
              keep_finals(phase.index, scratch, chunk);
            }
          }
        }
      }
    });
  }

  void run_by_lanes(int threads) {
    const Scratch scratch = make_scratch();
    const std::int64_t all = length(plan_.split_axis);
    // Whole cache lines where there is enough; a lane's bits do not depend on the cut.
    const std::int64_t unit = all >= 32 * threads ? 16 : 1;
    const std::int64_t units = (all + unit - 1) / unit;
    const bool meets = plan_.phases.size() > 1;
    run_in_step(threads, [&](int thread, std::barrier<>& meeting) {
      const std::int64_t begin = std::min(all, units * thread / threads * unit);
      const std::int64_t end = std::min(all, units * (thread + 1) / threads * unit);
      for (const Task& task : tasks_) {
        for (const Span& span : task) {
          for (const Phase& phase : plan_.phases) {
            if (phase.product) {
              multiply(plan_.products[phase.index], scratch, span, thread, threads);
              meeting.arrive_and_wait();
              continue;
            }
            for (const Chunk& chunk : span.chunks) {
              call(phase.index, scratch, span, chunk, begin, end);
              if (!narrow_) continue;
              meeting.arrive_and_wait();
              if (thread == 0) keep_finals(phase.index, scratch, chunk);
              meeting.arrive_and_wait();
            }
            if (meets) meeting.arrive_and_wait();
          }
        }
      }
    });
  }

  const CompiledPlan& compiled_;
  const Plan& plan_;
  const BoundRun& run_;
  RunOutput reuse_;
  const bool narrow_;
  const Dtype arithmetic_;
  std::int64_t sequences_ = 0, rows_ = 0, work_ = 0;
  std::vector<Array> arrays_, histories_, once_;
  std::vector<std::int64_t> history_depth_;
  RunOutput output_;
  std::int64_t chunk_rows_ = 0, largest_span_ = 0, product_rows_ = kProductRows;
  std::vector<Task> tasks_;
  bool by_lanes_ = false;
};

}  // namespace

RunOutput run_sequential(const CompiledPlan& compiled, const BoundRun& run, RunOutput reuse) {
  return SequentialRun(compiled, run, std::move(reuse))();
}

}  // namespace cellc
