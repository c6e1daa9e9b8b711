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

struct Segmented {
  Lanes lanes;
  Control* control;
  unsigned long long* sent;  ///< [entry][half][lane]: the states that the first sweep wrote from, marked with the call
  unsigned* off;      ///< by lane: one more than the last round in which it ran; for the tail: its boundary is off
  Real* began;        ///< [entry][lane]: the state that a segment was started from, and then
  Real* ended;        ///< the state at its end
  Real* starts;       ///< the state that it should start from
  Real* transitions;  ///< [transition][lane]
  Runs* runs;         ///< kHermite: by lane
  Real* sizes;        ///< [entry][lane]: about how large the state is in its sequence; what is composed is over that
  Real tolerance;
  Real ground[Step::kStates];     ///< what is tolerated besides, over the tolerance: a size that every row has
  int burn_in;                    ///< steps, a multiple of kSteps
  int rounds;                     ///< of repair, at most
  int fixed;                      ///< exactly so many, whatever they bring
  int eager;                      ///< rounds that run every segment whose start has moved at all
  int repairs;                    ///< what is then still off is walked; otherwise it is written down:
  unsigned long long* first_bad;  ///< by sequence: the first step beyond the tolerance; starts as all ones
  unsigned* residual;             ///< by sequence: bits of a float, the largest of those; starts as zero
  int measures_slope;             ///< the first sweep carries P: 0, 1; -1: as the last call found
  int cyclic;                     ///< inputs and states are a little more than the second-level cache holds
  int ordered;                    ///< whatever decides on rows has come to an end before: bits are those of every call
};

/// Steps that a first call starts early, at least. A few too many cost less than a single repair.
constexpr int kFirstRunUp = 64;
constexpr int kNeeds = 5;
/// Times the plan's burn-in.
CELLC_DEVICE float need(int place) {
  return place == 0 ? 1.f : place == 1 ? 1.25f : place == 2 ? 1.5f : place == 3 ? 2.f : 3.f;
}

constexpr int kTransitions = StepWithTransition::kStates - Step::kStates;
constexpr bool kHermite = Step::kStates == 1 && kTransitions == 1;  ///< hermite.cuh
constexpr bool kShares = Step::kStates <= 2;                        ///< maps of parts of a chain are composed
/// Boundaries that are read together. Of eight, more threads of a block would share a chain and fewer blocks would
/// work: composing took 10 to 40 % longer, and the kernel a fifth longer to compile.
constexpr int kBatch = Step::kStates <= 2 ? 4 : 2;

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

/// Over |b| and a finite size.
CELLC_DEVICE Real relative_difference(Real a, Real b, Real size) {
  // Of an eighth: the sum may be twice the largest number, and the hardware's reciprocal is zero from half of that on.
  const Real difference = magnitude(a - b) * Real(0.125) * inverse(size * Real(0.125) + magnitude(b) * Real(0.125));
  return (a == b) | ((a != a) & (b != b)) ? Real(0) : is_finite(difference) ? difference : Real(3.4e38);
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
};

/// How far f(from), which is `made`, is from `reached`, over |reached| and the state's sizes: the residual of a step
/// that was written as `reached` while the step before it ended at `from`.
CELLC_DEVICE Real residual_of(const Real* made, const Real* reached, const Real* size) {
  Real worst = 0;
  CELLC_UNROLL()
  for (int e = 0; e < Step::kStates; ++e) {
    const Real d = relative_difference(made[e], reached[e], size[e]);
    worst = d > worst ? d : worst;
  }
  return worst;
}

/// The largest of the rows at `last` and before it, 0/8, 1/8, … 7/8 of `steps` back.
CELLC_DEVICE Real largest_row(const Stored* last, long long back, long long steps) {
  Real size = 0;
  CELLC_UNROLL()
  for (int i = 0; i < 8; ++i) size = larger(size, finite_size(load(last + i * steps / 8 * back)));
  return size;
}
/// Where more than one place asks. The sweep calls nothing, or each of its votes would ask whether all are there.
CELLC_APART Real called_largest_row(const Stored* last, long long back, long long steps) {
  return largest_row(last, back, steps);
}
/// The largest of what is told of 1, 2, 4, … places before one, and of the first of `many`.
template <class At>
CELLC_DEVICE Real largest_before(long long many, const At& at) {
  Real size = 0;
  CELLC_UNROLL(1)
  for (long long places = 1; places <= many; places = places < many && 2 * places > many ? many : 2 * places)
    size = larger(size, finite_size(at(places)));
  return size;
}
CELLC_APART Real called_largest_before(const Stored* row, long long back, long long many) {
  return largest_before(many, [&](long long places) { return load(row + places * back); });
}

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

/// Step t from both sides of a boundary.
CELLC_APART void step_from_both(const Lanes& lanes, const Lane& lane, long long t, const Real* from, const Real* to,
                                Real* made, Real* reached) {
  Probe probe;
  probe.read_params(lanes, lane);
  probe.read_inputs(lanes, lane, t);
  probe.step(lanes, to, reached);
  probe.step(lanes, from, made);
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
  /// At a step that is due: how far what would be written is from what stands. Over that alone: other rows may be made
  /// smaller yet, and another step will do.
  CELLC_DEVICE Real difference(int v, const Real* now, long long t, const Real* ground) {
    Real far = 0;
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      const Real d = relative_difference(now[e], stands[v][e], finite_size(stands[v][e]) + ground[e]);
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
