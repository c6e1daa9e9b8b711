// What a run of a cell on a GPU left: the report of its stages, and the check of whole steps.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/cuda/launch/cuda_solver_impl.h"
#include "runtime/data/object_cache.h"
#include "runtime/evaluate/row_difference.h"

namespace cellc {

void CudaSolver::Impl::report(SolveReport& report, GpuStream stream) {
  report = {};
  for (std::size_t k = 0; k < execution.stages.size(); ++k) {
    StageReport r;
    r.plan = execution.stages[k].plan;
    if (execution.relaxes(k)) {
      const RelaxationOnGpu& relaxed = *relaxations.of(k);
      r = relaxed.report();
      r.plan = execution.stages[k].plan;
      for (const Unconverged& u : relaxed.unconverged()) merge(report.unconverged, u);
    } else if (execution.runs_in_lanes(k) && arrays.rows > 0) {
      const CudaOutcome o = program(k).outcome(stream);
      const bool segmented = execution.stages[k].plan.strategy != Strategy::Sequential && r.plan.segment > 0;
      if (o.tile > 0) r.plan.segment = o.tile;
      r.iterations = o.rounds;
      r.repair_rounds = o.rounds;
      r.misses = o.misses;
      r.repaired = o.repaired + o.tails;
      r.max_residual = o.max_residual;
      if (segmented) {
        const std::int64_t segments = (arrays.longest + r.plan.segment - 1) / r.plan.segment;
        r.boundaries =
            std::max<std::int64_t>(0, segments - 1) * arrays.sequences * stages[k]->channels(arrays.bound.sizes);
        r.plan.burn_in = o.burn_in;
        // A residual grows from boundary to boundary at most as the largest transition does.
        double sum = 0, power = 1;
        for (std::int64_t s = 0; s < segments && sum < 1e30; ++s, power *= o.growth) sum += power;
        r.error_estimate = o.max_residual * std::max(1.0, sum);
        if (o.growth > 0 && r.plan.segment > 0) r.lyapunov = std::log(o.growth) / static_cast<double>(r.plan.segment);
        Observed& seen = observed[k];
        ++seen.calls;
        seen.tails = o.tails;
        seen.forgot = o.tails == 0 && o.unconverged.empty() && o.rounds + 1 < segments;
        seen.walked = static_cast<double>(o.tails) / static_cast<double>(std::max<std::int64_t>(1, r.boundaries));
        seen.tail_ns = o.tails > 0 && !o.phase_ns.empty() ? o.phase_ns.back() : 0;
        seen.measures_slope = o.measures_slope && !o.multistarts;
        for (const double ns : o.phase_ns) r.phases_us.push_back(ns * 1e-3);
        seen.took(std::accumulate(o.phase_ns.begin(), o.phase_ns.end(), 0.0));
        // Where multistarts came first, their composition did, too.
        seen.sweep_ns = o.phase_ns.size() <= (o.multistarts ? 2 : 0) ? 0 : o.phase_ns[o.multistarts ? 2 : 0];
        seen.sweep_steps = r.plan.segment + o.burn_in;
        const std::int64_t lanes = arrays.sequences * stages[k]->channels(arrays.bound.sizes);
        if (o.tile > 0)
          seen.scan_walked = static_cast<double>(o.repaired) / static_cast<double>(std::max<std::int64_t>(1, lanes));
        if (o.tile == 0 && seen.scan_walked > 0)
          seen.went_another_way();
        else
          seen.walks = 0;
      } else {
        observed[k].went_another_way();
      }
      for (const Unconverged& u : o.unconverged) merge(report.unconverged, u);
    }
    report.max_residual = std::max(report.max_residual, r.max_residual);
    report.error_estimate = std::max(report.error_estimate, r.error_estimate);
    report.repaired += r.repaired;
    report.stages.push_back(std::move(r));
  }
  report.converged = report.unconverged.empty();
  report.compile_ms = compiled_ms();
  std::vector<CacheState> all = caches;
  for (const auto* programs : {&stages, &summing, &making_outs, &remaking, &two_passes[kSums], &two_passes[kOuts]})
    for (const auto& s : *programs)
      if (s) all.insert(all.end(), s->caches().begin(), s->caches().end());
  for (const CacheState state : relaxations.caches()) all.push_back(state);
  for (const CacheState state : stepped.caches()) all.push_back(state);
  const auto any = [&](CacheState state) { return std::find(all.begin(), all.end(), state) != all.end(); };
  report.cache = any(CacheState::Miss)                 ? CacheState::Miss
                 : any(CacheState::Off) || all.empty() ? CacheState::Off
                                                       : CacheState::Hit;
}

const char* CudaSolver::Impl::unchecked(const SolveReport& report) {
  if (execution.runs_stepwise || arrays.rows == 0) return nullptr;
  // Later stages read rounded rows as they were written.
  if (execution.stages.size() > 1 && report.max_residual > 0 && running == arithmetic)
    return "a later stage amplifies what the stages before it left";
  // A scan's starts come from composed maps, which round by the largest state they pass: where a chain comes from
  // large states to small ones, or grows, that can be several tolerances (8e-6 was seen of h' = a*h + x in f32, |a|
  // up to 2).
  for (std::size_t k = 0; k < execution.stages.size() && running == arithmetic; ++k)
    if (execution.stages[k].plan.strategy == Strategy::Scan && !looks_at_boundaries(k) &&
        stages[k]->scans_in_one_pass(arrays.bound.sizes))
      return "composed maps were rounded by more than the tolerance";
  return nullptr;
}

void CudaSolver::Impl::check_whole_steps(SolveReport& report, GpuStream stream) {
  const DerivedCell& c = staged->step;
  step_arrays.resize(c.cell.outs.size());
  NestRun r = arrays.rows_run(c.sources, -1);
  for (std::size_t o = 0; o < step_arrays.size(); ++o) {
    arrays.reserve_rows(step_arrays[o], c.cell.outs[o].index);
    r.outs.push_back(step_arrays[o].address());
  }
  nest_program(step, c.cell, Structure{}, running, {}, &c).run(r, stream);
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Array written = arrays.fetch_trajectory(u, stream),
                made = arrays.fetch_rows(step_arrays[u].address(), cell.symbols[cell.updates[u].symbol].axes, stream);
    report.max_residual =
        std::max(report.max_residual, check_steps(written, made, arrays.bound.offsets,
                                                  {tolerance, absolute_tolerance(solve, cell, static_cast<int>(u))},
                                                  arrays.bound.reverse, report.unconverged));
  }
  report.error_estimate = std::max(report.error_estimate, report.max_residual);
  report.converged = report.unconverged.empty();
}

}  // namespace cellc
