#pragma once
// The size that a state has in its lane: the largest |s| of the rows so far. A residual is over |s| + that size
// (docs/notes/strategies.md), so that what a run promises does not depend on units.
//
// "So far" is what makes it safe. Were later rows counted, a segment that started from a wrong guess and grew would
// excuse its own start. Rows before a step have been checked themselves, or are about to be; where a repair makes them
// smaller, what leaned on them is looked at again (SegmentSweep::stale).
//
// Rows are read backwards from the step, and only where a residual is not small beside its own row. One or two are
// mostly enough. A lane that is quiet throughout is read once: what a whole segment has is remembered.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/cpu/segments.h"

namespace cellc {

template <typename Number>
class LaneSizes {
 public:
  LaneSizes(const StageData& data, const Segments<Number>& segments) : data_(data), segments_(segments) {}

  /// The largest finite |row| of an entry before a step of a segment, of all rows of its sequence; or of fewer, once
  /// they have `enough`.
  double before(int state, std::int64_t mixed, SegmentLane at, std::int64_t step, double enough) {
    double size = 0;
    scan(state, mixed, at, step, enough, size);
    for (SegmentLane left = at; size < enough && !segments_.is_first(left.segment);) {
      --left.segment;
      double& whole = of_segment(state, mixed, left);
      if (whole >= 0) {
        size = std::max(size, whole);
      } else {
        double here = 0;
        if (scan(state, mixed, left, segments_[left.segment].steps, enough, here)) whole = here;
        size = std::max(size, here);
      }
    }
    return size;
  }

  /// The rows of a segment are no longer what they were.
  void rewritten(SegmentLane at) {
    for (int i = 0; !sizes_.empty() && i < data_.states(); ++i)
      for (std::int64_t m = 0; m < data_.mixed(i); ++m) of_segment(i, m, at) = kUnknown;
  }
  void all_rewritten() { sizes_.clear(); }

 private:
  static constexpr double kUnknown = -1;

  double& of_segment(int state, std::int64_t mixed, SegmentLane at) {
    if (sizes_.empty())
      for (int i = 0; i < data_.states(); ++i)
        sizes_.emplace_back(static_cast<std::size_t>(segments_.count() * data_.mixed(i) * data_.channels()), kUnknown);
    return sizes_[static_cast<std::size_t>(state)]
                 [static_cast<std::size_t>(segments_.entry(state, at.segment, mixed, at.channel))];
  }

  /// From the step before `step` on, backwards. Whether all of them were read.
  bool scan(int state, std::int64_t mixed, SegmentLane at, std::int64_t step, double enough, double& size) const {
    const Segment& s = segments_[at.segment];
    const LaneArray& a = data_.lanes().symbols[state];
    const Number* const rows = reinterpret_cast<const Number*>(a.data) + a.mixed[mixed] + a.channel[at.channel];
    for (std::int64_t t = step - 1; t >= 0; --t) {
      const double value = std::fabs(static_cast<double>(rows[data_.row(s.sequence, s.first + t) * a.row_entries]));
      if (value > size && value < std::numeric_limits<double>::infinity()) size = value;
      if (size >= enough) return t == 0;
    }
    return true;
  }

  const StageData& data_;
  const Segments<Number>& segments_;
  std::vector<std::vector<double>> sizes_;  ///< by state: of whole segments, kUnknown where they were not read
};

}  // namespace cellc
