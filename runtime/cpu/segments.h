#pragma once
// The segments of one stage with their start and end states, and the arithmetic between them.
// Private to the stage solver.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/cpu/stage_data.h"
#include "runtime/cpu/stage_kernels.h"
#include "runtime/evaluate/row_difference.h"

namespace cellc {

/// One channel of one segment.
struct SegmentLane {
  std::int32_t segment, channel;
};

template <typename Number>
class Segments {
 public:
  Segments(const StageData& data, std::int64_t length)
      : data_(data), list_(data.cut(length)), starts_(states()), ends_(states()) {
    for (std::int64_t s = 0; s < count(); ++s) data_.put_start(starts_, s, list_[s].sequence);
  }

  std::int64_t count() const { return static_cast<std::int64_t>(list_.size()); }
  const Segment& operator[](std::int64_t s) const { return list_[s]; }
  bool is_first(std::int64_t s) const { return list_[s].first == 0; }
  SegmentStates& starts() { return starts_; }
  SegmentStates& ends() { return ends_; }
  SegmentStates states() const {
    return data_.make_states(data_.stage().lanes.cell, static_cast<std::int64_t>(list_.size()));
  }

  std::int64_t entry(int state, std::int64_t segment, std::int64_t m, std::int64_t channel) const {
    return (segment * data_.mixed(state) + m) * data_.channels() + channel;
  }
  Number* start(int state) { return static_cast<Number*>(starts_.arrays[state].data()); }
  Number* end(int state) { return static_cast<Number*>(ends_.arrays[state].data()); }

  std::vector<SegmentLane> all() const {
    std::vector<SegmentLane> lanes;
    lanes.reserve(list_.size() * static_cast<std::size_t>(data_.channels()));
    for (std::int32_t s = 0; s < static_cast<std::int32_t>(list_.size()); ++s)
      for (std::int32_t c = 0; c < data_.channels(); ++c) lanes.push_back({s, c});
    return lanes;
  }

  Lane lane(SegmentLane at) const {
    const Segment& s = list_[at.segment];
    return {at.segment, at.channel, s.row, s.steps, s.sequence, s.first == 0};
  }
  std::vector<Lane> lanes(const std::vector<SegmentLane>& which) const {
    std::vector<Lane> result;
    result.reserve(which.size());
    for (const SegmentLane at : which) result.push_back(lane(at));
    return result;
  }
  /// The steps just before each segment, `burn_in` of them where the sequence has so many.
  std::vector<Lane> burn_in_lanes(std::int64_t burn_in) const {
    std::vector<Lane> result;
    for (const SegmentLane at : all()) {
      Lane lane = this->lane(at);
      const Segment& s = list_[at.segment];
      lane.steps = std::min(burn_in, s.first);
      lane.row = data_.row(s.sequence, s.first - lane.steps);
      lane.at_start = s.first == lane.steps;
      result.push_back(lane);
    }
    return result;
  }

  /// to[segment] = what its left neighbour ends in, for one lane; nothing for the first of a sequence.
  void put_left_end(SegmentStates& to, SegmentLane at) {
    if (!is_first(at.segment)) put_left_end(to, at.segment, at);
  }
  /// to[place] = what precedes a segment: its left neighbour's end, or the sequence's start.
  void put_left_end(SegmentStates& to, std::int64_t place, SegmentLane at) {
    const bool first = is_first(at.segment);
    for (int i = 0; i < data_.states(); ++i) {
      Number* const target = static_cast<Number*>(to.arrays[i].data());
      for (std::int64_t m = 0; m < data_.mixed(i); ++m)
        target[entry(i, place, m, at.channel)] =
            first ? start(i)[entry(i, at.segment, m, at.channel)] : end(i)[entry(i, at.segment - 1, m, at.channel)];
    }
  }

  /// Bit for bit the left neighbour's end; NaN is NaN, whatever its bits.
  bool continues(SegmentLane at) {
    for (int i = 0; i < data_.states(); ++i)
      for (std::int64_t m = 0; m < data_.mixed(i); ++m) {
        const Number here = start(i)[entry(i, at.segment, m, at.channel)];
        const Number left = end(i)[entry(i, at.segment - 1, m, at.channel)];
        // A zero does not continue the other one: 1/h and its like tell them apart.
        if (std::memcmp(&here, &left, sizeof here) != 0 && !(here != here && left != left)) return false;
      }
    return true;
  }

 private:
  const StageData& data_;
  std::vector<Segment> list_;
  SegmentStates starts_, ends_;
};

}  // namespace cellc
