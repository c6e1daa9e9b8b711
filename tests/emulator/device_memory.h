#pragma once
// Memory of the emulated device: every allocation between guard zones, filled with what reads as NaN.
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "runtime/cuda/device/gpu.h"

namespace cellc::emulator {

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t limit) : limit_(limit) {}
  ~DeviceMemory();

  /// Throws DeviceError if more than the limit would be in use.
  GpuAddress allocate(std::size_t bytes);
  /// False: no allocation begins there.
  bool release(GpuAddress address) noexcept;
  /// Host memory of a range that lies in one allocation. Otherwise DeviceError that says so; `what` is
  /// the request, e.g. "copy_in".
  char* range(GpuAddress address, std::size_t bytes, const char* what);

  /// Nothing, or a line on a guard zone that was written to; the zone is whole again afterwards.
  std::string broken_guard();
  /// Where an address lies, in words: "12 bytes past the end of the device buffer of 256 bytes".
  std::string describe(const void* address);

  std::int64_t live_bytes() const;

 private:
  struct Allocation {
    char* base = nullptr;   ///< of the front guard
    std::size_t bytes = 0;  ///< that were asked for
    std::size_t tail = 0;   ///< of the back guard
  };
  mutable std::mutex mutex_;
  std::map<GpuAddress, Allocation> allocations_;
  std::size_t limit_, live_ = 0;
};

/// What memory holds that nobody wrote: a NaN in every format, -1 as an integer.
constexpr unsigned char kUnwritten = 0xff;

/// Guards that hold a NaN in every format and are unlikely to be written by accident.
void fill_guard(char* at, std::size_t bytes);
/// The first byte that differs from the fill; `bytes` if none does.
std::size_t first_broken(const char* at, std::size_t bytes);

}  // namespace cellc::emulator
