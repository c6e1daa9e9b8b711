#pragma once
// kernels-templates/cpu/cpu_call.c as LLVM bitcode. The build compiles it, with clang, and writes the definition
// (cmake/embed_file.cmake).
#include <string_view>

namespace cellc {

std::string_view call_bitcode();

}  // namespace cellc
