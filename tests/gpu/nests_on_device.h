#pragma once
// The arrays of a run on a device, and back: what tests of NestProgram share.
#include <vector>

#include "runtime/cpu/engine.h"
#include "runtime/cuda/launch/nest_program.h"

namespace cellc {

/// Copies a bound run to the device, inputs as views with gaps between their rows (of NaN, should anyone
/// read there), runs it and brings back what it wrote. Params and starts are taken to arithmetic
/// precision, other arrays as `options` says.
RunOutput run_on_device(Gpu& gpu, NestProgram& program, const CellGraph& cell, const BoundRun& run, Dtype dtype,
                        const NestOptions& options = {});

}  // namespace cellc
