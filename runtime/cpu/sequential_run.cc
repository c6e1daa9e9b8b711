#include "runtime/cpu/sequential_run.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <span>
#include <utility>

#include "runtime/cpu/products.h"
#include "runtime/cpu/run_tasks.h"
#include "runtime/cpu/sequential_arrays.h"
#include "runtime/data/run_control.h"
#include "runtime/data/threads.h"

namespace cellc {

namespace {

/// Work (entries of states and outs times rows) below which more threads cost more than they bring.
constexpr std::int64_t kWorkPerThread = 1 << 15;

/// Sequences that kernels step together.
constexpr std::size_t kBeside = KernelsTogether::kSequences;

/// Steps of a sequence, and where a kernel has what is in between.
struct SteppedChunk {
  const TaskScratch* scratch;
  const RowSpan* span;
  StepChunk chunk;

  std::int64_t steps() const { return chunk.end - chunk.begin; }
  /// Some of its steps, counted from its first.
  SteppedChunk part(std::int64_t from, std::int64_t to) const {
    return {scratch, span, {chunk.sequence, chunk.begin + from, chunk.begin + to}};
  }
};

class SequentialRun {
 public:
  SequentialRun(const CompiledPlan& compiled, const BoundRun& run, RunOutput reuse, const std::vector<Array>* given)
      : compiled_(compiled),
        plan_(compiled.plan),
        run_(run),
        given_(given != nullptr),
        waits_(!given && !compiled.plan.cell.updates.empty()),
        arrays_(compiled, run, std::move(reuse), given) {}

  RunOutput operator()() {
    run_once();
    std::int64_t chunk_bytes = 0;
    for (std::size_t c = 0; c < plan_.chunks.size(); ++c)
      chunk_bytes += arrays_.row_bytes(SlotKind::ChunkRow, static_cast<int>(c));
    cut_ = cut_tasks(run_, chunk_bytes, !waits_, plan_.independent_steps);
    arrays_.cut_parts(cut_.largest_span);
    if (!cut_.tasks.empty()) {
      const int threads = choose_threads();
      if (by_lanes_) {
        run_by_lanes(threads);
      } else {
        run_by_tasks(threads);
      }
    }
    arrays_.write_finals();
    return std::move(arrays_.output);
  }

 private:
  /// What follows from params alone: its slots are lengths, params and buffers, so no chunk is looked at.
  void run_once() {
    if (plan_.once_kernel < 0) return;
    const TaskScratch scratch = arrays_.make_scratch(0);
    const RowSpan none{};
    const SteppedChunk chunk{&scratch, &none, {0, 0, 1}};
    call(plan_.once_kernel, {&chunk, 1}, 0, 0);
  }

  /// As many steps of each chunk, of one sequence or of as many as kernels step together.
  void call(int kernel, std::span<const SteppedChunk> chunks, std::int64_t lane_begin, std::int64_t lane_end) const {
    const auto k = static_cast<std::size_t>(kernel);
    const bool one = chunks.size() == 1;
    const KernelFunction function = one ? compiled_.functions[k] : together_->functions[k];
    if (!function) return;
    const std::vector<Slot>& slots = one ? compiled_.kernels[k].slots : together_->kernels[k].slots;
    std::vector<std::uint64_t> values;
    values.reserve(slots.size() * chunks.size());
    for (const Slot& slot : slots)
      for (const SteppedChunk& c : chunks) values.push_back(arrays_.slot_value(slot, *c.scratch, *c.span, c.chunk));
    function(values.data(), chunks[0].steps(), lane_begin, lane_end);
  }

  /// Every `of`-th group of rows, from the `part`-th on.
  void multiply(const Product& p, const TaskScratch& scratch, const RowSpan& span, int part, int of) const {
    const ProductShape shape = product_shape(plan_, p, run_.sizes);
    const std::int64_t size = static_cast<std::int64_t>(size_of(arrays_.arithmetic));
    const std::int64_t in = shape.in() * size, out = shape.out() * size;
    const std::byte *matrix = arrays_.matrix_of(p), *operand = arrays_.operand_of(p, scratch, span, in);
    auto* result = static_cast<std::byte*>(const_cast<void*>(scratch.chunks[p.result.id].data()));
    const std::int64_t rows = span.rows(), most = cut_.product_rows;
    // Which rows share a call follows from the sequences alone: neither from the threads nor from who is asked.
    const std::int64_t rest = rows % most, first = run_.reverse ? rest : 0;
    const auto groups = [&](std::int64_t begin, std::int64_t end, std::int64_t each) {
      for (std::int64_t r = begin + part * each; r < end; r += of * each)
        multiply_rows(shape, p.sum_last, arrays_.arithmetic, matrix, operand + r * in, result + r * out,
                      std::min(each, end - r));
    };
    groups(first, first + rows - rest, most);
    groups(run_.reverse ? 0 : rows - rest, run_.reverse ? rest : rows, kProductRows);
  }

  // Threads ------------------------------------------------------------------------------------

  int choose_threads() {
    int threads = thread_count(run_.threads);
    threads = static_cast<int>(std::clamp<std::int64_t>(arrays_.work / kWorkPerThread, 1, threads));
    const std::int64_t tasks = static_cast<std::int64_t>(cut_.tasks.size());
    // Sequences need no agreement between threads, but few of them leave threads idle.
    const bool uneven = tasks < 4 * threads && tasks % threads != 0;
    const bool may_meet = !run_control() || !run_control()->run_tasks;
    by_lanes_ = may_meet && threads > 1 && uneven && plan_.split_axis != kNoAxis &&
                arrays_.length[plan_.split_axis] >= 4 * static_cast<std::int64_t>(threads);
    if (!by_lanes_) threads = static_cast<int>(std::min<std::int64_t>(threads, tasks));
    return threads;
  }

  /// Whether sequences that share a matrix are stepped together: where that leaves no thread without any.
  bool steps_together(int threads) const {
    return compiled_.together && (waits_ || (given_ && arrays_.has_all_rows())) &&
           cut_.tasks.size() / kBeside >= static_cast<std::size_t>(threads) &&
           compiled_.together->pays_after(arrays_.length, run_.offsets.back());
  }

  /// All tasks; those whose sequences are stepped together first, each beside others about as long. `many`: how many
  /// are.
  std::vector<const RunTask*> order_tasks(int threads, std::size_t& many) {
    std::vector<const RunTask*> order;
    for (const RunTask& task : cut_.tasks) order.push_back(&task);
    many = 0;
    if (!steps_together(threads)) return order;
    together_ = &compiled_.together->code();
    const auto rows = [](const RunTask& task) {
      std::int64_t all = 0;
      for (const RowSpan& span : task) all += span.rows();
      return all;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](const RunTask* a, const RunTask* b) { return rows(*a) > rows(*b); });
    many = order.size() / kBeside * kBeside;
    return order;
  }

  void run_by_tasks(int threads) {
    std::size_t many = 0;
    const std::vector<const RunTask*> order = order_tasks(threads, many);
    std::vector<std::vector<TaskScratch>> scratches(static_cast<std::size_t>(threads));
    for (std::vector<TaskScratch>& of_thread : scratches)
      for (std::size_t i = 0; i < (many > 0 ? kBeside : 1); ++i)
        of_thread.push_back(arrays_.make_scratch(cut_.largest_span));
    std::atomic<std::size_t> next{0};
    run_on_threads(threads, [&](int thread) {
      for (std::size_t j; (j = next.fetch_add(1)) < many / kBeside + (order.size() - many);) {
        const bool together = j < many / kBeside;
        const std::size_t first = together ? j * kBeside : many + (j - many / kBeside);
        run_group({order.data() + first, together ? kBeside : 1}, scratches[static_cast<std::size_t>(thread)]);
      }
    });
  }

  /// Tasks side by side, span by span and phase by phase.
  void run_group(std::span<const RunTask* const> tasks, const std::vector<TaskScratch>& scratches) {
    std::size_t spans = 0;
    for (const RunTask* task : tasks) spans = std::max(spans, task->size());
    for (std::size_t i = 0; i < spans; ++i) {
      std::int64_t rows = 0;
      for (const Phase& phase : plan_.phases) {
        if (!phase.product) {
          run_spans(phase.index, tasks, i, scratches);
          continue;
        }
        for (std::size_t k = 0; k < tasks.size(); ++k)
          if (i < tasks[k]->size()) multiply(plan_.products[phase.index], scratches[k], (*tasks[k])[i], 0, 1);
      }
      for (const RunTask* task : tasks) rows += i < task->size() ? (*task)[i].rows() : 0;
      go_on_after(rows);
    }
  }

  /// The i-th span of every task, chunk beside chunk.
  void run_spans(int kernel, std::span<const RunTask* const> tasks, std::size_t i,
                 const std::vector<TaskScratch>& scratches) {
    std::size_t chunks = 0;
    for (const RunTask* task : tasks)
      if (i < task->size()) chunks = std::max(chunks, (*task)[i].chunks.size());
    for (std::size_t c = 0; c < chunks; ++c) {
      std::array<SteppedChunk, kBeside> all;
      std::size_t count = 0;
      for (std::size_t k = 0; k < tasks.size(); ++k)
        if (i < tasks[k]->size() && c < (*tasks[k])[i].chunks.size())
          all[count++] = {&scratches[k], &(*tasks[k])[i], (*tasks[k])[i].chunks[c]};
      const std::span<const SteppedChunk> beside(all.data(), count);
      const std::int64_t common = together_ && count == kBeside ? common_steps(beside) : 0;
      if (common > 0) step(kernel, beside, 0, common);
      for (const SteppedChunk& one : beside)
        if (common < one.steps()) step(kernel, {&one, 1}, common, one.steps());
    }
  }

  /// Steps that all of the chunks have.
  std::int64_t common_steps(std::span<const SteppedChunk> chunks) const {
    const auto [least, most] =
        std::minmax_element(chunks.begin(), chunks.end(),
                            [](const SteppedChunk& a, const SteppedChunk& b) { return a.steps() < b.steps(); });
    return least->steps() == most->steps() || arrays_.goes_on_inside() ? least->steps() : 0;
  }

  /// The same steps of each chunk, in as many calls as rows that are not wanted ask for.
  void step(int kernel, std::span<const SteppedChunk> chunks, std::int64_t from, std::int64_t to) {
    const std::int64_t all = plan_.split_axis == kNoAxis ? 0 : arrays_.length[plan_.split_axis];
    const auto run = [&](std::int64_t begin, std::int64_t end) {
      std::array<SteppedChunk, kBeside> parts;
      for (std::size_t i = 0; i < chunks.size(); ++i) parts[i] = chunks[i].part(begin, end);
      call(kernel, {parts.data(), chunks.size()}, 0, all);
      for (std::size_t i = 0; i < chunks.size(); ++i)
        arrays_.keep_finals(kernel, *parts[i].scratch, *parts[i].span, parts[i].chunk);
    };
    // Steps from given rows begin anywhere, so parts of one are not those of another; they have all rows.
    if (given_ && chunks.size() > 1) return run(from, to);
    const std::int64_t first = chunks[0].chunk.begin;
    arrays_.each_part(chunks[0].part(from, to).chunk,
                      [&](const StepChunk& part) { run(part.begin - first, part.end - first); });
  }

  void run_by_lanes(int threads) {
    const TaskScratch scratch = arrays_.make_scratch(cut_.largest_span);
    const std::int64_t all = arrays_.length[plan_.split_axis];
    // Whole cache lines where there is enough; a lane's bits do not depend on the cut.
    const std::int64_t unit = all >= 32 * threads ? 16 : 1;
    const std::int64_t units = (all + unit - 1) / unit;
    const bool meets = plan_.phases.size() > 1;
    run_in_step(threads, [&](int thread, std::barrier<>& meeting) {
      const std::int64_t begin = std::min(all, units * thread / threads * unit);
      const std::int64_t end = std::min(all, units * (thread + 1) / threads * unit);
      for (const RunTask& task : cut_.tasks) {
        for (const RowSpan& span : task) {
          for (const Phase& phase : plan_.phases) {
            if (phase.product) {
              multiply(plan_.products[phase.index], scratch, span, thread, threads);
              meeting.arrive_and_wait();
              continue;
            }
            for (const StepChunk& chunk : span.chunks)
              arrays_.each_part(chunk, [&](const StepChunk& part) {
                const SteppedChunk stepped{&scratch, &span, part};
                call(phase.index, {&stepped, 1}, begin, end);
                if (!arrays_.ends_in_scratch(part)) return;
                meeting.arrive_and_wait();
                if (thread == 0) arrays_.keep_finals(phase.index, scratch, span, part);
                meeting.arrive_and_wait();
              });
            if (meets) meeting.arrive_and_wait();
          }
          go_on_after(thread == 0 ? span.rows() : 0);
        }
      }
    });
  }

  const CompiledPlan& compiled_;
  const Plan& plan_;
  const BoundRun& run_;
  const bool given_;  ///< every step begins with given rows
  const bool waits_;  ///< a step waits for the one before it
  SequentialArrays arrays_;
  RunTasks cut_;
  bool by_lanes_ = false;
  /// Of kernels that step sequences together, where this run has any.
  const KernelsTogether::Code* together_ = nullptr;
};

}  // namespace

RunOutput run_sequential(const CompiledPlan& compiled, const BoundRun& run, RunOutput reuse,
                         const std::vector<Array>* given) {
  return SequentialRun(compiled, run, std::move(reuse), given)();
}

}  // namespace cellc
