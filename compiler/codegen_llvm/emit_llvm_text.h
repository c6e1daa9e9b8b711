#pragma once
// KernelEmitter::line, for the files that write instructions. Private to emit_llvm*.cc.
#include <fmt/format.h>

#include <iterator>

#include "compiler/codegen_llvm/emit_llvm_kernel.h"

namespace cellc {

template <typename... Args>
void KernelEmitter::line(const char* format, const Args&... args) {
  code_ += "  ";
  fmt::format_to(std::back_inserter(code_), fmt::runtime(format), args...);
  code_ += '\n';
}

}  // namespace cellc
