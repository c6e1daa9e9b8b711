#include "runtime/cpu/backward_on_cpu.h"

#include <chrono>

#include "runtime/cpu/sum_over_steps.h"
#include "runtime/data/bind.h"

namespace cellc {
namespace {

CompileOptions in_arithmetic(CompileOptions options) {
  options.dtype = arithmetic_of(options.dtype);
  return options;
}

}  // namespace

BackwardOnCpu::BackwardOnCpu(const AdjointRun& adjoint, const CompileOptions& options)
    : adjoint_(adjoint),
      arithmetic_(arithmetic_of(options.dtype)),
      solver_(adjoint.cell(), adjoint.structure(), in_arithmetic(options)) {}

Gradients BackwardOnCpu::run(const BoundRun& forward, const RunOutput& output, const Cotangents& cotangents,
                             const SolveOptions& options, SolveReport& report) {
  const BoundRun bound = adjoint_.bind(forward, output, cotangents, arithmetic_);
  kept_ = solver_.run(bound, options, report, std::move(kept_));
  const auto start = std::chrono::steady_clock::now();
  Gradients gradients = adjoint_.gather(forward, bound, kept_, sum_over_steps);
  run_ms_ = kept_.run_ms + std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return gradients;
}

}  // namespace cellc
