#include "runtime/cpu/measure_passes.h"

#include <algorithm>
#include <ctime>
#include <limits>

namespace cellc {

namespace {

constexpr std::int64_t kFewestRows = 512, kFewestEntries = 1024;
/// Of a part: enough that starting a pass is little of it, few enough that all of it takes a few milliseconds.
constexpr std::int64_t kEntries = 1 << 18, kMostRows = 8192, kLeastRows = 64, kLeastSteps = 64;
constexpr int kMostStages = 12;
/// Larger blocks lie side by side in the fused kernel's vectors, and their lanes take long to measure.
constexpr std::int64_t kMostMixed = 16;
constexpr std::int64_t kTwoTiles = 2 * LaneKernel::kTileLanes, kShortestSegment = 16;
/// At least so often, and for so long: short passes vary more.
constexpr int kTimes = 3, kMostTimes = 20;
constexpr double kWholeNs = 3e5;

/// Of this thread alone: what else runs on the machine takes the processor, but not this.
double thread_ns() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

/// The least of some times, in nanoseconds. The first compiles and touches what is touched.
template <typename Work>
double fastest(const Work& work) {
  work();
  double best = std::numeric_limits<double>::infinity();
  double spent = 0;
  for (int i = 0; i < kTimes || (i < kMostTimes && spent < kWholeNs); ++i) {
    const double start = thread_ns();
    work();
    const double ns = thread_ns() - start;
    best = std::min(best, ns);
    spent += ns;
  }
  return best;
}

}  // namespace

std::optional<MeasuredPart> part_to_measure(StagesOfRun& cell) {
  if (cell.count() == 0 || cell.count() > kMostStages) return std::nullopt;
  std::int64_t entries = 0, channels = 1;
  for (int k = 0; k < cell.count(); ++k) {
    const StageShape shape = cell.shape(k);
    if (shape.block > 2 * kMostMixed || shape.mixed > kMostMixed) return std::nullopt;
    entries += shape.channels * shape.block;
    channels = std::max(channels, shape.channels);
  }
  const StageShape shape = cell.shape(0);
  if (shape.rows < kFewestRows || shape.rows * entries < kFewestEntries) return std::nullopt;
  const std::int64_t rows = std::clamp(kEntries / std::max<std::int64_t>(1, entries), kLeastRows, kMostRows);
  MeasuredPart part;
  const std::int64_t tiles = (kTwoTiles + channels - 1) / channels,
                     short_ones = rows / std::max<std::int64_t>(1, shape.longest);
  part.sequences = std::min(shape.sequences, std::max<std::int64_t>({1, tiles, short_ones}));
  part.steps = std::min(shape.longest, std::max(kLeastSteps, rows / part.sequences));
  return part;
}

PassCosts measure_passes(StagesOfRun& cell, const MeasuredPart& part, std::int64_t rows, const PassesOfRun& passes) {
  const double each = 1.0 / static_cast<double>(std::max<std::int64_t>(1, rows));
  PassCosts costs;
  costs.fused = fastest(passes.fused) * each;
  for (int k = 0; k < cell.count(); ++k) {
    PassCosts::OfStage& of = costs.stages.emplace_back();
    of.before = fastest([&] { passes.data(k); }) * each;
    StageData data = passes.data(k);
    of.whole = of.cut = fastest([&] { passes.sweep(k, data, 0); }) * each;
    const std::int64_t lanes = part.sequences * data.channels();
    const bool fills = lanes >= LaneKernel::kTileLanes;
    const std::int64_t filling = std::max(kShortestSegment, part.steps * lanes / LaneKernel::kTileLanes / 8 * 8);
    const std::int64_t segment = fills ? part.steps : std::min(part.steps, filling);
    if (segment < part.steps) of.cut = fastest([&] { passes.sweep(k, data, segment); }) * each;
    if (!no_scan(cell.stage(k), "")) {
      const std::int64_t steps = cell.shape(k).along_time && cell.stage(k).linear ? part.steps : segment;
      of.scan = fastest([&] { passes.scan(k, data, std::max<std::int64_t>(steps, 2)); }) * each;
    }
  }
  costs.after = fastest(passes.after) * each;
  if (passes.check) costs.check = fastest(passes.check) * each;
  if (passes.together) costs.together = fastest(passes.together) * each;
  return costs;
}

}  // namespace cellc
