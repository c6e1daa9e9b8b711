#pragma once
// Waveform relaxation: a stage with coupled channels, whose mixing terms are taken from the previous
// iterate. Follows structure; the relaxed cell is analysed again and solved by the other strategies.
//
//   h' = o*tanh(c'), with gates sigmoid(U@h + x)    ->    gates sigmoid(m + x), m = U@(last iterate)
//
// An LSTM leaves a linear scan of c, an Elman cell nothing at all. A mixing term is a sum, maximum or
// softmax over values that depend on the stage's states, or a state read at another entry than its
// own. Cells that have such terms: LSTM, GRU in both orders of the reset, Elman, coRNN, mean fields.
// Cells that lack them: cells whose states meet entry by entry; the other strategies solve these as they are.
//
// The fixed point of the iteration is the cell's own trajectory: when a trajectory no longer moves,
// its mixing terms are its own.
#include <optional>

#include "compiler/derive/stage_cells.h"

namespace cellc {

struct RelaxedCell {
  DerivedCell relaxed;  ///< states: the stage's, in order
  DerivedCell fixed;    ///< outs: sums that no iteration changes, such as W@x; source Before
  DerivedCell mixing;   ///< outs: the mixing terms, from all trajectories
  DerivedCell step;     ///< outs: f by state, from all trajectories: what residuals are taken of
};

}  // namespace cellc
