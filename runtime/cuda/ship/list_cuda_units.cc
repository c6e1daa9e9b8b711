#include "runtime/cuda/ship/list_cuda_units.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "compiler/derive/pipeline.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/cuda/launch/plan_execution.h"
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
  // By name: clang before 16 captures no structured binding.
  for (const auto& dim : dims)
    if (const std::string& name = dim.first;
        used != dims.size() &&
        std::none_of(cell.header.begin(), cell.header.end(), [&](AxisId a) { return cell.graph.axis(a).name == name; }))
      throw UsageError(fmt::format("--dim {}={}: the cell has no axis '{}'", name, dim.second, name));
  return sizes;
}

}  // namespace

std::vector<CudaUnit> list_cuda_units(const CellGraph& cell, const Structure& structure, Dtype dtype,
                                      const SourceText* source, const std::string& architecture,
                                      const std::map<std::string, std::int64_t>& dims, std::int64_t steps,
                                      const DeriveHooks& derive) {
  OfflineGpu card(facts_of_architecture(architecture));
  const StagedCell staged = split_stages(cell, structure, derive);
  const std::map<AxisId, std::int64_t> sizes = all_lengths(cell, dims);
  const Dtype storage = lane_storage(cell, staged, dtype);
  NestOptions nests;
  nests.source = source;
  const auto program_of = [&](const StageCells& stage, std::size_t k, Dtype storage,
                              const StageCells* carried = nullptr) {
    return std::make_unique<StageProgram>(card, cell, stage, structure.stages[k].scannable, storage, source, derive,
                                          carried);
  };
  ExecutionRequest request{cell, structure, staged};
  request.dtype = dtype;
  request.card = card.facts();
  request.rows = request.longest = steps;
  std::vector<std::optional<FusedStage>> fused;
  std::vector<std::optional<StageCells>> with_outs;
  // All of them first: programs keep references to these.
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    fused.push_back(fuse_reductions(staged, static_cast<int>(k), derive));
    with_outs.push_back(fused[k] ? std::nullopt : fuse_outs(staged, static_cast<int>(k), {}, derive));
  }
  std::vector<std::unique_ptr<StageProgram>> plain, summing, making_outs;
  const auto make_programs = [&](Dtype storage) {
    for (auto* programs : {&plain, &summing, &making_outs}) programs->clear();
    for (std::size_t k = 0; k < staged.stages.size(); ++k) {
      plain.push_back(program_of(staged.stages[k], k, storage));
      summing.push_back(fused[k] ? program_of(fused[k]->stage, k, storage) : nullptr);
      making_outs.push_back(with_outs[k] ? program_of(*with_outs[k], k, storage, &staged.stages[k]) : nullptr);
    }
  };
  make_programs(storage);
  for (std::size_t k = 0; k < staged.stages.size(); ++k)
    request.stages.push_back(facts_of(*plain[k], summing[k].get(), sizes, 1, steps, steps, making_outs[k].get()));
  if (with_outs.size() == 1 && with_outs[0]) stand_alone(request, *with_outs[0]);
  const ExecutionPlan plan = plan_execution(request);
  if (plan.storage != storage) make_programs(plan.storage);
  std::vector<PartialSum> made;
  std::vector<int> made_outs;
  for (std::size_t k = 0; k < staged.stages.size(); ++k)
    for (std::size_t i = 0; plan.sum_parts[k] > 0 && i < fused[k]->sums.size(); ++i)
      made.push_back({fused[k]->sums[i], plan.sum_parts[k]});
  for (std::size_t k = 0; k < staged.stages.size(); ++k)
    for (std::size_t o = 0; plan.makes_outs[k] && o < with_outs[k]->outs.size(); ++o)
      made_outs.push_back(with_outs[k]->outs[o].out);
  const DerivedCell after = !made.empty()        ? with_reduced_outs(staged.after, made, derive)
                            : !made_outs.empty() ? without_outs(staged.after, made_outs, derive)
                                                 : staged.after;
  std::vector<CudaUnit> units;
  std::map<std::string, std::size_t> kinds;  // of what is alike a run compiles the first (SharedModules)
  for (const Pass& pass : plan.passes(staged, fused, true, with_outs, !after.cell.outs.empty())) {
    const std::size_t k = static_cast<std::size_t>(std::max(0, pass.stage));
    const std::string title = to_string(pass, cell, staged);
    const auto add = [&](const CellGraph& graph, const Structure& of) {
      units.push_back({title, NestProgram::emit(graph, of, pass.storage, nests)});
    };
    const StageCells* const stage = pass.stage < 0   ? nullptr
                                    : pass.fused     ? &fused[k]->stage
                                    : pass.with_outs ? &*with_outs[k]
                                                     : &staged.stages[k];
    switch (pass.kind) {
      case PassKind::Once:
        add(stage->once.cell, {});
        break;
      case PassKind::Before:
        add(stage->before.cell, {});
        break;
      case PassKind::Stage: {
        const StagePlan& by = plan.stages[k].plan;
        GpuSource source = (pass.fused ? summing : pass.with_outs ? making_outs : plain)[k]->unit(sizes, by, steps);
        const auto [known, is_new] = kinds.try_emplace(source.alike, units.size());
        if (is_new)
          units.push_back({fmt::format("{}: {} ({})", title, to_string(by.strategy), by.reason), std::move(source)});
        else
          units[known->second].what += fmt::format("; also {}", title);
        break;
      }
      case PassKind::Remade:
      case PassKind::Relaxed:
      case PassKind::Stepped:
        throw std::logic_error("units are those that are planned without a request");
      case PassKind::After:
        add(after.cell, {});
        break;
      case PassKind::Whole:
        units.push_back({fmt::format("{}, for {}", title, plan.stepwise_reason),
                         NestProgram::emit(cell, structure, pass.storage, nests)});
        break;
    }
  }
  return units;
}

}  // namespace cellc
