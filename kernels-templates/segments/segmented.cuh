// Segments of time that start early from a cold state, because a contractive cell forgets; what does
// not forget is found at the boundaries and mended on the device, in one launch.
//
//   sweep    each segment starts `burn_in` steps early, then writes; at its end the left neighbour's end
//            is compared with what the segment started from, by one step of either
//   compose  where boundaries missed: new starts by the affine recurrence over the segments of a chain
//            (a channel of a sequence), start(s) = end(s-1) + P(s-1) (start(s-1) - old start(s-1)).
//            P is the product of the Jacobians over a segment where it was carried along (multiple
//            shooting with Newton), else 0 (the left neighbour's end as it is); from the second round on
//            the map over a segment is not its tangent, but a cubic (hermite.cuh)
//   repair   segments whose first step is off are run again from there, until what they would write is
//            what stands there; compose again
//   tail     what rounds do not settle is walked along its chain, through segment after segment, until it merges
//
// Every step is made by the step code or checked against it, so a result is exact to the tolerance.
// Where bits are to be those of every call (`ordered`), a round first decides which segments run again, and then they
// do: otherwise each looks as it comes, at neighbours that may or may not have run.
//
// Nothing returns to the host to decide. All blocks work together from the first barrier on, or else one does it all
// (gather of preamble.cuh).
//
// Where the last call's data did not forget, a pass of multistart.cuh and a composition come before the sweep, which
// then begins where segments should.
//
// Needs first_sweep.cuh, segment_runs.cuh, chain_walk.cuh, compose.cuh and multistart.cuh.
#pragma once

namespace cellc {

/// What the leading thread knows of the call before.
struct Before {
  unsigned enough, too_short;  ///< of Control
  float residual;              ///< the largest at a boundary

  /// Of the tally whose turn comes after this call. Its other entries are cleared by others.
  CELLC_DEVICE Before(const Control& control, Tally& last, bool is_leader) : enough(0), too_short(0), residual(0) {
    if (!is_leader) return;
    enough = control.enough;
    too_short = control.too_short;
    residual = __uint_as_float(last.worst_residual);
    last.worst_residual = 0;
  }
};

/// Nothing was missed. If the call before says that less of a burn-in would do, the next one has less: a start that is
/// off by r after w steps is off by half the tolerance after w log(tolerance / 2) / log(r). It is the call before whose
/// residual is known: of this one some blocks may not have told theirs.
CELLC_DEVICE void shorten(const Segmented& run, const Before& before, int burn_in) {
  Control* const c = run.control;
  c->burn_in = burn_in;
  c->enough = burn_in;
  c->slow = c->measures_slope = 0;
  if (before.enough != static_cast<unsigned>(burn_in)) return;
  const float residual = before.residual > 1e-10f ? before.residual : 1e-10f;
  const float less =
      1.05f * static_cast<float>(burn_in) * __log2f(static_cast<float>(run.tolerance) * 0.5f) / __log2f(residual);
  const int next = (static_cast<int>(less) / kSteps + 1) * kSteps;
  if (next < burn_in && next >= 2 * kSteps && next > static_cast<int>(before.too_short)) c->burn_in = next;
}

/// What this call saw decides what the next one starts from. `slower`: boundaries that no burn-in of need()
/// would have made right; of chaos nothing is learned.
CELLC_APART void learn(const Segmented& run, unsigned slower, int burn_in) {
  const float boundaries = static_cast<float>(run.lanes.segments - 1) * static_cast<float>(run.lanes.sequences) *
                           static_cast<float>(run.lanes.channels);
  Control* const c = run.control;
  const int least = run.burn_in > kFirstRunUp ? run.burn_in : kFirstRunUp;
  int next = burn_in > least ? burn_in : least;
  // A few steps more cost less than a single repair.
  CELLC_UNROLL(1)
  for (int place = 0; place < kNeeds; ++place) {
    const int steps = static_cast<int>(run.burn_in * need(place));
    if (c->needed[place] && steps > next) next = steps;
  }
  c->slow = slower;
  // Few are repaired in less time than a pass over everything takes, which counts otherwise than a sweep does: with one
  // limit for both, data near it would be taken the one way and the other in turn.
  c->measures_slope =
      kTransitions > 0 && static_cast<float>(slower) > (c->measures_slope ? 0.001f : 0.003f) * boundaries;
  // Where most warps will run again for the slow, the others are repaired with them. Without P a short burn-in
  // would not tell the slow from the others the next time.
  if (kTransitions > 0 && static_cast<float>(slower) > 0.02f * boundaries) next = kSteps;
  c->burn_in = (next + kSteps - 1) / kSteps * kSteps;
  c->enough = 0;
  if (next > burn_in && burn_in > static_cast<int>(c->too_short)) c->too_short = burn_in;
  CELLC_UNROLL(1)
  for (int i = 0; i < 8; ++i) c->needed[i] = 0;
}

CELLC_DEVICE bool lanes_may_be_empty(const Lanes& lanes) { return lanes.offsets || lanes.length == 0; }

/// When something happened, by the clock of the first thread.
struct Marks {
  unsigned long long* time;  ///< null: another thread
  int count;
  CELLC_DEVICE void operator()() {
    if (time && count < 32) time[count++] = nanoseconds();
  }
};

/// How chains are cut among the threads of a block: into so many parts that each is one batch of boundaries at most,
/// and so many that all blocks have some; otherwise whole rows of memory. Of all blocks, also where one goes on alone:
/// what maps round to depends on how they are cut.
struct Shares {
  int group, parts;  ///< chains of a block, and the parts of each
};
CELLC_APART Shares shares_of(const Lanes& lanes, unsigned blocks) {
  int group = kWarp;
  const long long chains = lanes.sequences * lanes.channels;
  while (kShares && group > 1 &&
         (static_cast<int>(blockDim.x) / group * kBatch < lanes.segments ||
          chains < static_cast<long long>(blocks) * group))
    group /= 2;
  return {group, kShares ? static_cast<int>(blockDim.x) / group : 1};
}

/// Of plans that learn, unless the caller allows fewer (host_plan.h).
constexpr int kPlannedRounds = 8;

/// So many rounds of few lanes take as long as walking the sequence: then the two together take twice the better one at
/// most. A round composes, looks and waits for the grid, which takes as long as 300 steps of a walk, and a step with
/// transitions takes 1.6 of its steps (26 us for segments of 64 steps, 44 for 256, 232 for 1992, where a walk takes 64
/// ns a step).
CELLC_DEVICE int rounds_of_a_walk(const Lanes& lanes) {
  const float segment = static_cast<float>(lanes.segment);
  return static_cast<int>(static_cast<float>(lanes.segments) * segment / (300.f + 1.6f * segment));
}

/// All that comes after the first sweep, and that too where it carries P. Most calls need nothing of it. `slower`:
/// segments that forget too slowly, as far as that is known; `early`: steps that the sweep began early, 0 if it was
/// composed.
template <bool kRows>
CELLC_DEVICE void repair(SegmentWork& work, unsigned misses, unsigned slower, int burn_in, bool sweeps, int early,
                         Marks mark) {
  const Segmented& run = work.run;
  Control* const control = run.control;
  Tally* const of = work.of;
  const long long tiles = (work.count + kTile - 1) / kTile;
  if (run.ordered && sweeps) work.sum(0);
  // Of those before some may only have lost their patience.
  if (run.ordered && sweeps) misses = work.sum(mark_off(work, tiles, false));
  work.sparse = sweeps && 16ll * misses < work.count;
  auto pass = LanePass::First;
  int round = 0;
  // Where the caller allows fewer than a plan has, it is so many.
  const bool extends =
      run.measures_slope < 0 && run.rounds >= kPlannedRounds && rounds_of_a_walk(run.lanes) > run.rounds;
  const int most = extends ? rounds_of_a_walk(run.lanes) : run.rounds;
  unsigned active = misses, repaired = 0;
  if (run.measures_slope < 0 && sweeps && early && 2 * misses > work.count) {
    // The first call on data that do not forget, or chaos, which is walked at once.
    work.sum(0);
    unsigned own = 0;
    for (long long tile = work.warp; tile < tiles; tile += work.warps) own += grown_apart(work, tile, early);
    work.hopeless = work.sum(own) > misses / 5;
    mark();
  }
  for (bool runs = !sweeps;; runs = true) {
    if (!runs) {
      work.sum(0);  // what the sweep wrote is needed now
    } else {
      // The one place from which lanes are run with transitions: each would be a copy of the walk.
      unsigned expand = 0;
      const Real left = pass != LanePass::Look && round < run.eager ? Real(0) : run.tolerance;
      const unsigned own = all_tiles<kRows>(work, pass, round, burn_in, left, expand);
      if (pass == LanePass::Decide) {
        work.sum(0);
        pass = LanePass::Again;
        continue;
      }
      if (pass == LanePass::Again && round == 0) work.count_in(&of->expanding, expand);
      if (pass == LanePass::First) {
        active = work.gather<true>(own);
        if (!work.active_blocks.size) return;
        // Nearly every boundary is off, and the next pass sees which.
        slower = active;
        active = 1;
      } else {
        active = work.sum(own);
      }
      if (pass == LanePass::Again) {
        if (!sweeps && round == 0) misses = active;
        repaired += active;
        if (work.is_leader()) of->ran[round & 15] = active;
        // Where most segments grow what they start from, starts cannot be known: chaos is walked.
        const unsigned expanding = *static_cast<volatile unsigned*>(&of->expanding);
        work.hopeless = run.measures_slope < 0 && round == 0 && active > work.count / 2 && expanding > active / 2;
        ++round;
      }
      mark();
    }
    if (!active) break;
    if (pass == LanePass::Again && !run.fixed && round >= run.eager && 512ll * active < work.count && !work.hopeless) {
      // Few ran: mostly nothing is off any more, and to see that takes less than to compose.
      pass = LanePass::Look;
      continue;
    }
    // Chains that will not settle show early: most of what missed is still off after a few rounds. The others
    // need few rounds more, and each costs a segment where walking costs the sequence.
    if (!work.hopeless && round < most && (run.fixed || round < 4 || active < misses / 2 || active < 32)) {
      // Newton's iteration, where it is asked for, is that and nothing better.
      if (round == 0) {
        for (long long tile = work.warp; tile < tiles; tile += work.warps) keep_sizes(work, tile);
        work.sum(0);
      }
      const Shares shares = shares_of(run.lanes, gridDim.x);
      compose<Transitions>(Chains(work, round > 0 && !run.fixed ? Maps::Bent : Maps::Lines, work.slack(round)),
                           shares.group, shares.parts);
      pass = run.ordered ? LanePass::Decide : LanePass::Again;
    } else {
      mark_off(work, tiles, true);
      if (!run.repairs) break;
      work.sum(0);
      mark();
      work.count_in(&of->tails, walk_chains<kRows>(work));
      break;
    }
    work.sum(0);
    mark();
  }
  if (work.is_leader()) {
    of->misses = misses;
    of->repaired = repaired;
    of->rounds = round;
    of->phases = mark.count;
    if (run.measures_slope < 0) {
      if (work.hopeless)
        for (unsigned& needed : control->needed) needed = 0;
      learn(run, slower && !work.hopeless ? slower : control->needed[kNeeds], burn_in);
    }
  }
}

template <bool kRows>
CELLC_DEVICE void segmented(const Segmented& run) {
  CELLC_DYNAMIC_SHARED(Stored, shared);
  Control* const control = run.control;
  const unsigned calls = control->calls, seen = control->burn_in, carried = control->measures_slope,
                 passed = control->grid.passed;
  // While those are on their way.
  SegmentWork work(run, shared);
  const long long tiles = (work.count + kTile - 1) / kTile, last_tile = work.last_tile(tiles);
  Lane lane[kWidth];
  resolve_own(run.lanes, work.first_lane(last_tile < 0 ? 0 : last_tile), work.count, lane);
  tell_started(&control->grid);

  const unsigned call = call_after(calls);
  work.begin_call(call, passed);
  const int learned = (static_cast<int>(seen) + kSteps - 1) / kSteps * kSteps,
            first = run.burn_in > kFirstRunUp ? run.burn_in : kFirstRunUp;
  const int burn_in = run.measures_slope >= 0 ? run.burn_in : learned ? learned : first;
  // All threads agree on these; by votes the compiler knows it, too, and lays the sweep out for whole warps.
  const bool measures_slope = __any_sync(0xffffffffu, run.measures_slope < 0 ? carried != 0 : run.measures_slope != 0);
  const bool composed = kHermite && __any_sync(0xffffffffu, run.measures_slope < 0 && measures_slope),
             sweeps = !measures_slope || composed;
  unsigned misses = 0, slower = 0;
  work.multistarted = composed;
  Tally* const last = control->of + ((call + 1) & 1);
  const Before before(*control, *last, work.is_leader());
  Marks mark{work.is_leader() ? work.of->time : nullptr, 0};
  mark();
  if (lanes_may_be_empty(run.lanes))
    for (long long tile = work.warp; tile < tiles; tile += work.warps) finish_empty(run.lanes, work.count, tile);
  if (blockIdx.x == gridDim.x - 1)
    for (unsigned i = threadIdx.x; i < sizeof(Tally) / 4; i += blockDim.x)
      if (reinterpret_cast<unsigned*>(last) + i != &last->worst_residual) reinterpret_cast<unsigned*>(last)[i] = 0;
  if constexpr (kHermite) {
    if (composed) {
      unsigned own = 0;
      const bool three = run.lanes.segment < kLongSegment;
      for (long long tile = work.warp; tile < tiles; tile += work.warps)
        own += run_multistart<kRows>(work, tile, three);
      slower = work.gather<true>(own);
      if (!work.active_blocks.size) return;
      mark();
      const Shares shares = shares_of(run.lanes, gridDim.x);
      const ResidualBudget none{run.tolerance, Real(0), Real(0)};  // nothing stands yet
      compose<Transitions>(Chains(work, three ? Maps::Triples : Maps::Pairs, none), shares.group, shares.parts);
      work.sum(0);
      mark();
    }
  }
  if (sweeps) {
    unsigned own = 0;
    // Who goes on alone after the multistarts begins with another tile than the one whose lanes have been resolved.
    bool resolved = work.active_blocks.size == gridDim.x;
    for (long long tile = work.last_tile(tiles); tile >= 0; tile -= work.warps) {
      if (!resolved) resolve_own(run.lanes, work.first_lane(tile), work.count, lane);
      resolved = false;
      own += sweep<kRows>(work, tile, lane, composed ? 0 : burn_in, composed);
    }
    work.report();
    // Mostly nothing is off, and then nobody needs to see what another block has written.
    misses = composed ? work.sum(own) : work.gather<false>(own);
    if (!work.active_blocks.size) return;
    mark();
  }
  if (__any_sync(0xffffffffu, !sweeps || misses)) {
    repair<kRows>(work, misses, slower, burn_in, sweeps, composed ? 0 : burn_in, mark);
    if (!work.active_blocks.size) return;
  } else if (work.is_leader()) {
    work.of->phases = mark.count;
    if (composed)
      learn(run, slower, burn_in);
    else if (run.measures_slope < 0)
      shorten(run, before, burn_in);
  }
  if (work.is_leader()) {
    atomicMax(&work.of->ended, nanoseconds());
    work.of->multistarts = composed;
    work.of->burn_in = static_cast<unsigned>(composed ? 0 : burn_in);
    control->calls = call;
    control->grid.passed = work.passed % 3;
    control->grid.started = 0;
  }
}

}  // namespace cellc
