#pragma once
// Standard output, which may be a full disk or a pipe whose reader went away.
#include <string>

namespace cellc {

/// Writes `text` and all before it. False where that failed; a reader that left (| head) has what it wanted.
bool print_out(const std::string& text);

/// `status`, or kDeviceFailed, said to standard error, where something that was printed got lost.
int flushed(int status);

}  // namespace cellc
