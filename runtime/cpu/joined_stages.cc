#include "runtime/cpu/joined_stages.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "compiler/derive/pipeline.h"
#include "runtime/data/offsets.h"

namespace cellc {

namespace {

/// States of a lane: more would not stay in registers, and blocks are at most so large.
constexpr std::size_t kMostStates = 32;

/// One stage that is all stages. It is run lane by lane, in whole sequences, and claims nothing else.
Structure joined(const Structure& structure) {
  const std::size_t count = structure.stage_of.size();
  Stage all;
  all.states.resize(count);
  std::iota(all.states.begin(), all.states.end(), 0);
  all.kind = StructureClass::BlockDiagonal;
  all.block = size_expression(static_cast<std::int64_t>(count));
  all.channel_axes = structure.stages[0].channel_axes;
  all.mask.assign(count, std::vector<Coupling>(count, Coupling::Diagonal));
  Structure result;
  result.stages.push_back(std::move(all));
  result.stage_of.assign(count, 0);
  result.out_stage.assign(structure.out_stage.size(), 0);
  return result;
}

}  // namespace

JoinedStages::JoinedStages(const CellGraph& cell, Structure structure, const CompileOptions& options)
    : structure_(std::move(structure)), solver_(cell, structure_, options) {}

std::unique_ptr<JoinedStages> JoinedStages::make(const CellGraph& cell, const Structure& structure,
                                                 const CompileOptions& options) {
  if (structure.stages.size() < 2 || cell.updates.size() > kMostStates || cell.has_lines()) return nullptr;
  for (const Stage& stage : structure.stages)
    if (stage.channel_axes != structure.stages[0].channel_axes || !stage.coupled_axes.empty()) return nullptr;
  Structure one = joined(structure);
  // A value that crosses channels from stage to stage is one that lanes cannot make.
  const StagedCell staged = split_stages(cell, one, options.derive);
  if (staged.stages[0].channels != one.stages[0].channel_axes) return nullptr;
  return std::unique_ptr<JoinedStages>(new JoinedStages(cell, std::move(one), options));
}

RunOutput JoinedStages::run(const BoundRun& run, const SolveOptions& solve, const std::vector<StagePlan>& plans,
                            SolveReport& report, RunOutput reuse) {
  SolveOptions whole = solve;
  whole.solver = Strategy::Auto;
  whole.plan = {plans[0]};
  RunOutput output = solver_.run(run, whole, report, std::move(reuse));
  compile_ms_ = report.compile_ms;
  // What happened to one lane happened to all its stages; each has its own reason.
  const StageReport together = report.stages[0];
  report.stages.clear();
  for (const StagePlan& plan : plans) {
    report.stages.push_back(together);
    report.stages.back().plan = plan;
    if (together.plan.reason.ends_with(kStaysInMemory)) report.stages.back().plan.reason += kStaysInMemory;
  }
  return output;
}

void JoinedStages::sweep(const BoundRun& run, RunOutput& output) {
  const StagePlan whole{Strategy::Segmented, std::max<std::int64_t>(1, extent_of(run.offsets).longest), 0, ""};
  SolveReport report;
  output = this->run(run, {}, {whole}, report, std::move(output));
}

bool takes_whole_sequences(const std::vector<StagePlan>& plans, const BoundRun& run) {
  const std::int64_t longest = extent_of(run.offsets).longest;
  return std::all_of(plans.begin(), plans.end(), [&](const StagePlan& p) {
    return p.strategy == Strategy::Segmented && (p.segment == 0 || p.segment >= longest);
  });
}

}  // namespace cellc
