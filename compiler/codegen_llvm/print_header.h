#pragma once
// The C header of a cell that was compiled ahead of time: the structs of a call and the functions, as
// emit_llvm_driver.h defines them. Valid C99 and C++.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/codegen_llvm/emit_llvm_driver.h"

namespace cellc {

/// `options` are those that `module` was made with. `origin`: lines that say what it was made of. `backward`: of
/// emit_backward_driver, with the same options; null: none.
std::string print_header(const DriverModule& module, const DriverOptions& options, const std::string& origin,
                         const DriverModule* backward = nullptr);

/// What the two structs of a call are printed from.
struct CallStructs {
  const CellGraph& cell;
  const CallLayout& layout;
  Storage storage = Storage::F32;
  std::optional<std::int64_t> steps;
  std::string prefix;
  bool on_device = false;  ///< arrays are of a GPU; offsets are given there too
  /// Of a backward call: what the struct of lengths begins with, the forward call's prefix. Empty: a forward call.
  std::string forward = {};
};
std::string print_call_structs(const CallStructs& of);
/// The struct of arrays alone: that of lengths is the forward call's.
std::string print_backward_arrays(const CallStructs& of);

/// An array of a call, for programs that read about it.
struct ArrayFacts {
  std::string name, type;          ///< the member of the struct; "float", "double", "uint16_t"
  std::vector<std::string> shape;  ///< "sequences", "steps", of a history its length, names of axes
  bool rows, written, required;
};
std::vector<ArrayFacts> array_facts(const CallStructs& of);
/// The members of the struct of lengths, of 64 bits each: numbers, but the offsets, which are pointers.
std::vector<std::string> length_members(const CallStructs& of);

/// One number for the structs, the same for every name of the build: code answers CELLC_OTHER_LAYOUT to a call whose
/// header had another.
std::int64_t layout_number(const CallStructs& of);
/// 64 bits of a text, as hexadecimal digits.
std::string text_number(std::string_view text);

/// The macro by which a header is included once, and only where all its structs are the same.
std::string include_guard(const CallStructs& of);
/// Declarations for C of a backward call, behind the header of the forward call: they have a guard of their own, so
/// that they are there also where the header of a build without them was included before.
std::string print_behind_header(const CallStructs& backward, const std::string& declarations);
/// The results of calls by name; and as macros: headers of several builds may have the same.
std::vector<std::pair<std::string, int>> result_numbers();
std::string print_result_names();
/// Functions of a header whose code stands elsewhere: they hand the layout's number on to NAME_as.
struct CallFunction {
  std::string name, arguments, passed;
};
std::string print_checked_functions(const CallStructs& of, const std::vector<CallFunction>& functions);

/// "{h} diagonal; {c} dense".
std::string structure_summary(const CellGraph& cell, const Structure& structure);

}  // namespace cellc
