#pragma once
// The lane cell of a stage as the tables by which kernels-templates/host/host_lanes.h plans and launches: for runs
// of our own and, printed, for code that is shipped.
#include <cstdint>
#include <map>
#include <vector>

#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "compiler/derive/stage_cells.h"
#include "compiler/graph/graph.h"
#include "kernels-templates/host/host_plan.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/data/array.h"

namespace cellc {

struct StageTables {
  std::vector<int> channel_axes, places, place_channel, place_axis, is_param;
  std::vector<cellc_entry> entries;
  cellc_stage stage{};

  StageTables() = default;
  StageTables(StageTables&&) = default;  ///< `stage` points into the vectors, whose memory moves with them
  StageTables& operator=(StageTables&&) = default;
  void point();
};

/// By position in the header: axis `a` of any of the cell's graphs has the length lengths[header_position(cell, a)].
std::vector<std::int64_t> lengths_by_number(const CellGraph& cell, const std::map<AxisId, std::int64_t>& sizes);

/// A card as host_lanes.h asks of it.
cellc_facts host_facts(const GpuFacts& facts);

/// Axes of the array that a derived cell's symbol stands for.
const std::vector<AxisId>& axes_of_source(const CellGraph& cell, const StageCells& stage, const ArraySource& source);

/// Without what the card decides: warps, stage_steps.
StageTables stage_tables(const CellGraph& cell, const StageCells& stage, const CudaLaneCode& step,
                         const CudaLaneCode& step_with_transition, Dtype storage);

/// Words of 8 bytes that are enough for the argument of any of the stage's kernels.
std::size_t argument_words(const cellc_stage& stage);
/// Bytes of the argument of one of them: kernels are compiled only if their own struct has as many.
std::size_t argument_bytes(const cellc_stage& stage, const cellc_variant& variant);

/// `carries`: a thread holds the map over a segment (StageProgram::carries).
cellc_stage_facts stage_facts(const Stage& stage, bool carries, int storage_bytes);

}  // namespace cellc
