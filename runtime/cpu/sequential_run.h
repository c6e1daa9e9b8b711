#pragma once
// One run of a compiled plan: buffers, chunks of time, products, threads. Private to the engine.
#include "runtime/build/compile_plan.h"
#include "runtime/cpu/engine.h"

namespace cellc {

/// Arrays of `reuse` that have the right shape and no other owner are written in place of new ones.
/// `given`: of a plan that steps from given rows, these; of none other.
RunOutput run_sequential(const CompiledPlan& compiled, const BoundRun& run, RunOutput reuse = {},
                         const std::vector<Array>* given = nullptr);

}  // namespace cellc
