#pragma once
// A run on a caller's arrays on the device, for one shape, many times: the counterpart on a GPU of
// the driver that prepared calls use on a CPU. The kernels use arrays where they lie if they can. Otherwise
// the arrays pass through memory of the call: outs with gaps, 16-bit arrays of a cell whose kernels pass
// values on in f32, defaults, histories.
//
// A call is rehearsed before it runs in a form that is new to it (which arrays are given, how they are
// aligned and strided): the rehearsal compiles and allocates. From then on a run of that form only queues kernels.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/plan/call_layout.h"
#include "compiler/syntax/source.h"
#include "runtime/cuda/call/queued_call.h"
#include "runtime/data/array.h"
#include "runtime/data/call_shape.h"
#include "runtime/data/errors.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class DeviceCall final : public QueuedCall {
 public:
  /// `gpu`, `cell`, `structure` and `source` must outlive it. Compiles for arrays without gaps, all of them
  /// given.
  DeviceCall(Gpu& gpu, std::shared_ptr<LoadedModules> modules, const CellGraph& cell, const Structure& structure,
             Dtype dtype, const SourceText* source, const CallShape& shape, const SolveOptions& solve);
  ~DeviceCall() override;

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
