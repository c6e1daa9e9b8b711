// A planned run of a cell on a GPU: its arrays and memory, and its passes in their order.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "runtime/cuda/launch/cuda_solver_impl.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"

namespace cellc {

void CudaSolver::Impl::upload(const BoundRun& run, const SolveOptions& options) {
  const auto shape_of = [&] { return std::tuple(arrays.bound.sizes, arrays.sequences, arrays.longest); };
  const auto before = shape_of();
  arrays.begin(run);
  if (arrays.sequences > std::numeric_limits<int>::max())
    throw RequestError(
        fmt::format("{} sequences: a GPU takes {} in one run", arrays.sequences, std::numeric_limits<int>::max()));
  // Times of another shape tell nothing.
  if (shape_of() != before) {
    observed.assign(observed.size(), {});
    given_up.clear();
  }
  const bool looks_back = !repeats_bits && !options.repeat_bits;
  if (options.solver == Strategy::Auto && options.plan.empty() && unrelaxed.empty() && looks_back) unrelaxed = given_up;
  wanted = run.wanted;
  outs_wanted = on_device;
  for (std::size_t o = 0; o < cell.outs.size(); ++o) outs_wanted = outs_wanted || wanted.out(o);
  use_storage(
      lane_storage(cell, stages_of_cell(), dtype, rounds_rows(product_factors(options.products, dtype), dtype)));
  replan(options);
  use_storage(execution.storage);
  plan_left_outs();
  arrays.copy_in(run, running);
  if (!on_device) reserve_written();
}

void CudaSolver::Impl::reserve_written() {
  std::vector<bool> unwritten;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) unwritten.push_back(needs_no_trajectory(static_cast<int>(u)));
  std::vector<bool> outs;
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    outs.push_back((outs_wanted || execution.runs_stepwise || execution.walks_alone) && !adds_up(static_cast<int>(o)));
  arrays.reserve_written(unwritten, outs, !on_device);
}

void CudaSolver::Impl::reserve_between() {
  if (reserved) return;
  std::vector<const StageCells*> all;
  for (std::size_t k = 0; k < execution.stages.size(); ++k)
    all.push_back(!execution.runs_in_lanes(k) ? nullptr
                                              : &lanes_of(k, execution.sum_parts[k] > 0                ? kSums
                                                             : execution.makes_outs_of(k, outs_wanted) ? kOuts
                                                                                                       : kPlain));
  arrays.reserve_between(all);
  std::vector<bool> remakes(cell.updates.size()), states(cell.updates.size());
  for (std::size_t k = 0; k < execution.stages.size(); ++k) {
    if (!execution.remakes[k]) continue;
    for (const int u : staged->stages[k].states) {
      states[static_cast<std::size_t>(u)] = true;
      remakes[static_cast<std::size_t>(u)] = cell.symbol_of(cell.updates[static_cast<std::size_t>(u)]).lag_of >= 0;
    }
    for (const int u : remade_values(cell, *staged, k)) remakes[static_cast<std::size_t>(u)] = true;
  }
  arrays.reserve_remade(remakes, states);
  arrays.reserve_sums(summed, execution.sum_parts, [&](int k) {
    const auto stage = static_cast<std::size_t>(k);
    return program(stage).outer_parts(arrays.stage_run(summed[stage]->stage, k), execution.stages[stage]);
  });
  for (std::size_t k = 0; k < execution.stages.size(); ++k)
    if (execution.steps(k)) stepped.of(k).reserve(arrays);
  for (std::size_t k = 0; k < execution.stages.size(); ++k) {
    if (form_of(k) == kPlain) continue;
    const StageCells& s = lanes_of(k);
    if (std::none_of(s.outs.begin(), s.outs.end(), [](const LaneOut& o) { return o.accumulated; })) continue;
    const std::int64_t parts =
        program(k).accumulated_parts(arrays.stage_run(s, static_cast<int>(k)), execution.stages[k]);
    for (const LaneOut& o : s.outs)
      if (o.accumulated) arrays.reserve_accumulated(o.out, parts);
  }
  reserved = true;
}

std::vector<GpuAddress> CudaSolver::Impl::first_bad_steps() const {
  std::vector<GpuAddress> result;
  for (std::size_t k = 0; k < execution.stages.size() && !execution.runs_stepwise && !execution.relaxes_any(); ++k)
    if (const GpuAddress at = execution.steps(k) ? 0 : program(k).first_bad_steps()) result.push_back(at);
  return result;
}

void CudaSolver::Impl::launch(GpuStream stream) {
  if (!execution.runs_stepwise && arrays.rows > 0) reserve_between();
  const std::vector<Pass> passes =
      execution.passes(*staged, summed, outs_wanted, with_outs, !after_cell().cell.outs.empty());
  if (!compiled_ahead && passes.size() > 1) compile_ahead(passes);
  compiled_ahead = true;
  for (const Pass& pass : passes) run(pass, stream);
}

void CudaSolver::Impl::compile_ahead(const std::vector<Pass>& passes) {
  std::vector<GpuSource> sources;
  for (const Pass& pass : passes) {
    if (pass.kind == PassKind::Stage) {
      const auto k = static_cast<std::size_t>(pass.stage);
      for (GpuSource& source :
           program(k).missing(arrays.stage_run(lanes_of(k, form_of(pass)), pass.stage), execution.stages[k]))
        sources.push_back(std::move(source));
    } else if (pass.kind == PassKind::Remade && static_cast<std::size_t>(pass.part) == remade[k_of(pass)].size()) {
      for (GpuSource& source : remaking[k_of(pass)]->missing(single_steps(k_of(pass)), CudaPlan()))
        sources.push_back(std::move(source));
    } else if (const Nest nest = nest_of(pass); nest.derived && !*nest.program) {
      sources.push_back(NestProgram::emit(nest.derived->cell, Structure{}, pass.storage, nest_options(nest.derived)));
    }
  }
  compile_ms += gpu.compile_ahead(sources);
}

CudaSolver::Impl::Nest CudaSolver::Impl::nest_of(const Pass& pass) {
  const std::size_t k = static_cast<std::size_t>(std::max(0, pass.stage));
  switch (pass.kind) {
    case PassKind::Once:
      return {&once[form_of(pass)][k], &lanes_of(k, form_of(pass)).once};
    case PassKind::Before:
      return {&before[form_of(pass)][k], &lanes_of(k, form_of(pass)).before};
    case PassKind::Remade: {
      const auto part = static_cast<std::size_t>(pass.part);
      if (part == remade[k].size()) return {};
      return {&remade[k][part], &staged->stages[k].remade[part]};
    }
    case PassKind::After:
      return {left_outs() ? &left_outs()->program : &after, &after_cell()};
    default:
      return {};
  }
}

NestProgram& CudaSolver::Impl::program_of(const Pass& pass) {
  const Nest nest = nest_of(pass);
  return nest_program(*nest.program, nest.derived->cell, Structure{}, pass.storage, {}, nest.derived);
}

void CudaSolver::Impl::run(const Pass& pass, GpuStream stream) {
  const std::size_t k = static_cast<std::size_t>(std::max(0, pass.stage));
  switch (pass.kind) {
    case PassKind::Once:
      program_of(pass).run(arrays.once_run(lanes_of(k, form_of(pass)), pass.stage), stream);
      return;
    case PassKind::Before:
      program_of(pass).run(arrays.before_run(lanes_of(k, form_of(pass)), pass.stage), stream);
      return;
    case PassKind::Stage: {
      clear_accumulated(pass, stream);
      StageRun run = arrays.stage_run(lanes_of(k, form_of(pass)), pass.stage);
      for (const int u : structure.stages[k].states) run.absolute.push_back(absolute_tolerance(solve, cell, u));
      program(k).run(run, execution.stages[k], tolerance, stream);
      return;
    }
    case PassKind::Remade:
      if (static_cast<std::size_t>(pass.part) < remade[k].size())
        program_of(pass).run(
            arrays.remade_run(staged->stages[k].remade[static_cast<std::size_t>(pass.part)], pass.stage), stream);
      else
        remaking[k]->run(single_steps(k), CudaPlan(), tolerance, stream);
      return;
    case PassKind::Relaxed: {
      SolveOptions options = solve;
      options.repeat_bits = repeats();
      relaxations.of(k)->run(arrays, product_factors(solve.products, dtype), options, tolerance,
                             execution.relaxation_worth, stream);
      return;
    }
    case PassKind::Stepped:
      stepped.of(k).run(arrays, product_factors(solve.products, dtype), solve.wide_products, stream);
      return;
    case PassKind::After:
      program_of(pass).run(arrays.after_run(after_cell()), stream);
      return;
    case PassKind::Whole:
      whole_program().run(arrays.whole_run(), stream);
      return;
  }
}

StageRun CudaSolver::Impl::single_steps(std::size_t k) const {
  return arrays.single_steps(staged->stages[k], static_cast<int>(k), remade_values(cell, *staged, k));
}

void CudaSolver::Impl::clear_accumulated(const Pass& pass, GpuStream stream) {
  const auto k = static_cast<std::size_t>(pass.stage);
  if (!pass.with_outs || execution.stages[k].plan.strategy == Strategy::Sequential) return;
  // Where rows are aligned, every tile of sequences of one length has steps.
  if (arrays.uniform && making_outs[k]->shifts(arrays.bound.sizes)) return;
  for (const LaneOut& o : with_outs[k]->outs)
    if (o.accumulated) gpu.zero(arrays.accumulated(o.out).buffer.address(), arrays.accumulated_bytes(o.out), stream);
}

}  // namespace cellc
