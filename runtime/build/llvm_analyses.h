#pragma once
// LLVM's analyses of one machine, registered with each other: what passes of any kind are run with.
#include <llvm/Passes/PassBuilder.h>

namespace cellc {

struct LlvmAnalyses {
  explicit LlvmAnalyses(llvm::TargetMachine& machine) : builder(&machine) {
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(components);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, components, modules);
  }
  LlvmAnalyses(const LlvmAnalyses&) = delete;

  // In this order: each is destroyed before what it refers to.
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder;
};

}  // namespace cellc
