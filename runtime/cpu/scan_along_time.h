#pragma once
// The scan of a linear stage of one state whose steps are neighbours in memory: B = 1, d = 1. Vectors lie
// along time, so nothing is gathered or transposed, and each array is read or written once.
//
// The scan works in chunks that stay in the first-level cache. The transition cell runs over all steps of a chunk
// side by side, each from state zero, and gives s = a*s + b. These maps are composed (compose_steps.h). Then the
// step code runs over the same steps, each from the state that was found before it, and every step is checked
// against it. A thread takes a segment from a guess of its start. The true start follows from the segment before;
// from there chunks are written again until one ends in the same bits: for a cell that forgets, the first.
#include <vector>

#include "runtime/cpu/segments.h"
#include "runtime/cpu/stage_kernels.h"

namespace cellc {

/// Whether this processor has the vectors for it.
bool has_step_composer(Dtype dtype);

/// Whether these arrays admit it, too.
bool scans_along_time(const StageData& data, const TransitionCell& transitions);

struct AlongTime {
  std::vector<double> residual;  ///< by segment, the largest over all steps but its first
  double log_product = 0;        ///< of all transitions
  bool checked = false;          ///< all residuals are within the tolerance; otherwise scan in another way
};

/// Writes the trajectory; fills starts and ends of all segments.
template <typename Number>
AlongTime scan_along_time(const StageData& data, StageKernels& kernels, Segments<Number>& segments, double tolerance,
                          int threads);

}  // namespace cellc
