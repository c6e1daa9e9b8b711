#pragma once
// The device's primary context, the one that the CUDA runtime and PyTorch use, so that their memory and streams are
// ours too. A call makes it current and leaves the thread as it was.
#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "runtime/cuda/device/driver.h"
#include "runtime/data/errors.h"

namespace cellc {

/// A stream, event, module or function as the driver has it.
inline Driver::Handle handle_of(std::uint64_t number) { return reinterpret_cast<Driver::Handle>(number); }

/// The primary context, held by the GPU and by every module, whichever goes last.
class DriverContext {
 public:
  DriverContext(std::shared_ptr<const Driver> driver, int device, Driver::Handle context, std::string name)
      : driver(std::move(driver)), name(std::move(name)), device_(device), context_(context) {}
  ~DriverContext() { driver->primary_release(device_); }
  DriverContext(const DriverContext&) = delete;
  DriverContext& operator=(const DriverContext&) = delete;

  /// Makes the context current for a scope.
  class Current {
   public:
    explicit Current(const DriverContext& context) : driver_(*context.driver) {
      Driver::Handle now = nullptr;
      if (driver_.ctx_get_current(&now) == kCudaSuccess && now == context.context_) return;
      pushed_ = driver_.ctx_push_current(context.context_) == kCudaSuccess;
    }
    ~Current() {
      Driver::Handle popped = nullptr;
      if (pushed_) driver_.ctx_pop_current(&popped);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Driver& driver_;
    bool pushed_ = false;
  };

  /// For each call that may fail: the context is current, and refused where it is lost.
  Current enter() const {
    if (lost_)
      throw DeviceError(fmt::format("{}: the context was lost by an earlier error; only a new process helps", name));
    return Current(*this);
  }

  /// `doing()` says in words what failed.
  template <typename Doing>
  void check(int result, const Doing& doing) const {
    if (result == kCudaSuccess) return;
    // An error of a kernel shows at whatever call comes next.
    std::string message = fmt::format("{}: {}: {}", name, doing(), driver->describe(result));
    if (loses_context(result)) {
      lost_ = true;
      message += "; a kernel before it may be the cause. The context is lost; only a new process helps";
    }
    throw DeviceError(message);
  }

  const std::shared_ptr<const Driver> driver;
  const std::string name;

 private:
  int device_;
  Driver::Handle context_;
  mutable std::atomic<bool> lost_ = false;
};

}  // namespace cellc
