#pragma once
// Tables as constants in C -> constants of an LLVM module. Private to build_library.cc.
#include <string>

namespace llvm {
class GlobalVariable;
class Module;
}  // namespace llvm

namespace cellc {

/// Adds every `static const TYPE NAME = {…};` and `static const TYPE NAME[] = {…};` of the text, and gives the last.
/// Types are int, int64_t and those of which the module has a constant type_TYPE; a value is a number, INT64_C(number),
/// the name of an array before it, & and the name of another constant, or a list in braces. Throws std::logic_error.
llvm::GlobalVariable* read_tables(llvm::Module& module, const std::string& text);

}  // namespace cellc
