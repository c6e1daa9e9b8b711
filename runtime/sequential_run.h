#pragma once
// One run of a compiled plan: buffers, chunks of time, products, threads. Private to the engine.
#include <cstdint>
#include <vector>

#include "compiler/emit_llvm.h"
#include "compiler/plan.h"
#include "runtime/engine.h"

namespace cellc {

using KernelFunction = void (*)(const std::uint64_t* slots, std::int64_t steps, std::int64_t lane_begin,
                                std::int64_t lane_end);

/// A plan with its code.
struct CompiledPlan {
  Plan plan;
  Dtype dtype = Dtype::F32;
  std::vector<KernelCode> kernels;
  std::vector<KernelFunction> functions;  ///< by kernel; null where it does nothing
};

RunOutput run_sequential(const CompiledPlan& compiled, const BoundRun& run);

}  // namespace cellc
