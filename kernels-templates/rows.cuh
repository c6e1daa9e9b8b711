// What emitted row kernels (compiler/emit_cuda_rows.h) call: where a row lies, where a block's memory is,
// how many threads share a sum. Needs preamble.cuh and rows_frame.cuh.
#pragma once

namespace cellc {

/// Threads of a block, at most: what emitted kernels are compiled for.
constexpr int kRowsThreads = 512;

/// Terms of a sum that a thread adds up where rows are many.
constexpr int kTermsOfThread = 4;

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

/// How places are divided: by numbers of 32 bits where all are, for there are ten times as many instructions in a division of 64.
struct Narrow {
  static CELLC_DEVICE long long quotient(long long a, long long b) { return narrow_quotient(a, b); }
};
struct Wide {
  static CELLC_DEVICE long long quotient(long long a, long long b) { return cellc::quotient(a, b); }
};

/// The row of a job.
struct RowPlace {
  long long row, chunk_row;
  bool used;  ///< false: the job has no row; `row` is then some row of the run
};

CELLC_DEVICE RowPlace place_of(const RowsFrame& f, long long job) {
  if (f.window == 0) return {job < f.rows ? f.first_row + job : f.first_row, job, job < f.rows};
  if (job >= f.rows) return {f.first_row, 0, false};
  const long long sequence = quotient(job, f.window), step = job - sequence * f.window;
  const Stretch s = stretch_of(f, f.first_sequence + sequence);
  return {step < s.steps ? s.low + step : f.first_row, job, step < s.steps};
}

/// The sequence that a row belongs to, and the steps before it.
struct StepPlace {
  long long sequence, elapsed;
};

template <class Divide = Wide>
CELLC_DEVICE StepPlace step_of(const RowsFrame& f, long long row, Divide = Divide()) {
  StepPlace p;
  if (f.steps_each != 0) {
    p.sequence = Divide::quotient(row, f.steps_each);
    const long long after = row - p.sequence * f.steps_each;
    p.elapsed = f.direction > 0 ? after : f.steps_each - 1 - after;
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
    p.elapsed = f.direction > 0 ? row - f.offsets[low] : f.offsets[low + 1] - 1 - row;
  }
  return p;
}

/// Of an array that the kernel does not write: loads of several places may then be under way before what comes of the first is stored.
template <class Number>
CELLC_DEVICE Real read(const Number* at) {
  if constexpr (sizeof(Number) == sizeof(Real)) return __ldg(at);
  else return widen(__ldg(at));
}

/// The places of rows that a thread comes to, one after the other. A block has a part of a row at a time, as many places as it has
/// threads, or whole rows side by side; parts go round the blocks. Nothing is divided on the way.
struct Places {
  static constexpr unsigned kNoRow = 1u << 31;   ///< of threads that are left over
  unsigned places, lanes, parts;   ///< of a row; places of a part; parts of a row
  unsigned rows_on, parts_on;      ///< from one of a thread's to the next
  unsigned row, part, lane;

  CELLC_DEVICE Places(unsigned places, unsigned block, unsigned blocks) : places(places) {
    lanes = places < blockDim.x ? places : blockDim.x;
    parts = (places + lanes - 1) / lanes;
    const unsigned at_once = blockDim.x / lanes, own = threadIdx.x / lanes, first = block * at_once + own, apart = blocks * at_once;
    lane = threadIdx.x - own * lanes;
    row = own < at_once ? first / parts : kNoRow;
    part = first % parts;
    rows_on = apart / parts;
    parts_on = apart % parts;
  }
  CELLC_DEVICE unsigned place() const { return part * lanes + lane; }
  CELLC_DEVICE bool is_there(unsigned rows) const { return row < rows && place() < places; }
  CELLC_DEVICE void advance() {
    part += parts_on;
    const bool carries = part >= parts;
    part -= carries ? parts : 0;
    row += rows_on + carries;
  }
};
/// Calls `body(row, p)` for them, kTogether at a time as one piece of code, so that as many loads are under way.
template <int kTogether, class Body>
CELLC_DEVICE void each_of(Places at, unsigned rows, const Body& body) {
  while (at.row < rows) {
    Places ahead = at;
    unsigned row[kTogether], p[kTogether];
    bool all = true;
    CELLC_UNROLL()
    for (int k = 0; k < kTogether; ++k) {
      row[k] = ahead.row;
      p[k] = ahead.place();
      all = all & ahead.is_there(rows);
      ahead.advance();
    }
    if (all) {
      CELLC_UNROLL()
      for (int k = 0; k < kTogether; ++k) body(row[k], p[k]);
    } else {
      CELLC_UNROLL(1)
      for (int k = 0; k < kTogether; ++k, at.advance())
        if (at.is_there(rows)) body(at.row, at.place());
    }
    at = ahead;
  }
}

/// Whether the numbers of rows and places are of 32 bits, and every row is there.
CELLC_DEVICE bool are_narrow(const RowsFrame& f, long long places) {
  return f.window == 0 && ((places | (f.first_row + f.rows)) >> 30) == 0;
}

/// Calls `body(divide, p, here)` for the `places` of every row.
template <int kTogether, class Body>
CELLC_DEVICE void each_place(const RowsFrame& f, long long places, const Body& body) {
  if (places == 0) return;
  if (are_narrow(f, places)) {
    each_of<kTogether>(Places(static_cast<unsigned>(places), blockIdx.x, gridDim.x), static_cast<unsigned>(f.rows),
                       [&](unsigned job, unsigned p) { body(Narrow(), p, RowPlace{f.first_row + job, job, true}); });
    return;
  }
  const long long threads = static_cast<long long>(gridDim.x) * blockDim.x, all = places * f.rows;
  CELLC_UNROLL(1)
  for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < all; at += threads) {
    const long long job = quotient(at, places);
    const RowPlace here = place_of(f, job);
    if (here.used) body(Wide(), at - job * places, here);
  }
}
/// Of every row of a tile, which `body(divide, p, tile_row, here)` is told as well.
template <int kTogether, class Body>
CELLC_DEVICE void each_place_of_tile(const RowsFrame& f, long long tile, long long places, const Body& body) {
  const long long before = tile * f.tile_rows, left = f.rows - before, rows = left < f.tile_rows ? left : f.tile_rows;
  if (places == 0) return;
  if (are_narrow(f, places)) {
    each_of<kTogether>(Places(static_cast<unsigned>(places), 0, 1), static_cast<unsigned>(rows), [&](unsigned row, unsigned p) {
      body(Narrow(), p, row, RowPlace{f.first_row + before + row, before + row, true});
    });
    return;
  }
  CELLC_UNROLL(1)
  for (long long at = threadIdx.x; at < places * rows; at += blockDim.x) {
    const long long row = quotient(at, places);
    const RowPlace here = place_of(f, before + row);
    if (here.used) body(Wide(), at - row * places, row, here);
  }
}

/// A block's own memory: `at` counts entries, in shared memory, or from -1 downwards in global memory.
CELLC_DEVICE Real* block_memory(const RowsFrame& f, Real* shared, long long at) {
  if (at >= 0) return shared + at;
  return static_cast<Real*>(f.scratch) + blockIdx.x * f.scratch_stride + (-1 - at);
}

/// Threads that share a sum of `length` terms when there are `sums` of them: a power of two, part of a
/// warp. Follows from sizes alone, so that the bits of a sum do not depend on how a kernel was launched.
/// `least`: terms that each of them has, if there are so many. Where terms are apart, threads of as many neighbouring sums as fill a
/// sector of memory stand between those of one.
CELLC_DEVICE int threads_of_sum(long long sums, long long length, bool terms_are_neighbours, int least) {
  int threads = 1;
  if (least > 1 && !terms_are_neighbours) least *= 4;
  while (threads < 32 && threads * least < length && (terms_are_neighbours || 2 * threads * sums <= kRowsThreads)) {
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
