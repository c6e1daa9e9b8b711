// What a run of a cell on a GPU decides, by what the card, the shape and earlier runs say; and what follows from a plan
// for the arrays of the run.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/cuda/launch/choose_cuda_plan.h"
#include "runtime/cuda/launch/cuda_solver_impl.h"
#include "runtime/data/errors.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

bool CudaSolver::Impl::may_relax_unasked() const {
  return runs_again && !on_device && solve.solver == Strategy::Auto && solve.plan.empty() && !solve.fixed_iterations &&
         solve.max_iterations > 0 && solve.repair && solve.persistent.blocks >= 0 && unrelaxed.empty() &&
         arrays.rows > 0;
}

std::string CudaSolver::Impl::why_given_up(const SolveReport& report) const {
  for (const StageReport& s : report.stages)
    if (s.plan.strategy == Strategy::Relaxation && s.iterations > 0)
      return s.predicted_iterations ? fmt::format("; relaxation would have taken {} iterations, and {} take as long",
                                                  *s.predicted_iterations, execution.relaxation_worth)
                                    : fmt::format("; relaxation did not contract in {} iterations", s.iterations);
  return "";
}

ExecutionRequest CudaSolver::Impl::request() {
  stages_of_cell();
  ExecutionRequest r{cell, structure, *staged};
  r.dtype = dtype;
  for (std::size_t k = 0; k < stages.size(); ++k) {
    const bool in_lanes = on_device || !outs_in_lanes;  // what gradients need besides
    r.stages.push_back(facts_of(*stages[k], in_lanes ? summing[k].get() : nullptr, arrays.bound.sizes, arrays.sequences,
                                arrays.longest, arrays.rows,
                                on_device || !outs_in_lanes ? making_outs[k].get() : nullptr));
    bool& all = r.stages.back().two_passes = r.stages.back().sum_parts > 0 && two_passes[kSums][k];
    for (const Form form : {kSums, kOuts})
      if (all && two_passes[form][k]) all = two_passes[form][k]->has_two_passes(arrays.bound.sizes);
  }
  if (with_outs.size() == 1 && with_outs[0] && !outs_in_lanes) stand_alone(r, *with_outs[0]);
  r.card = gpu.facts();
  r.solve = solve;
  r.repeats = repeats();
  r.rounds_rows = rounds_rows(product_factors(solve.products, dtype), dtype);
  if (!r.repeats) r.observed = observed;
  r.rows = arrays.rows;
  r.longest = arrays.longest;
  r.on_device = on_device;
  r.is_adjoint = outs_in_lanes.has_value();
  r.may_wait = may_wait;
  r.unrelaxed = unrelaxed;
  const bool stepwise = !stepwise_reason(cell, *staged, r.stages).empty();
  if (stepwise) r.persistent = choose_persistent_kernels();
  if (stepwise && !cell.has_lines() && (r.persistent.code.empty() || asks_for(solve, Strategy::Stepped)))
    r.stepped = choose_kernels_a_step(r);
  const bool tries = stepwise && may_relax_unasked();
  for (std::size_t k = 0; k < stages.size() && (asks_for(solve, Strategy::Relaxation) || asked_of_refusal || tries);
       ++k)
    r.stages[k].mixes = relaxations.of(k) != nullptr;
  if (tries) r.relaxation_worth = relaxations.worth(r, arrays, product_factors(solve.products, dtype));
  return r;
}

SteppedChoice CudaSolver::Impl::choose_kernels_a_step(const ExecutionRequest& r) {
  SteppedRequest of{{}, arrays.sequences, arrays.rows, arithmetic, product_factors(solve.products, dtype), r.card};
  for (std::size_t k = 0; k < stages.size(); ++k)
    if (r.stages[k].refusal) of.stages.push_back(stepped.of(k).costs(arrays.bound.sizes));
  return choose_stepped(of);
}

bool CudaSolver::Impl::adds_up(int out) const {
  for (std::size_t k = 0; k < execution.stages.size() && !execution.runs_stepwise && arrays.rows > 0; ++k)
    for (const LaneOut& o : lanes_of(k).outs)
      if (o.out == out && o.accumulated) return true;
  return false;
}

bool CudaSolver::Impl::needs_no_trajectory(int update) {
  if (!on_device && (wanted.state(static_cast<std::size_t>(update)) || looks_at_steps())) return false;
  if (execution.relaxes_any() || execution.steps_any()) return false;
  if (execution.runs_stepwise) return arrays.rows > 0 && !whole_program().needs_rows(update);
  if (is_read_in_rows(cell.updates[update].symbol, true)) return false;
  for (std::size_t k = 0; k < staged->stages.size(); ++k) {
    const StageCells& s = lanes_of(k);
    const bool own = std::find(s.states.begin(), s.states.end(), update) != s.states.end();
    if (own && execution.stages[k].plan.strategy != Strategy::Sequential && form_of(k) == kPlain) return false;
    for (const ArraySource& source : s.lanes.sources)
      if (!own && is_of(source, update)) return false;
  }
  return true;
}

bool CudaSolver::Impl::looks_at_steps() const {
  for (std::size_t k = 0; k < execution.stages.size() && !execution.runs_stepwise; ++k)
    if (execution.stages[k].plan.strategy != Strategy::Sequential && !looks_at_boundaries(k)) return true;
  return false;
}

PersistentChoice CudaSolver::Impl::choose_persistent_kernels() {
  if (!plan_of_steps)
    plan_of_steps = make_plan(cell, structure, plan_options(cell, dtype, product_factors(solve.products, dtype)));
  return choose_persistent({*plan_of_steps, arrays.bound.sizes, arrays.sequences, dtype,
                            product_factors(solve.products, dtype), gpu.facts(), most_blocks, groups_fit,
                            solve.persistent});
}

bool CudaSolver::Impl::any_strides(int symbol) const {
  return !execution.runs_stepwise && !execution.steps_any() && !execution.relaxes_any() &&
         !is_read_in_rows(symbol, false);
}

bool CudaSolver::Impl::shifts(int symbol) const {
  if (execution.runs_stepwise || execution.steps_any() || execution.relaxes_any() || arrays.rows == 0 ||
      is_read_in_rows(symbol, true))
    return false;
  for (std::size_t k = 0; k < staged->stages.size(); ++k) {
    const std::vector<ArraySource>& sources = lanes_of(k).lanes.sources;
    if (std::find(sources.begin(), sources.end(), ArraySource{ArraySource::Kind::Symbol, symbol}) != sources.end() &&
        (form_of(k) == kPlain || !program(k).shifts(arrays.bound.sizes)))
      return false;
  }
  return true;
}

bool CudaSolver::Impl::is_read_in_rows(int symbol, bool as_planned) const {
  const auto reads = [&](const std::vector<ArraySource>& sources) {
    return std::any_of(sources.begin(), sources.end(), [&](const ArraySource& s) {
      return (s.kind == ArraySource::Kind::Symbol && s.id == symbol) ||
             ((s.kind == ArraySource::Kind::Trajectory || s.kind == ArraySource::Kind::Remade) &&
              cell.updates[s.id].symbol == symbol);
    });
  };
  for (std::size_t k = 0; k < staged->stages.size(); ++k) {
    if (reads(lanes_of(k, as_planned ? form_of(k) : kPlain).before.sources)) return true;
    // A plan that walks at first never becomes a scan. Single steps are rows, whatever sequence they are of.
    for (const DerivedCell& pass : staged->stages[k].remade)
      if (execution.remakes[k] && (reads(pass.sources) || reads(staged->stages[k].lanes.sources))) return true;
  }
  return as_planned ? outs_wanted && reads(after_cell().sources) : reads(staged->after.sources);
}

bool CudaSolver::Impl::overlaps_starts() const {
  if (execution.runs_stepwise) return false;
  return staged->stages.size() > 1 || !staged->stages[0].before.cell.outs.empty() || !staged->after.cell.outs.empty() ||
         cell.updates.size() > 1 || execution.stages[0].plan.strategy != Strategy::Sequential;
}

bool CudaSolver::Impl::replan(const SolveOptions& options) {
  // Nothing is waited for before anything is made: that may be while a graph is captured.
  if (made_nests && (options.products != solve.products || options.wide_products != solve.wide_products)) {
    gpu.synchronize(0);  // their kernels may still run
    forget_nests();
    whole.reset();
    persistent.clear();
  }
  if (options.products != solve.products) plan_of_steps.reset();
  compiled_ahead = false;
  solve = options;
  repeat_scans();
  tolerance = options.tolerance.value_or(default_tolerance(dtype));
  const std::vector<CudaPlan> before = std::move(execution.stages);
  reserved = false;
  execution = plan_execution(request());
  // Whether the card has room for such clusters is known once there is code.
  while (!execution.persistent.empty() && arrays.rows > 0 && whole_program().resident_clusters() == 0) {
    if (execution.persistent[0].shape.grouped)
      groups_fit = false;
    else
      most_blocks = execution.persistent[0].shape.blocks / 2;
    execution = plan_execution(request());
  }
  plan_left_outs();
  return !std::equal(execution.stages.begin(), execution.stages.end(), before.begin(), before.end(),
                     [](const CudaPlan& a, const CudaPlan& b) {
                       return a.plan.strategy == b.plan.strategy && a.plan.segment == b.plan.segment &&
                              a.plan.burn_in == b.plan.burn_in;
                     });
}

void CudaSolver::Impl::plan_left_outs() {
  std::vector<PartialSum> made;
  std::vector<int> outs;
  for (std::size_t k = 0; k < execution.stages.size(); ++k) {
    if (execution.sum_parts[k] == 0) continue;
    const StageCells& s = summed[k]->stage;
    const std::size_t inner = s.sums.size() - static_cast<std::size_t>(s.outer);
    for (std::size_t i = 0; i < s.sums.size(); ++i)  // the others are added up behind the stage
      made.push_back({summed[k]->sums[i], i < inner ? execution.sum_parts[k] : 1});
    for (const LaneOut& o : s.outs) outs.push_back(o.out);
  }
  if (!made.empty() && !after_summing.contains(execution.sum_parts))
    after_summing.emplace(execution.sum_parts,
                          LeftOuts{with_reduced_outs(staged->after, made, derive, outs), std::nullopt});
  outs.clear();
  for (std::size_t k = 0; k < execution.stages.size(); ++k)
    if (execution.makes_outs[k]) {
      for (const LaneOut& o : with_outs[k]->outs) outs.push_back(o.out);
      outs.insert(outs.end(), with_outs[k]->sum_outs.begin(), with_outs[k]->sum_outs.end());
    }
  if (!outs.empty() && !after_outs.contains(execution.makes_outs))
    after_outs.emplace(execution.makes_outs, LeftOuts{without_outs(staged->after, outs, derive), std::nullopt});
}

void CudaSolver::Impl::replace_plans(const char* why) {
  bool scans = false;
  const ExecutionRequest asked = request();
  for (std::size_t k = 0; k < execution.stages.size(); ++k) {
    if (execution.stages[k].plan.strategy != Strategy::Scan || cellc::refusal(asked, k, Strategy::Shooting)) continue;
    scans = true;
    if (execution.makes_outs[k] || execution.sum_parts[k] > 0) {  // segments make none
      execution.stages[k] = {};
      execution.stages[k].plan.reason = fmt::format("{}, so run step by step", why);
      continue;
    }
    execution.stages[k] =
        forced_cuda_plan(structure.stages[k], asked.stages[k].shape, asked.card, Strategy::Shooting, solve);
    execution.stages[k].plan.reason = fmt::format("{}, so cut into segments whose boundaries are checked", why);
  }
  for (std::size_t k = 0; k < execution.stages.size() && !scans; ++k) {
    if (execution.steps(k)) continue;  // which leaves nothing
    execution.stages[k] = {};
    execution.stages[k].plan.reason = fmt::format("{}, so run step by step", why);
  }
}

}  // namespace cellc
