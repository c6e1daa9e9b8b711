#pragma once
// Sums over values that a stage has just computed, made by the stage's own lanes. Follows stage_cells.
//
//   y[d] = sum[n](C[n]*h'[d,n]) + D[d]*u[d]        s6; also mamba2, s4d, both mlstm
//
// If the cell after all stages makes such a sum, every state is written and read back for a small part of the
// arithmetic: that took as long as the stage itself. A lane has its own term at hand, and where the sum runs along the
// innermost channels the other terms are in the same warp. So the lane cell gets one more state for each sum. The new
// value of that state is the term, and nobody reads it. The kernel adds the terms up instead of writing them
// (sums.cuh), and the cell after the stages reads sums. If the sum runs over more channels than a warp has lanes, each
// warp makes one part of it.
//
// What a term takes from other channels or steps (the projection W_C@u of a Mamba mixer) is made before the stage, with
// the inputs of the steps. A sum stays in the cell after the stages if it runs along other channels (gla: S[k,v],
// summed over k), or reads a state of the step before or of a later stage.
//
// An adjoint's stage has more of both, for what its cell shares among lanes has a sum as its gradient:
//
//   ∂u[d] = sum[n](λ[d,n]*δ[d]*B[n]) + …      along the innermost channels, as above
//   ∂B[n] = sum[d](λ[d,n]*δ[d]*u[d])          along the outermost: the other terms are in other warps (outer_sums.cuh)
//   ∂A[d,n] = Σ_t λ[d,n]*h[d,n]*…             of all channels, summed over steps: an out (fused_outs.h)
//
// So lanes of an adjoint make all three, and may read the states of the step before. What each is made of (λ, h, δ, B)
// then passes once, where a kernel for each sum read every state anew: five sixths of the time of the backward run of
// s6.
#include <optional>
#include <vector>

#include "compiler/derive/stage_cells.h"

namespace cellc {

/// A stage with sums in its lanes: `stage.sums` are those, each a further state behind the stage's own. Its `once` and
/// `before` begin with the outs of the stage without sums.
struct FusedStage {
  StageCells stage;
  std::vector<NodeId> sums;  ///< of the graph of StagedCell::after, by sum
};

/// A stage's lanes with their states alone, by the same numbers of symbols: what the map over a segment is made of.
/// What stood behind the states is an input that nobody reads.
DerivedCell without_sums(const StageCells& stage);

/// A sum that lanes have made in so many parts.
struct PartialSum {
  NodeId node = kNoNode;  ///< of the graph of StagedCell::after
  int parts = 1;
};

}  // namespace cellc
