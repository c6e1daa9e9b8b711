#pragma once
// A cell on the CPU, to be timed (timed_cell.h).
#include "compiler/analysis/structure.h"
#include "runtime/cpu/engine.h"
#include "runtime/evaluate/timed_cell.h"

namespace cellc {

/// All references must outlive the result.
std::unique_ptr<TimedCell> timed_on_cpu(const CellGraph& cell, const Structure& structure,
                                        const CompileOptions& compile, const BoundRun& run);

/// Its backward runs, about one forward run and random cotangents. Gradients come with them, and the adjoint's
/// strategies are those that can be asked for.
std::unique_ptr<TimedCell> timed_backward_on_cpu(const CellGraph& cell, const Structure& structure,
                                                 const AdjointRun& adjoint, const CompileOptions& compile,
                                                 const BoundRun& run);

/// The processor and how many threads, as plans that were measured name them.
std::string cpu_and_threads(int threads);

}  // namespace cellc
