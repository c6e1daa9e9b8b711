#include "runtime/cuda/launch/choose_cuda_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels-templates/host/host_passes.h"
#include "runtime/cuda/launch/strategy_numbers.h"

namespace cellc {

namespace {

/// The numbers of host_plan.h, in the words of a report.
void take(CudaPlan& plan, const cellc_plan& numbers) {
  plan.plan.segment = numbers.segment;
  plan.plan.burn_in = numbers.burn_in;
  plan.learns = numbers.learns;
  plan.measures_slope = numbers.measures_slope;
  plan.rounds = numbers.rounds;
  plan.fixed = numbers.fixed;
  plan.eager = numbers.eager;
}

/// From so many walks a lane on another way than a scan is taken: until then they cost about what a sweep does.
constexpr double kMostWalked = 0.25;

/// Steps as kernels cut them. A warp stages so many at once: segments that begin amid a stage would neither be written
/// from where they begin, nor joined there by a walk along their chain.
std::int64_t whole_stages(std::int64_t steps) {
  return (steps + CELLC_STAGE_STEPS_MOST - 1) / CELLC_STAGE_STEPS_MOST * CELLC_STAGE_STEPS_MOST;
}

/// What walking every lane is expected to take, by what the last call with segments took.
double sequential_ns(const Observed& seen, const StageShape& shape) {
  // A sweep has a start and a check, and then perhaps transitions, and more lanes a multiprocessor: walking takes less
  // a step. Of ParaGRU on an H200: 68 ns where sweeps took 130 beside 4 to 6 us, which short segments are mostly made
  // of. In 16 bits a thread has two lanes, and a walk half the warps: 75 ns at (8, 2048, 4096), where sweeps take 121.
  const double step = std::max(0.0, seen.sweep_ns - 4800) / static_cast<double>(seen.sweep_steps);
  const double walking = (seen.measures_slope        ? 0.5
                          : shape.storage_bytes == 2 ? 0.62
                                                     : 0.55) *
                         step * static_cast<double>(shape.longest);
  // Where it walked nearly all, it has seen what that takes.
  return seen.walked > 0.9 && seen.tail_ns > 0 ? std::min(walking, seen.tail_ns) : walking;
}

/// What segments cost depends on the data; the first call teaches nothing of it.
bool is_slower_than_sequential(const Observed& seen, const StageShape& shape) {
  return seen.calls > 1 && seen.segmented_ns > 0 && seen.sweep_steps > 0 &&
         sequential_ns(seen, shape) < seen.segmented_ns;
}

CudaPlan sequential_instead(const Observed& seen, const StageShape& shape) {
  CudaPlan plan;
  plan.plan.reason = fmt::format(
      "segments took {:.0f} us on the last data, {} of them walked in the end; {:.0f} us are expected step by step",
      seen.segmented_ns * 1e-3, seen.tails, sequential_ns(seen, shape) * 1e-3);
  return plan;
}

}  // namespace

CudaPlan choose_cuda_plan(const Stage& stage, const StageShape& shape, const GpuFacts& gpu, const Observed& seen) {
  CudaPlan plan;
  const cellc_facts card = host_facts(gpu);
  cellc_stage_facts facts = stage_facts(stage, shape.carries, shape.storage_bytes);
  if (seen.forgot) facts.remembers = 0;
  int why = 0;
  const cellc_plan numbers = cellc_choose_plan(&facts, &card, shape.sequences, shape.channels, shape.longest, &why);
  const std::int64_t lanes = shape.sequences * shape.channels;
  switch (why) {
    case CELLC_TOO_SHORT:
      plan.plan.reason = fmt::format("{} steps are too few to be worth cutting", shape.longest);
      return plan;
    case CELLC_FULL:
      plan.plan.reason =
          fmt::format("{} lanes fill {} multiprocessors: one pass at the speed of memory", lanes, gpu.multiprocessors);
      return plan;
    case CELLC_FORGETS:
      take(plan, numbers);
      plan.plan.strategy = Strategy::Segmented;
      plan.plan.reason = "no state feeds itself: one step back decides";
      return plan;
    case CELLC_REMEMBERS:
      plan.plan.reason = fmt::format(
          "nothing says that this linear stage forgets, and the map over a segment of {} coupled entries is more than "
          "a thread holds: segments would end in a walk",
          shape.block);
      return plan;
    case CELLC_EXACT:
      // A walk goes a channel at a time, in few shares; segments make the same rows side by side, and are checked, too.
      if (seen.scan_walked > kMostWalked) {
        if (is_slower_than_sequential(seen, shape)) return sequential_instead(seen, shape);
        plan = forced_cuda_plan(stage, shape, gpu, Strategy::Shooting, {});
        plan.plan.reason = fmt::format(
            "scans rounded by more than the tolerance on the last data, and walked {:.1f} times for each of {} lanes",
            seen.scan_walked, lanes);
        return plan;
      }
      take(plan, numbers);
      plan.plan.strategy = Strategy::Scan;
      plan.plan.reason =
          fmt::format("{} stage, {} lanes: one exact scan", stage.linear ? "linear" : "scannable", lanes);
      return plan;
    default:
      break;
  }
  if (is_slower_than_sequential(seen, shape)) return sequential_instead(seen, shape);
  take(plan, numbers);
  const std::int64_t segments = (shape.longest + plan.plan.segment - 1) / plan.plan.segment;
  plan.plan.strategy = Strategy::Segmented;
  plan.plan.reason = fmt::format("{} lanes leave {} multiprocessors idle: {} segments of {} steps fill them", lanes,
                                 gpu.multiprocessors, segments, plan.plan.segment);
  return plan;
}

void cut_sums(CudaPlan& plan, const Stage& stage, const StageShape& shape, const GpuFacts& gpu,
              const SolveOptions& options, const Observed& seen) {
  const bool pinned = !options.plan.empty(), asked = plan.plan.strategy == Strategy::Scan;
  const bool chosen = !pinned && options.solver == Strategy::Auto && seen.scan_walked <= kMostWalked;
  const cellc_facts card = host_facts(gpu);
  const cellc_stage_facts facts = stage_facts(stage, shape.carries, shape.storage_bytes);
  if (!facts.exact || facts.forgets || !plan.repairs || (!asked && !chosen)) return;
  const std::int64_t steps = cellc_two_pass_segment(&card, shape.sequences, shape.channels, shape.longest);
  if (!asked && steps == 0) return;
  if (steps > 0 && !pinned) plan.plan.segment = steps;
  if (plan.plan.segment <= 0) return;
  plan.two_passes = true;
  plan.plan.strategy = Strategy::Scan;
  if (chosen)
    plan.plan.reason =
        fmt::format("{} stage, {} lanes: segments of {} steps, whose maps come first, so that lanes make their sums",
                    stage.linear ? "linear" : "scannable", shape.sequences * shape.channels, plan.plan.segment);
}

int most_rounds(const SolveOptions& options) {
  return std::min(static_cast<int>(CELLC_ROUNDS), options.max_iterations);
}

CudaPlan forced_cuda_plan(const Stage& stage, const StageShape& shape, const GpuFacts& gpu, Strategy strategy,
                          const SolveOptions& options) {
  CudaPlan plan;
  plan.plan.strategy = strategy;
  plan.plan.reason = "asked for";
  if (facts_of(strategy).pins == StrategyFacts::Pins::Nothing) return plan;
  const int asked = options.fixed_iterations.value_or(options.max_iterations);
  const int rounds = strategy != Strategy::Segmented || options.fixed_iterations ? asked
                     : options.repair                                            ? most_rounds(options)
                                                                                 : 0;
  const cellc_facts card = host_facts(gpu);
  const cellc_stage_facts facts = stage_facts(stage, shape.carries, shape.storage_bytes);
  take(plan, cellc_forced_plan(&facts, &card, shape.sequences, shape.channels, shape.longest, request_number(strategy),
                               rounds));
  plan.repairs = options.repair && !options.fixed_iterations;
  plan.fixed = plan.fixed || options.fixed_iterations.has_value();
  return plan;
}

void repeat_bits(CudaPlan& plan) {
  cellc_plan numbers = host_plan(plan);
  cellc_repeat_plan(&numbers);
  plan.plan.burn_in = numbers.burn_in;
  plan.learns = numbers.learns;
}

void pin(CudaPlan& plan, const StagePlan& pinned, std::int64_t longest, const SolveOptions& options) {
  plan.plan.reason = pinned.reason;
  if (!plan.fixed) plan.rounds = std::max(plan.rounds, most_rounds(options));
  if (pinned.segment <= 0) return;
  // More steps than there are change nothing.
  const std::int64_t segment = std::min(pinned.segment, longest), burn_in = std::min(pinned.burn_in, longest);
  // Every step may be a segment: then each is a stage of its own, and begins nowhere else.
  plan.plan.segment = segment > 1 ? whole_stages(segment) : segment;
  plan.plan.burn_in = segment > 1 ? whole_stages(burn_in) : 0;
  plan.tile = segment;
}

}  // namespace cellc
