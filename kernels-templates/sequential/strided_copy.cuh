// What lies between a caller's arrays and the kernels': rows with other strides, in another type, sequences that
// all start alike, and the history that a run leaves behind. Seldom needed, and never in the way of a cell whose
// arrays are as its kernels want them.
#pragma once

namespace cellc {

/// Entries e of row t of sequence b, from and to data + b*batch + t*row + e.
struct StridedCopy {
  void* to;
  const void* from;
  long long to_batch, to_row, from_batch, from_row;
  long long sequences, steps, entries;
};

template <typename To, typename From, class Convert>
CELLC_DEVICE void move_rows(const StridedCopy& move, Convert&& convert) {
  const long long count = move.sequences * move.steps * move.entries;
  each_of(count, [&](long long i) {
    const bool small = count >> 32 == 0;
    const long long row = small ? static_cast<unsigned>(i) / static_cast<unsigned>(move.entries) : i / move.entries;
    const long long b = small ? static_cast<unsigned>(row) / static_cast<unsigned>(move.steps) : row / move.steps;
    const long long e = i - row * move.entries, t = row - b * move.steps;
    static_cast<To*>(move.to)[b * move.to_batch + t * move.to_row + e] =
        convert(static_cast<const From*>(move.from)[b * move.from_batch + t * move.from_row + e]);
  });
}

/// Entry j of sequence b's history after a run: what was read j + 1 steps before the next step.
struct HistoryMove {
  void* to;              ///< [sequences, depth, entries], Stored
  const void* before;    ///< the same of the run's start; null: zeros
  const void* rows;      ///< the input
  long long batch, row;  ///< of the input, in entries
  const long long* offsets;
  long long sequences, depth, entries, reverse;
};

CELLC_DEVICE void move_history(const HistoryMove& move) {
  each_of(move.sequences * move.depth * move.entries, [&](long long i) {
    const long long place = i / move.entries, e = i - place * move.entries, b = place / move.depth,
                    j = place - b * move.depth;
    const long long first = move.offsets[b], steps = move.offsets[b + 1] - first;
    Stored value = 0;
    if (j < steps) {
      // A batch stride of 0 is that of packed sequences: rows are numbered through.
      const long long t = (move.reverse ? j : steps - 1 - j) + (move.batch ? 0 : first);
      value = static_cast<const Stored*>(move.rows)[b * move.batch + t * move.row + e];
    } else if (move.before) {
      value = static_cast<const Stored*>(move.before)[(b * move.depth + j - steps) * move.entries + e];
    }
    static_cast<Stored*>(move.to)[i] = value;
  });
}

}  // namespace cellc

extern "C" __global__ void cellc_move_stored(const __grid_constant__ cellc::StridedCopy move) {
  cellc::await_stream();
  cellc::move_rows<Stored, Stored>(move, [](Stored value) { return value; });
}
extern "C" __global__ void cellc_move_real(const __grid_constant__ cellc::StridedCopy move) {
  cellc::await_stream();
  cellc::move_rows<Real, Real>(move, [](Real value) { return value; });
}
extern "C" __global__ void cellc_widen(const __grid_constant__ cellc::StridedCopy move) {
  cellc::await_stream();
  cellc::move_rows<Real, Stored>(move, [](Stored value) { return cellc::widen(value); });
}
extern "C" __global__ void cellc_narrow(const __grid_constant__ cellc::StridedCopy move) {
  cellc::await_stream();
  cellc::move_rows<Stored, Real>(move, [](Real value) { return cellc::narrow(value); });
}
extern "C" __global__ void cellc_history(const __grid_constant__ cellc::HistoryMove move) {
  cellc::await_stream();
  cellc::move_history(move);
}

/// 1 for every sequence that has a bad step; the last of several stages adds to what the others said.
extern "C" __global__ void cellc_status(int* status, const unsigned long long* first_bad, int sequences, int adds) {
  cellc::await_stream();
  for (int s = blockIdx.x * blockDim.x + threadIdx.x; s < sequences; s += gridDim.x * blockDim.x)
    status[s] = (first_bad[s] != ~0ull || (adds && status[s])) ? 1 : 0;
}
