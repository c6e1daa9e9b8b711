// What segmented.cuh keeps from call to call and is given by the launch, the single step by which it checks a boundary,
// and the rows that stand where lanes run again.
#pragma once

namespace cellc {

/// The first runs of a lane, which know its map from afar, where the last run knows it near the answer. Together, since
/// composing reads all of a lane's and perhaps none of its neighbours'.
struct alignas(16) Runs {
  /// Of a bundle, by where they start. Of two the lower stands for the one between, too; a single run stands for all.
  enum { kLow, kMiddle, kHigh };
  Real start[4], end[4], slope[4];
};

/// What the tail knows of a boundary. One that leans is right beside rows of the segment before it: who writes those
/// anew goes on over it.
enum Off : unsigned { kRight, kOff, kLeans };
/// Beside a round: what the boundary was found right by may run again, so that it is looked at in every pass.
constexpr unsigned kLeansOn = 1u << 31;

struct Segmented {
  Lanes lanes;
  Control* control;
  unsigned long long* sent;  ///< [entry][half][lane]: the states that the first sweep wrote from, marked with the call
  unsigned* off;             ///< by lane: one more than the last round in which it ran; for the tail: Off
  Real* began;               ///< [entry][lane]: the state that a segment was started from, and then
  Real* ended;               ///< the state at its end
  Real* starts;              ///< the state that it should start from
  Real* transitions;         ///< [transition][lane]
  Runs* runs;                ///< kHermite: by lane
  Real tolerance;
  Real absolute[Step::kStates];   ///< by entry: what a caller tolerates besides
  int burn_in;                    ///< steps, a multiple of kSteps
  int rounds;                     ///< of repair, at most
  int fixed;                      ///< exactly so many, whatever they bring
  int eager;                      ///< rounds that run every segment whose start has moved at all
  int repairs;                    ///< what is then still off is walked; otherwise it is written down:
  unsigned long long* first_bad;  ///< by sequence: the first step beyond the tolerance; starts as all ones
  unsigned* residual;             ///< by sequence: bits of a float, the largest of those; starts as zero
  int measures_slope;             ///< the first sweep carries P: 0, 1; -1: as the last call found
  int cyclic;                     ///< inputs and states are a little more than the second-level cache holds
};

/// Steps that a first call starts early, at least. A few too many cost less than a single repair.
constexpr int kFirstRunUp = 64;
constexpr int kNeeds = 5;
/// Times the plan's run-up.
CELLC_DEVICE float need(int place) {
  return place == 0 ? 1.f : place == 1 ? 1.25f : place == 2 ? 1.5f : place == 3 ? 2.f : 3.f;
}

constexpr int kTransitions = StepWithTransition::kStates - Step::kStates;
constexpr bool kHermite = Step::kStates == 1 && kTransitions == 1;  ///< hermite.cuh
constexpr bool kShares = Step::kStates <= 2;                        ///< maps of parts of a chain are composed
/// Boundaries that are read together. Of eight, more threads of a block would share a chain and fewer blocks would
/// work: composing took 10 to 40 % longer, and the kernel a fifth longer to compile.
constexpr int kBatch = Step::kStates <= 2 ? 4 : 2;

/// The least that may be left at a boundary, of the tolerance: more than the rounding of some steps, where tolerances
/// are 16 times that of one (f32).
constexpr Real kLittle = Real(0.25);

/// What may be left at a boundary: between `least` and `most`, and so much of the tolerance that what is left at all of
/// them comes to four times that at most, if segments go on to make of a difference what the one before the boundary
/// has made of it. (ParaGRU on stiff data, 2048 steps in segments of 64: with the tolerance for all of them, 99
/// channels in 100 are up to 12 times as far from f64 as a walk in f32 is; so, 2.2 times.)
struct ResidualBudget {
  Real tolerance, least, most;
  CELLC_DEVICE Real at(Real growth) const {
    const Real share = Real(4) * (Real(1) - growth) * tolerance;
    return share > least ? share < most ? share : most : least;
  }
};

/// Over |b| and the size of the state.
CELLC_DEVICE Real relative_difference(Real a, Real b, Real size, Real absolute = 0) {
  // Of a quarter: the hardware's reciprocal of the largest numbers is zero.
  const Real apart = magnitude(a - b) - absolute;
  const Real difference = apart * Real(0.25) * inverse((magnitude(b) + size) * Real(0.25));
  return (a == b) | ((a != a) & (b != b)) | (apart <= Real(0)) ? Real(0)
         : is_finite(difference)                               ? difference
                                                               : Real(3.4e38);
}
CELLC_DEVICE Real relative_difference(Real a, Real b) { return relative_difference(a, b, magnitude(a)); }

/// The size that each state has in its lane, or a smaller one that is at hand.
struct Sizes {
  Real of[Step::kStates];
  CELLC_DEVICE explicit Sizes(const Real* row) {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) of[e] = larger(Real(0), row[e]);
  }
};
/// Steps whose rows are read to tell the size of a state.
constexpr int kSizeSamples = 8;
/// What is off by more tolerances than this is off beside any size that is likely: nobody looks for one.
constexpr Real kWorthALook = 64;

/// Of some of the rows of steps [from, to), the last among them, as they stand. A lane is seldom asked: only where a
/// state is so near zero that what would be little beside its size is much beside its row. So nothing is kept of sizes
/// while segments run, and what was repaired since is seen.
CELLC_APART Sizes sizes_of_rows(const Lanes& lanes, const Lane& lane, long long from, long long to, Sizes sizes) {
  CELLC_UNROLL(1)
  for (int e = 0; e < Step::kStates; ++e) {
    const ArrayView& array = lanes.array[Step::state_array(e)];
    if (!array.data) continue;
    const Stored* const row = static_cast<const Stored*>(array.data) + place(array, lane, to - 1) + lanes.step.state[e];
    const long long many = to - from, back = -lane.direction * array.row;
    Stored sample[kSizeSamples];
    CELLC_UNROLL()
    for (int i = 0; i < kSizeSamples; ++i) sample[i] = row[many * i / kSizeSamples * back];
    CELLC_UNROLL()
    for (int i = 0; i < kSizeSamples; ++i) sizes.of[e] = larger(sizes.of[e], widen(sample[i]));
  }
  return sizes;
}

/// One step of a lane, apart from a walk.
struct Probe {
  Real param[Step::kInvariants ? Step::kInvariants : 1] = {}, input[Step::kInputs ? Step::kInputs : 1] = {};

  CELLC_DEVICE void read_params(const Lanes& lanes, const Lane& lane) { load_invariants<Step>(lanes, lane, param); }
  CELLC_DEVICE void read_inputs(const Lanes& lanes, const Lane& lane, long long t) {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) {
      const ArrayView& array = lanes.array[Step::input_array(e)];
      input[e] = load(static_cast<const Stored*>(array.data) + place(array, lane, t) + lanes.step.input[e]);
    }
  }
  CELLC_DEVICE void step(const Lanes& lanes, const Real* from, Real* to) const {
    const Uniforms<Step> uniforms(lanes);
    Step::step(param, input, from, to, uniforms.data);
  }
  /// How far f(from) is from `reached`, over |reached| and the size of the state: the residual of a step that was
  /// written as `reached` while the step before it ended at `from`.
  CELLC_DEVICE Real residual(const Segmented& run, const Real* from, const Real* reached, const Sizes& sizes) const {
    Real next[Step::kStates], worst = 0;
    step(run.lanes, from, next);
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      const Real d = relative_difference(next[e], reached[e], larger(sizes.of[e], reached[e]), run.absolute[e]);
      worst = d > worst ? d : worst;
    }
    return worst;
  }
};

/// A sequence without steps ends where it starts.
CELLC_APART void finish_empty(const Lanes& lanes, long long count, long long tile) {
  CELLC_UNROLL(1)
  for (int v = 0; v < kWidth; ++v) {
    const long long own = tile * kTile + threadIdx.x % kWarp * kWidth + v;
    if (own >= count) return;
    const Lane lane = resolve(lanes, own);
    if (lane.steps > 0 || lane.segment > 0) continue;
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) finish(lanes, lane, e, start_of(lanes, lane, e));
  }
}

/// The lane of a chain's first segment.
CELLC_APART long long chain_lane(const Lanes& lanes, long long chain) {
  const long long sequence = quotient(chain, lanes.channels);
  return sequence * lanes.segments * lanes.channels + (chain - sequence * lanes.channels);
}

CELLC_APART Real step_residual(const Segmented& run, const Lane& lane, long long t, const Real* from, const Real* to,
                               const Sizes& sizes) {
  Probe probe;
  probe.read_params(run.lanes, lane);
  probe.read_inputs(run.lanes, lane, t);
  Real reached[Step::kStates];
  probe.step(run.lanes, to, reached);
  return probe.residual(run, from, reached, sizes);
}

/// Of where some of the segments of a chain began that come before a lane, and that lane too: the size that a slow
/// state has in its lane. In the first sweep, of those whose start has been sent.
struct Earlier {
  long long lane, count;  ///< count: of all lanes
  unsigned call;          ///< 0: the first sweep is over
  int segment;            ///< of the lane; below zero: none are looked at
};
CELLC_APART Sizes sizes_of_starts(const Segmented& run, const Earlier& earlier, Sizes sizes) {
  CELLC_UNROLL(1)
  for (int e = 0; e < Step::kStates; ++e) {
    CELLC_UNROLL()
    for (int i = 0; i < kSizeSamples; ++i) {
      const int back = earlier.segment * i / kSizeSamples;
      const long long lane = earlier.lane - back * run.lanes.channels;
      Real began = 0;
      bool there = earlier.call == 0;
      if (there)
        began = run.began[e * earlier.count + lane];
      else
        there = look_at(run.sent + e * kHalves * earlier.count + lane, earlier.count, earlier.call, began);
      sizes.of[e] = there ? larger(sizes.of[e], began) : sizes.of[e];
    }
  }
  return sizes;
}

/// What a boundary at step t is judged by: the residual of that step where the segment before it ended at `from` and
/// the one after it began at `to`.
struct Judged {
  Real residual;
  bool leans;  ///< on the size of other rows than the two
  Sizes sizes;
};
/// First beside the two rows themselves. Where more than `may_stay` is left so, or where it is asked for, beside the
/// rows of the segment before, and then of `earlier` ones.
CELLC_APART Judged judge(const Segmented& run, const Lane& lane, long long t, const Real* from, const Real* to,
                         Real may_stay, bool asks_size, const Earlier& earlier) {
  Judged judged{0, false, Sizes(from)};
  judged.residual = step_residual(run, lane, t, from, to, judged.sizes);
  const bool stands = judged.residual <= may_stay;
  if ((stands && !asks_size) || !(judged.residual <= kWorthALook * may_stay)) return judged;
  judged.sizes = sizes_of_rows(run.lanes, lane, t > run.lanes.segment ? t - run.lanes.segment : 0, t, judged.sizes);
  if (earlier.segment >= 0) judged.sizes = sizes_of_starts(run, earlier, judged.sizes);
  if (stands) return judged;
  judged.residual = step_residual(run, lane, t, from, to, judged.sizes);
  judged.leans = judged.residual <= may_stay;
  return judged;
}

/// Rows as they stand where lanes run again: at the first step of every second stage, since memory takes longer than a
/// stage. (Several stages ahead, in a queue of registers, each would be waited for where the queue moves.)
struct BoundaryState {
  static constexpr int kEvery = 2 * kSteps;
  Stored* row[kWidth][Step::kStates];
  long long stride[Step::kStates], begin, last;
  Real stands[kWidth][Step::kStates];

  CELLC_DEVICE BoundaryState(const Lanes& lanes, const Lane (&lane)[kWidth], long long begin, long long last)
      : begin(begin), last(last) {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      const ArrayView& array = lanes.array[Step::state_array(e)];
      stride[e] = lane[0].direction * array.row;
      CELLC_UNROLL()
      for (int v = 0; v < kWidth; ++v) {
        row[v][e] = static_cast<Stored*>(array.data) + place(array, lane[v], begin) + lanes.step.state[e];
        stands[v][e] = 0;
      }
    }
  }
  /// Whether rows are compared at step t, the first of a stage.
  CELLC_DEVICE bool is_due(long long t) const { return (static_cast<int>(t - begin) & (kEvery - 1)) == 0; }
  /// From step t on, which is next and the first of a stage.
  CELLC_DEVICE void look_ahead(int v, long long t) { ask(v, t, is_due(t) ? 0 : kSteps); }
  /// At a step that is due: how far what would be written is from what stands, beside the larger of the two and `size`.
  CELLC_DEVICE Real difference(int v, const Real* now, long long t, const Real* size) {
    Real far = 0;
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      const Real d = relative_difference(now[e], stands[v][e], larger(size ? size[e] : Real(0), now[e]));
      far = d > far ? d : far;
    }
    ask(v, t, kEvery);
    return far;
  }
  CELLC_DEVICE void ask(int v, long long t, int ahead) {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e)
      if (t + ahead < last) stands[v][e] = load(row[v][e] + ahead * stride[e]);
  }
  /// And on to the next step.
  CELLC_DEVICE void write(int v, const Real* now, bool writes) {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      if (writes) store(row[v][e], now[e]);
      row[v][e] += stride[e];
    }
  }
};

}  // namespace cellc
