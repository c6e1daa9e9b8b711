#pragma once
// What follows a forward run: gradients (backward.h), tangents (tangent.h). What both take of it, and how they run
// their cell.
#include <functional>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/load.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/data/bind.h"
#include "runtime/strategy/solve_options.h"
#include "runtime/strategy/tuned_plans.h"

namespace cellc {

/// What is known after the forward run.
struct FollowingRequest {
  const LoadedCell& loaded;
  const BindRequest& request;
  const Binding& binding;
  const RunOutput& output;
  const CompileOptions& compile;
  const SolveOptions& solve;
  Gpu* gpu = nullptr;  ///< null: on the CPU
};

/// As derivatives run: in arithmetic precision. What was measured of them is kept for that.
Binding in_arithmetic(Binding binding);

/// The plan that `tune` found for runs of this cell, where the forward run asks for nothing else: whoever names a
/// processor or how to iterate wants just that. `solver`: what is asked for this cell.
std::optional<TunedPlan> tuned_plan(const CellGraph& cell, const Structure& structure, const Binding& binding,
                                    Strategy solver, const RunOptions& options, const SolveOptions& solve,
                                    const std::string& cache_directory, const Gpu* gpu);

/// Says of a run that the planner's choice was measured, too.
void note_measured(SolveReport& report);

/// Calls `run` with what `option` ("--backward-solver") and its value say; what pins the forward run says nothing of
/// another cell, but tolerances hold for both. `tuned`: a plan to follow instead, unless these sizes do not admit it.
/// Throws UsageError where the cell does not admit the solver.
void run_following(const FollowingRequest& request, const char* option, const std::string& solver,
                   const std::optional<TunedPlan>& tuned, SolveReport& report,
                   const std::function<void(const SolveOptions&)>& run);

}  // namespace cellc
