#pragma once
// Outs made by the lanes of the stage that they follow. Follows stage_cells.
//
//   y[d] = g(h[d], x[d])        gradients of inputs, where the stage is an adjoint; also y = sigmoid(o)*h'
//
// If the cell after all stages makes such an out, it reads the state and every input of the step once more, only to
// find again what the lane had in its registers: of the adjoint of ParaGRU ten values a step and channel, beside the
// six that the stage itself moves. So the lane cell gets one more state for each such out. It is written as states are,
// but nobody reads it, so it needs no start and is no part of the map over a segment. If nobody else asks for the
// stage's own states, they need not be in memory any more.
//
// An out that is only summed over all steps afterwards (a param's gradient) need not be written either: lanes add it up
// and write one number a channel (Traits::kAccumulated of the kernels).
//
// An out stays in the cell after the stages if it has other axes than the channels, mixes channels (the gradient of x
// in W@x), or takes what a later stage makes.
#include <vector>

#include "compiler/derive/stage_cells.h"

namespace cellc {

/// Which outs of a cell are wanted only as a sum over steps, by out; empty: none.
using AccumulatedOuts = std::vector<bool>;

/// Whether an out of the stage's lanes reads a state as it was before the step, other than through what the step makes
/// of it: as 2*h' - h does and o*h' does not. A step that forgets has the right state from a wrong one, but not such an
/// out.
bool outs_read_states(const StageCells& stage);

}  // namespace cellc
