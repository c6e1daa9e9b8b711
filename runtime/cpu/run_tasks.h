#pragma once
// The steps of a sequential run, cut into what threads take. Private to the engine.
#include <cstdint>
#include <vector>

#include "runtime/cpu/products.h"
#include "runtime/data/run.h"

namespace cellc {

/// Steps [begin, end) of a sequence.
struct StepChunk {
  std::int64_t sequence, begin, end;
};

/// Chunks in neighbouring rows, run phase by phase: many short sequences, or a part of a long one.
struct RowSpan {
  std::vector<StepChunk> chunks;
  std::int64_t row_begin, row_end;

  std::int64_t rows() const { return row_end - row_begin; }
};

/// Spans that must follow each other.
using RunTask = std::vector<RowSpan>;

struct RunTasks {
  std::vector<RunTask> tasks;
  std::int64_t largest_span = 0, product_rows = kProductRows;
};

/// `chunk_bytes`: of a row of what passes between phases; 0: nothing does. `stateless`: no step waits for another.
/// `most_steps`: of a chunk, where something passes; 0: any number.
RunTasks cut_tasks(const BoundRun& run, std::int64_t chunk_bytes, bool stateless, std::int64_t most_steps);

inline std::int64_t steps_of(const BoundRun& run, std::int64_t sequence) {
  return run.offsets[sequence + 1] - run.offsets[sequence];
}
/// The row of a sequence's step, in the order of the run.
inline std::int64_t row_of(const BoundRun& run, std::int64_t sequence, std::int64_t step) {
  return run.reverse ? run.offsets[sequence + 1] - 1 - step : run.offsets[sequence] + step;
}

}  // namespace cellc
