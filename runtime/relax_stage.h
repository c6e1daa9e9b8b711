#pragma once
// Waveform relaxation of one stage (compiler/relaxed_cell.h): one matrix product over all steps, the
// rest exactly, again and again until nothing moves.
#include <memory>
#include <optional>

#include "compiler/relaxed_cell.h"
#include "runtime/solve.h"
#include "runtime/solve_stage.h"

namespace cellc {

class Relaxation {
 public:
  /// `options`: arithmetic precision. nullptr: the stage has no mixing terms.
  static std::unique_ptr<Relaxation> make(const CellGraph& cell, const Structure& structure, int stage,
                                          const CompileOptions& options);

  /// Writes the stage's trajectories. What has not converged is reported and left to the caller.
  StageOutcome run(RunArrays& arrays, const SolveOptions& options, double tolerance);

  double compile_ms() const { return compile_ms_; }
  const std::vector<CacheState>& caches() const { return caches_; }

 private:
  Relaxation(const CellGraph& cell, const std::vector<int>& states, RelaxedCell relaxed, const CompileOptions& options);
  BoundRun bound(const RunArrays& arrays, const std::vector<ArraySource>& sources, const std::vector<Array>& mixing,
                 const std::vector<Array>& fixed, bool starts) const;

  const CellGraph& cell_;
  const std::vector<int>& states_;
  RelaxedCell relaxed_;
  Structure structure_;
  CompileOptions options_;
  std::unique_ptr<Solver> inner_;
  std::optional<Program> fixed_, mixing_, step_;
  double compile_ms_ = 0;
  std::vector<CacheState> caches_;
};

}  // namespace cellc
