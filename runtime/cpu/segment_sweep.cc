#include "runtime/cpu/segment_sweep.h"

#include <map>

#include "runtime/cpu/estimate_error.h"

namespace cellc {

template <typename Number>
SegmentSweep<Number>::SegmentSweep(StageRun& run, std::int64_t length)
    : run_(run),
      data_(run.data()),
      segments_(data_, length > 0 ? length : std::numeric_limits<std::int64_t>::max()),
      sizes_(data_, segments_),
      residual_(static_cast<std::size_t>(segments_.count() * data_.channels()), kNone) {
  outcome_.report.plan = run.plan;
}

template <typename Number>
void SegmentSweep<Number>::write(const std::vector<SegmentLane>& lanes) {
  step().run(data_.lanes(), segments_.lanes(lanes), segments_.starts(), segments_.ends(), true, run_.threads);
}

template <typename Number>
void SegmentSweep<Number>::warm_up(std::int64_t steps) {
  if (steps <= 0) return;
  step().run(data_.lanes(), segments_.burn_in_lanes(steps), segments_.starts(), segments_.starts(), false,
             run_.threads);
}

template <typename Number>
std::vector<SegmentLane> SegmentSweep<Number>::boundaries() {
  std::vector<SegmentLane> lanes;
  for (const SegmentLane at : segments_.all()) {
    if (segments_.is_first(at.segment)) continue;
    ++report().boundaries;
    if (!segments_.continues(at)) lanes.push_back(at);
  }
  return lanes;
}

template <typename Number>
std::vector<Miss> SegmentSweep<Number>::check(const std::vector<SegmentLane>& lanes) {
  std::vector<Miss> misses;
  if (lanes.empty()) return misses;
  std::vector<Lane> steps;
  for (const SegmentLane at : lanes) {
    segments_.put_left_end(probe(), at);
    Lane lane = segments_.lane(at);
    lane.steps = 1;
    steps.push_back(lane);
  }
  step().run(data_.lanes(), steps, probe_, probe_, false, run_.threads);
  for (const SegmentLane at : lanes) {
    lenient_.erase(lane_number(at));
    double worst = probed_residual(at, 0);
    if (!inner_.empty()) worst = std::max(worst, inner_[static_cast<std::size_t>(at.segment)]);
    residual(at) = worst;
    if (!(worst <= run_.tolerance)) misses.push_back({at, worst, 0});
  }
  return misses;
}

template <typename Number>
SegmentStates& SegmentSweep<Number>::probe() {
  if (probe_.arrays.empty()) probe_ = segments_.states();
  return probe_;
}

template <typename Number>
double SegmentSweep<Number>::probed_residual(SegmentLane at, std::int64_t step) {
  double worst = 0;
  const std::int64_t row_number = data_.row(segments_[at.segment].sequence, segments_[at.segment].first + step);
  for (int i = 0; i < data_.states(); ++i) {
    const LaneArray& a = data_.lanes().symbols[i];
    const Number* row = reinterpret_cast<const Number*>(a.data) + row_number * a.row_entries;
    const Number* made = static_cast<const Number*>(probe_.arrays[i].data());
    const double absolute = run_.absolute[static_cast<std::size_t>(i)];
    for (std::int64_t m = 0; m < data_.mixed(i); ++m) {
      const Number f = made[segments_.entry(i, at.segment, m, at.channel)], s = row[a.mixed[m] + a.channel[at.channel]];
      const double own = std::fabs(static_cast<double>(s));
      double residual = relative_difference(f, s, own, absolute);
      // Beside its own row it is too large, as where a state passes zero. Beside the rows before it may be small.
      const double apart = std::fabs(static_cast<double>(f) - static_cast<double>(s)) - absolute;
      if (residual > run_.tolerance && apart < std::numeric_limits<double>::infinity()) {
        const double enough = apart / run_.tolerance - own, size = sizes_.before(i, m, at, step, enough);
        if (size > own) residual = apart / (own + size);
        if (residual <= run_.tolerance) lenient_.emplace(lane_number(at), Lenient{at, i, m, step, enough, residual});
      }
      worst = std::max(worst, residual);
    }
  }
  return worst;
}

template <typename Number>
void SegmentSweep<Number>::made_again(SegmentLane at) {
  residual(at) = kNone;
  lenient_.erase(lane_number(at));
  sizes_.rewritten(at);
}

template <typename Number>
std::vector<Miss> SegmentSweep<Number>::stale() {
  std::map<std::int64_t, Miss> misses;
  sizes_.all_rewritten();  // what was read while segments were being repaired
  for (const auto& [lane, l] : lenient_) {
    if (sizes_.before(l.state, l.mixed, l.at, l.step, l.size) >= l.size) continue;
    // It is made again from its start: what follows a step inside of it may be right, but is not looked at.
    misses.emplace(lane, Miss{l.at, std::numeric_limits<double>::infinity(), l.step});
  }
  std::vector<Miss> all;
  for (const auto& [lane, miss] : misses) all.push_back(miss);
  return all;
}

template <typename Number>
StageOutcome SegmentSweep<Number>::finish(const std::vector<Miss>& left, bool every_step) {
  for (const double r : residual_) report().max_residual = std::max(report().max_residual, r);
  std::map<std::int32_t, Unconverged> worst;
  for (const Miss& m : left) {
    const Segment& s = segments_[m.at.segment];
    Unconverged& u = worst.try_emplace(s.sequence, Unconverged{s.sequence, s.first + m.step, 0}).first->second;
    u.first_bad_step = std::min(u.first_bad_step, s.first + m.step);
    u.residual = std::max(u.residual, m.residual);
  }
  for (const auto& [sequence, u] : worst) outcome_.unconverged.push_back(u);
  if (report().max_residual > 0)
    report().error_estimate = std::max(
        report().max_residual,
        estimate_error(data_, run_.kernels, segments_, {residual_, every_step || !inner_.empty()}, run_.threads));
  return std::move(outcome_);
}

template class SegmentSweep<float>;
template class SegmentSweep<double>;

}  // namespace cellc
