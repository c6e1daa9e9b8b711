#pragma once
// Brings the code of calls (kernels-templates/cpu/cpu_call.c) into a cell's module, and makes it special for the cell.
// Before the module's other passes. Private to compile_orc.cc.
#include <string>

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace cellc {

/// Where a module has the tables of a call (compiler/codegen_llvm/call_tables.h). Functions get the cell's prefix.
void link_call(llvm::Module& module);
/// Unrolls the call's loops over tables and puts in what is read from tables.
void specialise_call(llvm::Module& module, llvm::TargetMachine& machine);
/// What both depend on, for the keys of cached code.
const std::string& call_identity();

}  // namespace cellc
