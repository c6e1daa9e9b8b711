#pragma once
// Which values of a lane's step are made once, before the first one. Follows scalarize; emit_cuda_lane prints them.
//
// What is made of params alone and takes long: a rotation's sine and cosine, exp(A_log). The compiler moves that out of
// a loop as well, but not where it branches: at each step of `s4d` it made both. ParaGRU has none: its params are
// factors.
#include <vector>

#include "compiler/derive/scalarize.h"

namespace cellc {

struct LoopInvariants {
  std::vector<bool> is_held;  ///< by scalar
  std::vector<bool> in_step,
      before;               ///< by scalar: what a step needs, as far as what is held; and what that is made of
  std::vector<int> values;  ///< what is held, in order
};

/// `cell`: whose scalars they are. Nothing is held where it would be more than a thread has registers for.
LoopInvariants loop_invariants(const ScalarizedCell& scalars, const CellGraph& cell);

}  // namespace cellc
