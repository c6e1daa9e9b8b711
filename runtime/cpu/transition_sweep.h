#pragma once
// Sweeps over segments with transitions: a cell runs from guessed starts together with the map from a segment's start
// to its end, and the composition of those maps gives new starts.
#include <vector>

#include "runtime/cpu/segment_sweep.h"

namespace cellc {

template <typename Number>
class TransitionSweep {
 public:
  /// `cell`: that of the stage, or one derived from it; `arrays`: what it reads.
  TransitionSweep(SegmentSweep<Number>& sweep, const StageKernels::Carrying& cell, const LaneData& arrays);

  struct Moved {
    std::vector<char> chains;  ///< those of which a start moved by more than the tolerance, within `active`
    double change = 0;         ///< the largest, over |start| + the largest of its lane so far
    std::int64_t lanes = 0;    ///< that ran
  };
  /// One sweep of the active chains. `tolerance`: what counts as moved.
  Moved advance(std::vector<char> active, double tolerance);

  /// Growth per step, from the transitions of the last sweep: the largest over channels estimates the Lyapunov exponent
  /// (the mean of log‖P‖ over the segments bounds it from above). Of affine maps only.
  void observe(const std::vector<char>& active);

  /// One sweep whose composed maps are exact, then the rows again by the step code with the inputs still in cache: for
  /// segments that are short enough.
  void scan_in_tiles();

 private:
  void start_from_segments();
  double norm(std::int64_t segment, std::int64_t channel) const;

  SegmentSweep<Number>& sweep_;
  StageData& data_;
  Segments<Number>& segments_;
  const StageKernels::Carrying& cell_;
  const LaneData& arrays_;
  SegmentStates from_, swept_;
};

/// Multiple shooting: sweeps and composes until no start of an active chain moves, `iterations` times at most.
template <typename Number>
void shoot(SegmentSweep<Number>& sweep, std::vector<char> active);

}  // namespace cellc
