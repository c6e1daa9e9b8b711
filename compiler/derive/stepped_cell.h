#pragma once
// One step of a stage as a cell without states, for devices that make a step by kernels of its own
// (runtime/cuda/launch/stepped_on_gpu.h): what it was before the step is an input one step earlier. Follows structure;
// precedes plan, which cuts the step into products of all sequences and loop nests.
//
//   h' = tanh(U@h + W@x)    ->    fixed0 = W@x, for all steps at once;   h[t] = tanh(U@h[t-1] + fixed0[t])
//
// Unlike relaxed_cell.h nothing is taken from another iterate: a mixing term inside another one, such as a GRU's reset
// gate inside of a product, is made within the step.
#include "compiler/derive/derived_cell.h"

namespace cellc {

struct SteppedCell {
  DerivedCell fixed;  ///< outs: sums over inputs and earlier stages; source Before
  DerivedCell step;   ///< outs: f by state of the stage, from all trajectories and those sums
};

}  // namespace cellc
