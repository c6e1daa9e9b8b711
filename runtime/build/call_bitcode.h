#pragma once
// The C files of kernels-templates/ as LLVM bitcode. The build compiles it, with clang, and writes the definitions
// (cmake/embed_file.cmake).
#include <string_view>

namespace cellc {

std::string_view call_bitcode();     ///< cpu_call.c
std::string_view pick_bitcode();     ///< pick_processor.c
std::string_view library_bitcode();  ///< gpu_library.c

}  // namespace cellc
