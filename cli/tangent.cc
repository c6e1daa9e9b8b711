#include "cli/tangent.h"

#include "cli/fault.h"
#include "runtime/cpu/solve.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/gradient/name_gradients.h"

namespace cellc {
namespace {

/// The same by the plainest means: both runs in f64, step after step, without generated code.
std::vector<std::pair<std::string, Array>> reference_tangents(const FollowingRequest& r, const TangentRun& tangent,
                                                              const Tangents& direction) {
  const RunOutput output = reference_run(r.loaded.cell, r.binding.run);
  const BoundRun bound = tangent.bind(r.binding.run, output, direction, Dtype::F64);
  return tangent_arrays(r.loaded.cell, r.binding, reference_run(tangent.cell(), bound));
}

}  // namespace

TangentReport run_tangent(const RunOptions& options, Tangents direction, const FollowingRequest& r) {
  enter_stage("tangent");
  const CellGraph& cell = r.loaded.cell;
  tangents_through_defaults(cell, r.binding.run, given_symbols(cell, r.request, r.binding), direction);
  TangentReport report;
  report.tangent = std::make_unique<TangentRun>(cell, moved_symbols(direction), r.compile.derive);

  const Dtype arithmetic = arithmetic_of(r.binding.dtype);
  const BoundRun bound = report.tangent->bind(r.binding.run, r.output, direction, arithmetic);
  RunOutput found;
  run_following(r, "--tangent-solver", options.tangent_solver, {}, report.solve, [&](SolveOptions solve) {
    solve.products = tangent_products(solve.products, r.binding.dtype);
    const CellGraph& of = report.tangent->cell();
    if (r.gpu) {
      CudaSolver solver(*r.gpu, of, report.tangent->structure(), arithmetic, nullptr, r.compile.derive);
      solver.repeat_bits();
      found = solver.run(bound, solve, report.solve);
    } else {
      CompileOptions compile = r.compile;
      compile.dtype = arithmetic;
      found = Solver(of, report.tangent->structure(), compile).run(bound, solve, report.solve);
    }
  });
  report.run_ms = found.run_ms;
  report.arrays = tangent_arrays(cell, r.binding, found);
  if (options.verify) {
    enter_stage("verify");
    report.verified = compare_arrays(report.arrays, reference_tangents(r, *report.tangent, direction));
  }
  return report;
}

}  // namespace cellc
