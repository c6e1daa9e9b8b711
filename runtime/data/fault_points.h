#pragma once
// Places that fail on request, to show what a failure leaves behind. Without a request a place costs one
// test of a number.
#include <cstdint>
#include <string>

namespace cellc {

enum class FaultPoint {
  Allocate,  ///< an array's memory: std::bad_alloc
  Compile,   ///< machine code: DeviceError
};

/// The `nth` time from now on that the point is passed, by any thread, fails, and only that; 0: none does.
void fail_at(FaultPoint point, std::int64_t nth);

/// Whether this time is the one.
bool fails_now(FaultPoint point);

/// "allocate:3", "compile:1": what the environment variable CELLC_FAULT may say beside the name of a stage.
/// False where the text names no point.
bool fail_at(const std::string& text);

}  // namespace cellc
