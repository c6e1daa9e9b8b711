#include "compiler/codegen_llvm/emit_llvm.h"

#include <fmt/format.h>

#include "compiler/codegen_llvm/emit_llvm_kernel.h"

namespace cellc {

namespace {

/// A function that calls that of few lanes or that of many.
std::string pick_loop(const std::string& function, int vector) {
  return fmt::format(R"(define void @{0}(ptr noalias %slots, i64 %steps, i64 %lane_begin, i64 %lane_end) {{
  %lanes = sub i64 %lane_end, %lane_begin
  %few = icmp sle i64 %lanes, {1}
  br i1 %few, label %in_one, label %in_many
in_one:
  call void @{0}.few(ptr %slots, i64 %steps, i64 %lane_begin, i64 %lane_end)
  ret void
in_many:
  call void @{0}.many(ptr %slots, i64 %steps, i64 %lane_begin, i64 %lane_end)
  ret void
}}
)",
                     function, vector);
}

}  // namespace

EmittedModule emit_llvm_kernels(const Plan& plan, const EmitOptions& options, std::set<llvm_math::Request>& functions) {
  EmittedModule module;
  module.ir = fmt::format("; cell {}\n\n", plan.cell.name);
  for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
    KernelCode code;
    if (!plan.kernels[k].nests.empty()) {
      KernelEmitter emitter(plan, static_cast<int>(k), options, functions);
      code.function = fmt::format("{}.{}", options.functions, k);
      if (options.one_vector && KernelEmitter::fits_one_vector(plan, plan.kernels[k])) {
        module.ir += emitter.emit(code.function + ".many") + '\n';
        KernelEmitter few(plan, static_cast<int>(k), options, functions);
        few.expect_one_vector(emitter.slots);
        module.ir += few.emit(code.function + ".few") + '\n' + pick_loop(code.function, few.lanes_of_vector()) + '\n';
        code.slots = few.slots;
      } else {
        module.ir += emitter.emit(code.function) + '\n';
        code.slots = emitter.slots;
      }
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
