// A first pass over data that do not forget: every segment from two or three starts at once, nothing written.
//
// What a run with transitions tells of a segment's map is its value and slope at one start. Runs from several starts
// that read the same inputs tell the polynomial of hermite.cuh before anything has been composed. So the first
// composition already gives segments the start that they will keep, and the sweep that follows from there writes the
// answer. The starts lie about those that segments of the same channel had in the last call: a channel that does not
// forget moves slowly, and so in a narrow band.
//
// Has it: a stage of one state a lane whose last call's data did not forget (hermite.cuh). Has it not: blocks; a
// first call, which does not know its data yet; strategies that are asked for, which carry what they say.
//
// What it saves: a pass that writes, and all rounds or all but a short one. ParaGRU on slow data by a model of the
// algorithm on the CPU, 8192 steps of 1024 channels in segments of 256: with three starts no lane has to run again
// after the sweep, with two 1.5 % on 43 % of the warps (65536 steps of 64 channels in segments of 128), with one, which
// is multiple shooting, nearly all do, twice. Memory is read in this pass and not written. The arithmetic of two runs
// fits into the time that this takes; that of three takes half as long again, which is less than a round does but where
// segments are long.
//
// Needs segments.cuh and hermite.cuh.
#pragma once

namespace cellc {

/// Two runs of a lane that read the same inputs, and perhaps a third between: one walk serves both, since each would
/// take long to compile.
struct Multistart : StepWithTransition {
  static constexpr int kRuns = 3, kStates = kRuns * StepWithTransition::kStates + 1;
  static constexpr int kThree = kStates - 1;  ///< this state says whether there is a third: 1 or 0
  static CELLC_DEVICE void step(const Real* param, const Real* input, const Real* state, Real* next,
                                const Real* const* uniform) {
    constexpr int kNext = StepWithTransition::kStates;
    StepWithTransition::step(param, input, state, next, uniform);
    StepWithTransition::step(param, input, state + 2 * kNext, next + 2 * kNext, uniform);
    CELLC_UNROLL()
    for (int e = kNext; e < 2 * kNext; ++e) next[e] = state[e];
    if (state[kThree] != Real(0)) StepWithTransition::step(param, input, state + kNext, next + kNext, uniform);
    next[kThree] = state[kThree];
  }
};
template <>
CELLC_DEVICE const auto& offsets_of<Multistart>(const Lanes& lanes) {
  return lanes.carried;
}

/// From here on segments are run from two starts: a third run would take longer than the round that it saves.
constexpr int kLongSegment = 768;

/// About what a segment is run from. A chain that may settle in one of two states stays for long where the sequence
/// started, between them, where differences grow: runs from either state tell nothing of that. So where a start lies
/// within the band, it is the middle. (ParaGRU with |a| <= 3, offset -6, 65536 steps of 64 channels: 12 rounds, with
/// that and with the runs that hermite.cuh takes; with neither more than 120, of two segments each.)
struct Band {
  Real middle;
  Real apart, reach;  ///< from the middle to where segments started in the last call: on average, and at most

  template <class Work>
  CELLC_DEVICE Band(const Work& work, const Lane& lane, long long own, bool known) {
    constexpr int kSamples = 16;
    const Lanes& lanes = work.lanes;
    const unsigned boundaries = static_cast<unsigned>(quotient(lane.steps + lanes.segment - 1, lanes.segment)) - 1;
    // A sequence's first segment starts where it starts.
    const bool among = known && lane.segment;
    const char* const first = reinterpret_cast<const char*>(
        among ? work.run.starts + (own + (1 - lane.segment) * lanes.channels) : start_place(lanes, lane, 0));
    const unsigned long long apart_by = among ? lanes.channels * sizeof(Real) : 0;
    Real sample[kSamples];
    middle = apart = reach = 0;
    // Sixteen times the same few instructions: all of it is compiled each time.
    CELLC_UNROLL()
    for (int i = 0; i < kSamples; ++i)
      sample[i] = *reinterpret_cast<const Real*>(first + i * boundaries / kSamples * apart_by);
    CELLC_UNROLL()
    for (int i = 0; i < kSamples; ++i) middle += sample[i] * Real(1.0 / kSamples);
    CELLC_UNROLL()
    for (int i = 0; i < kSamples; ++i) apart += magnitude(sample[i] - middle) * Real(1.0 / kSamples);
    const Real begins = start_of(lanes, lane, 0);
    middle = magnitude(begins - middle) < Real(1.5) * apart ? begins : middle;
    apart = 0;
    CELLC_UNROLL()
    for (int i = 0; i < kSamples; ++i) {
      const Real far = magnitude(sample[i] - middle);
      apart += far * Real(1.0 / kSamples);
      reach = far > reach ? far : reach;
    }
    const Real least = lane.segment ? Real(1e-3) * (reach + magnitude(middle)) : Real(0);
    apart = apart > least ? apart : least;
    reach = reach > least ? reach : least;
    if (is_finite(middle) & is_finite(apart)) return;
    middle = 0;
    apart = reach = Real(0.1);
  }
  /// From the lowest to the highest. Two lie where the cubic is off by little in the middle and twice as far out as
  /// they are; three take in whatever is likely, and no more of two states than that, for there is nothing beyond them.
  /// (Of slow data whose states are a fiftieth of 1, over which steps are looked at, so few of 960 boundaries of 1000
  /// steps are off: 128 with two starts twice as far out as `apart`, 35 so, 30 a little nearer. With three four times
  /// as far instead of five a third of the misses are left; three times as far, two states take a third more rounds.)
  CELLC_DEVICE Real start(int run, bool three) const {
    const Real likely = Real(4) * apart < Real(1.5) * reach ? Real(4) * apart : Real(1.5) * reach;
    return middle + Real(run - 1) * (three ? likely : Real(1.4) * apart);
  }
};

/// How many segments of this thread forget too slowly for any burn-in.
template <bool kRows, class Work>
CELLC_DEVICE unsigned run_multistart(Work& work, long long tile, bool three) {
  constexpr int kRuns = Multistart::kRuns, kNext = StepWithTransition::kStates;
  const Lanes& lanes = work.lanes;
  const long long own = tile * kTile + work.thread * kWidth;
  Lane lane[kWidth];
  Real state[kWidth][Multistart::kStates], start[kWidth][kRuns];
  resolve_own(lanes, own, work.count, lane);
  const long long first = work.first_step(lane[0]), last = work.last_step(lane[0]);
  const bool empty = own >= work.count || first >= lane[0].steps;
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    const Band band(work, lane[v], own + v, !empty);
    CELLC_UNROLL()
    for (int r = 0; r < kRuns; ++r) {
      start[v][r] = state[v][r * kNext] = band.start(r, three);
      state[v][r * kNext + kNext - 1] = 1;
    }
    state[v][Multistart::kThree] = three;
  }
  walk<Multistart, kRows, false, kTogether<StepWithTransition>>(
      lanes, lane, first, empty ? first : last, state, work.memory, [](const auto&) {},
      [](long long, auto&) { return true; }, [](long long, const auto&, bool) {});
  unsigned slow = 0;
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    if (empty) break;
    bool forgets = true;
    Runs runs{};
    CELLC_UNROLL()
    for (int r = 0; r < kRuns; ++r) {
      const Real* const of = &state[v][r * kNext];
      const bool ran = three || r != Runs::kMiddle;
      runs.start[r] = ran ? start[v][r] : runs.start[Runs::kLow];
      runs.end[r] = ran ? of[0] : runs.end[Runs::kLow];
      runs.slope[r] = ran ? of[kNext - 1] : runs.slope[Runs::kLow];
      if (ran) forgets = (work.grew(of + kNext - 1) <= work.remembers()) & forgets;
    }
    work.run.runs[own + v] = runs;
    slow += !forgets;
  }
  return slow;
}

}  // namespace cellc
