#pragma once
// One call on a caller's device arrays, whatever it computes: what CallPool needs of it.
#include <span>
#include <vector>

#include "compiler/plan/call_directions.h"
#include "runtime/cuda/call/call_gpu.h"
#include "runtime/data/call_shape.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class QueuedCall {
 public:
  virtual ~QueuedCall() = default;

  /// Queues a run on a stream of the caller's, and waits for nothing. `status`, unless 0, is int32
  /// [sequences] on the device: 0 for a sequence that converged, else 1. Not for two threads at once, nor for
  /// two streams at once.
  virtual void queue(std::span<const CallArray> arrays, GpuStream stream, GpuAddress status) = 0;
  /// Compiles and allocates what a run on such arrays needs, so that it only queues kernels. Reads none of them.
  virtual void rehearse(std::span<const CallArray> arrays, GpuAddress status) = 0;
  /// Whether a run on such arrays would only queue kernels.
  virtual bool knows(std::span<const CallArray> arrays, GpuAddress status) const = 0;
  /// Of the last run; waits for it. What it saw counts for later runs.
  virtual void report(SolveReport& report, GpuStream stream) = 0;
  /// Memory of the device that it holds. Any thread may ask.
  virtual std::int64_t held_bytes() const = 0;
};

/// What of a call's arrays decides on kernels and memory: which are given, how they are aligned and strided.
using CallForm = std::vector<std::int64_t>;
CallForm form_of(std::span<const CallArray> arrays);

/// Where a view's memory begins, counted from the entry whose indices are all 0, and how far it reaches.
struct ViewSpan {
  std::int64_t first, entries;
};
ViewSpan span_of(const CallView& view);

/// Throws RequestError, naming the array, unless every one lies where kernels of `gpu` can use it.
void check_on_device(Gpu& gpu, const DirectedCall& call, const CallShape& shape, Dtype dtype,
                     std::span<const CallArray> arrays, GpuAddress status);

}  // namespace cellc
