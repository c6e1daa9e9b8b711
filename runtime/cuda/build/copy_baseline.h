#pragma once
// The baseline of a measurement: a kernel that reads and writes as many bytes as a run must move, and does
// nothing else. Also how calls are timed, this kernel's and all others.
#include <cstdint>
#include <functional>

#include "runtime/cuda/device/gpu.h"

namespace cellc {

class FloorCopy {
 public:
  explicit FloorCopy(Gpu& gpu);

  /// Queues the copy: every byte of `from` is read once, every byte of `to` written once. Counts are rounded
  /// up to sixteen bytes; memory must be there for that.
  void launch(GpuAddress from, std::int64_t read, GpuAddress to, std::int64_t written, int blocks_a_multiprocessor);
  /// Milliseconds of the fastest of a few grids.
  double ms(GpuAddress from, std::int64_t read, GpuAddress to, std::int64_t written, int calls);

 private:
  Gpu& gpu_;
  GpuModule module_;
  GpuFunction function_;
};

/// Milliseconds a call of `calls` calls in a row, after a warm-up: the median of a few such rows. 0 calls: as
/// many as half a second allows. Short calls wait in the queue until all are there: what is timed is the device, not
/// how fast a host queues.
double ms_a_call(Gpu& gpu, int calls, const std::function<void()>& call);

}  // namespace cellc
