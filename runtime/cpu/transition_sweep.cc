#include "runtime/cpu/transition_sweep.h"

#include "runtime/cpu/compose_transitions.h"
#include "runtime/strategy/predict_iterations.h"

namespace cellc {

namespace {

/// Lanes of a tile of a scan whose inputs are kept between its two sweeps: in the second-level cache.
constexpr std::int64_t kKeptLanes = 64;

template <typename Number>
void copy_states(const Array& from, Array& to) {
  std::copy_n(static_cast<const Number*>(from.data()), from.count(), static_cast<Number*>(to.data()));
}

}  // namespace

template <typename Number>
TransitionSweep<Number>::TransitionSweep(SegmentSweep<Number>& sweep, const StageKernels::Carrying& cell,
                                         const LaneData& arrays)
    : sweep_(sweep),
      data_(sweep.data()),
      segments_(sweep.segments()),
      cell_(cell),
      arrays_(arrays),
      from_(data_.make_states(cell.cell.cell, segments_.count())),
      swept_(data_.make_states(cell.cell.cell, segments_.count())) {
  put_identity<Number>(cell.cell, data_, segments_.count(), from_);
}

template <typename Number>
void TransitionSweep<Number>::start_from_segments() {
  for (int i = 0; i < data_.states(); ++i) copy_states<Number>(segments_.starts().arrays[i], from_.arrays[i]);
}

template <typename Number>
typename TransitionSweep<Number>::Moved TransitionSweep<Number>::advance(std::vector<char> active, double tolerance) {
  start_from_segments();
  std::vector<SegmentLane> lanes;
  for (const SegmentLane at : segments_.all())
    if (active[sweep_.chain_of(at)]) lanes.push_back(at);
  Moved moved;
  moved.lanes = static_cast<std::int64_t>(lanes.size());
  if (lanes.empty()) return moved;
  cell_.kernel.run(arrays_, segments_.lanes(lanes), from_, swept_, false, sweep_.run().threads);
  Composer<Number> composer(cell_.cell, data_, segments_, swept_, std::move(active));
  composer.advance(0, segments_.count(), tolerance);
  moved.change = composer.largest_move();
  moved.chains = composer.moved();
  return moved;
}

template <typename Number>
void TransitionSweep<Number>::scan_in_tiles() {
  start_from_segments();
  Composer<Number> composer(cell_.cell, data_, segments_, swept_, sweep_.all_chains());
  const std::int64_t tile = std::max<std::int64_t>(kKeptLanes / data_.channels(), 1) * data_.channels();
  LaneKernel::scan({&cell_.kernel, &arrays_, &sweep_.step(), &data_.lanes()}, from_, swept_, segments_.starts(),
                   segments_.ends(), segments_.lanes(segments_.all()), tile, sweep_.run().threads,
                   [&](std::int64_t begin, std::int64_t end) { composer.advance(begin, end, 0); });
}

template <typename Number>
double TransitionSweep<Number>::norm(std::int64_t segment, std::int64_t channel) const {
  double most = 0;
  for (int i = 0; i < data_.states(); ++i)
    for (std::int64_t m = 0; m < data_.mixed(i); ++m) {
      double row = 0;
      for (int j = 0; j < data_.states(); ++j) {
        if (cell_.cell.position[i][j] < 0) continue;
        const std::int64_t columns = data_.mixed(j);
        const Number* p = static_cast<const Number*>(swept_.arrays[cell_.cell.position[i][j]].data());
        for (std::int64_t k = 0; k < columns; ++k)
          row += std::fabs(
              static_cast<double>(p[((segment * data_.mixed(i) + m) * columns + k) * data_.channels() + channel]));
      }
      most = std::max(most, row);
    }
  return most;
}

template <typename Number>
void TransitionSweep<Number>::observe(const std::vector<char>& active) {
  if (cell_.cell.kind != Scannable::Affine) return;
  std::vector<double> exponents;
  for (std::int64_t c = 0; c < data_.channels(); ++c) {
    double sum = 0, steps = 0;
    for (std::int64_t s = 0; s < segments_.count(); ++s) {
      if (!active[sweep_.chain_of({static_cast<std::int32_t>(s), static_cast<std::int32_t>(c)})]) continue;
      sum += std::log(std::max(norm(s, c), 1e-300));
      steps += static_cast<double>(segments_[s].steps);
    }
    if (steps > 0) exponents.push_back(sum / steps);
  }
  if (exponents.empty()) return;
  std::sort(exponents.begin(), exponents.end());
  sweep_.report().lyapunov = exponents.back();
  sweep_.report().contraction = std::exp(exponents[exponents.size() / 2]);
}

template <typename Number>
void shoot(SegmentSweep<Number>& sweep, std::vector<char> active) {
  // Well within the tolerance: what is left is carried on through a whole segment.
  const double within = sweep.run().tolerance / 8;
  const StageKernels::Carrying& cell = sweep.run().kernels.transitions();
  const LaneData arrays = sweep.data().extended(cell.cell.cell);
  TransitionSweep<Number> transitions(sweep, cell, arrays);
  StageReport& report = sweep.report();
  const bool fixed = sweep.run().options.fixed_iterations.has_value();
  double last = std::numeric_limits<double>::infinity();
  int worse = 0;
  for (int k = 0; k < sweep.iterations(); ++k) {
    typename TransitionSweep<Number>::Moved moved = transitions.advance(active, within);
    if (moved.lanes == 0) break;
    ++report.iterations;
    if (k == 0) transitions.observe(active);
    active = std::move(moved.chains);
    report.trace.push_back({moved.change, moved.lanes});
    // Differences that grow from step to step: no start can be told from far away.
    if (report.changed_over && report.lyapunov.value_or(0) > 0) break;
    if (k == 1) report.predicted_iterations = predict_iterations(report.trace, within, 2);
    // What grows sweep after sweep is not going to converge; repair is cheaper.
    worse = moved.change < 0.5 * last ? 0 : worse + 1;
    last = moved.change;
    if (worse >= 4 && !fixed) break;
    // Past the end that was predicted only rounding is left to move starts.
    const bool overdue = report.predicted_iterations && report.iterations > *report.predicted_iterations;
    if (worse >= 1 && overdue && !fixed) break;
  }
}

template class TransitionSweep<float>;
template class TransitionSweep<double>;
template void shoot(SegmentSweep<float>& sweep, std::vector<char> active);
template void shoot(SegmentSweep<double>& sweep, std::vector<char> active);

}  // namespace cellc
