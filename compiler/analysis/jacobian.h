#pragma once
// The Jacobian of one step, block by block, as sums of terms (graph nodes times identities).
// Follows lower; precedes structure.
#include <span>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

/// Column axes are copies of the row's axes numbered from here on (d#101 for d, d#102 for d#1).
inline constexpr int kColumnCopy = 101;

/// One term: coefficient times identities. Each column place (axis of the state differentiated
/// by, as its own copy axis) is either tied to a row-side axis by an identity or occurs freely in
/// the coefficient.
struct JacobianTerm {
  NodeId coefficient;
  std::vector<std::pair<int, AxisId>> identities;  ///< (column place, row-side axis), sorted by place
};

/// ∂s'/∂t for one pair of states. Zero blocks are left out.
struct JacobianBlock {
  int row;                          ///< position in CellGraph::updates
  int column;                       ///< position in CellGraph::updates
  std::vector<AxisId> column_axes;  ///< index variables of t's places
  std::vector<JacobianTerm> terms;
};

struct Jacobian {
  std::vector<JacobianBlock> blocks;  ///< by row, then column
  bool chooses = false;               ///< some coefficient leaves out what is not taken by a `where`, not by a factor 0
  const JacobianBlock* find(int row, int column) const;
  std::span<const JacobianBlock> row(int row) const;
};

enum class SlopeRule {
  True,        ///< derivative almost everywhere (kinks: see differentiate.cc)
  Structural,  ///< steps get an opaque non-zero slope, so that dependence through them is seen
};

/// Derivatives of every update by every state. Adds nodes to the cell's graph.
Jacobian differentiate(CellGraph& cell, SlopeRule rule = SlopeRule::True);

/// Writes the coefficients with the values that the updates compute, wherever they are the same by
/// the simplifier's laws: for code that runs step and Jacobian together.
void reuse_step(CellGraph& cell, Jacobian& jacobian);

/// The whole block as one node over (row index…, column_axes…), identities spelled as eye[i,j].
NodeId block_as_node(CellGraph& cell, const JacobianBlock& block);

}  // namespace cellc
