#pragma once
// Stages that make sums (compiler/derive/fused_reductions.h) in code that is shipped: in which ways calls may have them
// made, and by which kernels. Whether one does is decided at the call, as in a run (host_plan.h).
#include <cstdint>
#include <vector>

#include "kernels-templates/host/host_plan.h"
#include "runtime/cuda/device/gpu.h"

namespace cellc {

/// A stage as its calls may find it.
struct SummingStage {
  const cellc_stage* stage = nullptr;  ///< the form with sums; null: there is none
  bool may_walk = true, may_cut = true;
};

/// Parts of sums by stage, each way once, 0 where a stage makes none; none where all are 0. `lengths`: by header axis,
/// -1 where calls say. Of several stages whose lengths are open there may be too many: then those of 3, 5, … parts are
/// left out, and calls that would have them leave those sums to the outs.
std::vector<std::vector<int>> ways_of_summing(const std::vector<SummingStage>& stages,
                                              const std::vector<std::int64_t>& lengths);

/// Walks with sums that a call may choose: those that cellc_choose_variant gives for lengths, addresses and numbers of
/// lanes of every kind.
std::vector<cellc_variant> summing_variants(const cellc_stage& stage, const GpuFacts& card,
                                            const std::vector<std::int64_t>& lengths);

}  // namespace cellc
