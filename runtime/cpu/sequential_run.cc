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
/// Steps of a sequence, and where a kernel has what is in between.
struct SteppedChunk {
  const TaskScratch* scratch;
  const RowSpan* span;
  StepChunk chunk;

  std::int64_t steps() const { return chunk.end - chunk.begin; }
  SteppedChunk part(std::int64_t begin, std::int64_t end) const {
    return {scratch, span, {chunk.sequence, begin, end}};
  }
};

/// Tasks that are run side by side.
using TaskGroup = std::vector<const RunTask*>;

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
    call(plan_.once_kernel, {{&scratch, &none, {0, 0, 1}}}, 0, 0);
  }

  /// As many steps of each chunk, of one sequence or of as many as kernels step together.
  void call(int kernel, const std::vector<SteppedChunk>& chunks, std::int64_t lane_begin, std::int64_t lane_end) const {
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
           cut_.tasks.size() / KernelsTogether::kSequences >= static_cast<std::size_t>(threads) &&
           compiled_.together->pays_after(arrays_.length, run_.offsets.back());
  }

  /// What a thread takes at a time: tasks whose sequences are stepped together, about as long as each other, or one.
  std::vector<TaskGroup> group_tasks(int threads) {
    std::vector<TaskGroup> groups;
    TaskGroup order;
    for (const RunTask& task : cut_.tasks) order.push_back(&task);
    std::size_t next = 0;
    if (steps_together(threads)) {
      together_ = &compiled_.together->code();
      const auto rows = [](const RunTask& task) {
        std::int64_t all = 0;
        for (const RowSpan& span : task) all += span.rows();
        return all;
      };
      std::stable_sort(order.begin(), order.end(),
                       [&](const RunTask* a, const RunTask* b) { return rows(*a) > rows(*b); });
      for (constexpr std::size_t kMany = KernelsTogether::kSequences; next + kMany <= order.size(); next += kMany)
        groups.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(next),
                            order.begin() + static_cast<std::ptrdiff_t>(next + kMany));
    }
    for (; next < order.size(); ++next) groups.push_back({order[next]});
    return groups;
  }

  void run_by_tasks(int threads) {
    const std::vector<TaskGroup> groups = group_tasks(threads);
    std::vector<std::vector<TaskScratch>> scratches(static_cast<std::size_t>(threads));
    for (std::vector<TaskScratch>& of_thread : scratches)
      for (std::size_t i = 0; i < groups[0].size(); ++i) of_thread.push_back(arrays_.make_scratch(cut_.largest_span));
    std::atomic<std::size_t> next{0};
    run_on_threads(threads, [&](int thread) {
      for (std::size_t j; (j = next.fetch_add(1)) < groups.size();)
        run_group(groups[j], scratches[static_cast<std::size_t>(thread)]);
    });
  }

  void run_group(const TaskGroup& tasks, const std::vector<TaskScratch>& scratches) {
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

  /// The i-th span of every task.
  void run_spans(int kernel, const TaskGroup& tasks, std::size_t i, const std::vector<TaskScratch>& scratches) {
    std::size_t chunks = 0;
    for (const RunTask* task : tasks)
      if (i < task->size()) chunks = std::max(chunks, (*task)[i].chunks.size());
    for (std::size_t c = 0; c < chunks; ++c) {
      std::vector<SteppedChunk> beside;
      for (std::size_t k = 0; k < tasks.size(); ++k)
        if (i < tasks[k]->size() && c < (*tasks[k])[i].chunks.size())
          beside.push_back({&scratches[k], &(*tasks[k])[i], (*tasks[k])[i].chunks[c]});
      const std::int64_t common = together_ && beside.size() == KernelsTogether::kSequences ? common_steps(beside) : 0;
      if (common > 0) run_together(kernel, beside, common);
      for (const SteppedChunk& c : beside)
        if (common < c.steps()) run_part(kernel, {c.part(c.chunk.begin + common, c.chunk.end)});
    }
  }

  /// Steps that all of the chunks have.
  std::int64_t common_steps(const std::vector<SteppedChunk>& chunks) const {
    const auto [least, most] =
        std::minmax_element(chunks.begin(), chunks.end(),
                            [](const SteppedChunk& a, const SteppedChunk& b) { return a.steps() < b.steps(); });
    return least->steps() == most->steps() || arrays_.goes_on_inside() ? least->steps() : 0;
  }

  void run_together(int kernel, std::vector<SteppedChunk> chunks, std::int64_t steps) {
    for (SteppedChunk& c : chunks) c = c.part(c.chunk.begin, c.chunk.begin + steps);
    run_part(kernel, chunks);
  }

  /// As many steps of each, in as many calls as rows that are not wanted ask for.
  void run_part(int kernel, const std::vector<SteppedChunk>& chunks) {
    const std::int64_t all = plan_.split_axis == kNoAxis ? 0 : arrays_.length[plan_.split_axis];
    const auto run = [&](std::int64_t from, std::int64_t steps) {
      std::vector<SteppedChunk> parts;
      for (const SteppedChunk& c : chunks) parts.push_back(c.part(c.chunk.begin + from, c.chunk.begin + from + steps));
      call(kernel, parts, 0, all);
      for (const SteppedChunk& p : parts) arrays_.keep_finals(kernel, *p.scratch, *p.span, p.chunk);
    };
    const StepChunk& first = chunks[0].chunk;
    // Steps from given rows begin anywhere, so parts of one are not those of another.
    if (given_ && chunks.size() > 1) return run(0, chunks[0].steps());
    arrays_.each_part(first, [&](const StepChunk& part) { run(part.begin - first.begin, part.end - part.begin); });
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
                call(phase.index, {{&scratch, &span, part}}, begin, end);
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
  const KernelsTogether::Code* together_ =
      nullptr;  ///< of kernels that step sequences together, where this run has any
};

}  // namespace

RunOutput run_sequential(const CompiledPlan& compiled, const BoundRun& run, RunOutput reuse,
                         const std::vector<Array>* given) {
  return SequentialRun(compiled, run, std::move(reuse), given)();
}

}  // namespace cellc
