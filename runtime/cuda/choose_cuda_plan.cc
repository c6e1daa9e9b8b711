#include "runtime/cuda/choose_cuda_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace cellc {

namespace {

constexpr std::int64_t kStageSteps = 8;   ///< steps that a warp stages at once: segments are multiples of it
constexpr std::int64_t kShortest = 64;    ///< steps below which cutting gains less than it costs
/// Threads of a multiprocessor that keep memory busy: with twice as many, longer run-ups cost more than
/// the latency that they hide.
constexpr std::int64_t kThreadsWanted = 256;

std::int64_t segment_length(const StageShape& shape, const GpuFacts& gpu, std::int64_t threads = kThreadsWanted) {
  const std::int64_t wanted = gpu.multiprocessors * threads;
  const std::int64_t lanes = std::max<std::int64_t>(1, shape.sequences * shape.channels);
  const std::int64_t segments = std::max<std::int64_t>(1, wanted / lanes);
  const std::int64_t steps = (shape.longest + segments - 1) / segments;
  return std::max<std::int64_t>(2 * kStageSteps, (steps + kStageSteps - 1) / kStageSteps * kStageSteps);
}

bool is_exact(const Stage& stage) { return stage.linear || stage.scannable != Scannable::No; }

}  // namespace

CudaPlan choose_cuda_plan(const Stage& stage, const StageShape& shape, const GpuFacts& gpu, const Observed& seen) {
  CudaPlan plan;
  const std::int64_t lanes = shape.sequences * shape.channels, wanted = gpu.multiprocessors * kThreadsWanted;
  if (shape.longest < kShortest) {
    plan.plan.reason = fmt::format("{} steps are too few to be worth cutting", shape.longest);
    return plan;
  }
  if (4 * lanes >= 3 * wanted) {
    plan.plan.reason = fmt::format("{} lanes fill {} multiprocessors: one pass at the speed of memory", lanes, gpu.multiprocessors);
    return plan;
  }
  plan.plan.segment = segment_length(shape, gpu);
  if (stage.linear && stage.norm_bound && *stage.norm_bound == 0) {
    plan.plan.strategy = Strategy::Segmented;
    plan.plan.burn_in = kStageSteps;
    plan.plan.reason = "no state feeds itself: one step back decides";
    return plan;
  }
  if (is_exact(stage) && shape.block <= 8) {
    plan.plan.strategy = Strategy::Scan;
    plan.carries = true;
    plan.eager = 1;
    plan.plan.reason = fmt::format("{} stage, {} lanes: one exact scan", stage.linear ? "linear" : "scannable", lanes);
    return plan;
  }
  // What segments cost depends on the data: where the last call was slower than walking every lane, walk.
  if (seen.calls > 1 && seen.segmented_ns > 0 && seen.sweep_steps > 0) {
    const double step = seen.sweep_ns / static_cast<double>(seen.sweep_steps);
    // A sweep has a start, a check, perhaps carriers, and more lanes a multiprocessor: walking takes less a step.
    const double walking = (seen.carries ? 0.35 : 0.55) * step * static_cast<double>(shape.longest);
    if (walking < seen.segmented_ns) {
      plan.plan = {};
      plan.plan.reason = fmt::format("segments took {:.0f} us on the last data, {} lanes walked to their end; {:.0f} us are expected step by step",
                                     seen.segmented_ns * 1e-3, seen.tails, walking * 1e-3);
      return plan;
    }
  }
  // Run-ups are short where nothing is forgotten, and a round takes as long as a segment: as many threads as
  // there are registers for.
  if (seen.carries && shape.block <= 2) {
    plan.dense = true;
    plan.plan.segment = segment_length(shape, gpu, 2 * kThreadsWanted);
  }
  const std::int64_t segments = (shape.longest + plan.plan.segment - 1) / plan.plan.segment;
  plan.plan.strategy = Strategy::Segmented;
  plan.plan.burn_in = plan.plan.segment >= 512 ? 64 : 32;
  plan.learns = true;
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
  plan.plan.segment = std::min(segment_length(shape, gpu), std::max<std::int64_t>(2 * kStageSteps, (shape.longest / 2 + 7) / 8 * 8));
  const int asked = options.fixed_iterations.value_or(options.max_iterations);
  switch (strategy) {
    case Strategy::Segmented:
      plan.plan.burn_in = stage.linear && stage.norm_bound && *stage.norm_bound == 0 ? kStageSteps : 32;
      plan.rounds = options.fixed_iterations ? asked : options.repair ? 8 : 0;
      break;
    case Strategy::Newton:
      // Every step is an unknown. The first sweep makes the guess f(start, x); each round is one iteration.
      plan.plan.segment = 1;
      plan.rounds = asked;
      plan.eager = 2;
      break;
    default:
      plan.carries = true;
      plan.eager = 1;
      plan.rounds = asked;
      break;
  }
  plan.repairs = options.repair && !options.fixed_iterations;
  plan.fixed = options.fixed_iterations.has_value() || strategy == Strategy::Newton;
  return plan;
}

}  // namespace cellc
