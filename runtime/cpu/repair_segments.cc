#include "runtime/cpu/repair_segments.h"

#include <map>

namespace cellc {

template <typename Number>
Repaired SegmentRepair<Number>::run(std::vector<Miss> misses, const RepairRules& rules) {
  partly_.clear();
  while (!misses.empty() && sweep_.repairs()) {
    const std::size_t before = misses.size();
    misses = repair_round(misses).misses;
    if (rules.hands_back && rules.hands_back(misses, before)) return {std::move(misses), true, std::move(partly_)};
    if (misses.empty()) misses = sweep_.stale();
    if (misses.size() * 2 < before || !rules.by_chains) continue;
    repair_chains(misses);
    misses.clear();
    // Rows that a repair made smaller may have been what a boundary leaned on.
    misses = sweep_.stale();
  }
  return {std::move(misses), false, std::move(partly_)};
}

template <typename Number>
typename SegmentRepair<Number>::Behind SegmentRepair<Number>::repair_round(const std::vector<Miss>& misses) {
  ++sweep_.report().repair_rounds;
  Behind behind;
  LaneSet seen;
  for (const Miss& m : misses) {
    if (sweep_.deepest_lag() > 0 && !segments_.is_first(m.at.segment))
      sweep_.put_written(segments_.starts(), m.at, 0);
    else
      segments_.put_left_end(segments_.starts(), m.at);
    sweep_.made_again(m.at);
    // All segments that begin within reach of a lag: their first steps read rows that are made again.
    std::int64_t reach = 0;
    for (std::int32_t next = m.at.segment + 1; next < segments_.count() && !segments_.is_first(next); ++next) {
      if (seen.emplace(next, m.at.channel).second) behind.lanes.push_back({next, m.at.channel});
      reach += segments_[next].steps;
      if (reach > sweep_.deepest_lag()) break;
    }
  }
  sweep_.report().repaired += static_cast<std::int64_t>(misses.size());
  const LaneSet changed = run_until_merged(misses);
  // What merged ends as before, so nothing behind it has changed.
  if (sweep_.deepest_lag() == 0)
    std::erase_if(behind.lanes, [&](SegmentLane at) { return !changed.count({at.segment - 1, at.channel}); });
  for (const Miss& m : misses) partly_.insert({m.at.segment, m.at.channel});
  for (const SegmentLane at : behind.lanes) partly_.insert({at.segment, at.channel});
  for (const auto& at : changed) partly_.erase(at);
  behind.misses = sweep_.check(behind.lanes);
  return behind;
}

template <typename Number>
void SegmentRepair<Number>::repair_chains(const std::vector<Miss>& misses) {
  std::map<std::size_t, std::map<std::int32_t, Miss>> chains;
  for (const Miss& m : misses) chains[sweep_.chain_of(m.at)].emplace(m.at.segment, m);
  while (!chains.empty()) {
    std::vector<Miss> first;
    for (auto& [chain, waiting] : chains) first.push_back(waiting.extract(waiting.begin()).mapped());
    const Behind behind = repair_round(first);
    for (const SegmentLane at : behind.lanes) chains[sweep_.chain_of(at)].erase(at.segment);
    for (const Miss& m : behind.misses) chains[sweep_.chain_of(m.at)].emplace(m.at.segment, m);
    std::erase_if(chains, [](const auto& chain) { return chain.second.empty(); });
  }
}

template <typename Number>
LaneSet SegmentRepair<Number>::run_until_merged(std::vector<Miss> lanes) {
  StageData& data = sweep_.data();
  const int threads = sweep_.run().threads;
  LaneSet changed;
  std::int64_t done = 0;
  for (std::int64_t span = 256; !lanes.empty(); span *= 2) {
    std::vector<Lane> runs, steps, finished;
    std::vector<Miss> open;
    for (const Miss& miss : lanes) {
      const SegmentLane at = miss.at;
      Lane lane = segments_.lane(at);
      const std::int64_t all = lane.steps;
      lane.row = data.row(lane.sequence, segments_[at.segment].first + done);
      lane.steps = std::min(span, all - done);
      runs.push_back(lane);
      if (done + lane.steps == all) {
        changed.insert({at.segment, at.channel});
        finished.push_back(lane);
        continue;
      }
      open.push_back(miss);
      lane.row = data.row(lane.sequence, segments_[at.segment].first + done + lane.steps);
      lane.steps = 1;
      lane.at_start = false;
      steps.push_back(lane);
    }
    // Lanes that go on keep their old end until they have reached it: `at_` is where they are now.
    if (at_.arrays.empty()) at_ = segments_.states();
    const SegmentStates& from = done == 0 ? segments_.starts() : at_;
    sweep_.step().run(data.lanes(), runs, from, at_, true, threads);
    for (const Lane& lane : finished) copy_lane(at_, segments_.ends(), lane);
    // One step on from here, against the row that stands there.
    sweep_.step().run(data.lanes(), steps, at_, sweep_.probe(), false, threads);
    lanes.clear();
    std::vector<double> residuals;
    for (std::size_t k = 0; k < open.size(); ++k) residuals.push_back(sweep_.probed_residual(open[k].at, done + span));
    look_behind(open, done + span, residuals);
    for (std::size_t k = 0; k < open.size(); ++k) {
      const SegmentLane at = open[k].at;
      const double r = residuals[k];
      if (r <= sweep_.run().tolerance && open[k].until <= done + span)
        sweep_.residual(at) = r;
      else
        lanes.push_back(open[k]);
    }
    done += span;
  }
  return changed;
}

template <typename Number>
void SegmentRepair<Number>::look_behind(const std::vector<Miss>& lanes, std::int64_t step,
                                        std::vector<double>& residuals) {
  for (std::int64_t lag = 1; lag <= sweep_.deepest_lag(); ++lag) {
    std::vector<SegmentLane> longer;
    std::vector<std::size_t> numbers;
    for (std::size_t k = 0; k < lanes.size(); ++k) {
      if (step + lag >= segments_[lanes[k].at.segment].steps || !(residuals[k] <= sweep_.run().tolerance)) continue;
      longer.push_back(lanes[k].at);
      numbers.push_back(k);
    }
    const std::vector<double> here = sweep_.residuals_at(longer, std::vector<std::int64_t>(longer.size(), step + lag));
    for (std::size_t l = 0; l < here.size(); ++l) residuals[numbers[l]] = std::max(residuals[numbers[l]], here[l]);
  }
}

template <typename Number>
void SegmentRepair<Number>::copy_lane(const SegmentStates& from, SegmentStates& to, const Lane& lane) {
  const StageData& data = sweep_.data();
  for (int i = 0; i < data.states(); ++i)
    for (std::int64_t m = 0; m < data.mixed(i); ++m) {
      const std::int64_t e = segments_.entry(i, lane.segment, m, lane.channel);
      static_cast<Number*>(to.arrays[i].data())[e] = static_cast<const Number*>(from.arrays[i].data())[e];
    }
}

template class SegmentRepair<float>;
template class SegmentRepair<double>;

}  // namespace cellc
