#pragma once
// The border to C: exceptions become a status and the thread's last error. Private to capi/.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "capi/cellc.h"
#include "runtime/data/errors.h"

namespace cellc::capi {

/// A request that cannot be meant.
struct Misuse : std::runtime_error {
  using runtime_error::runtime_error;
};

/// What was asked for would be of no use, as a run before it has not converged.
struct NotConverged : std::runtime_error {
  using runtime_error::runtime_error;
};

inline constexpr const char* kKernelFreed = "the kernel was freed before";
inline constexpr const char* kCallFreed = "the call was freed before";
inline constexpr const char* kNoStreams =
    "the kernel is for the CPU, which has no streams: calls there are made at once, and the stream is null; or compile "
    "the kernel for the device \"cuda\"";

/// There is no such device, or none that can be used.
struct NoDevice : DeviceError {
  using DeviceError::DeviceError;
};
struct NoCompiler : NoDevice {
  using NoDevice::NoDevice;
};

/// Sets the thread's last error from the exception that is being handled.
cellc_status failed() noexcept;
/// The same from a text, where nothing was thrown: for paths that do not allocate.
cellc_status failed(cellc_status status, const char* text) noexcept;

template <typename Work>
cellc_status guarded(Work work) noexcept {
  try {
    work();
    return CELLC_OK;
  } catch (...) {
    return failed();
  }
}

/// The caller's struct over the defaults of this version, where it is one of an earlier version. `least`: bytes that
/// the first version had. A longer one may ask for what this version knows nothing of.
template <typename T>
T sized(const T* given, T defaults, std::size_t least, const char* what) {
  if (!given) throw Misuse(std::string(what) + " is a null pointer");
  if (given->size < least) throw Misuse(std::string(what) + ": its size is not set; call its _init function");
  if (given->size > sizeof(T)) throw Misuse(std::string(what) + ": its size is that of a later version of cellc");
  std::memcpy(&defaults, given, given->size);
  return defaults;
}

/// Writes as much of the defaults as the caller's struct has room for.
template <typename T>
void initialise(T* to, T defaults, std::size_t size) {
  if (!to || size < sizeof defaults.size) return;
  defaults.size = size;
  std::memset(to, 0, size);
  std::memcpy(to, &defaults, std::min(size, sizeof defaults));
}

/// Writes as much of `from` as the caller's struct has room for, which is at least `least` bytes: what the first
/// version of the struct had.
template <typename T>
void describe(T* to, T from, std::size_t least, const char* what) {
  if (!to) throw Misuse(std::string(what) + " is a null pointer");
  if (to->size < least) throw Misuse(std::string(what) + ": its size is not set");
  from.size = to->size;
  std::memcpy(to, &from, std::min(to->size, sizeof from));
}

}  // namespace cellc::capi
