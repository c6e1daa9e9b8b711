#include "cli/following.h"

#include <fmt/format.h>

#include "cli/request.h"
#include "runtime/cpu/timed_cpu.h"

namespace cellc {

Binding in_arithmetic(Binding binding) {
  binding.dtype = arithmetic_of(binding.dtype);
  return binding;
}

std::optional<TunedPlan> tuned_plan(const CellGraph& cell, const Structure& structure, const Binding& binding,
                                    Strategy solver, const RunOptions& options, const SolveOptions& solve,
                                    const std::string& cache_directory, const Gpu* gpu) {
  const bool free = solver == Strategy::Auto && solve.plan.empty() && solve.repair && !solve.fixed_iterations &&
                    !options.max_iterations && options.cpu == "native" && solve.tolerance.value_or(1) > 0;
  // What was measured is another choice where it is measured again.
  if (!free || cache_directory.empty() || (gpu && solve.repeat_bits)) return std::nullopt;
  const TunedFor what = tuned_for(cell, structure, binding, gpu ? "cuda" : "cpu",
                                  gpu ? gpu->facts().name : cpu_and_threads(binding.run.threads), solve.tolerance);
  return TunedPlans(cache_directory).find(what, structure.stages.size());
}

void note_measured(SolveReport& report) {
  for (StageReport& s : report.stages) s.plan.reason += "; cellc tune measured nothing faster";
}

void run_following(const FollowingRequest& request, const char* option, const std::string& solver,
                   const std::optional<TunedPlan>& tuned, SolveReport& report,
                   const std::function<void(const SolveOptions&)>& run) {
  SolveOptions solve;
  solve.solver = strategy_asked(solver, {"auto"}, option);
  solve.tolerance = request.solve.tolerance;
  solve.products = request.solve.products;
  solve.repeat_bits = request.solve.repeat_bits;
  if (tuned && !tuned->stages.empty()) {
    SolveOptions pinned = solve;
    pinned.plan = tuned->stages;
    try {
      return run(pinned);
    } catch (const SolverError&) {  // a plan that these sizes do not admit is none
    } catch (const MemoryError&) {  // nor is one of smaller sizes that leaves no room
    }
    report = {};
  }
  try {
    run(solve);
  } catch (const SolverError& e) {
    throw UsageError(fmt::format("{} {}: {}", option, solver, e.what()));
  }
  if (tuned && tuned->stages.empty()) note_measured(report);
}

}  // namespace cellc
