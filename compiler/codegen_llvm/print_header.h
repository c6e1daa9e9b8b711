#pragma once
// The C header of a cell that was compiled ahead of time: the structs of a call and the functions, as
// emit_llvm_driver.h defines them. Valid C99 and C++.
#include <optional>
#include <string>

#include "compiler/analysis/structure.h"
#include "compiler/codegen_llvm/emit_llvm_driver.h"

namespace cellc {

/// `options` are those that `module` was made with. `origin`: lines that say what it was made of.
std::string print_header(const DriverModule& module, const DriverOptions& options, const std::string& origin);

/// What the two structs of a call are printed from.
struct CallStructs {
  const CellGraph& cell;
  const CallLayout& layout;
  Storage storage = Storage::F32;
  std::optional<std::int64_t> steps;
  std::string prefix;
  bool on_device = false;  ///< arrays are of a GPU; offsets are given there too
};
std::string print_call_structs(const CallStructs& of);

/// "{h} diagonal; {c} dense".
std::string structure_summary(const CellGraph& cell, const Structure& structure);

}  // namespace cellc
