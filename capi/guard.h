#pragma once
// The border to C: exceptions become a status and the thread's last error. Private to capi/.
#include <stdexcept>
#include <string>

#include "capi/cellc.h"

namespace cellc::capi {

/// A request that cannot be meant.
struct Misuse : std::runtime_error {
  using runtime_error::runtime_error;
};

/// What was asked for would be of no use, as a run before it has not converged.
struct NotConverged : std::runtime_error {
  using runtime_error::runtime_error;
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

/// The caller's struct, if it is as long as this version's. A later version that is longer has to accept
/// this size too, with its own defaults for the rest.
template <typename T>
const T& sized(const T* given, const char* what) {
  if (!given) throw Misuse(std::string(what) + " is a null pointer");
  if (given->size < sizeof(T)) throw Misuse(std::string(what) + ": its size is not set; call its _init function");
  return *given;
}

}  // namespace cellc::capi
