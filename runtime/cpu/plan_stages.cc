#include "runtime/cpu/plan_stages.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cpu/weigh_plans.h"
#include "runtime/data/errors.h"

namespace cellc {

namespace {

/// Why a plan cannot name the strategy for the stage.
std::optional<std::string> refusal_of_stage(StagesOfRun& cell, int k, Strategy strategy) {
  if (strategy == Strategy::Auto) return std::nullopt;
  if (!facts_of(strategy).on_cpu)
    return fmt::format("{} does not run on the CPU in this version; use --device cuda", to_string(strategy));
  return on_cpu(strategy).refusal(cell, k);
}

void check_request(const StagesRequest& r) {
  const int count = r.cell.count();
  for (int k = 0; k < count; ++k)
    if (auto why = refusal_on_cpu(r.cell, k, r.solve.solver)) throw SolverError(*why);
  // A plan names each stage's own strategy: one that the stage does not admit is refused, not replaced.
  if (!r.solve.plan.empty() && static_cast<int>(r.solve.plan.size()) != count)
    throw SolverError(fmt::format("the plan has {} stages, the cell {}", r.solve.plan.size(), count));
  for (int k = 0; k < static_cast<int>(r.solve.plan.size()); ++k)
    if (auto why = refusal_of_stage(r.cell, k, r.solve.plan[k].strategy)) throw SolverError(*why);
}

StagePlan plan_stage(const StagesRequest& r, int k) {
  if (static_cast<std::size_t>(k) < r.solve.plan.size()) return r.solve.plan[k];
  if (k == 0 && r.relaxed_first) return *r.relaxed_first;
  if (r.solve.solver != Strategy::Auto && !refusal_of_stage(r.cell, k, r.solve.solver))
    return on_cpu(r.solve.solver).forced(r.cell, k, r.solve);
  const StageShape shape = r.cell.shape(k);
  if (shape.block > kLargestBlock) {
    StagePlan plan;
    plan.reason = fmt::format("{} coupled entries are too many for transitions{}", shape.block, r.why_not_relaxed);
    return plan;
  }
  if (r.cell.count() == 1)
    if (auto plan = plan_of_narrow_stage(shape)) return *plan;
  if (auto plan = plan_from_shape(shape, offers(r.cell.stage(k), shape))) return *plan;
  if (r.seen.empty() || !r.seen[k]) return {Strategy::Auto, 0, 0, ""};
  return plan_from_data(shape, *r.seen[k], offers(shape, *r.seen[k]));
}

StagesPlan fused_plan(int count, const std::string& reason) {
  StagesPlan plan;
  plan.fused = true;
  plan.stages.assign(count, StagePlan{});
  for (StagePlan& stage : plan.stages) stage.reason = reason;
  return plan;
}

/// Of stages that are better off together: in the fused kernel's registers, or as one stage of narrow lanes.
std::optional<StagesPlan> plan_of_all_at_once(const StagesRequest& r) {
  std::vector<StageShape> shapes;
  for (int k = 0; k < r.cell.count(); ++k) shapes.push_back(r.cell.shape(k));
  StageShape all = shapes[0];
  all.block = 0;
  for (const StageShape& s : shapes) all.block += s.block, all.mixed = std::max(all.mixed, s.mixed);
  if (const auto narrow = plan_of_narrow_stage(all); narrow && r.cell.joins()) {
    StagesPlan plan;
    plan.stages.assign(shapes.size(), *narrow);
    return plan;
  }
  if (const auto why = stays_in_registers(shapes)) return fused_plan(r.cell.count(), *why);
  return std::nullopt;
}

/// As it is, but in the fused kernel.
StagesPlan fused(StagesPlan plan) {
  plan.fused = true;
  for (StagePlan& stage : plan.stages) {
    StagePlan sequential;
    sequential.reason = stage.reason.empty() ? "asked for" : stage.reason;
    stage = sequential;
  }
  return plan;
}

}  // namespace

std::optional<std::string> refusal_on_cpu(StagesOfRun& cell, int k, Strategy strategy) {
  const bool takes_some = strategy != Strategy::Auto && facts_of(strategy).takes == StrategyFacts::Takes::SomeStages;
  for (int j = 0; takes_some && j < cell.count(); ++j)
    if (!refusal_of_stage(cell, j, strategy)) return std::nullopt;
  return refusal_of_stage(cell, k, strategy);
}

std::int64_t probed_segment(const StageShape& shape) {
  return std::max<std::int64_t>(plan_from_data(shape, {}, offers(shape, Forgetting{})).segment, 64);
}

StagesPlan plan_stages(const StagesRequest& r) {
  const int count = r.cell.count();
  check_request(r);
  if (r.cell.run().offsets.back() == 0) return fused_plan(count, "no steps");
  if (r.tolerance <= 0)
    return fused_plan(count, "tolerance 0 asks for the sequential kernel's bits, and it gives them at the least cost");
  const bool free = r.solve.solver == Strategy::Auto && r.solve.plan.empty() && !r.relaxed_first;
  if (free && r.costs) return plan_from_costs(r);
  if (free && r.next < 0 && count > 1)
    if (auto plan = plan_of_all_at_once(r)) return *plan;
  StagesPlan plan;
  std::vector<StageShape> shapes;
  bool all_sequential = true, dense = false;
  for (int k = 0; k < count; ++k) {
    plan.stages.push_back(plan_stage(r, k));
    shapes.push_back(r.cell.shape(k));
    const bool sequential = plan.stages.back().strategy == Strategy::Sequential;
    all_sequential &= sequential;
    // A dense stage that is not relaxed runs in the fused kernel, and everything with it.
    dense |= sequential && shapes.back().block > kLargestBlock;
  }
  // Without stages to cut the fused kernel is the best there is; what has been cut is not put back for less than gain.
  if (r.next < 0 && (all_sequential || dense)) return fused(std::move(plan));
  // Whether the stages that would leave the fused kernel gain more than the others lose: asked before the run, and
  // where the data spoke against cutting the stage whose turn it is.
  if (free && (r.next < 0 || plan.stages[r.next].strategy == Strategy::Sequential))
    if (const auto why = keeps_fused(plan.stages, shapes)) {
      for (StagePlan& stage : plan.stages)
        if (stage.strategy != Strategy::Sequential) stage.reason = *why;
      return fused(std::move(plan));
    }
  return plan;
}

}  // namespace cellc
