#include "runtime/cuda/launch/plan_execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compiler/graph/delay_lines.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

namespace {

/// As calls of shipped cells decide it, too (host_plan.h).
bool leaves_no_residual(const Stage& stage, const StageFacts& facts, const CudaPlan& plan) {
  const cellc_stage_facts of = stage_facts(stage, facts.shape.carries, facts.shape.storage_bytes);
  const cellc_plan numbers = host_plan(plan);
  return cellc_leaves_no_residual(&of, facts.scans_in_one_pass, &numbers);
}

/// Lanes a multiprocessor from which a walk that makes sums along the outermost channels, too, is faster than a scan
/// that leaves all of them to kernels behind it, which read every state again for each. s6 on an H100, 62 lanes a
/// multiprocessor: 2.25 ms in the place of 4.59; of 31 both take as long, by what a step takes (137 ns) and a lane of a
/// scan with all behind it (34 ps a step).
constexpr std::int64_t kLanesThatShareGradients = 32;

/// Lanes a multiprocessor from which a walk makes what its steps share, and outs, itself: each of its threads has four
/// of them then, and what three of them would make anew is made once.
constexpr std::int64_t kLanesOfWholeWalks = 400;

/// A plan without a choice: every lane walks its whole sequence.
CudaPlan sequential_for(std::string reason) {
  CudaPlan plan;
  plan.plan.reason = std::move(reason);
  return plan;
}

constexpr const char* kExact = "tolerance 0 asks for the sequential kernel's bits, and it gives them at the least cost";

CudaPlan plan_stage(const ExecutionRequest& r, std::size_t k, double tolerance) {
  const Stage& stage = r.structure.stages[k];
  const StageFacts& facts = r.stages[k];
  const SolveOptions& solve = r.solve;
  const bool pinned = !solve.plan.empty();
  const Strategy asked = pinned ? solve.plan[k].strategy : solve.solver,
                 strategy = asked == Strategy::Relaxation || asked == Strategy::Stepped  // of a stage that has neither
                                ? Strategy::Auto
                                : asked;
  if (r.rows == 0) return sequential_for("no steps");
  if (tolerance <= 0) return sequential_for(kExact);
  if (strategy != Strategy::Auto) {
    CudaPlan plan = forced_cuda_plan(stage, facts.shape, r.card, strategy, solve);
    if (pinned) pin(plan, solve.plan[k], r.longest, solve);
    return plan;
  }
  CudaPlan plan = choose_cuda_plan(stage, facts.shape, r.card, r.observed.empty() ? Observed{} : r.observed[k]);
  if (plan.plan.strategy != Strategy::Sequential && facts.shares_gradients && !solve.fixed_iterations &&
      facts.shape.sequences * facts.shape.channels >= kLanesThatShareGradients * r.card.multiprocessors)
    return sequential_for("lanes that walk their whole sequence add up the gradients of what they share");
  if (solve.fixed_iterations) {
    // What is chosen, as if it had been asked for: a plan that learns may find that rounds are no use.
    const std::string reason = plan.plan.reason;
    plan = forced_cuda_plan(stage, facts.shape, r.card, plan.plan.strategy, solve);
    plan.plan.reason = reason;
  }
  if (r.repeats) repeat_bits(plan);
  if (!plan.fixed && !solve.fixed_iterations) plan.rounds = std::min(plan.rounds, most_rounds(solve));
  plan.repairs = solve.repair && !solve.fixed_iterations;
  return plan;
}

/// Stages are relaxed one by one: those that mix, where a run asks for it.
bool asks_to_relax(const ExecutionRequest& r, std::size_t k) {
  return (r.solve.plan.empty() ? r.solve.solver : r.solve.plan[k].strategy) == Strategy::Relaxation;
}
bool relaxes(const ExecutionRequest& r, std::size_t k, double tolerance) {
  if (!r.stages[k].mixes || !r.unrelaxed.empty() || r.rows == 0 || tolerance <= 0) return false;
  const bool alone = r.solve.solver == Strategy::Auto && r.solve.plan.empty();
  return asks_to_relax(r, k) || (alone && r.stages[k].refusal && r.relaxation_worth > 0);
}

std::optional<std::string> no_relaxation(const ExecutionRequest& r, std::size_t k) {
  if (r.on_device && !r.may_wait)
    return "calls on arrays of a device wait for nothing, and relaxation looks at what each iteration has changed; "
           "leave the choice to auto, or relax by `cellc run`";
  if (r.cell.has_lines())
    return fmt::format("the cell is run step by step on this device: {}", stepwise_reason(r.cell, r.staged, r.stages));
  const auto mixes = [](const StageFacts& f) { return f.mixes; };
  if (std::none_of(r.stages.begin(), r.stages.end(), mixes))
    return fmt::format(
        "the stage {} has no term that mixes its channels, so there is nothing to relax; leave the "
        "choice to auto",
        name_of_stage(r.cell, r.structure.stages[k].states));
  if (const std::string why = stepwise_reason(r.cell, r.staged, r.stages, true); !why.empty())
    return "the cell is run step by step on this device: " + why;
  return std::nullopt;
}

/// Stages that no thread can hold, where whole steps do not live on chip: the cell is not run as one then.
bool steps(const ExecutionRequest& r, std::size_t k, double tolerance) {
  if (!r.stages[k].refusal || r.cell.has_lines() || tolerance <= 0) return false;
  const Strategy strategy = r.solve.plan.empty() ? r.solve.solver : r.solve.plan[k].strategy;
  if (strategy == Strategy::Stepped) return true;
  const bool free = strategy == Strategy::Auto || (strategy == Strategy::Relaxation && !r.unrelaxed.empty());
  // The sequential kernel's passes may be asked for.
  return free && r.solve.persistent.blocks >= 0 && r.rows > 0 && r.persistent.code.empty() && r.stepped.pays;
}

std::optional<std::string> no_steps(const ExecutionRequest& r) {
  if (r.cell.has_lines())
    return fmt::format("a step is not made by kernels of its own: {}; leave the choice to auto",
                       stepwise_reason(r.cell, r.staged, r.stages));
  if (std::none_of(r.stages.begin(), r.stages.end(), [](const StageFacts& f) { return f.refusal.has_value(); }))
    return "the cell's lanes fit a thread each, which walks all of its steps in one launch; leave the choice to auto";
  return std::nullopt;
}

CudaPlan plan_kernels_a_step(const ExecutionRequest& r, std::size_t k) {
  const Strategy asked = r.solve.plan.empty() ? r.solve.solver : r.solve.plan[k].strategy;
  CudaPlan plan;
  plan.plan.strategy = Strategy::Stepped;
  plan.plan.reason = asked == Strategy::Stepped
                         ? fmt::format("asked for: {}", r.stepped.reason)
                         : fmt::format("the stage {}: {}; weights cannot rest on chip: {}; {}{}",
                                       name_of_stage(r.cell, r.structure.stages[k].states), *r.stages[k].refusal,
                                       r.persistent.reason, r.stepped.reason, r.unrelaxed);
  return plan;
}

CudaPlan plan_relaxation(const ExecutionRequest& r, std::size_t k) {
  if (!r.solve.plan.empty() && r.solve.plan[k].segment > 0)
    throw SolverError(fmt::format("the plan relaxes windows of {} steps, and a GPU relaxes all steps at once: leave 0",
                                  r.solve.plan[k].segment));
  CudaPlan plan;
  plan.plan.strategy = Strategy::Relaxation;
  plan.plan.reason =
      asks_to_relax(r, k)
          ? "asked for"
          : fmt::format("all steps at once, for up to {} iterations, which take as long as going step by step",
                        r.relaxation_worth);
  plan.repairs = r.solve.repair && !r.solve.fixed_iterations;
  return plan;
}

/// Of a cell that runs step by step.
CudaPlan plan_steps(const ExecutionRequest& r, Strategy strategy, double tolerance, ExecutionPlan& plan) {
  if (strategy == Strategy::Sequential) return sequential_for(plan.stepwise_reason);
  if (tolerance <= 0) return sequential_for(fmt::format("{}; {}", plan.stepwise_reason, kExact));
  CudaPlan steps = sequential_for(fmt::format("{}; {}{}", plan.stepwise_reason,
                                              r.persistent.code.empty() ? "weights cannot rest on chip: " : "",
                                              r.persistent.reason));
  if (r.persistent.code.empty() && !r.stepped.reason.empty()) steps.plan.reason += "; " + r.stepped.reason;
  // The sequential kernel's passes are asked for.
  const bool plain = strategy != Strategy::Persistent && r.solve.persistent.blocks < 0;
  if (r.persistent.code.empty() || plain) return steps;
  plan.persistent = r.persistent.code;
  steps.plan.strategy = Strategy::Persistent;
  return steps;
}

}  // namespace

std::string to_string(const Pass& pass, const CellGraph& cell, const StagedCell& staged) {
  const auto stage = [&] { return name_of_stage(cell, staged.stages[static_cast<std::size_t>(pass.stage)].states); };
  switch (pass.kind) {
    case PassKind::Once:
      return "once, for the stage " + stage();
    case PassKind::Before:
      return "before the stage " + stage();
    case PassKind::Stage:
      return "stage " + stage();
    case PassKind::Remade:
      return fmt::format("new values of the stage {}, from the rows before", stage());
    case PassKind::Relaxed:
      return fmt::format("stage {}, relaxed", stage());
    case PassKind::Stepped:
      return fmt::format("stage {}, kernels a step", stage());
    case PassKind::After:
      return "outs";
    case PassKind::Whole:
      return "the whole cell step by step, as nests";
  }
  throw std::logic_error("to_string: no such pass");
}

StageFacts facts_of(StageProgram& program, StageProgram* summing, const std::map<AxisId, std::int64_t>& sizes,
                    std::int64_t sequences, std::int64_t longest, std::int64_t rows, StageProgram* making_outs) {
  StageFacts f;
  f.refusal = program.refusal(sizes);
  if (f.refusal) return f;
  f.shape.sequences = sequences;
  f.shape.longest = longest;
  f.shape.rows = rows;
  f.shape.channels = program.channels(sizes);
  f.shape.block = program.block(sizes);
  f.shape.carries = program.carries(sizes);
  f.shape.storage_bytes = program.storage_bytes();
  f.scans_in_one_pass = program.scans_in_one_pass(sizes);
  if (summing) f.sum_parts = summing->sum_parts(sizes);
  f.shares_gradients = f.sum_parts > 0 && summing->has_outer_sums();
  f.makes_sum_outs = making_outs && making_outs->sum_parts(sizes) == 1 && !making_outs->has_outer_sums();
  if (f.makes_sum_outs || (making_outs && making_outs->makes_sums())) return f;
  // A scan sweeps both cells, and that with outs has more to read.
  f.makes_outs = making_outs && !making_outs->refusal(sizes);
  if (f.makes_outs) f.scans_in_one_pass = f.scans_in_one_pass && making_outs->scans_in_one_pass(sizes);
  return f;
}

bool stands_alone(const CellGraph& cell, const StageCells& with_outs) {
  return with_outs.before.cell.outs.empty() && with_outs.sum_outs.size() + with_outs.outs.size() == cell.outs.size();
}

bool is_never_cut(const Stage& stage, const StageFacts& facts) {
  const cellc_stage_facts of = stage_facts(stage, facts.shape.carries, facts.shape.storage_bytes);
  return of.exact && !of.forgets && facts.scans_in_one_pass;
}

void stand_alone(ExecutionRequest& r, const StageCells& with_outs) {
  StageFacts& facts = r.stages[0];
  const bool never_cut = facts.makes_outs && is_never_cut(r.structure.stages[0], facts);
  // A file that has segments, too, has outs that read rows, and one type of rows for both.
  facts.stands_alone = stands_alone(r.cell, with_outs) && (never_cut || facts.makes_sum_outs);
  if (facts.stands_alone && never_cut) facts.shape.storage_bytes = static_cast<int>(size_of(r.dtype));
}

std::vector<int> remade_values(const CellGraph& cell, const StagedCell& staged, std::size_t stage) {
  std::vector<int> values;
  for (const int u : staged.stages[stage].states) {
    if (cell.symbol_of(cell.updates[static_cast<std::size_t>(u)]).lag_of >= 0) continue;
    const ArraySource wanted{ArraySource::Kind::Remade, u};
    if (std::any_of(staged.stages.begin(), staged.stages.end(), [&](const StageCells& s) {
          const auto reads = [&](const DerivedCell& part) {
            return std::find(part.sources.begin(), part.sources.end(), wanted) != part.sources.end();
          };
          return reads(s.before) || reads(s.lanes);
        }))
      values.push_back(u);
  }
  return values;
}

Dtype lane_storage(const CellGraph& cell, const StagedCell& staged, Dtype dtype, bool rounds_rows) {
  const bool alone = staged.stages.size() == 1 && staged.stages[0].before.cell.outs.empty() && cell.outs.empty();
  return alone || rounds_rows ? dtype : arithmetic_of(dtype);
}

bool rounds_rows(ProductFactors factors, Dtype dtype) {
  return (dtype == Dtype::BF16 && factors == ProductFactors::BF16) ||
         (dtype == Dtype::F16 && factors == ProductFactors::F16);
}

std::string stepwise_reason(const CellGraph& cell, const StagedCell& staged, const std::vector<StageFacts>& stages,
                            bool relaxes) {
  if (cell.has_lines())
    return fmt::format("the delay line of {} brings rows that the same run writes",
                       cell.symbols[static_cast<std::size_t>(delay_lines(cell)[0].state)].name);
  for (std::size_t k = 0; k < stages.size(); ++k)
    if (stages[k].refusal && !(relaxes && stages[k].mixes))
      return fmt::format("the stage {}: {}", name_of_stage(cell, staged.stages[k].states), *stages[k].refusal);
  return "";
}

std::optional<std::string> refusal(const ExecutionRequest& r, std::size_t k, Strategy strategy) {
  if (strategy == Strategy::Sequential || strategy == Strategy::Auto) return std::nullopt;
  if (!is_on_gpu(strategy))
    return fmt::format("{} runs on the CPU only in this version; use --device cpu", to_string(strategy));
  if (strategy == Strategy::Relaxation) return no_relaxation(r, k);
  if (strategy == Strategy::Stepped) return no_steps(r);
  if (strategy == Strategy::Persistent) {
    if (stepwise_reason(r.cell, r.staged, r.stages).empty())
      return "the cell's lanes fit a thread each, and no product of them has weights to keep";
    if (r.persistent.code.empty()) return fmt::format("weights cannot rest on chip: {}", r.persistent.reason);
    return std::nullopt;
  }
  if (r.cell.has_lines())
    return fmt::format("the cell is run step by step on this device: {}", stepwise_reason(r.cell, r.staged, r.stages));
  const std::string name = name_of_stage(r.cell, r.structure.stages[k].states);
  if (const auto& why = r.stages[k].refusal)
    return fmt::format("the stage {} is run step by step on this device: {}", name, *why);
  if (strategy == Strategy::Scan) return no_scan(r.structure.stages[k], name);
  return std::nullopt;
}

namespace {

bool makes_outs(const ExecutionRequest& r, std::size_t k, const cellc_plan& plan) {
  const StageFacts& facts = r.stages[k];
  const bool always = r.is_adjoint || (facts.stands_alone && r.dtype != arithmetic_of(r.dtype));
  const cellc_facts card = host_facts(r.card);
  return cellc_plans_outs(&plan, &card, facts.scans_in_one_pass, always, r.rows * facts.shape.channels);
}

}  // namespace

ExecutionPlan plan_execution(const ExecutionRequest& r) {
  const std::size_t count = r.structure.stages.size();
  const SolveOptions& solve = r.solve;
  if (!solve.plan.empty() && solve.plan.size() != count)
    throw SolverError(fmt::format("the plan has {} stages, the cell {}", solve.plan.size(), count));
  ExecutionPlan plan;
  plan.rows = r.rows;
  const double tolerance = solve.tolerance.value_or(default_tolerance(r.dtype));
  bool takes_own_rows = false;  // iterates and steps are read again by other kernels
  plan.stepwise_reason = r.cell.has_lines() ? stepwise_reason(r.cell, r.staged, r.stages) : "";
  for (std::size_t k = 0; k < count; ++k) {
    if (relaxes(r, k, tolerance))
      takes_own_rows = true;
    else if (plan.stepwise_reason.empty() && r.stages[k].refusal && !steps(r, k, tolerance))
      plan.stepwise_reason =
          fmt::format("the stage {}: {}", name_of_stage(r.cell, r.structure.stages[k].states), *r.stages[k].refusal);
  }
  for (std::size_t k = 0; k < count && plan.stepwise_reason.empty(); ++k)
    takes_own_rows = takes_own_rows || steps(r, k, tolerance);
  if (!plan.stepwise_reason.empty()) plan.stepwise_reason += r.unrelaxed;
  plan.runs_stepwise = !plan.stepwise_reason.empty();
  plan.storage = plan.runs_stepwise ? r.dtype
                 : takes_own_rows   ? arithmetic_of(r.dtype)
                                    : lane_storage(r.cell, r.staged, r.dtype, r.rounds_rows);
  plan.sum_parts.assign(count, 0);
  plan.makes_outs.assign(count, false);
  plan.remakes.assign(count, false);
  for (std::size_t k = 0; k < count; ++k) {
    const Strategy strategy = solve.plan.empty() ? solve.solver : solve.plan[k].strategy;
    if (const auto why = refusal(r, k, strategy)) throw SolverError(*why);
    if (plan.runs_stepwise) {
      if (strategy != Strategy::Sequential && strategy != Strategy::Auto && strategy != Strategy::Persistent &&
          strategy != Strategy::Relaxation && (strategy != Strategy::Stepped || tolerance > 0))
        throw SolverError(fmt::format("the cell is run step by step on this device: {}", plan.stepwise_reason));
      plan.stages.push_back(plan_steps(r, strategy, tolerance, plan));
    } else if (relaxes(r, k, tolerance)) {
      plan.stages.push_back(plan_relaxation(r, k));
      if (!asks_to_relax(r, k)) plan.relaxation_worth = r.relaxation_worth;
      continue;
    } else if (steps(r, k, tolerance)) {
      plan.stages.push_back(plan_kernels_a_step(r, k));
      continue;
    } else {
      plan.stages.push_back(plan_stage(r, k, tolerance));
    }
    CudaPlan& stage = plan.stages.back();
    // Whole runs in f32 and f64 look at whole steps afterwards in any case; rows of 16 bits would not tell.
    const bool narrow = plan.storage != arithmetic_of(r.dtype) ||
                        (r.stages[k].stands_alone && !r.is_adjoint && r.dtype != arithmetic_of(r.dtype));
    stage.checks = (!r.on_device && narrow) || solve.check_scans;
    if (r.on_device && k + 1 < count && !plan.runs_stepwise && r.rows > 0 &&
        !leaves_no_residual(r.structure.stages[k], r.stages[k], stage))
      stage = sequential_for(
          "later stages read this one, and nobody looks at the whole step afterwards: no residual is left");
    if (r.on_device && !r.is_adjoint && !plan.runs_stepwise && r.rows > std::numeric_limits<int>::max() &&
        stage.plan.strategy == Strategy::Scan && !r.staged.stages[k].remade.empty())
      stage = sequential_for("later stages read this one, and it has more steps than lanes go over singly");
    if (r.stages[k].two_passes && !r.is_adjoint && k + 1 == count && !plan.runs_stepwise && r.rows > 0 &&
        tolerance > 0 && !solve.fixed_iterations)
      cut_sums(stage, r.structure.stages[k], r.stages[k].shape, r.card, solve,
               r.observed.empty() ? Observed{} : r.observed[k]);
    if (!plan.runs_stepwise && r.rows > 0) {
      const cellc_plan numbers = host_plan(stage);
      // Where rows are rounded, later stages read them as they were written.
      plan.remakes[k] = r.on_device && !r.is_adjoint && solve.check_scans && cellc_is_remade(&numbers) &&
                        !r.staged.stages[k].remade.empty() && plan.storage == arithmetic_of(r.dtype);
      plan.sum_parts[k] = cellc_planned_sums(&numbers, r.stages[k].sum_parts);
      // Segments run steps more than once.
      plan.makes_outs[k] = r.stages[k].makes_outs && plan.sum_parts[k] == 0 && makes_outs(r, k, numbers);
    }
  }
  const auto walks_whole = [&](std::size_t k) {
    const StageShape& shape = r.stages[k].shape;
    const CudaPlan& stage = plan.stages[k];
    const std::int64_t segments = stage.two_passes ? (r.longest + stage.plan.segment - 1) / stage.plan.segment : 1;
    return plan.sum_parts[k] == 0 || (r.stages[k].makes_sum_outs && shape.sequences * shape.channels * segments >=
                                                                        kLanesOfWholeWalks * r.card.multiprocessors);
  };
  bool all = plan.fuses_any(true) && !r.is_adjoint;
  for (std::size_t k = 0; k < count && all; ++k) all = walks_whole(k);
  for (std::size_t k = 0; k < count && all; ++k) {
    plan.makes_outs[k] = plan.sum_parts[k] > 0;
    plan.sum_parts[k] = 0;
  }
  if (plan.fuses_any(true)) plan.makes_outs.assign(count, false);  // the cell after the stages lacks one or the other
  if (count == 1 && plan.makes_outs[0] && r.stages[0].stands_alone && !r.is_adjoint &&
      r.dtype != arithmetic_of(r.dtype)) {
    plan.storage = r.dtype;
    plan.walks_alone = r.stages[0].makes_sum_outs;
  }
  return plan;
}

bool ExecutionPlan::relaxes_any() const {
  return std::any_of(stages.begin(), stages.end(),
                     [](const CudaPlan& s) { return s.plan.strategy == Strategy::Relaxation; });
}

bool ExecutionPlan::steps_any() const {
  return std::any_of(stages.begin(), stages.end(),
                     [](const CudaPlan& s) { return s.plan.strategy == Strategy::Stepped; });
}

bool ExecutionPlan::fuses_any(bool outs_wanted) const {
  return outs_wanted && std::any_of(sum_parts.begin(), sum_parts.end(), [](int parts) { return parts > 0; });
}

std::vector<Pass> ExecutionPlan::passes(const StagedCell& staged, const std::vector<std::optional<FusedStage>>& fused,
                                        bool outs_wanted, const std::vector<std::optional<StageCells>>& with_outs,
                                        bool left) const {
  std::vector<Pass> all;
  bool makes_any = false;
  if (rows == 0) return all;
  if (runs_stepwise) return {{PassKind::Whole, -1, false, false, storage}};
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const bool fuse = fuses(k, outs_wanted);
    const bool makes = makes_outs_of(k, outs_wanted);
    const StageCells& s = fuse ? fused[k]->stage : makes ? *with_outs[k] : staged.stages[k];
    const int number = static_cast<int>(k);
    makes_any = makes_any || makes;
    if (relaxes(k)) {
      all.push_back({PassKind::Relaxed, number, false, false, storage});
      continue;
    }
    if (steps(k)) {
      all.push_back({PassKind::Stepped, number, false, false, storage});
      continue;
    }
    if (!s.once.cell.outs.empty()) all.push_back({PassKind::Once, number, fuse, makes, arithmetic_of(storage)});
    if (!s.before.cell.outs.empty()) all.push_back({PassKind::Before, number, fuse, makes, storage});
    all.push_back({PassKind::Stage, number, fuse, makes, storage});
    for (std::size_t i = 0; remakes[k] && i <= staged.stages[k].remade.size(); ++i)
      all.push_back({PassKind::Remade, number, fuse, makes, storage, static_cast<int>(i)});
  }
  if (!staged.after.cell.outs.empty() && outs_wanted && left)
    all.push_back({PassKind::After, -1, fuses_any(true), makes_any, storage});
  return all;
}

}  // namespace cellc
