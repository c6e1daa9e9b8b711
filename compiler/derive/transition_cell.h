#pragma once
// The step with its transition: beside the state, the lane cell computes the map from the lane's start
// to the state now. Transitions of neighbouring segments compose; this is what makes a scan over time
// parallel. Follows stage_cells; precedes plan.
//
//   affine   P_ij = ∂s_i/∂(start of s_j), P' = J(s, x)·P from P = identity. In a linear stage the end is
//            affine in the start, so one sweep gives the end for every start. In any other stage P gives
//            the Newton step of multiple shooting (ParaRNN's recurrence, arXiv 2510.21450, with
//            exact steps between the unknowns).
//   clip     s = clip(a·start + b, low, high): relu and maxima of affine maps (structure_scannable.cc)
//   Möbius   s = (a·start + b)/(c·start + d), the 2x2 matrix kept at norm one
//
//   semiring s_i = offset_i ⊕ (P_ij + start of s_j): the same with maxima, minima or logs of sums of exponentials for
//            sums (structure_semiring.cc). The offset is carried as well, since nothing can be taken off a maximum.
//
// A clip, Möbius or semiring stage also needs one sweep only, though it is not linear.
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/derive/derived_cell.h"
#include "compiler/graph/graph.h"

namespace cellc {

/// Updates: the lane cell's, then the transitions'.
struct TransitionCell : DerivedCell {
  Scannable kind = Scannable::Affine;
  // Where its sinks are, for who composes maps: positions in updates.
  /// Affine and semirings: by row and column state, of P_ij [mixed_i…, mixed_j…, lane]; -1 where it is proved zero
  /// (of a semiring: the neutral element of its sum).
  std::vector<std::vector<int>> position;
  /// Semirings: by state.
  std::vector<int> offset;
  /// Clip: of a, b, low, high. Möbius: of a, b, c, d.
  std::vector<int> map;
};

}  // namespace cellc
