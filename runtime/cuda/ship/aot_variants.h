#pragma once
// The kernels of a stage that a file holds: those that a call of any admitted shape may choose
// (kernels-templates/host/host_plan.h).
#include <string>
#include <vector>

#include "runtime/cuda/ship/aot_cell.h"

namespace cellc {

/// Kernels that a call may choose. `lengths`: by header axis, -1 where calls say; `last`: no
/// stage reads what this one writes.
std::vector<cellc_variant> aot_variants(const cellc_stage& stage, const cellc_stage_facts& facts,
                                        const ShipRequest& request, const std::vector<std::int64_t>& lengths,
                                        bool last);

/// "walk_rows", "scan_time1_forward": different for any two of a stage.
std::string variant_name(const cellc_variant& variant);

}  // namespace cellc
