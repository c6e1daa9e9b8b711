#pragma once
// A GPU whose memory is the caller's (allocate_on_device of cellc_options). Private to capi/.
#include <map>
#include <memory>
#include <mutex>

#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/data/host_memory.h"

namespace cellc::capi {

class CallersDeviceMemory final : public WrappedGpu {
 public:
  CallersDeviceMemory(std::shared_ptr<Gpu> gpu, const HostMemory& memory)
      : WrappedGpu(*gpu), gpu_(std::move(gpu)), memory_(memory) {}

  /// Throws MemoryError where there is none, UsageError where kernels cannot use what was given.
  GpuAddress allocate(std::size_t bytes) override;
  void release(GpuAddress address) noexcept override;

 private:
  const std::shared_ptr<Gpu> gpu_;
  const HostMemory memory_;
  std::mutex mutex_;
  std::map<GpuAddress, std::size_t> sizes_;
};

}  // namespace cellc::capi
