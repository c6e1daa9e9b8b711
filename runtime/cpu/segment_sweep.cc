#include "runtime/cpu/segment_sweep.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "compiler/derive/fused_outs.h"
#include "runtime/cpu/estimate_error.h"

namespace cellc {

template <typename Number>
SegmentSweep<Number>::SegmentSweep(StageToSolve& run, std::int64_t length)
    : run_(run),
      data_(run.data()),
      segments_(data_, length > 0 ? length : std::numeric_limits<std::int64_t>::max()),
      sizes_(data_, segments_),
      lagged_(data_.cell()),
      residual_(static_cast<std::size_t>(segments_.count() * data_.channels()), kNone) {
  outcome_.report.plan = run.plan;
  for (const int u : data_.stage().states)
    if (const Symbol& symbol = data_.cell().symbol_of(data_.cell().updates[u]); symbol.lag_of >= 0)
      deepest_lag_ = std::max<std::int64_t>(deepest_lag_, symbol.lag);
}

template <typename Number>
void SegmentSweep<Number>::write(const std::vector<SegmentLane>& lanes) {
  if (run_.outs) {
    // The states of the lane cell come first, and outs behind them start as nothing and end nowhere.
    SegmentStates from = data_.make_states(run_.outs->kernel.cell(), segments_.count()), to = from;
    for (std::size_t i = 0; i < from.arrays.size(); ++i)
      if (static_cast<std::int64_t>(i) < data_.states())
        from.arrays[i] = segments_.starts().arrays[i], to.arrays[i] = segments_.ends().arrays[i];
    run_.outs->kernel.run(run_.outs->data.lanes(), segments_.lanes(lanes), from, to, true, run_.threads);
    return;
  }
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
    // A short segment hands on copies of what it was given itself.
    if (!segments_.continues(at) || (deepest_lag_ > 0 && segments_[at.segment - 1].steps <= deepest_lag_))
      lanes.push_back(at);
  }
  return lanes;
}

template <typename Number>
std::vector<Miss> SegmentSweep<Number>::check(const std::vector<SegmentLane>& lanes) {
  std::vector<Miss> misses;
  if (lanes.empty()) return misses;
  for (const SegmentLane at : lanes) lenient_.erase(lane_number(at));
  if (data_.has_no_rows()) {
    first_ = segments_.states();
    std::vector<Lane> runs = segments_.lanes(lanes);
    for (Lane& lane : runs) lane.steps = 1;
    step().run(data_.lanes(), runs, segments_.starts(), first_, false, run_.threads);
  }
  std::vector<double> worst = residuals_at(lanes, std::vector<std::int64_t>(lanes.size(), 0));
  std::vector<std::int64_t> first(lanes.size(), 0);
  // The steps that read, through lags, rows of before the segment: it took guesses in their place.
  for (std::int64_t step = 1; step <= deepest_lag_; ++step) {
    std::vector<SegmentLane> longer;
    for (const SegmentLane at : lanes)
      if (step < segments_[at.segment].steps) longer.push_back(at);
    const std::vector<double> here = residuals_at(longer, std::vector<std::int64_t>(longer.size(), step));
    for (std::size_t k = 0, l = 0; k < lanes.size(); ++k)
      if (step < segments_[lanes[k].segment].steps) {
        if (worst[k] <= run_.tolerance && !(here[l] <= run_.tolerance)) first[k] = step;
        worst[k] = std::max(worst[k], here[l++]);
      }
  }
  // An out that reads a state as it was before the step is made of the start itself, of which a step that forgets says
  // nothing: h' = a*h + x, y = 2*h' - h, where a is 0 in the first step of a segment.
  if (run_.outs && outs_read_states(run_.outs->data.stage()))
    for (std::size_t k = 0; k < lanes.size(); ++k) worst[k] = std::max(worst[k], start_residual(lanes[k]));
  for (std::size_t k = 0; k < lanes.size(); ++k) {
    const SegmentLane at = lanes[k];
    if (!inner_.empty()) worst[k] = std::max(worst[k], inner_[static_cast<std::size_t>(at.segment)]);
    residual(at) = worst[k];
    if (!(worst[k] <= run_.tolerance)) misses.push_back({at, worst[k], first[k]});
  }
  return misses;
}

template <typename Number>
std::vector<double> SegmentSweep<Number>::residuals_at(const std::vector<SegmentLane>& lanes,
                                                       const std::vector<std::int64_t>& steps) {
  std::vector<double> residuals;
  if (lanes.empty()) return residuals;
  std::vector<Lane> runs;
  for (std::size_t k = 0; k < lanes.size(); ++k) {
    const SegmentLane at = lanes[k];
    if (deepest_lag_ > 0)
      put_written(probe(), at, steps[k]);
    else
      segments_.put_left_end(probe(), at);
    Lane lane = segments_.lane(at);
    lane.row = data_.row(lane.sequence, segments_[at.segment].first + steps[k]);
    lane.at_start = lane.at_start && steps[k] == 0;
    lane.steps = 1;
    runs.push_back(lane);
  }
  step().run(data_.lanes(), runs, probe_, probe_, false, run_.threads);
  for (std::size_t k = 0; k < lanes.size(); ++k) residuals.push_back(probed_residual(lanes[k], steps[k]));
  return residuals;
}

template <typename Number>
double SegmentSweep<Number>::start_residual(SegmentLane at) {
  segments_.put_left_end(probe(), at);
  double worst = 0;
  for (int i = 0; i < data_.states(); ++i)
    for (std::int64_t m = 0; m < data_.mixed(i); ++m) {
      const std::int64_t entry = segments_.entry(i, at.segment, m, at.channel);
      const Number end = static_cast<const Number*>(probe_.arrays[i].data())[entry],
                   start = static_cast<const Number*>(segments_.starts().arrays[i].data())[entry];
      worst = std::max(worst, relative_difference(end, start, std::fabs(static_cast<double>(start)),
                                                  run_.absolute[static_cast<std::size_t>(i)]));
    }
  return worst;
}

template <typename Number>
void SegmentSweep<Number>::put_written(SegmentStates& to, SegmentLane at, std::int64_t step) {
  const Segment& s = segments_[at.segment];
  for (int i = 0; i < data_.states(); ++i) {
    const int update = data_.stage().states[static_cast<std::size_t>(i)];
    const LaggedRow from = lagged_.at(update, s.first + step - 1);
    // A copy has the layout of its state, and starts that of a row.
    const Array& rows = from.step < 0 ? data_.run().symbols[data_.cell().updates[from.start].symbol]
                                      : run_.arrays.trajectories[static_cast<std::size_t>(lagged_.parent(update))];
    const std::int64_t row = from.step < 0 ? s.sequence : data_.row(s.sequence, from.step);
    const LaneArray& a = data_.lanes().symbols[i];
    const Number* const values = static_cast<const Number*>(rows.data()) + row * a.row_entries + a.channel[at.channel];
    Number* const target = static_cast<Number*>(to.arrays[i].data());
    for (std::int64_t m = 0; m < data_.mixed(i); ++m)
      target[segments_.entry(i, at.segment, m, at.channel)] = values[a.mixed[m]];
  }
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
    if (lagged_.lags(data_.stage().states[static_cast<std::size_t>(i)])) continue;  // a copy: no row of a caller's
    const LaneArray& a = data_.lanes().symbols[i];
    const bool rows = a.data != nullptr;
    const Number* row = rows ? reinterpret_cast<const Number*>(a.data) + row_number * a.row_entries : nullptr;
    const Number* made = static_cast<const Number*>(probe_.arrays[i].data());
    const Number* first = rows ? nullptr : static_cast<const Number*>(first_.arrays[i].data());
    const double absolute = run_.absolute[static_cast<std::size_t>(i)];
    for (std::int64_t m = 0; m < data_.mixed(i); ++m) {
      const std::int64_t entry = segments_.entry(i, at.segment, m, at.channel);
      const Number f = made[entry], s = rows ? row[a.mixed[m] + a.channel[at.channel]] : first[entry];
      const double own = std::fabs(static_cast<double>(s));
      double residual = relative_difference(f, s, own, absolute);
      // Beside its own row it is too large, as where a state passes zero. Beside the rows before it may be small.
      const double apart = std::fabs(static_cast<double>(f) - static_cast<double>(s)) - absolute;
      if (rows && residual > run_.tolerance && apart < std::numeric_limits<double>::infinity()) {
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
std::vector<Array> SegmentSweep<Number>::finals() {
  std::vector<Array> result;
  for (int i = 0; i < data_.states(); ++i) {
    const Array& start =
        data_.run().symbols[data_.cell().updates[data_.stage().states[static_cast<std::size_t>(i)]].symbol];
    Array last = Array::uninitialised(start.dtype(), start.shape());
    if (last.count() > 0)
      std::memcpy(last.data(), start.data(), static_cast<std::size_t>(last.count()) * sizeof(Number));
    const LaneArray& a = data_.lanes().symbols[static_cast<std::size_t>(i)];
    for (std::int64_t s = 0; s < segments_.count(); ++s) {
      if (s + 1 < segments_.count() && !segments_.is_first(s + 1)) continue;
      Number* const to = static_cast<Number*>(last.data()) + segments_[s].sequence * a.row_entries;
      for (std::int64_t m = 0; m < data_.mixed(i); ++m)
        for (std::int64_t c = 0; c < data_.channels(); ++c)
          to[a.mixed[static_cast<std::size_t>(m)] + a.channel[static_cast<std::size_t>(c)]] =
              segments_.end(i)[segments_.entry(i, s, m, c)];
    }
    result.push_back(std::move(last));
  }
  return result;
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
