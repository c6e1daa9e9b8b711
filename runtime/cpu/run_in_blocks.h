#pragma once
// A cell with delay lines in blocks of steps that wait for nothing which the lines bring: each block is a run of its
// own of an ordinary cell (block_cell.h), by any strategy. Time runs from block to block, and within one it is what the
// strategy makes of it.
#include <memory>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/derive/block_cell.h"
#include "runtime/data/run.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class Solver;

class BlocksOfSteps {
 public:
  /// `cell` must outlive it. Runs in arithmetic precision.
  BlocksOfSteps(const CellGraph& cell, const CompileOptions& options);
  ~BlocksOfSteps();

  /// Throws as Solver::run does. The report has the worst of all blocks.
  RunOutput run(const BoundRun& run, const SolveOptions& options, SolveReport& report);
  int steps() const { return block_.steps; }
  double compile_ms() const { return compile_ms_; }  ///< of all runs

 private:
  Array tap(const LineTap& tap, const BoundRun& run) const;
  Array as_written(const Array& states) const;
  int state_of(const LineTap& tap) const;  ///< the update
  void add(SolveReport& all, const SolveReport& block, const std::vector<std::int64_t>& sequences, std::int64_t begin);

  const CellGraph& cell_;
  const CompileOptions options_;
  BlockCell block_;
  Structure structure_;
  std::unique_ptr<Solver> solver_;
  double compile_ms_ = 0;
};

}  // namespace cellc
