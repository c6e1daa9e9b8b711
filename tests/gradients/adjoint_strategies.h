#pragma once
// The adjoint of a cell by every strategy that some stage of it admits.
#include <string>
#include <vector>

#include "runtime/cpu/solve.h"
#include "runtime/gradient/adjoint_run.h"

namespace cellc {

struct AskedStrategy {
  std::string name;
  SolveOptions options;
};

/// The planner's choice first. Whatever cuts a run does so every few steps, so that short ones have several segments.
std::vector<AskedStrategy> admitted_strategies(Solver& solver, const AdjointRun& adjoint, const BoundRun& run);

}  // namespace cellc
