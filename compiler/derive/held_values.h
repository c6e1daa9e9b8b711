#pragma once
// Which values of a lane's step are made once, before the first one. Follows scalar_cell; emit_cuda_lane prints them.
//
// What is made of params alone and takes long: a rotation's sine and cosine, exp(A_log). The compiler moves that out of
// a loop as well, but not where it branches: at each step of `s4d` it made both. ParaGRU has none: its params are
// factors.
#include <vector>

#include "compiler/derive/scalar_cell.h"

namespace cellc {

struct HeldValues {
  std::vector<bool> is_held;  ///< by scalar
  std::vector<bool> in_step,
      before;               ///< by scalar: what a step needs, as far as what is held; and what that is made of
  std::vector<int> values;  ///< what is held, in order
};

/// `cell`: whose scalars they are. Nothing is held where it would be more than a thread has registers for.
HeldValues held_values(const ScalarCell& scalars, const CellGraph& cell);

}  // namespace cellc
