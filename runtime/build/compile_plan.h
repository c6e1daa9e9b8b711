#pragma once
// Compiles a plan to machine code: emits its text, compiles it, finds its functions.
#include <memory>
#include <string>
#include <vector>

#include "compiler/codegen_llvm/emit_llvm.h"
#include "compiler/plan/plan.h"
#include "runtime/build/compile_orc.h"
#include "runtime/build/kernels_together.h"
#include "runtime/data/array.h"
#include "runtime/data/errors.h"
#include "runtime/data/run.h"

namespace cellc {

/// A plan with its code.
struct CompiledPlan {
  Plan plan;
  Dtype dtype = Dtype::F32;
  std::vector<KernelCode> kernels;
  std::vector<KernelFunction> functions;      ///< by kernel; null where it does nothing
  std::shared_ptr<KernelsTogether> together;  ///< null: sequences have no matrix to share
  std::string ir;                             ///< text handed to LLVM
  std::shared_ptr<CompiledModule> module;     ///< owns the functions
  double compile_ms = 0;
  int vector_lanes = 1;  ///< entries of a vector
};

/// Throws DeviceError, or RequestError where options cannot be meant.
/// `split_axis`: PlanOptions; `whole_vectors`, `from_given`: EmitOptions.
CompiledPlan compile_plan(const CellGraph& cell, const Structure& structure, const CompileOptions& options,
                          AxisId split_axis = kNoAxis, bool whole_vectors = false, bool from_given = false);

}  // namespace cellc
