#include "compiler/codegen_llvm/emit_llvm.h"

#include <fmt/format.h>

#include "compiler/codegen_llvm/emit_llvm_kernel.h"

namespace cellc {

EmittedModule emit_llvm_kernels(const Plan& plan, const EmitOptions& options, std::set<llvm_math::Request>& functions) {
  EmittedModule module;
  module.ir = fmt::format("; cell {}\n\n", plan.cell.name);
  for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
    KernelCode code;
    if (!plan.kernels[k].nests.empty()) {
      KernelEmitter emitter(plan, static_cast<int>(k), options, functions);
      code.function = fmt::format("{}.{}", options.functions, k);
      module.ir += emitter.emit(code.function);
      module.ir += '\n';
      code.slots = emitter.slots;
    }
    module.kernels.push_back(std::move(code));
  }
  return module;
}

EmittedModule emit_llvm(const Plan& plan, const EmitOptions& options) {
  std::set<llvm_math::Request> functions;
  EmittedModule module = emit_llvm_kernels(plan, options, functions);
  module.ir += llvm_math::definitions(functions);
  return module;
}

}  // namespace cellc
