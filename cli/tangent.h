#pragma once
// The second half of `run` with --tangent: how the results move in one direction.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/following.h"
#include "runtime/evaluate/reference.h"
#include "runtime/gradient/tangent_run.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

struct TangentReport {
  std::unique_ptr<TangentRun> tangent;
  SolveReport solve;
  double run_ms = 0;
  std::vector<std::pair<std::string, Array>> arrays;  ///< tangent.NAME
  std::optional<Deviation> verified;                  ///< against a tangent in f64, step by step
};

/// Throws UsageError (a solver that the tangent does not admit), DeviceError.
TangentReport run_tangent(const RunOptions& options, Tangents direction, const FollowingRequest& request);

}  // namespace cellc
