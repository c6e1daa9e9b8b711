// What rounds do not settle, in segmented.cuh: boundaries that are off are marked, and chains are walked from there.
//
// Needs segment_runs.cuh.
#pragma once

namespace cellc {

/// Which boundaries are off: marked for the tail, or, after the last round (`notes`), written down where nothing is
/// repaired. How many of this thread.
CELLC_DEVICE unsigned mark_off_in(SegmentWork& work, long long tile, bool notes) {
  unsigned many = 0;
  CELLC_UNROLL(1)
  for (int v = 0; v < kWidth; ++v) {
    const long long own = tile * kTile + work.thread * kWidth + v;
    if (own >= work.count) break;
    const Lane lane = resolve(work.lanes, own);
    work.run.off[own] = 0;
    if (lane.segment == 0 || work.first_step(lane) >= lane.steps) continue;
    Real from[Step::kStates], to[Step::kStates];
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      from[e] = work.at(work.run.ended, e, own - work.lanes.channels);
      to[e] = work.at(work.run.began, e, own);
    }
    // Earlier segments may be walked in part; of those of one step all that follows is.
    const bool all = !work.run.repairs || work.lanes.segment == 1;
    const Real r = work.judge(lane, from, to, work.run.tolerance, all).residual;
    if (r <= work.run.tolerance) continue;
    work.run.off[own] = 1;
    ++many;
    if (work.run.repairs || !notes) continue;
    atomicMin(work.run.first_bad + lane.sequence, static_cast<unsigned long long>(work.first_step(lane)));
    atomicMax(work.run.residual + lane.sequence, __float_as_uint(static_cast<float>(r)));
  }
  return many;
}
/// Of all tiles. Called from two places, and compiled once.
CELLC_APART unsigned mark_off(SegmentWork& work, long long tiles, bool notes) {
  unsigned many = 0;
  for (long long tile = work.warp; tile < tiles; tile += work.warps) many += mark_off_in(work, tile, notes);
  return many;
}

/// The first segment from `s` on that is marked in a chain of this tile.
CELLC_DEVICE int next_marked(const SegmentWork& work, long long tile, int s) {
  const long long chains = work.lanes.sequences * work.lanes.channels;
  for (; s < work.lanes.segments; s += kBatch) {
    unsigned marks = 0;  // bit i: of segment s + i
    CELLC_UNROLL(1)
    for (int v = 0; v < kWidth; ++v) {
      const long long chain = tile * kTile + work.thread * kWidth + v;
      if (chain >= chains) break;
      const unsigned* from = work.run.off + (chain_lane(work.lanes, chain) + s * work.lanes.channels);
      // Without branches, so that all of them are under way at once; past the end the last is read again.
      CELLC_UNROLL()
      for (int i = 0; i < kBatch; ++i) {
        marks |= *from ? 1u << i : 0u;
        from += s + i + 1 < work.lanes.segments ? work.lanes.channels : 0;
      }
    }
    if (work.lanes.segments - s < kBatch) marks &= (1u << (work.lanes.segments - s)) - 1;
    const unsigned from_first = warp_max(marks ? kBatch + 1 - __ffs(static_cast<int>(marks)) : 0);
    if (from_first) return s + kBatch - static_cast<int>(from_first);
  }
  return s;
}

/// The chains of a tile from segment `from` on, where they are marked: each from its neighbour's end until it merges
/// with what stands. Returns the segment that comes next, and counts those that `ran`.
template <bool kRows>
CELLC_DEVICE int walk_on(SegmentWork& work, long long tile, int from, unsigned& ran) {
  const long long place = tile * kTile + work.thread * kWidth, chains = work.lanes.sequences * work.lanes.channels;
  const auto lane_of = [&](int v) {
    return chain_lane(work.lanes, place + v < chains ? place + v : chains - 1) + from * work.lanes.channels;
  };
  const long long own = lane_of(0);
  Lane lane[kWidth];
  // Walks: to the end of its sequence, open or not. Threads without a chain go along with the last one and write
  // nothing: steps are unrolled where all of a warp make them.
  bool open[kWidth] = {}, walks[kWidth];
  bool runs = kRows;
  unsigned chains_here = 0;  // of this thread, that walk
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    lane[v] = resolve(work.lanes, lane_of(v));
    walks[v] = work.first_step(lane[v]) < lane[v].steps;
    runs = runs || walks[v];
    chains_here += walks[v] && place + v < chains;
  }
  const long long begin = work.first_step(lane[0]), last = lane[0].steps;
  BoundaryState rows(work.lanes, lane, begin, last);
  Real state[kWidth][Step::kStates] = {};
  // The segment that begins here or later. Where all of a thread's chains are open it does not ask where segments
  // begin: that took a fifth of the time of a cell of three operations.
  int next = from;
  bool all_open = false;
  const auto pass = [&](long long t) {
    for (; next < work.lanes.segments && next * work.lanes.segment < t; ++next) ran += chains_here;
  };
  walk<Step, kRows, false, kTogether<Step>>(
      work.lanes, lane, begin, runs ? last : begin, state, work.memory, [](const auto&) {},
      [&](long long t, auto& now) {
        if (!all_open) {
          // The segments that begin in this stage: one, at its first step, or one a step. All that began before have
          // been passed, and the last of them ended where the stage begins.
          const int ended = next - 1;
          for (; next < work.lanes.segments && next * work.lanes.segment < t + kSteps; ++next) {
            CELLC_UNROLL()
            for (int v = 0; v < kWidth; ++v) {
              const long long here = own + v + (next - from) * work.lanes.channels;
              if (walks[v] && !open[v] && place + v < chains && work.run.off[here]) {
                open[v] = true;
                CELLC_UNROLL()
                for (int e = 0; e < Step::kStates; ++e)
                  now[v][e] = work.at(work.run.ended, e, own + v + (ended - from) * work.lanes.channels);
                if (!work.hopeless) rows.look_ahead(v, t);
              }
              ran += open[v];
            }
          }
          unsigned opened = 0;
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) opened += open[v];
          all_open = opened == chains_here;
        }
        return any_of<kRows>(kRows ? open : walks);
      },
      [&](long long t, const auto& now, bool first_of_stage) {
        CELLC_UNROLL()
        for (int v = 0; v < kWidth; ++v) {
          // What merges here is not looked at again: where segments do not forget, all of it stays.
          if (first_of_stage && open[v] && !work.hopeless &&
              merges(work, rows, v, now[v], t, work.run.tolerance / 8, true)) {
            open[v] = false;
            if (all_open) pass(t + kSteps);  // those of this stage were passed when it was open
            all_open = false;
          }
          rows.write(v, now[v], open[v]);
        }
      });
  if (all_open) pass(last);
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e)
      if (open[v]) finish(work.lanes, lane[v], e, state[v][e]);
  }
  return kRows ? static_cast<int>(warp_max(static_cast<unsigned>(next))) : work.lanes.segments;
}

/// Along all chains: from the first boundary that is off to the end of the sequence, or until all lanes of a tile
/// have merged with what stands; a lane whose boundary is off joins where that is. So it ends in the right answer
/// whatever the data, in little more than the time of walking.
template <bool kRows>
CELLC_DEVICE unsigned walk_chains(SegmentWork& work) {
  unsigned ran = 0;
  for (long long tile = work.warp; tile * kTile < work.lanes.sequences * work.lanes.channels; tile += work.warps)
    for (int s = 1; (s = next_marked(work, tile, s)) < work.lanes.segments;) s = walk_on<kRows>(work, tile, s, ran);
  work.report();
  if (work.thread == 0) atomicMax(&work.of->ended, nanoseconds());
  return ran;
}

}  // namespace cellc
