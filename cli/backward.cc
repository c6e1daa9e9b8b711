#include "cli/backward.h"

#include "cli/fault.h"
#include "cli/request.h"
#include "runtime/cpu/recompute_backward.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/recompute_on_gpu.h"
#include "runtime/evaluate/reference_gradients.h"
#include "runtime/gradient/name_gradients.h"

namespace cellc {

BackwardReport run_backward(const RunOptions& options, const Cotangents& cotangents, const FollowingRequest& r) {
  enter_stage("backward");
  const CellGraph& cell = r.loaded.cell;
  const GivenSymbols given = given_symbols(cell, r.request, r.binding);
  BackwardReport report;
  const AdjointOf results = results_with(cotangents, r.gpu != nullptr);
  report.adjoint =
      std::make_unique<AdjointRun>(cell, options.recompute ? with_lines(cell, results) : results, r.compile.derive);

  Gradients gradients;
  const auto recompute = [&](const SolveOptions& solve) {
    SolveOptions again;
    again.tolerance = r.solve.tolerance;
    again.repeat_bits = r.solve.repeat_bits;
    const auto run = [&](auto&& backward, const SolveOptions& how) {
      gradients = backward.run(r.binding.run, cotangents, again, how, report.solve);
      report.run_ms = backward.run_ms();
      report.segment = backward.segment();
    };
    if (!r.gpu) return run(RecomputeBackward(cell, r.loaded.structure, *report.adjoint, r.compile), solve);
    SolveOptions on_gpu = solve;
    on_gpu.products = gradient_products(solve.products, r.binding.dtype);
    again.products = tangent_products(solve.products, r.binding.dtype);  // forward, of rows of f32
    RecomputeOnGpu backward(*r.gpu, cell, r.loaded.structure, *report.adjoint, r.binding.dtype, r.compile.derive);
    run(backward, on_gpu);
    report.device_bytes = backward.device_bytes();
  };
  const auto take = [&](auto&& backward, SolveOptions solve) {
    solve.products = gradient_products(solve.products, r.binding.dtype);
    gradients = backward.run(r.binding.run, r.output, cotangents, solve, report.solve);
    report.run_ms = backward.run_ms();
  };
  // For segments the planner's choice holds: nothing measures others there.
  std::optional<TunedPlan> tuned;
  if (!options.recompute)
    tuned = tuned_plan(report.adjoint->cell(), report.adjoint->structure(), in_arithmetic(r.binding),
                       strategy_asked(options.backward_solver), options, r.solve, r.compile.cache_directory, r.gpu);
  run_following(r, "--backward-solver", options.backward_solver, tuned, report.solve, [&](const SolveOptions& solve) {
    if (options.recompute)
      recompute(solve);
    else if (r.gpu)
      take(BackwardOnGpu(*r.gpu, cell, *report.adjoint, arithmetic_of(r.binding.dtype), r.compile.derive), solve);
    else
      take(BackwardOnCpu(*report.adjoint, r.compile), solve);
  });
  through_defaults(cell, r.binding.run, given, gradients);
  report.arrays = gradient_arrays(cell, r.binding, gradients);
  if (options.verify) {
    enter_stage("verify");
    report.verified = compare_arrays(
        report.arrays, gradient_arrays(cell, r.binding, reference_gradients(cell, r.binding.run, given, cotangents)));
  }
  return report;
}

}  // namespace cellc
