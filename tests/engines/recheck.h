#pragma once
// What `converged` means, looked at from outside: every step is made anew by the sequential kernel
// from what was written one step before, all steps at once as sequences of length one.
#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"
#include "runtime/cpu/engine.h"
#include "runtime/data/bind.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class Recheck {
 public:
  Recheck(const CellGraph& cell, const Structure& structure, Dtype dtype);

  struct Found {
    double largest = 0;               ///< residual over 1 + |s|
    std::vector<Unconverged> beyond;  ///< by sequence, where a step exceeds the tolerance
    std::string wrong;                ///< finals that are not the last step's, shapes
  };
  Found operator()(const BoundRun& run, const RunOutput& output, double tolerance) const;

  const Program& program() const { return program_; }

 private:
  BoundRun single_steps(const BoundRun& run, const RunOutput& output) const;

  const CellGraph& cell_;
  Program program_;
};

/// |a - b| over 1 + |a|; 0 for two NaN and for equal infinities, infinite where only one is finite.
double residual_between(double written, double made);

/// Steps [from, to) of every sequence, each at most its length, as a packed run of its own. Its lagged
/// inputs see the steps before `from`; its states start from `starts` (by update), or as `run` does.
BoundRun steps_of(const CellGraph& cell, const BoundRun& run, std::int64_t from, std::int64_t to,
                  const std::vector<Array>* starts);
/// Puts what such a run wrote into the whole run's arrays, which are made on first use.
void put_steps(const BoundRun& whole, std::int64_t from, const BoundRun& part, const RunOutput& output, RunOutput& all);

}  // namespace cellc
