#include "runtime/cuda/ship/list_cuda_units.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/derive/fused_reductions.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/launch/choose_cuda_plan.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/cuda/launch/stage_program.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"

namespace cellc {

namespace {

constexpr std::int64_t kLength = 256;

std::map<AxisId, std::int64_t> all_lengths(const CellGraph& cell, const std::map<std::string, std::int64_t>& dims) {
  std::map<AxisId, std::int64_t> sizes;
  std::size_t used = 0;
  for (const AxisId a : cell.header) {
    const Axis& axis = cell.graph.axis(a);
    const auto said = dims.find(axis.name);
    used += said != dims.end();
    sizes[a] = said != dims.end() ? said->second : axis.fixed.value_or(kLength);
    if (axis.fixed && sizes[a] != *axis.fixed)
      throw RequestError(
          fmt::format("axis {} has length {}; the header fixes it as {}", axis.name, sizes[a], *axis.fixed));
  }
  for (const auto& [name, n] : dims)
    if (used != dims.size() &&
        std::none_of(cell.header.begin(), cell.header.end(), [&](AxisId a) { return cell.graph.axis(a).name == name; }))
      throw UsageError(fmt::format("--dim {}={}: the cell has no axis '{}'", name, n, name));
  return sizes;
}

}  // namespace

std::vector<CudaUnit> list_cuda_units(const CellGraph& cell, const Structure& structure, Dtype dtype,
                                      const SourceText* source, const std::string& architecture,
                                      const std::map<std::string, std::int64_t>& dims, std::int64_t steps) {
  OfflineGpu card(facts_of_architecture(architecture));
  const StagedCell staged = split_stages(cell, structure);
  const std::map<AxisId, std::int64_t> sizes = all_lengths(cell, dims);
  const bool alone = staged.stages.size() == 1 && staged.stages[0].before.cell.outs.empty() && cell.outs.empty();
  const Dtype arithmetic = arithmetic_of(dtype), storage = alone ? dtype : arithmetic;
  NestOptions rows;
  rows.source = source;
  const auto names = [&](const StageCells& stage) {
    std::string text;
    for (const int u : stage.states) text += (text.empty() ? "" : ", ") + cell.symbol_of(cell.updates[u]).name;
    return text;
  };
  std::vector<CudaUnit> units;
  std::vector<PartialSum> made;
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const StageCells& plain = staged.stages[k];
    StageProgram program(card, cell, plain, structure.stages[k].scannable, storage, source);
    if (const auto why = program.refusal(sizes))
      return {{fmt::format("the whole cell as row kernels, for the stage {{{}}}: {}", names(plain), *why),
               NestProgram::emit(cell, structure, dtype, rows)}};
    StageShape shape;
    shape.sequences = 1;
    shape.longest = shape.rows = steps;
    shape.channels = program.channels(sizes);
    shape.block = program.block(sizes);
    shape.storage_bytes = program.storage_bytes();
    const CudaPlan plan = choose_cuda_plan(structure.stages[k], shape, card.facts(), {});
    // As CudaSolver has it: lanes that walk make sums.
    const std::optional<FusedStage> summed = fuse_reductions(staged, static_cast<int>(k));
    std::optional<StageProgram> summing;
    if (summed && plan.plan.strategy == Strategy::Sequential)
      summing.emplace(card, cell, summed->stage, structure.stages[k].scannable, storage, source);
    const int parts = summing ? summing->sum_parts(sizes) : 0;
    for (std::size_t i = 0; parts > 0 && i < summed->sums.size(); ++i) made.push_back({summed->sums[i], parts});
    const StageCells& stage = parts > 0 ? summed->stage : plain;
    const auto once = stage.once.cell.outs.empty() ? 0 : 1, before = stage.before.cell.outs.empty() ? 0 : 1;
    if (once)
      units.push_back({fmt::format("once, for the stage {{{}}}", names(stage)),
                       NestProgram::emit(stage.once.cell, {}, arithmetic, rows)});
    if (before)
      units.push_back({fmt::format("before the stage {{{}}}", names(stage)),
                       NestProgram::emit(stage.before.cell, {}, storage, rows)});
    units.push_back(
        {fmt::format("stage {{{}}}: {} ({})", names(stage), to_string(plan.plan.strategy), plan.plan.reason),
         (parts > 0 ? *summing : program).unit(sizes, plan.plan, steps)});
  }
  const StatelessCell after = made.empty() ? staged.after : with_reduced_outs(staged.after, made);
  if (!after.cell.outs.empty()) units.push_back({"outs", NestProgram::emit(after.cell, {}, storage, rows)});
  return units;
}

}  // namespace cellc
