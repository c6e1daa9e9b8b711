#include "runtime/cpu/recompute_backward.h"

#include <memory>

#include "runtime/data/call_shape.h"

namespace cellc {
namespace {

CompileOptions in_arithmetic(CompileOptions options) {
  options.dtype = arithmetic_of(options.dtype);
  return options;
}

SegmentEngines engines_on_cpu(const CellGraph& cell, const Structure& structure, const AdjointRun& adjoint,
                              const CompileOptions& options) {
  const auto solver = std::make_shared<Solver>(cell, structure, in_arithmetic(options));
  const auto backward = std::make_shared<BackwardOnCpu>(adjoint, options);
  return {
      [solver](const BoundRun& run, const SolveOptions& how, SolveReport& report) {
        return solver->run(run, how, report);
      },
      [backward](const BoundRun& run, const RunOutput& output, const Cotangents& cotangents, const SolveOptions& how,
                 SolveReport& report) { return backward->run(run, output, cotangents, how, report); }};
}

}  // namespace

RecomputeBackward::RecomputeBackward(const CellGraph& cell, const Structure& structure, const AdjointRun& adjoint,
                                     const CompileOptions& options)
    : SegmentGradients(cell, adjoint, arithmetic_of(options.dtype), engines_on_cpu(cell, structure, adjoint, options)) {
}

}  // namespace cellc
