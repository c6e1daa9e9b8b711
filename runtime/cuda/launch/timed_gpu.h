#pragma once
// A cell on a GPU, to be timed (timed_cell.h).
#include "compiler/analysis/structure.h"
#include "compiler/syntax/source.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/evaluate/timed_cell.h"

namespace cellc {

/// What is timed is the device's part of a call: data stay there. All references must outlive the result.
std::unique_ptr<TimedCell> timed_on_gpu(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                                        const BoundRun& run, const SourceText* source = nullptr);

/// Its backward runs, about `output` of a forward run and random cotangents.
std::unique_ptr<TimedCell> timed_backward_on_gpu(Gpu& gpu, const CellGraph& cell, const Structure& structure,
                                                 const AdjointRun& adjoint, Dtype dtype, const BoundRun& run,
                                                 const SourceText* source = nullptr);

}  // namespace cellc
