#pragma once
// The version of cellc; CMakeLists.txt reads it here.

namespace cellc {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace cellc
