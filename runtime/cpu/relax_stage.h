#pragma once
// Waveform relaxation of one stage (compiler/derive/relaxed_cell.h): one matrix product over all steps, then the
// exact solution of the rest, repeated until nothing moves.
#include <memory>
#include <optional>
#include <vector>

#include "compiler/derive/pipeline.h"
#include "compiler/plan/plan.h"
#include "runtime/cpu/cpu_strategy.h"
#include "runtime/cpu/solve.h"

namespace cellc {

class Relaxation {
 public:
  /// `options`: arithmetic precision. nullptr: the stage has no mixing terms.
  static std::unique_ptr<Relaxation> make(const CellGraph& cell, const Structure& structure, int stage,
                                          const CompileOptions& options);

  /// Steps of a window that is relaxed before the next one starts: short, so that iterations stay few where
  /// differences die out slowly, and what they read stays near; long enough for products to be worth it.
  static std::int64_t window_steps(const BoundRun& run);

  /// Writes the stage's trajectories, window by window (0: all steps at once). What has not converged is
  /// reported and left to the caller. `worth`: iterations over the whole run after which something else is faster; 0:
  /// whatever it takes. It ends where a window will take more than its share of those.
  StageOutcome run(RunArrays& arrays, const SolveOptions& options, double tolerance, std::int64_t window,
                   int worth = 0);

  /// A few iterations over the first steps: how many a run will take. nullopt: it does not contract.
  std::optional<int> predict(const BoundRun& run, double tolerance);

  /// Multiplications by params that one step's mixing terms take.
  double product_entries(const BoundRun& run) const;

  /// Nanoseconds that an iteration takes a row, with all threads at work: its products, measured by one call
  /// of BLAS, and an estimate of the rest.
  double iteration_ns(const BoundRun& run) const;

  double compile_ms() const { return compile_ms_; }
  const std::vector<CacheState>& caches() const { return caches_; }

 private:
  Relaxation(const CellGraph& cell, const std::vector<int>& states, RelaxedCell relaxed, const CompileOptions& options);
  void prepare();
  /// The largest |entry| of each lane in rows before those that are relaxed: by state, then sequence, then entry.
  using Sizes = std::vector<std::vector<double>>;
  /// `sizes`: afterwards in these rows as well. nullptr: there are no others.
  StageOutcome relax_rows(RunArrays& arrays, const SolveOptions& options, double tolerance, int worth, Sizes* sizes);
  double check(const RunArrays& arrays, const SolveOptions& options, double tolerance, Sizes* sizes,
               std::vector<Unconverged>& unconverged);
  BoundRun bound(const RunArrays& arrays, const std::vector<ArraySource>& sources, const std::vector<Array>& mixing,
                 const std::vector<Array>& fixed, bool starts) const;

  const CellGraph& cell_;
  const std::vector<int>& states_;
  RelaxedCell relaxed_;
  Plan mixing_plan_;
  Structure structure_;
  CompileOptions options_;
  std::unique_ptr<Solver> inner_;
  std::optional<Program> fixed_, mixing_, step_;
  double compile_ms_ = 0;
  bool inner_counted_ = false;
  std::vector<CacheState> caches_;
};

}  // namespace cellc
