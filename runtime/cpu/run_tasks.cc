#include "runtime/cpu/run_tasks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/data/run_control.h"
#include "runtime/data/threads.h"

namespace cellc {
namespace {

constexpr std::int64_t kChunkRows = 512;
constexpr std::int64_t kChunkBytes = 8 << 20;

RowSpan span_of(const BoundRun& run, const StepChunk& chunk) {
  const std::int64_t low = row_of(run, chunk.sequence, run.reverse ? chunk.end - 1 : chunk.begin);
  return {{chunk}, low, low + (chunk.end - chunk.begin)};
}

/// Cuts tasks of one span without states into smaller ones, in whole products, so that every thread finds some.
std::vector<RunTask> share_spans(const BoundRun& run, std::vector<RunTask> tasks, std::int64_t product_rows) {
  const std::int64_t share = run.offsets.back() / (8 * thread_count(run.threads));
  const std::int64_t rows = std::max<std::int64_t>(product_rows, share - share % product_rows);
  std::vector<RunTask> shared;
  for (RunTask& task : tasks) {
    const StepChunk whole = task[0].chunks[0];
    if (task[0].chunks.size() > 1 || whole.end - whole.begin <= rows) {
      shared.push_back(std::move(task));
      continue;
    }
    for (std::int64_t begin = whole.begin; begin < whole.end; begin += std::min(rows, whole.end - begin))
      shared.push_back({span_of(run, {whole.sequence, begin, begin + std::min(rows, whole.end - begin)})});
  }
  return shared;
}

}  // namespace

RunTasks cut_tasks(const BoundRun& run, std::int64_t chunk_bytes, bool stateless, std::int64_t most_steps) {
  RunTasks result;
  const bool chunked = chunk_bytes > 0;
  std::int64_t chunk_rows = std::numeric_limits<std::int64_t>::max();
  if (chunked) {
    chunk_rows = std::clamp<std::int64_t>(kChunkBytes / chunk_bytes, 1, kChunkRows);
    if (most_steps > 0) chunk_rows = std::min(chunk_rows, most_steps);
    if (chunk_rows > kProductRows) chunk_rows -= chunk_rows % kProductRows;
  }
  if (!chunked && run_control()) chunk_rows = kRowsUnasked;
  // Without states no step waits for another: every thread finds spans of its own.
  if (stateless && chunked && run.product_rows > kProductRows && chunk_rows >= run.product_rows) {
    result.product_rows = run.product_rows;
    chunk_rows -= chunk_rows % result.product_rows;
  }
  const bool joins = chunked && result.product_rows == kProductRows;
  // What may share one leaves work for so many threads, however many there are: where a row lies in a product,
  // and so its bits, must not follow from them.
  constexpr std::int64_t kShares = 32;
  const std::int64_t joined_rows = std::max(2 * kProductRows, run.offsets.back() / kShares);
  for (std::int64_t s = 0; s + 1 < static_cast<std::int64_t>(run.offsets.size()); ++s) {
    const std::int64_t steps = steps_of(run, s), first_row = run.offsets[s];
    if (steps == 0) continue;
    // Short sequences share a span, so that a product of theirs is one product.
    RowSpan* last = result.tasks.empty() || result.tasks.back().size() != 1 ? nullptr : &result.tasks.back()[0];
    if (joins && last && last->row_end == first_row &&
        first_row + steps - last->row_begin <= std::min(chunk_rows, joined_rows)) {
      last->chunks.push_back({s, 0, steps});
      last->row_end += steps;
      continue;
    }
    RunTask task;
    for (std::int64_t begin = 0; begin < steps; begin += std::min(chunk_rows, steps - begin)) {
      const std::int64_t end = begin + std::min(chunk_rows, steps - begin);
      task.push_back(span_of(run, {s, begin, end}));
      if (stateless && end < steps) result.tasks.push_back(std::exchange(task, {}));
    }
    result.tasks.push_back(std::move(task));
  }
  if (stateless) result.tasks = share_spans(run, std::move(result.tasks), result.product_rows);
  for (const RunTask& task : result.tasks)
    for (const RowSpan& span : task) result.largest_span = std::max(result.largest_span, span.rows());
  return result;
}

}  // namespace cellc
