#pragma once
// The arrays of a backward call of shipped code, and which array of the adjoint each is. What the forward call read and
// the states that it wrote are read again; cotangents are zeros where they are not given, and gradients are written
// where they are wanted. Members are named after the forward call's: "h", "h_cotangent", "h_final_cotangent",
// "x_gradient", "h_start_gradient".
#include <map>
#include <utility>
#include <vector>

#include "compiler/derive/adjoint_cell.h"
#include "compiler/plan/call_layout.h"

namespace cellc {

struct BackwardLayout {
  CallLayout layout;
  std::map<std::pair<FieldKind, int>, int> of_adjoint;  ///< by an array of the adjoint: number of the field
  std::map<int, int> starts;  ///< by input of the adjoint, a state before each step: the field of its start
  /// By param of the whole cell: the field of its gradient. Inputs that nothing depends on: the field of theirs.
  std::map<int, int> gradients, untouched;
};

/// Throws std::invalid_argument where the cell has what backward calls of shipped code lack: lags.
BackwardLayout backward_layout(const CellGraph& whole, const AdjointCell& adjoint);

}  // namespace cellc
