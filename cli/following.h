#pragma once
// What follows a forward run: gradients (backward.h), tangents (tangent.h). What both take of it, and how they run
// their cell.
#include <functional>
#include <string>

#include "cli/command.h"
#include "cli/load.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/data/bind.h"
#include "runtime/strategy/solve_options.h"

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

/// Calls `run` with what `option` ("--backward-solver") and its value say; what pins the forward run says nothing of
/// another cell, but tolerances hold for both. Throws UsageError where the cell does not admit the solver.
void run_following(const FollowingRequest& request, const char* option, const std::string& solver,
                   const std::function<void(const SolveOptions&)>& run);

}  // namespace cellc
