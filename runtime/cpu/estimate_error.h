#pragma once
// Estimates to first order what the residuals of a stage may have grown to: how far the trajectory may be from
// that of the exact recurrence. Private to the stage solver.
//
// A few of the worst lanes are followed through neighbouring segments. The growth of a segment is the norm of
// the product of its Jacobians, from its transition. (A small difference run beside the trajectory would serve
// for large residuals, but at the level of rounding it measures rounding.) A segment that begins with error e and
// has residual r ends with growth*(e + r). Beyond the segments that were followed, the mean growth is assumed
// to continue.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "runtime/cpu/compose_transitions.h"

namespace cellc {

struct LeftResiduals {
  const std::vector<double>& by_lane;  ///< segment * channels + channel; negative: none
  bool every_step = false;             ///< the largest of a segment's steps, rather than its first step's
};

/// The largest |s| of each entry of the state while a lane is followed: growth is measured in this one unit throughout,
/// since a state that comes near zero and leaves it again makes no error grow. What a residual and the estimate are
/// over lies between it and twice it.
struct Scale {
  std::vector<double> most;
  static constexpr double kRatio = 2;

  /// An entry that is zero throughout has the unit of the others.
  void settle() {
    const double largest = most.empty() ? 0 : *std::max_element(most.begin(), most.end());
    for (double& m : most)
      if (m == 0) m = largest > 0 ? largest : 1;
  }
};

template <typename Number>
void widen(Scale& scale, const StageData& data, const Lane& lane) {
  std::size_t entry = 0;
  for (int i = 0; i < data.states(); ++i) {
    const LaneArray& a = data.lanes().symbols[i];
    for (std::int64_t m = 0; m < data.mixed(i); ++m, ++entry) {
      if (scale.most.size() <= entry) scale.most.push_back(0);
      const Number* row =
          reinterpret_cast<const Number*>(a.data) + lane.row * a.row_entries + a.mixed[m] + a.channel[lane.channel];
      for (std::int64_t t = 0; t < lane.steps; ++t, row += data.lanes().direction * a.row_entries) {
        const double here = std::fabs(static_cast<double>(*row));
        if (here < std::numeric_limits<double>::infinity()) scale.most[entry] = std::max(scale.most[entry], here);
      }
    }
  }
}

/// The same of a segment without rows, by where it starts and ends.
template <typename Number>
void widen_by_ends(Scale& scale, const StageData& data, Segments<Number>& segments, SegmentLane at) {
  std::size_t entry = 0;
  for (int i = 0; i < data.states(); ++i)
    for (std::int64_t m = 0; m < data.mixed(i); ++m, ++entry) {
      if (scale.most.size() <= entry) scale.most.push_back(0);
      const std::int64_t place = segments.entry(i, at.segment, m, at.channel);
      for (const Number value : {segments.start(i)[place], segments.end(i)[place]})
        if (const double here = std::fabs(static_cast<double>(value)); here < std::numeric_limits<double>::infinity())
          scale.most[entry] = std::max(scale.most[entry], here);
    }
}

/// Growth from the start of each lane to its end, in units of its scale. `at`: states of the lane cell.
template <typename Number>
std::vector<double> growth_of(const StageData& data, StageKernels& kernels, const std::vector<Lane>& lanes,
                              const std::vector<const Scale*>& scales, const SegmentStates& at, int threads) {
  const StageKernels::Carrying& carrying = kernels.transitions();
  const TransitionCell& cell = carrying.cell;
  const std::int64_t count = static_cast<std::int64_t>(lanes.size()), channels = data.channels();
  SegmentStates from = data.make_states(cell.cell, count), to = data.make_states(cell.cell, count);
  put_identity<Number>(cell, data, count, from);
  for (std::int64_t i = 0; i < data.states(); ++i)
    std::copy_n(static_cast<const Number*>(at.arrays[i].data()), from.arrays[i].count(),
                static_cast<Number*>(from.arrays[i].data()));
  carrying.kernel.run(data.extended(cell.cell), lanes, from, to, false, threads);
  const auto value = [&](const SegmentStates& of, int position, std::int64_t entry) {
    return static_cast<double>(static_cast<const Number*>(of.arrays[position].data())[entry]);
  };
  std::vector<double> growth;
  for (const Lane& lane : lanes) {
    const std::vector<double>& scale = scales[growth.size()]->most;
    const auto entry = [&](std::int64_t mixed, std::int64_t m) {
      return (lane.segment * mixed + m) * channels + lane.channel;
    };
    const auto map = [&](int k) { return value(to, cell.map[k], entry(1, 0)); };
    double most = 0;
    if (cell.kind == Scannable::Clip) {
      most = std::fabs(map(0));
    } else if (cell.kind == Scannable::Moebius) {
      const double below = map(2) * value(from, 0, entry(1, 0)) + map(3);
      most = std::fabs((map(0) * map(3) - map(1) * map(2)) / (below * below));
    } else if (is_semiring(cell.kind)) {
      // No start is carried on by more than itself.
      const auto [least, largest] = std::minmax_element(scale.begin(), scale.end());
      most = scale.empty() ? 0 : *largest / *least;
    } else {
      std::size_t row = 0;
      for (int i = 0; i < data.states(); ++i)
        for (std::int64_t m = 0; m < data.mixed(i); ++m, ++row) {
          double sum = 0;
          std::size_t column = 0;
          for (int j = 0; j < data.states(); ++j) {
            const std::int64_t columns = data.mixed(j);
            for (std::int64_t k = 0; k < columns; ++k, ++column)
              if (cell.position[i][j] >= 0)
                sum += std::fabs(value(to, cell.position[i][j], entry(data.mixed(i) * columns, m * columns + k))) *
                       scale[column];
          }
          most = std::max(most, sum / scale[row]);
        }
    }
    growth.push_back(std::isfinite(most) ? most : 1e300);
  }
  return growth;
}

template <typename Number>
double estimate_error(const StageData& data, StageKernels& kernels, Segments<Number>& segments,
                      const LeftResiduals& left, int threads) {
  constexpr std::size_t kLanes = 4;
  constexpr std::int64_t kFollowed = 16, kSteps = 1024;
  const std::int64_t channels = data.channels();
  const auto residual = [&](SegmentLane at) {
    return std::max(0.0, left.by_lane[static_cast<std::size_t>(at.segment * channels + at.channel)]);
  };
  std::vector<SegmentLane> worst;
  for (const SegmentLane at : segments.all())
    if (residual(at) > 0) worst.push_back(at);
  if (worst.empty()) return 0;
  const std::size_t few = std::min(kLanes, worst.size());
  std::partial_sort(worst.begin(), worst.begin() + static_cast<std::ptrdiff_t>(few), worst.end(),
                    [&](SegmentLane a, SegmentLane b) {
                      return std::make_tuple(-residual(a), a.segment, a.channel) <
                             std::make_tuple(-residual(b), b.segment, b.channel);
                    });
  worst.resize(few);

  std::int64_t block = 0;
  for (int i = 0; i < data.states(); ++i) block += data.mixed(i);
  const std::int64_t most_steps = std::max<std::int64_t>(64, kSteps / (1 + block));
  SegmentStates at = data.make_states(data.stage().lanes.cell, static_cast<std::int64_t>(few) * kFollowed);
  std::vector<Lane> lanes;
  std::vector<std::size_t> begins;
  std::vector<Scale> scales(few);
  std::vector<const Scale*> scale_of;
  for (const SegmentLane w : worst) {
    Scale& scale = scales[begins.size()];
    begins.push_back(lanes.size());
    for (std::int64_t k = 0;
         k < kFollowed && w.segment + k < segments.count() && (k == 0 || !segments.is_first(w.segment + k)); ++k) {
      const SegmentLane here{static_cast<std::int32_t>(w.segment + k), w.channel};
      Lane lane = segments.lane(here);
      lane.steps = std::min(lane.steps, most_steps);
      if (data.has_no_rows())
        widen_by_ends(scale, data, segments, here);
      else
        widen<Number>(scale, data, lane);
      lane.segment = static_cast<std::int32_t>(lanes.size());
      scale_of.push_back(&scale);
      segments.put_left_end(at, lane.segment, here);
      lanes.push_back(lane);
    }
  }
  begins.push_back(lanes.size());
  for (Scale& scale : scales) scale.settle();
  std::vector<double> growth = growth_of<Number>(data, kernels, lanes, scale_of, at, threads);

  std::int64_t longest = 1;  // segments of a sequence
  for (std::int64_t s = 0, run = 1; s < segments.count(); ++s, ++run) {
    if (segments.is_first(s)) run = 1;
    longest = std::max(longest, run);
  }
  double estimate = 0;
  for (std::size_t w = 0; w < few; ++w) {
    double error = 0, logs = 0, injected = 0, peak = 0;
    const std::size_t followed = begins[w + 1] - begins[w];
    for (std::size_t k = 0; k < followed; ++k) {
      const SegmentLane here{static_cast<std::int32_t>(worst[w].segment + static_cast<std::int32_t>(k)),
                             worst[w].channel};
      const double steps = static_cast<double>(segments[here.segment].steps);
      const double a_step =
          std::log(std::max(growth[begins[w] + k], 1e-300)) / static_cast<double>(lanes[begins[w] + k].steps);
      const double whole = std::exp(std::min(a_step * steps, 690.0));
      // A residual in every step: each grows from where it is.
      const double times = !left.every_step ? 1
                           : std::fabs(a_step) * steps < 1e-6
                               ? steps
                               : std::expm1(std::min(a_step * steps, 690.0)) / std::expm1(a_step);
      const double here_injected = residual(here) * times;
      injected = std::max(injected, here_injected);
      peak = std::max(peak, error + here_injected);
      error = error * whole + here_injected * (left.every_step ? 1 : whole);
      logs += a_step * steps;
      peak = std::max(peak, error);
    }
    const double mean = logs / static_cast<double>(followed),
                 rest = static_cast<double>(longest) - static_cast<double>(followed);
    const double last = std::exp(std::min(mean * rest, 690.0));
    const double sum = rest <= 0                 ? 0
                       : std::fabs(mean) < 1e-12 ? rest
                                                 : std::expm1(std::min(mean * rest, 690.0)) / std::expm1(mean) *
                                                       std::exp(std::min(mean, 690.0));
    estimate = std::max(estimate, std::max(peak, error * last + injected * sum) * Scale::kRatio);
  }
  return std::min(estimate, 1e300);
}

}  // namespace cellc
