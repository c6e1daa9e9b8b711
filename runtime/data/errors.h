#pragma once
// The errors of the runtime that a caller distinguishes. Any other exception is a fault of ours.
#include <stdexcept>

namespace cellc {

/// The user's arrays or request are wrong (exit 1): the message names the array, what was
/// expected and what was found.
struct RequestError : std::runtime_error {
  using runtime_error::runtime_error;
};
/// The device, a code generator or the file system failed (exit 4).
struct DeviceError : std::runtime_error {
  using runtime_error::runtime_error;
};

/// The device has too little memory for this: something smaller may do.
struct MemoryError : DeviceError {
  using DeviceError::DeviceError;
};

/// The cell does not admit the solver that was asked for (exit 2): the message says why.
struct SolverError : std::runtime_error {
  using runtime_error::runtime_error;
};

}  // namespace cellc
