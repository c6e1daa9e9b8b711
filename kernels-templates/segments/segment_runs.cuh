// Segments of one warp that are run with transitions, in segmented.cuh.
//
// Needs segment_work.cuh.
#pragma once

namespace cellc {

/// What one warp runs with transitions. One piece of code serves all three: what is not there is neither
/// compiled nor fetched.
enum class LanePass {
  First,   ///< the first sweep, where the last call's data did not forget
  Again,   ///< segments whose start is off, from their new start until they merge with what stands there
  Look,    ///< which those would be: nothing runs
  Decide,  ///< which they are, where that is `ordered`: before any of them runs
};

template <class Cell>
CELLC_DEVICE void begin_transitions(Real (&state)[kWidth][Cell::kStates]) {
  if constexpr (Cell::kStates > Step::kStates) {
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) Transitions::identity(&state[v][Step::kStates]);
  }
}

/// Rows are compared one step in two stages: where what would be written agrees with what stands there, the
/// step's residual is their difference, and all that follows may stay (but for a first row, below). Rounded rows do
/// not tell a residual (bf16 keeps 8 bits): there a segment is run to its end. And nothing follows a segment of one
/// step, where every such difference would be left in the result and add up.
///
/// In the `tail` boundaries are not looked at any more, and were judged by rows of second halves of segments: who comes
/// there changes all of them.
CELLC_DEVICE bool merges(SegmentWork& work, BoundaryState& rows, int v, const Real* now, long long t, Real left,
                         bool tail) {
  if (kNarrow || work.lanes.segment == 1 || !rows.is_due(t)) return false;
  const Real far = rows.difference(v, now, t, work.run.ground);
  // The first row only where it is the same: its boundary will be judged by what it was begun from now, and what may
  // be left there and what would be left here would add up to twice the tolerance.
  if (!(far <= (t == rows.begin ? Real(0) : left))) return false;
  if (tail && 2 * (t - quotient(t, work.lanes.segment) * work.lanes.segment) > work.lanes.segment) return false;
  work.note(far);
  return true;
}

template <bool kRows>
CELLC_DEVICE bool any_of(const bool (&open)[kWidth]) {
  bool any = false;
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) any = any || open[v];
  return static_cast<bool>(kRows ? __any_sync(0xffffffffu, any) : any);
}

/// Whether a lane has to run again, which it does where its first step is off by more than `left`, or where it should
/// start elsewhere. What is found is written down, but for a look.
CELLC_DEVICE bool is_off(SegmentWork& work, LanePass pass, int round, const Lane& lane, long long own, Real tolerance,
                         Real left) {
  Real end[Step::kStates], began[Step::kStates];
  // What has been checked need not be checked again unless either side has run since. (The neighbour may run now,
  // too, and say so already: then the next pass checks. Where nobody runs now, nobody can tell who did.)
  const bool fresh = round == 0 || work.run.ordered ||
                     work.run.off[own - work.lanes.channels] == static_cast<unsigned>(round) ||
                     work.run.off[own] == static_cast<unsigned>(round);
  bool open = false, moved = false, far = false, leans = false;
  CELLC_UNROLL()
  for (int e = 0; e < Step::kStates; ++e) {
    end[e] = work.at(work.run.ended, e, own - work.lanes.channels);
    began[e] = work.at(work.run.began, e, own);
    moved = moved || !(end[e] == began[e]);
    far = far || !are_near(work.at(work.run.starts, e, own), began[e], tolerance < left ? tolerance : left,
                           work.at(work.run.sizes, e, own - work.lanes.channels));
  }
  if ((moved && fresh) || far) {
    const SegmentWork::Judged judged = work.judge(lane, end, began, left, true);
    open = far || !(judged.residual <= left);
    if (!open) work.note(judged.residual);
    leans = !open && judged.leans;
  }
  if (pass == LanePass::Look) return open;
  // Who leans on others is looked at again, as if it had run.
  if (pass == LanePass::Decide)
    work.run.off[own] = open;
  else if (open || leans || round == 0)
    work.run.off[own] = open || leans ? round + 1 : 0;
  if constexpr (kHermite) {
    if (round == 0 && !work.multistarted) {
      Runs& runs = work.run.runs[own];
      const Real ended = work.at(work.run.ended, 0, own), slope = work.at(work.run.transitions, 0, own);
      CELLC_UNROLL()
      for (int r = 0; r < 3; ++r) {
        runs.start[r] = began[0];
        runs.end[r] = ended;
        runs.slope[r] = slope;
      }
    }
  }
  return open;
}

/// Counts what `ran`: segments that were run again or would be, in the first pass those that remember; and of those
/// that ran again the ones that `expand` what they start from.
template <bool kRows>
CELLC_DEVICE void carried(SegmentWork& work, LanePass pass, int round, long long tile, int burn_in, Real tolerance,
                          unsigned& ran, unsigned& expand) {
  const long long place = tile * kTile + work.thread * kWidth, own = place < work.count ? place : work.count - 1;
  const ResidualBudget may_stay = work.slack(round);
  Lane lane[kWidth];
  bool open[kWidth];
  Real left[kWidth];
  unsigned many = 0;
  resolve_own(work.lanes, place, work.count, lane);
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    const bool real = place + v < work.count && work.first_step(lane[v]) < lane[v].steps;
    open[v] = pass == LanePass::First && real;
    left[v] = work.run.tolerance;
    if (pass == LanePass::First || !real || lane[v].segment == 0) continue;
    if (work.run.ordered && pass == LanePass::Again) {
      left[v] = may_stay.least;  // the neighbour's growth changes as it runs
      open[v] = work.run.off[own + v] != 0;
    } else {
      // What is promised is the step from the neighbour's end, wherever the next run would start.
      left[v] = may_stay.at(work.growth_of(own + v - work.lanes.channels));
      open[v] = is_off(work, pass, round, lane[v], own + v, tolerance, left[v]);
    }
    many += open[v];
  }
  if (pass != LanePass::First) {
    ran += many;
    if (pass == LanePass::Look || pass == LanePass::Decide || !__any_sync(0xffffffffu, many)) return;
  }

  const long long first = work.first_step(lane[0]), last = work.last_step(lane[0]);
  const long long begin = pass != LanePass::First ? first : first > burn_in ? first - burn_in : 0;
  Real state[kWidth][StepWithTransition::kStates];
  BoundaryState rows(work.lanes, lane, begin, last);
  bool runs = kRows;
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    runs = runs || open[v];
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e)
      state[v][e] = !open[v]                  ? Real(0)
                    : pass == LanePass::First ? start_of(work.lanes, lane[v], e)
                                              : work.at(work.run.starts, e, own + v);
    if (pass == LanePass::Again && open[v]) rows.look_ahead(v, begin);
  }
  begin_transitions<StepWithTransition>(state);
  bool writes[kWidth] = {};
  walk<StepWithTransition, kRows, false, kTogether<StepWithTransition>>(
      work.lanes, lane, begin, runs ? last : begin, state, work.memory, [](const auto&) {},
      [&](long long t, auto& now) {
        if (t == first) {
          begin_transitions<StepWithTransition>(now);
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) {
            writes[v] = open[v];
            CELLC_UNROLL()
            for (int e = 0; e < Step::kStates; ++e)
              if (open[v]) work.at(work.run.began, e, own + v) = now[v][e];
          }
        }
        return any_of<kRows>(open);
      },
      [&](long long t, const auto& now, bool first_of_stage) {
        CELLC_UNROLL()
        for (int v = 0; v < kWidth; ++v) {
          if (first_of_stage && pass == LanePass::Again && open[v] && merges(work, rows, v, now[v], t, left[v], false))
            open[v] = writes[v] = false;
          rows.write(v, now[v], writes[v]);
        }
      });
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    if (!open[v]) continue;
    work.keep_end(own, lane[v], v, state[v]);
    const Real growth = work.keep_transitions<StepWithTransition>(own, v, state[v]);
    if (pass == LanePass::First) ran += !(growth <= work.remembers());
    expand += !(growth <= Real(1));
  }
}

/// One pass over all tiles with transitions, counted as carried() says.
template <bool kRows>
CELLC_DEVICE unsigned all_tiles(SegmentWork& work, LanePass pass, int round, int burn_in, Real tolerance,
                                unsigned& expand) {
  unsigned ran = 0;
  for (long long tile = work.warp; tile * kTile < work.count; tile += work.warps)
    carried<kRows>(work, pass, round, tile, burn_in, tolerance, ran, expand);
  work.report();
  return ran;
}

}  // namespace cellc
