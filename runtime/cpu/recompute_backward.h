#pragma once
// Gradients without trajectories: a first run keeps the states at the starts of segments, and then, from the last
// segment on, each is run again and its adjoint after it. What is held at a time is a segment's rows and the starts,
// O(√T) in the place of O(T), for twice the forward run. States are never rounded to storage in between: of 16-bit runs
// gradients are about the trajectory as it was computed, not as it would have been written. Of a state with a delay
// line the rows of the whole run are held, since later segments read them.
#include "runtime/cpu/backward_on_cpu.h"

namespace cellc {

/// Steps of a segment for runs whose longest sequence has so many: about as many segments as steps in each.
std::int64_t recomputed_segment(std::int64_t longest);

/// Compiled once, run often. All references must outlive it.
class RecomputeBackward {
 public:
  /// `adjoint`: also with cotangents of all states that have a delay line (with_lines()).
  RecomputeBackward(const CellGraph& cell, const Structure& structure, const AdjointRun& adjoint,
                    const CompileOptions& options);

  /// `forward`: how the segments are run again; `backward`: how their adjoints are. `segment`: steps, 0: by
  /// recomputed_segment(). `report` is of the adjoints: converged if all runs of segments were, the largest residual.
  /// Throws as Solver::run does.
  Gradients run(const BoundRun& run, const Cotangents& cotangents, const SolveOptions& forward,
                const SolveOptions& backward, SolveReport& report, std::int64_t segment = 0);

  double run_ms() const { return run_ms_; }          ///< of the last call
  std::int64_t segment() const { return segment_; }  ///< of the last call

 private:
  const CellGraph& cell_;
  const AdjointRun& adjoint_;
  const Dtype arithmetic_;
  Solver solver_;
  BackwardOnCpu backward_;
  double run_ms_ = 0;
  std::int64_t segment_ = 0;
};

}  // namespace cellc
