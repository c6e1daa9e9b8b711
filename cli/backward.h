#pragma once
// The second half of `run` with --cotangent: gradients of what the run read.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/following.h"
#include "runtime/evaluate/reference.h"
#include "runtime/gradient/adjoint_run.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

struct BackwardReport {
  std::unique_ptr<AdjointRun> adjoint;
  SolveReport solve;
  double run_ms = 0;
  std::int64_t segment = 0;                           ///< steps that were run again at a time; 0: none were
  std::int64_t device_bytes = 0;                      ///< on a GPU, then: the most that was held there
  std::vector<std::pair<std::string, Array>> arrays;  ///< grad.NAME
  std::optional<Deviation> verified;                  ///< against reference_gradients
};

/// Throws UsageError (a solver that the adjoint does not admit), DeviceError.
BackwardReport run_backward(const RunOptions& options, const Cotangents& cotangents, const FollowingRequest& request);

}  // namespace cellc
