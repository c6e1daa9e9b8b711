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
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const auto start = Clock::now();
  bound_ = adjoint_.bind(forward, output, cotangents, arithmetic_, std::move(bound_));
  run_ms_ = since(start);
  kept_ = solver_.run(bound_, options, report, std::move(kept_));
  const auto summing = Clock::now();
  Gradients gradients = adjoint_.gather(forward, bound_, kept_, sum_over_steps);
  run_ms_ += kept_.run_ms + since(summing);
  return gradients;
}

}  // namespace cellc
