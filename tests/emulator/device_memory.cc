#include "tests/emulator/device_memory.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/cpu/engine.h"

namespace cellc::emulator {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kGuard = 4096;  // each side: strides of a small tile stay inside it
constexpr unsigned char kPattern[4] = {0xc3, 0xa5, 0xf7, 0xff};

std::string count(std::size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

}  // namespace

void fill_guard(char* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<char>(kPattern[i % 4]);
}

std::size_t first_broken(const char* at, std::size_t bytes) {
  // After every launch, over every guard: whole ones at once.
  static const std::vector<char> whole = [] {
    std::vector<char> guard(kGuard + kAlignment);
    fill_guard(guard.data(), guard.size());
    return guard;
  }();
  if (bytes <= whole.size() && std::memcmp(at, whole.data(), bytes) == 0) return bytes;
  for (std::size_t i = 0; i < bytes; ++i)
    if (at[i] != static_cast<char>(kPattern[i % 4])) return i;
  return bytes;
}

DeviceMemory::~DeviceMemory() {
  for (auto& [address, allocation] : allocations_) std::free(allocation.base);
}

GpuAddress DeviceMemory::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_ || live_ > limit_ - bytes)
    throw MemoryError("emulator: out of device memory: " + count(bytes) + " were asked for, " + count(limit_ - live_) +
                      " of " + std::to_string(limit_) + " are free");
  Allocation allocation;
  allocation.bytes = bytes;
  const std::size_t total = (kGuard + bytes + kGuard + kAlignment - 1) / kAlignment * kAlignment;
  allocation.tail = total - kGuard - bytes;
  allocation.base = static_cast<char*>(std::aligned_alloc(kAlignment, total));
  if (!allocation.base) throw DeviceError("emulator: the host has no " + count(total) + " left");
  fill_guard(allocation.base, kGuard);
  std::memset(allocation.base + kGuard, kUnwritten, bytes);
  fill_guard(allocation.base + kGuard + bytes, allocation.tail);
  const auto address = reinterpret_cast<GpuAddress>(allocation.base + kGuard);
  allocations_.emplace(address, allocation);
  live_ += bytes;
  return address;
}

bool DeviceMemory::release(GpuAddress address) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return false;
  // Who still reads it reads what nobody wrote.
  std::memset(found->second.base + kGuard, kUnwritten, found->second.bytes);
  std::free(found->second.base);
  live_ -= found->second.bytes;
  allocations_.erase(found);
  return true;
}

char* DeviceMemory::range(GpuAddress address, std::size_t bytes, const char* what) {
  const std::lock_guard lock(mutex_);
  auto after = allocations_.upper_bound(address);
  if (after != allocations_.begin()) {
    const auto& [start, allocation] = *std::prev(after);
    const std::size_t offset = address - start;
    if (offset <= allocation.bytes && bytes <= allocation.bytes - offset) return reinterpret_cast<char*>(address);
    if (offset < allocation.bytes)
      throw DeviceError(std::string("emulator: ") + what + " of " + count(bytes) + " at offset " +
                        std::to_string(offset) + " runs past the end of a device buffer of " + count(allocation.bytes));
  }
  throw DeviceError(std::string("emulator: ") + what + " of " + count(bytes) +
                    " at an address that lies in no device buffer");
}

std::string DeviceMemory::broken_guard() {
  const std::lock_guard lock(mutex_);
  std::string report;
  for (auto& [address, allocation] : allocations_) {
    const std::size_t front = first_broken(allocation.base, kGuard);
    char* const end = allocation.base + kGuard + allocation.bytes;
    const std::size_t back = first_broken(end, allocation.tail);
    if (front < kGuard && report.empty())
      report = "wrote memory up to " + count(kGuard - front) + " before a device buffer of " + count(allocation.bytes);
    if (back < allocation.tail && report.empty())
      report = "wrote memory from " + count(back) + " past the end of a device buffer of " + count(allocation.bytes);
    if (front < kGuard) fill_guard(allocation.base, kGuard);
    if (back < allocation.tail) fill_guard(end, allocation.tail);
  }
  return report;
}

std::string DeviceMemory::describe(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<GpuAddress>(pointer);
  if (address < 4096) return "the null pointer or near it";
  const auto after = allocations_.upper_bound(address);
  std::string nearest;
  GpuAddress distance = GpuAddress{1} << 36;  // beyond that two addresses have nothing to do with each other
  if (after != allocations_.begin()) {
    const auto& [start, allocation] = *std::prev(after);
    if (address < start + allocation.bytes)
      return "byte " + std::to_string(address - start) + " of a device buffer of " + count(allocation.bytes);
    if (address - start - allocation.bytes < distance) {
      distance = address - start - allocation.bytes;
      nearest = count(distance) + " past the end of a device buffer of " + count(allocation.bytes);
    }
  }
  if (after != allocations_.end() && after->first - address < distance)
    nearest = count(after->first - address) + " before a device buffer of " + count(after->second.bytes);
  return nearest.empty() ? "no device memory" : nearest;
}

std::int64_t DeviceMemory::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(live_);
}

}  // namespace cellc::emulator
