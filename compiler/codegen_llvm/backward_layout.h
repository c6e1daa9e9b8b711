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

/// Rows of a call some steps before each step: what an input of the adjoint is made of, or what one of its outs is
/// added to. Fields are numbers of the call's, or -1.
struct ShiftedRows {
  int field = -1;
  int back = 0, along = -1;  ///< steps; position of the axis along which each is one step further back
  bool is_state = false;     ///< one step before the first it has its start, and then its history
  bool in_line = false;      ///< that through a delay line, which holds numbers as rows of the call do
  int start = -1, history = -1;
  std::vector<Reach> reaches{};  ///< of the history
};

/// A state of the adjoint that is a copy which lags, or what is under way through a delay line.
struct PastState {
  int lag = 0;
  bool is_line = false;
  int cotangent = -1;                        ///< of the final history
  int start = -1, history = -1, value = -1;  ///< gradients of start and history, and the history itself
  std::vector<Reach> reaches{};
};

struct BackwardLayout {
  CallLayout layout;
  std::map<std::pair<FieldKind, int>, int> of_adjoint;  ///< by an array of the adjoint: number of the field
  std::map<int, int> starts;  ///< by input of the adjoint, a state before each step: the field of its start
  /// By param of the whole cell: the field of its gradient. Inputs that nothing depends on: the field of theirs.
  std::map<int, int> gradients, untouched;
  std::map<int, ShiftedRows> earlier;  ///< by input of the adjoint
  std::map<int, ShiftedRows> later;    ///< by out of the adjoint; of the gradients that sums are made of
  std::map<int, PastState> past;       ///< by update of the adjoint
};

/// `narrow`: rows of the call have 16 bits, and the adjoint's do not.
BackwardLayout backward_layout(const CellGraph& whole, const AdjointCell& adjoint, bool narrow);

}  // namespace cellc
