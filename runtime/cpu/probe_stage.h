#pragma once
// Probes the data: measures how fast the lanes of a stage forget, by a few short segments with transitions.
#include "runtime/cpu/stage_data.h"
#include "runtime/cpu/stage_kernels.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

/// `segment`: the length that a lane would have to forget within.
Forgetting probe_stage(const StageData& data, StageKernels& kernels, double tolerance, std::int64_t segment,
                       int threads);

}  // namespace cellc
