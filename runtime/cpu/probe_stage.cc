#include "runtime/cpu/probe_stage.h"

#include <algorithm>
#include <cmath>

#include "runtime/cpu/compose_transitions.h"

namespace cellc {

namespace {

constexpr std::int64_t kSegments = 16;
/// Steps to come near the trajectory from the start, and steps over which the transitions are multiplied.
constexpr std::int64_t kApproach = 64, kObserved = 128;

template <typename Number>
Forgetting probe(const StageData& data, StageKernels& kernels, double tolerance, std::int64_t segment, int threads) {
  const StageKernels::Carrying& carrying = kernels.transitions();
  // Places spread over all sequences, by rows.
  std::vector<Lane> approach, observe;
  SegmentStates at = data.make_states(data.stage().lanes.cell, kSegments);
  std::int32_t taken = 0;
  for (std::int64_t k = 0; k < kSegments; ++k) {
    const std::int64_t target = data.rows() * k / kSegments;
    std::int64_t before = 0, sequence = 0;
    while (sequence + 1 < data.sequences() && before + data.steps(sequence) <= target) before += data.steps(sequence++);
    const std::int64_t need = kApproach + kObserved;
    if (data.steps(sequence) < need) continue;
    const std::int64_t first = std::min(target - before, data.steps(sequence) - need);
    data.put_start(at, taken, sequence);
    for (std::int32_t c = 0; c < data.channels(); ++c) {
      const auto row = [&](std::int64_t step) { return data.row(sequence, step); };
      approach.push_back({taken, c, row(first), kApproach, static_cast<std::int32_t>(sequence), first == 0});
      observe.push_back({taken, c, row(first + kApproach), kObserved, static_cast<std::int32_t>(sequence), false});
    }
    ++taken;
  }
  Forgetting result;
  if (taken == 0) {
    result.slow = 1;
    result.typical = result.most = static_cast<double>(segment);
    return result;
  }
  kernels.step().run(data.lanes(), approach, at, at, false, threads);
  SegmentStates from = data.make_states(carrying.cell.cell, kSegments), to = from;
  for (Array& a : to.arrays) a = Array(a.dtype(), a.shape());
  put_identity<Number>(carrying.cell, data, kSegments, from);
  for (std::int64_t i = 0; i < data.states(); ++i)
    std::copy_n(static_cast<const Number*>(at.arrays[i].data()), at.arrays[i].count(),
                static_cast<Number*>(from.arrays[i].data()));
  kernels.transitions().kernel.run(data.extended(carrying.cell.cell), observe, from, to, false, threads);
  // By channel, the slowest of its places.
  std::vector<double> steps;
  for (std::int64_t c = 0; c < data.channels(); ++c) {
    double slowest = 0;
    for (std::int32_t s = 0; s < taken; ++s) {
      double norm = 0;
      for (int i = 0; i < data.states(); ++i)
        for (int j = 0; j < data.states(); ++j) {
          if (carrying.cell.kind != Scannable::Affine || carrying.cell.position[i][j] < 0) continue;
          const std::int64_t entries = data.mixed(i) * data.mixed(j);
          const Number* p = static_cast<const Number*>(to.arrays[carrying.cell.position[i][j]].data());
          for (std::int64_t m = 0; m < entries; ++m)
            norm = std::max(norm, std::fabs(static_cast<double>(p[(s * entries + m) * data.channels() + c])));
        }
      const double factor = std::pow(norm, 1.0 / static_cast<double>(kObserved));
      const double need = !(factor < 1) ? 1e18
                          : norm == 0   ? kObserved / 2.0
                                        : std::log(tolerance / 8) / std::log(factor);
      slowest = std::max(slowest, need);
    }
    steps.push_back(slowest);
  }
  std::sort(steps.begin(), steps.end());
  const std::size_t n = steps.size();
  result.typical = steps[n / 2];
  result.slow = static_cast<double>(std::count_if(steps.begin(), steps.end(),
                                                  [&](double s) { return s > static_cast<double>(segment) / 2; })) /
                static_cast<double>(n);
  // The run-up covers those that can be covered, with some room for what the places looked at do not
  // show; one in a hundred may miss and be repaired.
  std::erase_if(steps, [&](double s) { return s > static_cast<double>(segment) / 2; });
  result.most = steps.empty() ? static_cast<double>(segment) : 1.25 * steps[(steps.size() * 99 + 99) / 100 - 1];
  return result;
}

}  // namespace

Forgetting probe_stage(const StageData& data, StageKernels& kernels, double tolerance, std::int64_t segment,
                       int threads) {
  return data.dtype() == Dtype::F64 ? probe<double>(data, kernels, tolerance, segment, threads)
                                    : probe<float>(data, kernels, tolerance, segment, threads);
}

}  // namespace cellc
