#pragma once
// The C header of a cell that was compiled ahead of time: the structs of a call and the functions, as
// emit_llvm_driver.h defines them. Valid C99 and C++.
#include <string>

#include "compiler/emit_llvm_driver.h"

namespace cellc {

/// `options` are those that `module` was made with. `origin`: lines that say what it was made of.
std::string print_header(const DriverModule& module, const DriverOptions& options, const std::string& origin);

}  // namespace cellc
