#include "runtime/cuda/choose_cuda_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace cellc {

namespace {

/// The numbers of host_plan.h, in the words of a report.
void take(CudaPlan& plan, const cellc_plan& numbers) {
  plan.plan.segment = numbers.segment;
  plan.plan.burn_in = numbers.burn_in;
  plan.learns = numbers.learns;
  plan.carries = numbers.carries;
  plan.rounds = numbers.rounds;
  plan.fixed = numbers.fixed;
  plan.eager = numbers.eager;
}

/// Steps as kernels cut them. A warp stages so many at once: segments that begin amid a stage would neither be written from
/// where they begin, nor joined there by a walk along their chain.
std::int64_t whole_stages(std::int64_t steps) {
  return (steps + CELLC_STAGE_STEPS_MOST - 1) / CELLC_STAGE_STEPS_MOST * CELLC_STAGE_STEPS_MOST;
}

}  // namespace

CudaPlan choose_cuda_plan(const Stage& stage, const StageShape& shape, const GpuFacts& gpu, const Observed& seen) {
  CudaPlan plan;
  const cellc_facts card = host_facts(gpu);
  const cellc_stage_facts facts = stage_facts(stage, shape.block, shape.storage_bytes);
  int why = 0;
  const cellc_plan numbers = cellc_choose_plan(&facts, &card, shape.sequences, shape.channels, shape.longest, &why);
  const std::int64_t lanes = shape.sequences * shape.channels;
  switch (why) {
    case CELLC_TOO_SHORT:
      plan.plan.reason = fmt::format("{} steps are too few to be worth cutting", shape.longest);
      return plan;
    case CELLC_FULL:
      plan.plan.reason = fmt::format("{} lanes fill {} multiprocessors: one pass at the speed of memory", lanes, gpu.multiprocessors);
      return plan;
    case CELLC_FORGETS:
      take(plan, numbers);
      plan.plan.strategy = Strategy::Segmented;
      plan.plan.reason = "no state feeds itself: one step back decides";
      return plan;
    case CELLC_EXACT:
      take(plan, numbers);
      plan.plan.strategy = Strategy::Scan;
      plan.plan.reason = fmt::format("{} stage, {} lanes: one exact scan", stage.linear ? "linear" : "scannable", lanes);
      return plan;
    default: break;
  }
  // What segments cost depends on the data: where the last call was slower than walking every lane, walk.
  if (seen.calls > 1 && seen.segmented_ns > 0 && seen.sweep_steps > 0) {
    // A sweep has a start and a check, and then perhaps carriers, and more lanes a multiprocessor: walking takes less
    // a step. Of ParaGRU on an H200: 71 ns where sweeps took 130 to 140 beside those 4 us.
    const double step = std::max(0.0, seen.sweep_ns - 4000) / static_cast<double>(seen.sweep_steps);
    double walking = (seen.carries ? 0.5 : 0.55) * step * static_cast<double>(shape.longest);
    // Where it walked nearly all, it has seen what that takes.
    if (seen.walked > 0.9 && seen.tail_ns > 0) walking = std::min(walking, seen.tail_ns);
    if (walking < seen.segmented_ns) {
      plan.plan = {};
      plan.plan.reason = fmt::format("segments took {:.0f} us on the last data, {} of them walked in the end; {:.0f} us are expected step by step",
                                     seen.segmented_ns * 1e-3, seen.tails, walking * 1e-3);
      return plan;
    }
  }
  take(plan, numbers);
  const std::int64_t segments = (shape.longest + plan.plan.segment - 1) / plan.plan.segment;
  plan.plan.strategy = Strategy::Segmented;
  plan.plan.reason = fmt::format("{} lanes leave {} multiprocessors idle: {} segments of {} steps fill them", lanes,
                                 gpu.multiprocessors, segments, plan.plan.segment);
  return plan;
}

CudaPlan forced_cuda_plan(const Stage& stage, const StageShape& shape, const GpuFacts& gpu, Strategy strategy,
                          const SolveOptions& options) {
  CudaPlan plan;
  plan.plan.strategy = strategy;
  plan.plan.reason = "asked for";
  if (strategy == Strategy::Sequential) return plan;
  const int asked = options.fixed_iterations.value_or(options.max_iterations);
  const int rounds = strategy != Strategy::Segmented || options.fixed_iterations ? asked : options.repair ? 8 : 0;
  const cellc_facts card = host_facts(gpu);
  const cellc_stage_facts facts = stage_facts(stage, shape.block, shape.storage_bytes);
  take(plan, cellc_forced_plan(&facts, &card, shape.sequences, shape.channels, shape.longest,
                               strategy == Strategy::Segmented ? CELLC_ASK_SEGMENTED
                               : strategy == Strategy::Newton  ? CELLC_ASK_NEWTON
                                                               : CELLC_ASK_CARRIED,
                               rounds));
  plan.repairs = options.repair && !options.fixed_iterations;
  plan.fixed = plan.fixed || options.fixed_iterations.has_value();
  return plan;
}

void pin(CudaPlan& plan, const StagePlan& pinned, std::int64_t longest) {
  plan.plan.reason = pinned.reason;
  plan.rounds = std::max(plan.rounds, 8);
  if (pinned.segment <= 0) return;
  // More steps than there are change nothing.
  const std::int64_t segment = std::min(pinned.segment, longest), burn_in = std::min(pinned.burn_in, longest);
  // Every step may be a segment: then each is a stage of its own, and begins nowhere else.
  plan.plan.segment = segment > 1 ? whole_stages(segment) : segment;
  plan.plan.burn_in = segment > 1 ? whole_stages(burn_in) : 0;
  plan.piece = segment;
}

}  // namespace cellc
