#pragma once
// A call on arrays with any stride on every axis, around one that takes rows as CallArray has them: what kernels cannot
// read as it lies is gathered into memory of the call before, and what they cannot write so is scattered after. All of
// it is queued on the call's stream.
#include <memory>
#include <span>
#include <vector>

#include "runtime/cuda/call/queued_call.h"
#include "runtime/cuda/launch/view_copy.h"

namespace cellc {

class ViewedCall final : public QueuedCall {
 public:
  ViewedCall(Gpu& gpu, std::shared_ptr<LoadedModules> modules, std::unique_ptr<QueuedCall> inner)
      : gpu_(gpu, std::move(modules)), copies_(gpu_), inner_(std::move(inner)) {}

  void queue(std::span<const CallArray> arrays, GpuStream stream, GpuAddress status) override;
  void rehearse(std::span<const CallArray> arrays, GpuAddress status) override;
  bool knows(std::span<const CallArray> arrays, GpuAddress status) const override;
  void report(SolveReport& report, GpuStream stream) override { inner_->report(report, stream); }
  std::int64_t held_bytes() const override { return gpu_.held_bytes() + inner_->held_bytes(); }

 private:
  /// Views that are read into memory of the call, or what was written there into the others.
  void move(std::span<const CallArray> arrays, bool written, GpuStream stream);

  CallGpu gpu_;
  ViewCopies copies_;
  const std::unique_ptr<QueuedCall> inner_;
  std::vector<GpuBuffer> packed_;  ///< by array; of a shape all are as large as they ever will be
  std::vector<CallArray> placed_;
};

}  // namespace cellc
