#pragma once
// The values of a lane's step that are computed once, before the first step. Follows scalarize; emit_cuda_lane prints
// them.
//
// A value is one if it depends on params alone and is costly: the sine and cosine of a rotation, exp(A_log). The
// compiler hoists such values out of a loop too, but not where the loop branches: it computed both at each step of
// `s4d`. ParaGRU has no such value: its params are factors.
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

/// Throws std::logic_error where a step would need what is neither made in it nor held.
void verify(const LoopInvariants& held, const ScalarizedCell& scalars);

}  // namespace cellc
