#pragma once
// Code for several processors in one module, and what picks among it. Private to compile_orc.cc.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace llvm {
class Function;
class LLVMContext;
class Module;
class TargetMachine;
}  // namespace llvm

namespace cellc {

/// What a processor has, as kernels-templates/cpu/pick_processor.h counts it.
std::uint64_t processor_needs(const llvm::TargetMachine& machine);

/// kernels-templates/cpu/pick_processor.c over `needs`: one function, `name`, which tells which of the processors, in
/// the order of the list, this machine can take, from 1 on; 0: none.
std::unique_ptr<llvm::Module> pick_module(llvm::LLVMContext& context, const llvm::TargetMachine& machine,
                                          const std::vector<std::uint64_t>& needs, const std::string& name);

/// "P_forward.2": the code of a function for the second processor.
std::string name_for(const std::string& function, std::size_t processor);

/// Adds `function`, which calls its form for the processor that `pick` tells, or gives `none`.
llvm::Function& add_dispatch(llvm::Module& module, const std::string& function, std::size_t processors,
                             const std::string& pick, int none);

}  // namespace cellc
