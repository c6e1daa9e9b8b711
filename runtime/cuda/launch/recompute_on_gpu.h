#pragma once
// Gradients on a GPU without trajectories: SegmentGradients with its engines there. Inputs, cotangents, gradients and
// the states at the starts of segments stay on the host; the device holds one segment at a time.
#include <cstdint>
#include <memory>

#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/gradient/segment_gradients.h"

namespace cellc {

class RecomputeOnGpu {
 public:
  /// `adjoint`: for a GPU, and also with cotangents of all states that have a delay line. References must outlive it.
  RecomputeOnGpu(Gpu& gpu, const CellGraph& cell, const Structure& structure, const AdjointRun& adjoint, Dtype storage,
                 const DeriveHooks& derive = {});
  ~RecomputeOnGpu();

  /// As SegmentGradients::run.
  Gradients run(const BoundRun& run, const Cotangents& cotangents, const SolveOptions& forward,
                const SolveOptions& backward, SolveReport& report, std::int64_t segment = 0);

  double run_ms() const;              ///< of the last call, copies to and from the device included
  std::int64_t segment() const;       ///< of the last call
  std::int64_t device_bytes() const;  ///< the most that was held on the device at a time

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cellc
