#pragma once
// Stages whose lanes make outs of their channels (compiler/derive/fused_outs.h) in code that is shipped: which of them
// may in the same call, and by which kernels. Whether one does is decided at the call, as in a run (host_plan.h).
#include <vector>

#include "runtime/cuda/ship/aot_cell.h"

namespace cellc {

/// A stage as its calls may find it.
struct OutStage {
  bool may_make = false;  ///< lanes have such a form
  bool may_leave = true;  ///< and calls may run them in segments, which leave outs to what follows
};

/// By stage CELLC_MAKES_OUTS, or 0 where it makes none, each way once; none where all are 0. Of many stages that may
/// leave their outs there are too many: then those that make the most of them.
std::vector<std::vector<int>> ways_of_making_outs(const std::vector<OutStage>& stages);

/// Kernels that a call may choose for such lanes: those of aot_variants() but for segments, and the walk of what a scan
/// has marked.
std::vector<cellc_variant> out_variants(const cellc_stage& stage, const cellc_stage_facts& facts,
                                        const ShipRequest& request, const std::vector<std::int64_t>& lengths,
                                        bool last);

}  // namespace cellc
