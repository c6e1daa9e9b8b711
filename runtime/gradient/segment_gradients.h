#pragma once
// Gradients without trajectories: a first run keeps the states at the starts of segments, and then, from the last
// segment on, each is run again and its adjoint after it. What is held at a time is a segment's rows and the starts,
// O(√T) in the place of O(T), for twice the forward run. States are never rounded to storage in between: of 16-bit runs
// gradients are about the trajectory as it was computed, not as it would have been written. Of a state with a delay
// line the rows of the whole run are held, since later segments read them.
#include <cstdint>
#include <functional>

#include "runtime/gradient/adjoint_run.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

/// How a segment is run, and its adjoint; both in arithmetic precision.
struct SegmentEngines {
  std::function<RunOutput(const BoundRun& run, const SolveOptions& options, SolveReport& report)> forward;
  std::function<Gradients(const BoundRun& run, const RunOutput& output, const Cotangents& cotangents,
                          const SolveOptions& options, SolveReport& report)>
      backward;
};

/// Steps of a segment for runs whose longest sequence has so many: about as many segments as steps in each.
std::int64_t recomputed_segment(std::int64_t longest, std::int64_t shortest = 64);

class SegmentGradients {
 public:
  /// `adjoint`: also with cotangents of all states that have a delay line (with_lines()). `shortest`: steps of a
  /// segment, at least, where nothing else is said. References must outlive it.
  SegmentGradients(const CellGraph& cell, const AdjointRun& adjoint, Dtype arithmetic, SegmentEngines engines,
                   std::int64_t shortest = 64);

  /// `forward`: how the segments are run again; `backward`: how their adjoints are. `segment`: steps, 0: by
  /// recomputed_segment(). `report` is of the adjoints: converged if all runs of segments were, the largest residual.
  /// Throws as the engines do.
  Gradients run(const BoundRun& run, const Cotangents& cotangents, const SolveOptions& forward,
                const SolveOptions& backward, SolveReport& report, std::int64_t segment = 0);

  double run_ms() const { return run_ms_; }          ///< of the last call
  std::int64_t segment() const { return segment_; }  ///< of the last call

 private:
  const CellGraph& cell_;
  const AdjointRun& adjoint_;
  const Dtype arithmetic_;
  const SegmentEngines engines_;
  const std::int64_t shortest_;
  double run_ms_ = 0;
  std::int64_t segment_ = 0;
};

}  // namespace cellc
