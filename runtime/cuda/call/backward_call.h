#pragma once
// A backward run on a caller's arrays on the device, for one shape and one set of cotangents, many times: BackwardOnGpu
// between arrays as callers have them. Rehearsed like a forward one (device_call.h).
#include <memory>
#include <vector>

#include "compiler/plan/call_directions.h"
#include "runtime/cuda/call/queued_call.h"
#include "runtime/gradient/adjoint_run.h"

namespace cellc {

class BackwardCall final : public QueuedCall {
 public:
  /// All but `shape` and `solve` must outlive it. `reads`: by array, the values that the adjoint reads.
  BackwardCall(Gpu& gpu, std::shared_ptr<LoadedModules> modules, const CellGraph& cell, const DirectedCall& call,
               const AdjointRun& adjoint, const std::vector<bool>& reads, Dtype dtype, const CallShape& shape,
               const SolveOptions& solve);
  ~BackwardCall() override;

  /// There is no status to write: `status` is 0.
  void queue(std::span<const CallArray> arrays, GpuStream stream, GpuAddress status) override;
  void rehearse(std::span<const CallArray> arrays, GpuAddress status) override;
  bool knows(std::span<const CallArray> arrays, GpuAddress status) const override;
  void report(SolveReport& report, GpuStream stream) override;
  std::int64_t held_bytes() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cellc
