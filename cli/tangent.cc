#include "cli/tangent.h"

#include <fmt/format.h>

#include "cli/fault.h"
#include "cli/request.h"
#include "runtime/cpu/solve.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/gradient/name_gradients.h"

namespace cellc {
namespace {

/// The same by the plainest means: both runs in f64, step after step, without generated code.
std::vector<std::pair<std::string, Array>> reference_tangents(const FollowingRequest& r, const TangentRun& tangent,
                                                              const Tangents& direction) {
  BoundRun forward = r.binding.run;
  for (Array& a : forward.symbols) a = convert(a, Dtype::F64);
  for (Array& a : forward.histories)
    if (!a.shape().empty()) a = convert(a, Dtype::F64);
  const RunOutput output = reference_run(r.loaded.cell, forward);
  const BoundRun bound = tangent.bind(forward, output, direction, Dtype::F64);
  return tangent_arrays(r.loaded.cell, r.binding, reference_run(tangent.cell(), bound));
}

}  // namespace

TangentReport run_tangent(const RunOptions& options, Tangents direction, const FollowingRequest& r) {
  enter_stage("tangent");
  const CellGraph& cell = r.loaded.cell;
  tangents_through_defaults(cell, r.binding.run, given_symbols(cell, r.request, r.binding), direction);
  TangentReport report;
  report.tangent = std::make_unique<TangentRun>(cell, moved_symbols(direction), r.compile.derive);

  // What pins the forward run says nothing of another cell; tolerances hold for both.
  SolveOptions solve;
  solve.solver = strategy_asked(options.tangent_solver, {"auto"}, "--tangent-solver");
  solve.tolerance = r.solve.tolerance;
  const Dtype arithmetic = arithmetic_of(r.binding.dtype);
  const BoundRun bound = report.tangent->bind(r.binding.run, r.output, direction, arithmetic);
  RunOutput found;
  try {
    if (r.gpu) {
      CudaSolver solver(*r.gpu, report.tangent->cell(), report.tangent->structure(), arithmetic, nullptr,
                        r.compile.derive);
      found = solver.run(bound, solve, report.solve);
    } else {
      CompileOptions compile = r.compile;
      compile.dtype = arithmetic;
      Solver solver(report.tangent->cell(), report.tangent->structure(), compile);
      found = solver.run(bound, solve, report.solve);
    }
  } catch (const SolverError& e) {
    throw UsageError(fmt::format("--tangent-solver {}: {}", options.tangent_solver, e.what()));
  }
  report.run_ms = found.run_ms;
  report.arrays = tangent_arrays(cell, r.binding, found);
  if (options.verify) {
    enter_stage("verify");
    report.verified = compare_arrays(report.arrays, reference_tangents(r, *report.tangent, direction));
  }
  return report;
}

}  // namespace cellc
