#include "runtime/cuda/launch/stage_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels-templates/abi/kernel_memory.h"

namespace cellc {

namespace {

constexpr int kStages = CELLC_STAGES_AHEAD;  ///< under way, of a warp
constexpr int kChannelAxes = CELLC_CHANNEL_AXES;

/// As many lanes as cellc_two_pass_segment makes are resident at once, four a thread: a segment that waits for another
/// would double the time.
std::string blocks_of_a_pass(const cellc_stage& stage) {
  return fmt::format(", {}", (stage.real_bytes == 8 ? 2 : 4) * kStageWarps / stage.warps);
}

}  // namespace

std::int64_t stage_control_bytes() { return sizeof(Control); }

std::string stage_kernel_text(const CudaLaneCode& step, const CudaLaneCode& step_with_transition,
                              const cellc_stage& stage, const cellc_variant& variant, const std::string& name) {
  const char* const argument = variant.rewalks                     ? "ScanRewalk"
                               : variant.pass                      ? "TwoPasses"
                               : variant.kernel == CELLC_SCAN      ? "Scan"
                               : variant.kernel == CELLC_SEGMENTED ? "Segmented"
                                                                   : "Lanes";
  const std::size_t states = step.states.size();
  std::string bounds = std::to_string(cellc_stage_threads(&stage, &variant)), call;
  if (variant.kernel == CELLC_SCAN) {
    const char* const copy = variant.copy == CELLC_CONTIGUOUS ? "Contiguous"
                             : variant.copy == CELLC_TIME     ? "Time"
                                                              : "Each";
    bounds += fmt::format(", {}", variant.blocks);
    call = variant.cluster ? "scan_cluster"
                           : fmt::format("{}<cellc::ScanCopy::{}>", variant.buffers ? "scan_stream" : "scan", copy);
  } else if (variant.kernel == CELLC_SEGMENTED) {
    // Two blocks a multiprocessor are what the planner asks for: more registers a thread spill nothing.
    bounds += fmt::format(", {}", (states <= 4 ? 2 : 1) * kStageWarps / stage.warps);
    call = fmt::format("segmented<{}>", variant.rows != 0);
  } else if (variant.rewalks) {
    call = "scan_rewalk";
  } else if (variant.pass == CELLC_PASS_ENDS) {
    bounds += blocks_of_a_pass(stage);
    call = fmt::format("segment_ends<{}>", variant.rows != 0);
  } else if (variant.pass) {
    bounds += blocks_of_a_pass(stage);
    call = fmt::format("{}<{}, {}>", variant.pass == CELLC_PASS_SUMS ? "segment_sums" : "walk_again", variant.rows != 0,
                       variant.sum_lanes);
  } else {
    call = fmt::format("sequential<{}, {}{}>", variant.rows != 0, variant.lockstep != 0,
                       stage.outer  ? fmt::format(", {}, {}", variant.sum_lanes, variant.kept)
                       : stage.sums ? fmt::format(", {}", variant.sum_lanes)
                                    : "");
  }
  std::string text = fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}) {}(const __grid_constant__ cellc::{} run) {{ "
      "{}cellc::{}(run); }}\n",
      bounds, name, argument, variant.cluster ? "" : "cellc::await_stream(); ", call);
  if (stage.outer)
    text +=
        "extern \"C\" __global__ void cellc_beside(void* sum, long long entries, int parts) { "
        "cellc::await_stream(); cellc::add_parts(static_cast<Real*>(sum), entries, parts); }\n";
  if (variant.pass == CELLC_PASS_ENDS || variant.pass == CELLC_PASS_AGAIN)
    text += fmt::format(
        "extern \"C\" __global__ void cellc_beside(const __grid_constant__ cellc::TwoPasses run) {{ "
        "cellc::await_stream(); cellc::{}(run); }}\n",
        variant.pass == CELLC_PASS_ENDS ? "compose_starts" : "check_boundaries");
  // What the host writes and the device reads are told apart nowhere else.
  text += fmt::format("static_assert(sizeof(cellc::{}) == {}, \"what the launch hands over\");\n", argument,
                      argument_bytes(stage, variant));
  if (variant.pass)
    text += fmt::format("static_assert(sizeof(cellc::ScanControl) == {}, \"what the launch reserves\");\n",
                        static_cast<int>(CELLC_SCAN_CONTROL));
  if (variant.kernel == CELLC_SEGMENTED)
    text += fmt::format(
        "static_assert(sizeof(cellc::Control) == {} && cellc::kPlannedRounds == {}, \"what the launch reserves, and "
        "plans\");\n",
        stage_control_bytes(), static_cast<int>(CELLC_ROUNDS));
  if (variant.kernel == CELLC_SCAN)
    text += fmt::format(
        "static_assert(cellc::{}_shared_bytes({}) == {} && cellc::kMapReals == {} && sizeof(cellc::ScanControl) == {}, "
        "\"what the launch reserves\");\n",
        variant.cluster   ? "cluster"
        : variant.buffers ? "stream"
                          : "scan",
        variant.warps, variant.shared_bytes, step_with_transition.map_numbers, static_cast<int>(CELLC_SCAN_CONTROL));
  return text;
}

std::vector<std::string_view> stage_kernel_parts(const cellc_variant& variant) {
  if (variant.kernel == CELLC_SCAN) {
    std::vector<std::string_view> parts = {"maps.cuh",      "semirings.cuh",   "transitions.cuh", "accumulators.cuh",
                                           "scan_tile.cuh", "scan_repair.cuh", "scan.cuh"};
    if (variant.cluster)
      parts.push_back("scan_cluster.cuh");
    else if (variant.buffers)
      parts.insert(parts.end(), {"scan_tma.cuh", "scan_stream.cuh"});
    return parts;
  }
  if (variant.kernel == CELLC_SEGMENTED)
    return {"maps.cuh",       "semirings.cuh",    "transitions.cuh", "segments.cuh",
            "hermite.cuh",    "segment_work.cuh", "first_sweep.cuh", "segment_runs.cuh",
            "chain_walk.cuh", "compose.cuh",      "multistart.cuh",  "segmented.cuh"};
  if (variant.rewalks)
    return {"maps.cuh", "semirings.cuh", "transitions.cuh", "boundary.cuh", "accumulators.cuh", "scan_rewalk.cuh"};
  if (variant.pass)
    return {"maps.cuh",         "semirings.cuh",  "transitions.cuh", "boundary.cuh",  "sums.cuh",
            "accumulators.cuh", "outer_sums.cuh", "sequential.cuh",  "two_passes.cuh"};
  return {"sums.cuh", "accumulators.cuh", "outer_sums.cuh", "sequential.cuh"};
}

std::string stage_traits_text(const cellc_stage& stage, const cellc_variant& variant, int axes) {
  const bool scans = variant.kernel == CELLC_SCAN;
  std::string text = "struct Traits {\n";
  const auto number = [&](const char* name, int value) {
    text += fmt::format("  static constexpr int {} = {};\n", name, value);
  };
  const auto flag = [&](const char* name, bool value) {
    text += fmt::format("  static constexpr bool {} = {};\n", name, value);
  };
  number("kStepsPerCopy", scans ? stage.stage_steps : variant.steps);
  number("kPipelineDepth", kStages);
  number("kWidth", variant.width);
  number("kAxes", axes);
  flag("kSharedInputs", cellc_shares_inputs(&stage));
  number("kSums", stage.sums);
  number("kBases", stage.bases);
  number("kOuterSums", stage.outer);
  number("kOuts", stage.outs);
  number("kAccumulated", stage.accumulated);
  flag("kOutsReadStates", stage.outs_read_states != 0);
  flag("kWritesRows", variant.unwritten == 0);
  text += fmt::format("  static constexpr unsigned kUniformInputs = {}u, kShiftedInputs = {}u, kColumns = {:#x}u;\n",
                      variant.broadcast, variant.shifted, static_cast<unsigned>(variant.columns));
  if (scans) {
    number("kScanChannels", variant.channels);
    number("kScanSteps", variant.steps);
    flag("kScanForward", variant.forward != 0);
    flag("kScanChecks", variant.checks != 0);
    number("kScanCluster", variant.cluster);
  }
  if (variant.cluster) flag("kScanWhole", variant.whole != 0);
  if (variant.buffers) {
    number("kScanBuffers", variant.buffers);
    number("kScanCarry", variant.carry_channels);
  }
  return text + "};\n";
}

int channel_axes_of(const cellc_stage& stage, const cellc_variant& variant) {
  return variant.rows || variant.cluster ? 1 : std::clamp(stage.channels, 1, kChannelAxes);
}

}  // namespace cellc
