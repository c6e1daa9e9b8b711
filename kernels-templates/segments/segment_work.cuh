// Who works on which segments in segmented.cuh, and what a warp keeps of its own: the part of a kernel's blocks in a
// call, the lanes of a tile, what their transitions say, and what has been seen of residuals and growth.
//
// Needs segments.cuh and transitions.cuh.
#pragma once

namespace cellc {

struct SegmentWork {
  const Segmented& run;
  const Lanes& lanes;
  Stored* memory;
  long long count;             // of lanes
  ActiveBlocks active_blocks;  // who works
  int thread, warp, warps;
  unsigned call, passed;      // barriers, modulo 3
  Tally* of;                  // this call's
  bool multistarted = false;  // the sweep began from what multistarts found
  bool sparse = false;        // few segments will run again
  bool hopeless = false;      // whatever segments start from grows: what is walked will not merge with what stands
  /// What this thread has seen since it last reported: many threads' atomics on one word would be waited for.
  struct Seen {
    Real residual = 0, growth = 0;
  } seen;

  CELLC_DEVICE SegmentWork(const Segmented& run, Stored* shared)
      : run(run),
        lanes(run.lanes),
        memory(shared + threadIdx.x / kWarp * kStageEntries<StepWithTransition>),
        count(lanes.sequences * static_cast<long long>(lanes.segments) * lanes.channels),
        thread(threadIdx.x % kWarp) {
    join_crew({blockIdx.x, gridDim.x});
  }
  CELLC_DEVICE void begin_call(unsigned number, unsigned barriers) {
    call = number;
    passed = barriers;
    of = run.control->of + (call & 1);
  }
  CELLC_DEVICE void join_crew(ActiveBlocks with) {
    const int per_block = blockDim.x / kWarp;
    active_blocks = with;
    warp = active_blocks.rank * per_block + threadIdx.x / kWarp;
    warps = active_blocks.size * per_block;
  }
  /// The first barrier of a call. Who comes out of it without a place among the active blocks is done.
  template <bool kOrders>
  CELLC_DEVICE unsigned gather(unsigned own) {
    const Gathered all = kOrders ? gather_in_order(&run.control->grid, passed, own)
                                 : cellc::gather<false>(&run.control->grid, passed, own);
    passed = all.passed;
    join_crew(all.active_blocks);
    // After a call the compiler no longer knows that the threads of a warp are together, and would have every vote of
    // the sweep ask for it.
    if (kOrders) __syncthreads();
    return all.sum;
  }
  /// Every other one.
  CELLC_DEVICE unsigned sum(unsigned own) {
    const unsigned all = sum_in_order(&run.control->grid, passed++, own, active_blocks);
    __syncthreads();
    return all;
  }
  /// Of a warp, of so many; below zero: it has none.
  CELLC_DEVICE long long last_tile(long long tiles) const {
    long long tile = warp;
    while (tile + warps < tiles) tile += warps;
    return tile < tiles ? tile : -1;
  }
  CELLC_DEVICE bool is_leader() const { return active_blocks.rank == 0 && threadIdx.x == 0; }

  CELLC_DEVICE long long first_lane(long long tile) const { return tile * kTile + thread * kWidth; }
  CELLC_DEVICE Real& at(Real* array, int entry, long long lane) const { return array[entry * count + lane]; }
  CELLC_DEVICE long long first_step(const Lane& lane) const { return lane.segment * lanes.segment; }
  CELLC_DEVICE long long last_step(const Lane& lane) const {
    const long long end = first_step(lane) + lanes.segment;
    return end < lane.steps ? end : lane.steps;
  }

  CELLC_DEVICE void keep_end(long long own, const Lane& lane, int v, const Real* state) {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      at(run.ended, e, own + v) = state[e];
      if (last_step(lane) == lane.steps) finish(lanes, lane, e, state[e]);
    }
  }

  /// The size that a number tells of its state. With what is tolerated besides, as all sizes here.
  CELLC_DEVICE Real size_of(int e, Real value) const { return finite_size(value) + run.ground[e]; }
  CELLC_DEVICE const Stored* row_of(const Lane& lane, int e, long long t) const {
    const ArrayView& array = lanes.array[Step::state_array(e)];
    return static_cast<const Stored*>(array.data) + place(array, lane, t) + lanes.step.state[e];
  }
  CELLC_DEVICE long long back(const Lane& lane, int e) const {
    return -lane.direction * lanes.array[Step::state_array(e)].row;
  }
  /// What the rows of a segment tell of it: some of its second half, where nothing merges in the tail (merges()), so
  /// that they stand until the segment is run again.
  template <bool kCalls = true>
  CELLC_DEVICE Real size_of_rows(const Lane& lane, int e) const {
    if (!lanes.array[Step::state_array(e)].data) return run.ground[e];
    const long long last = last_step(lane) - 1, half = (last + 1 - first_step(lane)) / 2;
    const Stored* const row = row_of(lane, e, last);
    return (kCalls ? called_largest_row(row, back(lane, e), half) : largest_row(row, back(lane, e), half)) +
           run.ground[e];
  }
  /// And what those of earlier segments tell, where each of them ends. They may be run again without either side of a
  /// boundary after this one: who goes by that looks again.
  CELLC_DEVICE Real size_of_ends(const Lane& lane, int e) const {
    if (!lanes.array[Step::state_array(e)].data) return run.ground[e];
    return called_largest_before(row_of(lane, e, last_step(lane) - 1), back(lane, e) * lanes.segment, lane.segment) +
           run.ground[e];
  }
  /// For who composes.
  CELLC_DEVICE void keep_size(long long own, const Lane& lane) {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e)
      at(run.sizes, e, own) =
          larger(larger(size_of(e, at(run.ended, e, own)), size_of_rows(lane, e)), size_of_ends(lane, e));
  }
  /// How a step at a boundary is judged.
  struct Judged {
    Real residual;
    bool leans;  ///< rows of earlier segments were asked
  };
  /// The first step of a lane, of which its left neighbour ended at `end` and it began at `began`: over what is at
  /// hand, and more of the sequence where that is too small. `all`: rows stand until the call ends, or leaning is told.
  CELLC_DEVICE Judged judge(const Lane& lane, const Real* end, const Real* began, Real left, bool all) const {
    Real made[Step::kStates], reached[Step::kStates], size[Step::kStates];
    step_from_both(lanes, lane, first_step(lane), end, began, made, reached);
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) size[e] = larger(size_of(e, end[e]), size_of(e, reached[e]));
    Judged judged{residual_of(made, reached, size), false};
    Lane before = lane;
    --before.segment;
    CELLC_UNROLL(1)
    for (int more = 0; more < (all ? 2 : 1) && !(judged.residual <= left); ++more) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e)
        size[e] = larger(size[e], more == 0 ? size_of_rows(before, e) : size_of_ends(before, e));
      judged = {residual_of(made, reached, size), more == 1};
    }
    return judged;
  }

  /// By how much a lane grows what it starts from, as far as its transitions know.
  CELLC_DEVICE Real growth_of(long long lane) const {
    Real transition[kTransitions ? kTransitions : 1];
    CELLC_UNROLL()
    for (int c = 0; c < kTransitions; ++c) transition[c] = at(run.transitions, c, lane);
    return kTransitions ? Transitions::growth(transition) : Real(0);
  }
  /// Of a round. In the first ones most warps run anyway: what they repair now is not left for a round in which few
  /// would run. Later ones, in which few chains are off and each costs as much, leave about what the promise allows.
  /// Where every step is a boundary, what each leaves adds up.
  CELLC_DEVICE ResidualBudget slack(int round) const {
    const Real all = run.tolerance, little = all / 8;
    if (lanes.segment == 1 || (round < 2 && !sparse)) return {all, little, little};
    return round < 3 ? ResidualBudget{all, little, all} : ResidualBudget{all, all / 2, all / 2};
  }
  CELLC_DEVICE Real grew(const Real* transition) {
    const Real growth = Transitions::growth(transition);
    if (is_finite(growth) && growth > seen.growth) seen.growth = growth;
    return growth;
  }
  /// A lane whose P over a segment is larger would need a longer burn-in than the longest: what is off after that is
  /// what P over so many steps has left of it.
  CELLC_DEVICE Real remembers() const {
    return exp2f(__log2f(static_cast<float>(run.tolerance) * 0.25f) * static_cast<float>(run.lanes.segment) /
                 (need(kNeeds - 1) * static_cast<float>(run.burn_in ? run.burn_in : kSteps)));
  }
  /// By how much the segment has grown a difference; 0 where nobody can tell.
  template <class Cell>
  CELLC_DEVICE Real keep_transitions(long long own, int v, const Real* state) {
    Real transition[kTransitions ? kTransitions : 1], growth = 0;
    if constexpr (Cell::kStates > Step::kStates) {
      CELLC_UNROLL()
      for (int c = 0; c < kTransitions; ++c) transition[c] = state[Step::kStates + c];
      growth = grew(transition);
    } else {
      Transitions::forget(transition, state);
    }
    CELLC_UNROLL()
    for (int c = 0; c < kTransitions; ++c) at(run.transitions, c, own + v) = transition[c];
    return growth;
  }

  /// Of a step that stays as it is.
  CELLC_DEVICE void note(Real residual) { seen.residual = residual > seen.residual ? residual : seen.residual; }

  CELLC_DEVICE void count_in(unsigned* counter, unsigned own) {
    const unsigned sum = warp_sum(own);
    if (thread == 0 && sum) atomicAdd(counter, sum);
  }
  CELLC_DEVICE void report() {
    const unsigned residual = warp_max(__float_as_uint(static_cast<float>(seen.residual)));
    const unsigned growth = warp_max(__float_as_uint(static_cast<float>(seen.growth)));
    if (thread == 0 && residual) atomicMax(&of->worst_residual, residual);
    if (thread == 0 && growth) atomicMax(&of->growth, growth);
    seen = Seen{};
  }
};

}  // namespace cellc
