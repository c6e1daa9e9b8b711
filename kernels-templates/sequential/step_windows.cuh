// What steps of kernels of their own (runtime/cuda/launch/stepped_on_gpu.h) need beside the step's: the count of steps
// that a captured graph goes on from, and finals. Needs preamble.cuh.
#pragma once

namespace cellc {

/// The host has the same structs (stepped_on_gpu.cc).
struct StepCount {
  long long* steps;
  long long from, add;  ///< from below 0: what is there already
};

struct FinalRows {
  const void* rows;          ///< [rows, entries], Real
  const void* starts;        ///< [sequences, entries]: finals of sequences without steps
  void* finals;              ///< likewise; may be `starts`
  const long long* offsets;  ///< of sequences, one more than there are
  long long sequences, entries, reverse;
};

}  // namespace cellc

extern "C" __global__ void __launch_bounds__(32) cellc_count_steps(const __grid_constant__ cellc::StepCount c) {
  cellc::await_stream();
  if (threadIdx.x == 0) *c.steps = (c.from < 0 ? *c.steps : c.from) + c.add;
}

extern "C" __global__ void __launch_bounds__(256) cellc_final_rows(const __grid_constant__ cellc::FinalRows f) {
  cellc::await_stream();
  const long long all = f.sequences * f.entries, apart = static_cast<long long>(gridDim.x) * blockDim.x;
  CELLC_UNROLL(1)
  for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < all; at += apart) {
    const long long sequence = at / f.entries, entry = at - sequence * f.entries, start = f.offsets[sequence],
                    end = f.offsets[sequence + 1], last = f.reverse ? start : end - 1;
    static_cast<Real*>(f.finals)[at] = start < end ? static_cast<const Real*>(f.rows)[last * f.entries + entry]
                                                   : static_cast<const Real*>(f.starts)[at];
  }
}
