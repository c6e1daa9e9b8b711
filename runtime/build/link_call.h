#pragma once
// Brings the code of calls (kernels-templates/cpu/cpu_call.c) into a cell's module, and makes it special for the cell.
// Before the module's other passes. Private to compile_orc.cc.
#include <string>

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace cellc {

/// Where a module calls it. Its functions are the module's own afterwards, and inlined.
void link_call(llvm::Module& module);
/// Unrolls loops over tables and replaces what is read from tables, in the functions into which calls were inlined.
void specialise_call(llvm::Module& module, llvm::TargetMachine& machine);
/// What stands for both in the names of cached code.
const std::string& call_identity();

}  // namespace cellc
