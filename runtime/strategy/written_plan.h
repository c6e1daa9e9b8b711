#pragma once
// Plans as text: what a run followed, as `cellc run --json` prints it under "plan", and back. The C API has both, too.
#include <string>
#include <vector>

#include "runtime/strategy/solve_options.h"

namespace cellc {

/// A JSON object of "stages", each with its solver, segment and burn_in, and the "reason".
std::string written_plan(const SolveReport& report);

/// The plan of that text, or of its member "plan", for a cell of so many stages. `name`: of the text, for messages and
/// reasons. Throws RequestError.
std::vector<StagePlan> read_plan(const std::string& text, const std::string& name, std::size_t stages);

}  // namespace cellc
