#pragma once
// A kernel of a stage, as text: the traits that stand before lanes.cuh, the templates that come after it, and the
// kernel itself, called `name`.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "runtime/cuda/launch/stage_tables.h"

namespace cellc {

/// Warps of a block, where memory allows.
inline constexpr int kStageWarps = 4;

/// struct Traits (kernels-templates/device/stub_traits.cuh): what the templates of this variant ask for, and nothing
/// else. `axes`: channel axes at most; those of the variant, or fewer where that is known.
std::string stage_traits_text(const cellc_stage& stage, const cellc_variant& variant, int axes);
int channel_axes_of(const cellc_stage& stage, const cellc_variant& variant);
std::vector<std::string_view> stage_kernel_parts(const cellc_variant& variant);
std::string stage_kernel_text(const CudaLaneCode& step, const CudaLaneCode& step_with_transition,
                              const cellc_stage& stage, const cellc_variant& variant, const std::string& name);
/// Bytes of Control of segments.cuh.
std::int64_t stage_control_bytes();

}  // namespace cellc
