// How the map of a segment bends between two starts from which it was run.
//
// A segment maps the state that it starts from to the one that it ends at. A run with carriers tells the
// map's value and slope at one start. After the second run both are known at two starts, and with them the
// cubic that has all four (Hermite's interpolation): between the two starts it is off by
// (x - a)^2 (x - b)^2 / 24 times the map's fourth derivative, where Newton's straight line is off by
// (x - b)^2 / 2 times the second. So the third set of starts, which compose() makes of it, is mostly
// the last.
//
// Has it: a stage of one state a lane that is not linear (ParaGRU, IndRNN, LTC). Has it not: blocks, where a
// line through two points is not the map; linear, clip and Moebius stages, whose first composition is exact.
//
// What it saves: the third round, that is another sweep of the warps that have a lane which had not settled.
// ParaGRU on slow data, 8192 steps of 1024 channels in segments of 128, by a model of the algorithm on the CPU:
// the rounds run 98, 96, 3.8 and 0.01 % of the lanes again without, 98, 96, 0.04 and 0 % with it; those 3.8 % are
// spread over 65 % of the warps, the 0.04 % over 1.2 %.
//
// Only starts are guessed by it. Whether they are right is found by the step code, as everywhere.
#pragma once

namespace cellc {

/// The cubic as it departs from the line end + slope by.
struct Bend {
  Real second, third, apart;   ///< apart: from the earlier start to the later one

  /// Of a lane: where it began, and the run before.
  template <class Work>
  CELLC_DEVICE void read(const Work& work, long long lane) {
    apart = work.at(work.run.began, 0, lane) - work.at(work.run.before, 0, lane);
    second = work.at(work.run.before, 1, lane);
    third = work.at(work.run.before, 2, lane);
  }
  /// The cubic of what was read and of the end and slope of the last run.
  CELLC_DEVICE void fit(Real end, Real slope) {
    const Real before_end = second, before_slope = third, over = inverse(apart), chord = (end - before_end) * over;
    second = (slope - chord) * over;
    // A run without carriers left no slope.
    third = before_slope == Real(0) ? Real(0) : (second - (chord - before_slope) * over) * over;
    // Nothing is known of segments that were run once, and little of starts that are as good as one.
    const bool known = is_finite(apart) & is_finite(second) & is_finite(third);
    second = known ? second : Real(0);
    third = known ? third : Real(0);
    apart = known ? apart : Real(0);
  }
  /// Makes of the line that of the cubic's tangent at `by`. Beyond the earlier start the cubic is a guess.
  CELLC_DEVICE void follow(Real by, Real& end, Real& slope) const {
    const Real curve = second + third * (by + apart), steeper = by * (Real(2) * curve + by * third);
    const bool reaches = magnitude(by) <= magnitude(apart);
    end += reaches ? by * (by * curve - steeper) : Real(0);
    slope += reaches ? steeper : Real(0);
  }
};

}  // namespace cellc
