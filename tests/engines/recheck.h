#pragma once
// What `converged` means, looked at from outside: every step is made anew by the sequential kernel
// from what was written one step before, all steps at once as sequences of length one. Lags of states are
// read from the rows of the states themselves, not from what a run carried as their copies.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"
#include "runtime/cpu/engine.h"
#include "runtime/data/bind.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

/// By whichever sequential kernel: of the device whose runs are looked at.
class StepRecheck {
 public:
  using Sequential = std::function<RunOutput(const BoundRun&)>;
  /// Of a cell without states.
  using Stateless = std::function<RunOutput(const CellGraph&, Dtype, const BoundRun&)>;
  StepRecheck(const CellGraph& cell, Sequential sequential, Stateless stateless = {})
      : cell_(cell), sequential_(std::move(sequential)), stateless_(std::move(stateless)) {}

  struct Found {
    double largest = 0;               ///< residual over |s| + the largest |s| of the lane so far
    double most = 0;                  ///< over 2|s|: what a run may say that looked at no other row
    double promised = 0;              ///< over |s| + the largest |s| of the lane: what must be within the tolerance
    std::vector<Unconverged> beyond;  ///< by sequence, where a step exceeds the tolerance over rows so far
    std::vector<Unconverged> broken;  ///< the same over all rows of the lane: what a run must say, or must not leave
    std::string wrong;                ///< finals that are not the last step's
    double outs = 0;                  ///< largest difference of an out from that of the step made anew, over 1 + |out|
  };
  Found operator()(const BoundRun& run, const RunOutput& output, double tolerance) const;

  /// Largest difference of an out, over 1 + |out|, from what the CPU's kernel makes of the rows as they were written:
  /// of that before a step, and of its own wherever the out reads a new value of a state.
  double outs_of_rows(const BoundRun& run, const RunOutput& output) const;

 private:
  BoundRun single_steps(const BoundRun& run, const RunOutput& output) const;
  const Array& rows_of_symbol(const BoundRun& run, const RunOutput& output, std::size_t symbol) const;
  Array states_before(const BoundRun& run, const RunOutput& output, std::size_t update) const;
  std::string wrong_final(const BoundRun& run, const RunOutput& output, std::size_t update, double tolerance) const;
  int update_of(int symbol, int lag) const;
  /// The state whose rows say what this one is, and how many steps before.
  std::pair<int, int> origin_of(std::size_t update) const;

  const CellGraph& cell_;
  const Sequential sequential_;
  const Stateless stateless_;
};

/// By the CPU's.
class Recheck : public StepRecheck {
 public:
  Recheck(const CellGraph& cell, const Structure& structure, Dtype dtype)
      : StepRecheck(
            cell,
            [program = std::make_shared<const Program>(Program::compile(cell, structure, {.dtype = dtype}))](
                const BoundRun& run) { return program->run(run); },
            [](const CellGraph& stateless, Dtype of, const BoundRun& run) {
              return Program::compile(stateless, Structure{}, {.dtype = of}).run(run);
            }) {}
};

/// |a - b| over |a| + size; 0 for two NaN and for equal infinities, infinite where only one is finite.
double residual_between(double written, double made, double size);

/// Steps [from, to) of every sequence, each at most its length, as a packed run of its own. Its lagged
/// inputs see the steps before `from`; its states start from `starts` (by update), or as `run` does.
BoundRun steps_of(const CellGraph& cell, const BoundRun& run, std::int64_t from, std::int64_t to,
                  const std::vector<Array>* starts);
/// Puts what such a run wrote into the whole run's arrays, which are made on first use.
void put_steps(const BoundRun& whole, std::int64_t from, const BoundRun& part, const RunOutput& output, RunOutput& all);

}  // namespace cellc
