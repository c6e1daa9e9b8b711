#include "capi/callers_device_memory.h"

#include <fmt/format.h>

#include <bit>

#include "runtime/data/bind.h"

namespace cellc::capi {

namespace {

constexpr std::size_t kAlignment = 256;  // what Gpu::allocate promises

}  // namespace

GpuAddress CallersDeviceMemory::allocate(std::size_t bytes) {
  void* const memory = memory_.allocate(memory_.context, bytes, kAlignment);
  if (!memory) throw MemoryError(fmt::format("allocate_on_device of the caller has no {:.1f} MB", bytes * 1e-6));
  const auto address = std::bit_cast<GpuAddress>(memory);
  auto fault = below_.pointer_fault(address, bytes);
  if (!fault && address % kAlignment != 0) fault = fmt::format("is not aligned to {} bytes", kAlignment);
  if (fault) {
    memory_.release(memory_.context, memory, bytes);
    throw UsageError(fmt::format("allocate_on_device of the caller gave {:#x}, which {}", address, *fault));
  }
  const std::lock_guard lock(mutex_);
  sizes_[address] = bytes;
  return address;
}

void CallersDeviceMemory::release(GpuAddress address) noexcept {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto known = sizes_.find(address);
    if (known == sizes_.end()) return;
    bytes = known->second;
    sizes_.erase(known);
  }
  memory_.release(memory_.context, std::bit_cast<void*>(address), bytes);
}

}  // namespace cellc::capi
