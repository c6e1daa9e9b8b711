#pragma once
// Cells for the tests of scans: each as the CUDA text of its step and as a plain loop in f64.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen_cuda/emit_cuda_lane.h"

namespace cellc {

/// A step as a plain loop has it: inputs in the order of `inputs`, states in the order of the struct.
using PlainStep = std::function<void(const double* input, double* state)>;

struct ScanCell {
  std::string text;
  int states = 1, arrays = 3;
  std::vector<int> state_arrays{0}, inputs{1, 2};  ///< arrays by entry
  std::vector<int> state_entries{0};
  std::vector<std::pair<double, double>> ranges{{-1, 1}, {-1, 1}};  ///< by input
  PlainStep step;
};

/// h' = a*h + x.
ScanCell linear_cell();
ScanCell clip_cell();
ScanCell moebius_cell();
ScanCell viterbi_cell();                                ///< two states over (max, +)
ScanCell shortest_cell();                               ///< one over (min, +), in which the state stands twice
ScanCell forward_cell(Storage storage = Storage::F32);  ///< two states over (logsumexp, +)
/// Two states that turn into each other.
ScanCell rotation_cell(Storage storage = Storage::F32);
/// A ring of four states: all entries of the map, most of which are zero over few steps.
ScanCell ring_cell();
/// Slopes above one: over a few hundred steps the factor of the map passes the largest float, the state does
/// not.
ScanCell latch_cell();
/// The same without an upper bound; what is below the threshold goes to zero.
ScanCell ramp_cell();
/// A map that is the identity over no steps and has a transition nowhere.
ScanCell forgetful_cell();

}  // namespace cellc
