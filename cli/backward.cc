#include "cli/backward.h"

#include <fmt/format.h>

#include "cli/fault.h"
#include "cli/request.h"
#include "runtime/cpu/backward_on_cpu.h"
#include "runtime/cpu/sum_over_steps.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/gradient/name_gradients.h"

namespace cellc {
namespace {

/// The same run by the plainest means: a forward run and an adjoint in f64, step after step, without generated code.
std::vector<std::pair<std::string, Array>> reference_gradients(const FollowingRequest& r, const AdjointRun& adjoint,
                                                               const Cotangents& cotangents,
                                                               const GivenSymbols& given) {
  BoundRun forward = r.binding.run;
  for (Array& a : forward.symbols) a = convert(a, Dtype::F64);
  for (Array& a : forward.histories)
    if (!a.shape().empty()) a = convert(a, Dtype::F64);
  const RunOutput output = reference_run(r.loaded.cell, forward);
  const BoundRun bound = adjoint.bind(forward, output, cotangents, Dtype::F64);
  Gradients gradients = adjoint.gather(forward, bound, reference_run(adjoint.cell(), bound), sum_over_steps);
  through_defaults(r.loaded.cell, forward, given, gradients);
  return gradient_arrays(r.loaded.cell, r.binding, gradients);
}

}  // namespace

BackwardReport run_backward(const RunOptions& options, const Cotangents& cotangents, const FollowingRequest& r) {
  enter_stage("backward");
  const CellGraph& cell = r.loaded.cell;
  const GivenSymbols given = given_symbols(cell, r.request, r.binding);
  BackwardReport report;
  report.adjoint = std::make_unique<AdjointRun>(cell, results_with(cotangents, r.gpu != nullptr), r.compile.derive);

  // What pins the forward run says nothing of another cell; tolerances hold for both.
  SolveOptions solve;
  solve.solver = strategy_asked(options.backward_solver, {"auto"}, "--backward-solver");
  solve.tolerance = r.solve.tolerance;
  Gradients gradients;
  try {
    if (r.gpu) {
      const Dtype arithmetic = arithmetic_of(r.binding.dtype);
      BackwardOnGpu backward(*r.gpu, cell, *report.adjoint, arithmetic, r.compile.derive);
      gradients = backward.run(r.binding.run, r.output, cotangents, solve, report.solve);
      report.run_ms = backward.run_ms();
    } else {
      BackwardOnCpu backward(*report.adjoint, r.compile);
      gradients = backward.run(r.binding.run, r.output, cotangents, solve, report.solve);
      report.run_ms = backward.run_ms();
    }
  } catch (const SolverError& e) {
    throw UsageError(fmt::format("--backward-solver {}: {}", options.backward_solver, e.what()));
  }
  through_defaults(cell, r.binding.run, given, gradients);
  report.arrays = gradient_arrays(cell, r.binding, gradients);
  if (options.verify) {
    enter_stage("verify");
    report.verified = compare_arrays(report.arrays, reference_gradients(r, *report.adjoint, cotangents, given));
  }
  return report;
}

}  // namespace cellc
