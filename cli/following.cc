#include "cli/following.h"

#include <fmt/format.h>

#include "cli/request.h"

namespace cellc {

void run_following(const FollowingRequest& request, const char* option, const std::string& solver,
                   const std::function<void(const SolveOptions&)>& run) {
  SolveOptions solve;
  solve.solver = strategy_asked(solver, {"auto"}, option);
  solve.tolerance = request.solve.tolerance;
  try {
    run(solve);
  } catch (const SolverError& e) {
    throw UsageError(fmt::format("{} {}: {}", option, solver, e.what()));
  }
}

}  // namespace cellc
