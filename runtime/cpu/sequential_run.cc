#include "runtime/cpu/sequential_run.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
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

class SequentialRun {
 public:
  SequentialRun(const CompiledPlan& compiled, const BoundRun& run, RunOutput reuse, const std::vector<Array>* given)
      : compiled_(compiled),
        plan_(compiled.plan),
        run_(run),
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
    if (plan_.once_kernel >= 0) call(plan_.once_kernel, arrays_.make_scratch(0), {}, {0, 0, 1}, 0, 0);
  }

  void call(int kernel, const TaskScratch& scratch, const RowSpan& span, const StepChunk& chunk,
            std::int64_t lane_begin, std::int64_t lane_end) const {
    const KernelFunction function = compiled_.functions[kernel];
    if (!function) return;
    const std::vector<std::uint64_t> values = arrays_.slot_values(kernel, scratch, span, chunk);
    function(values.data(), chunk.end - chunk.begin, lane_begin, lane_end);
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

  void run_by_tasks(int threads) {
    std::vector<TaskScratch> scratches;
    for (int i = 0; i < threads; ++i) scratches.push_back(arrays_.make_scratch(cut_.largest_span));
    const std::int64_t all = plan_.split_axis == kNoAxis ? 0 : arrays_.length[plan_.split_axis];
    std::atomic<std::size_t> next{0};
    run_on_threads(threads, [&](int thread) {
      const TaskScratch& scratch = scratches[thread];
      for (std::size_t j; (j = next.fetch_add(1)) < cut_.tasks.size();) {
        for (const RowSpan& span : cut_.tasks[j]) {
          for (const Phase& phase : plan_.phases) {
            if (phase.product) {
              multiply(plan_.products[phase.index], scratch, span, 0, 1);
              continue;
            }
            for (const StepChunk& chunk : span.chunks)
              arrays_.each_part(chunk, [&](const StepChunk& part) {
                call(phase.index, scratch, span, part, 0, all);
                arrays_.keep_finals(phase.index, scratch, span, part);
              });
          }
          go_on_after(span.rows());
        }
      }
    });
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
                call(phase.index, scratch, span, part, begin, end);
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
  const bool waits_;  ///< a step waits for the one before it
  SequentialArrays arrays_;
  RunTasks cut_;
  bool by_lanes_ = false;
};

}  // namespace

RunOutput run_sequential(const CompiledPlan& compiled, const BoundRun& run, RunOutput reuse,
                         const std::vector<Array>* given) {
  return SequentialRun(compiled, run, std::move(reuse), given)();
}

}  // namespace cellc
