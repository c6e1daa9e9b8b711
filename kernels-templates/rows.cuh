// What emitted row kernels (compiler/emit_cuda_rows.h) call: where a row lies, where a block's memory is,
// how many threads share a sum. Needs preamble.cuh and rows_frame.cuh.
#pragma once

namespace cellc {

/// Threads of a block, at most: what emitted kernels are compiled for.
constexpr int kRowsThreads = 512;

/// The steps of one sequence in a window, and where their rows are.
struct Stretch {
  long long begin, steps;  ///< in steps of the sequence
  long long low;           ///< the lowest row: of the first step, or of the last where time runs backwards
  long long start, end;    ///< rows of the whole sequence
};

CELLC_DEVICE Stretch stretch_of(const RowsFrame& f, long long sequence) {
  Stretch s;
  s.start = f.offsets[sequence];
  s.end = f.offsets[sequence + 1];
  const long long length = s.end - s.start;
  s.begin = f.window_begin < length ? f.window_begin : length;
  const long long rest = length - s.begin;
  s.steps = f.window != 0 && f.window < rest ? f.window : rest;
  s.low = f.direction > 0 ? s.start + s.begin : s.end - s.begin - s.steps;
  return s;
}

/// The row of a job.
struct RowPlace {
  long long row, chunk_row;
  bool used;  ///< false: the job has no row; `row` is then some row of the run
};

CELLC_DEVICE RowPlace place_of(const RowsFrame& f, long long job) {
  if (f.window == 0) return {job < f.rows ? f.first_row + job : f.first_row, job, job < f.rows};
  if (job >= f.rows) return {f.first_row, 0, false};
  const Stretch s = stretch_of(f, f.first_sequence + job / f.window);
  const long long step = job % f.window;
  return {step < s.steps ? s.low + step : f.first_row, job, step < s.steps};
}

/// The sequence that a row belongs to, and the steps before it.
struct StepPlace {
  long long sequence, elapsed;
};

CELLC_DEVICE StepPlace step_of(const RowsFrame& f, long long row) {
  StepPlace p;
  if (f.steps_each != 0) {
    p.sequence = row / f.steps_each;
  } else {
    // The last sequence that starts at or before the row: one without rows starts where the next does.
    long long low = f.first_sequence, high = f.first_sequence + f.sequences;
    while (high - low > 1) {
      const long long middle = low + (high - low) / 2;
      if (f.offsets[middle] <= row) {
        low = middle;
      } else {
        high = middle;
      }
    }
    p.sequence = low;
  }
  p.elapsed = f.direction > 0 ? row - f.offsets[p.sequence] : f.offsets[p.sequence + 1] - 1 - row;
  return p;
}

/// A block's own memory: `at` counts entries, in shared memory, or from -1 downwards in global memory.
CELLC_DEVICE Real* block_memory(const RowsFrame& f, Real* shared, long long at) {
  if (at >= 0) return shared + at;
  return static_cast<Real*>(f.scratch) + blockIdx.x * f.scratch_stride + (-1 - at);
}

/// Threads that share a sum of `length` terms when there are `sums` of them: a power of two, part of a
/// warp. Follows from sizes alone, so that the bits of a sum do not depend on how a kernel was launched.
CELLC_DEVICE int threads_of_sum(long long sums, long long length, bool terms_are_neighbours) {
  int threads = 1;
  while (threads < 32 && threads < length && (terms_are_neighbours || 2 * threads * sums <= kRowsThreads)) {
    threads *= 2;
  }
  return threads;
}

/// Over `threads` neighbours, a power of two; every thread of the warp must come here.
CELLC_DEVICE Real sum_of_threads(Real value, int threads) {
  for (int other = threads / 2; other > 0; other /= 2) value += __shfl_xor_sync(0xffffffffu, value, other);
  return value;
}

CELLC_DEVICE Real largest_of_threads(Real value, int threads) {
  for (int other = threads / 2; other > 0; other /= 2) {
    value = cellc::max(value, __shfl_xor_sync(0xffffffffu, value, other));
  }
  return value;
}

/// A number by its bits: infinities and NaN have no spelling of their own without a header.
CELLC_DEVICE Real number_of_bits(unsigned long long bits) {
  union {
    unsigned long long bits;
    double number;
  } both;
  both.bits = bits;
  return static_cast<Real>(both.number);
}

}  // namespace cellc
