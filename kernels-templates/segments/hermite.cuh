// How the map of a segment bends between the starts from which it was run.
//
// A segment maps the state that it starts from to the one that it ends at. A run with transitions tells the
// map's value and slope at one start. After the second run both are known at two starts, and with them the
// cubic that has all four (Hermite's interpolation): between the two starts it is off by
// (x - a)^2 (x - b)^2 / 24 times the map's fourth derivative, where Newton's straight line is off by
// (x - b)^2 / 2 times the second. After three runs it is a polynomial of the fifth degree, and the sixth derivative.
//
// In rounds the cubic is that of the last run and of one of the first ones, the next on the side to which the start
// moves: between two runs that are apart it is no worse than a line anywhere, and beyond the last two, which may be
// close, it would be a guess. (ParaGRU on stiff data, |a| <= 3 and offset -6 or -3, rounds at (1, 65536, 64) on the
// emulator: 13 and 9; with the two last runs 21 and 12, with the last and always the middle one of the first 32
// and 10.)
//
// Has it: a stage of one state a lane that is not linear (ParaGRU, IndRNN, LTC). Has it not: blocks, where a
// line through two points is not the map; linear, clip and Moebius stages, whose first composition is exact.
//
// What it saves: where segments are run from several starts before anything is composed, most rounds (multistart.cuh).
// And in rounds of repair the third, that is another sweep of the warps that have a lane which had not settled: ParaGRU
// on slow data, 8192 steps of 1024 channels in segments of 128, by a model of the algorithm on the CPU: the rounds run
// 98, 96, 3.8 and 0.01 % of the lanes again without, 98, 96, 0.04 and 0 % with it.
//
// Only starts are guessed by it. Whether they are right is found by the step code, as everywhere.
//
// Needs segments.cuh.
#pragma once

namespace cellc {

/// The polynomial of a lane's runs: end + slope u + u^2 (second + third (u + apart) + (u + apart)^2 (fourth + fifth
/// (u + middle))), where u is how far from the start of the last run.
struct HermiteMap {
  Real end, slope, second, third, fourth, fifth;
  Real apart,
      middle;  ///< from the start of the other run, and from that of one between, to the last run's; 0: there is none
  Real reach;  ///< from midway between the outer starts: beyond it the polynomial is a guess

  /// Of the highest run of a bundle, which began at `began`, the lowest, and where there is a run between, that too.
  CELLC_DEVICE void take(Real began, const Runs& runs, bool between) {
    apart = began - runs.start[Runs::kLow];
    second = runs.end[Runs::kLow];
    third = runs.slope[Runs::kLow];
    middle = between ? began - runs.start[Runs::kMiddle] : Real(0);
    fourth = runs.end[Runs::kMiddle];
    fifth = runs.slope[Runs::kMiddle];
  }
  /// Of the last run and of that of the first ones which comes next on the way `to` where the segment should start.
  CELLC_DEVICE void take_towards(Real began, Real to, const Runs& runs) {
    const bool up = to > began,
               middle_is_next = up ? runs.start[Runs::kMiddle] > began : runs.start[Runs::kMiddle] < began;
    const auto next = [&](const Real(&of)[4]) {
      return middle_is_next ? of[Runs::kMiddle] : up ? of[Runs::kHigh] : of[Runs::kLow];
    };
    apart = began - next(runs.start);
    second = next(runs.end);
    third = next(runs.slope);
    middle = fourth = fifth = 0;
  }
  /// The polynomial of what was taken and of the end and slope of the last run. Starts that are closer than `least`
  /// tell the rounding of the two ends rather than the bend between them.
  CELLC_DEVICE void fit(Real last_end, Real last_slope, Real least) {
    end = last_end;
    slope = last_slope;
    const Real before_end = second, before_slope = third, over = inverse(apart), chord = (end - before_end) * over;
    second = (slope - chord) * over;
    // A run without transitions left no slope.
    third = before_slope == Real(0) ? Real(0) : (second - (chord - before_slope) * over) * over;
    // Nothing is known of segments that were run once, and little of starts that are as good as one.
    const bool known = is_finite(apart) & is_finite(second) & is_finite(third) & (magnitude(apart) >= least);
    second = known ? second : Real(0);
    third = known ? third : Real(0);
    apart = known ? apart : Real(0);
    reach = Real(2) * magnitude(apart);
    const Real middle_end = fourth, middle_slope = fifth;
    fourth = fifth = 0;
    // What the cubic is off by midway.
    const Real u = -middle, v = u + apart, other = inverse(u * u * v * v), cubic = second + third * v;
    const Real off = middle_end - end - u * (slope + u * cubic),
               slopes_off = middle_slope - slope - u * (Real(2) * cubic + u * third);
    const Real quartic = off * other, quintic = (slopes_off - quartic * Real(2) * u * v * (u + v)) * other;
    const bool bends = known & (middle != Real(0)) & is_finite(quartic) & is_finite(quintic);
    fourth = bends ? quartic : Real(0);
    fifth = bends ? quintic : Real(0);
    reach = bends ? Real(1.5) * magnitude(apart) : reach;
  }
  /// Its tangent at `by`, as a line.
  CELLC_DEVICE void follow(Real by, Real& line_end, Real& line_slope) const {
    const Real v = by + apart, high = fourth + fifth * (by + middle), curve = second + v * (third + v * high);
    const Real steeper = by * (Real(2) * curve + by * (third + v * (Real(2) * high + v * fifth)));
    const bool reaches = magnitude(by + Real(0.5) * apart) <= reach;
    line_end = end + (reaches ? by * (by * curve - steeper) : Real(0));
    line_slope = slope + (reaches ? steeper : Real(0));
  }
};

}  // namespace cellc
