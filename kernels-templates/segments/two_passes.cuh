// Sums of new states over segments: lanes that are too few for the card walk parts of their sequences side by side, and
// make y[d] = sum[n](C[n]*h'[d,n]) all the same (sums.cuh).
//
// A scan composes a map for each thread's steps, and leaves every state to a kernel that adds them up: of `s6` 16
// numbers for one. Segments that begin anywhere and run again where that was wrong would make their sums twice, with
// nobody to tell which is right. So the map over a segment comes first, alone, and the segment's only walk with outs
// begins where the composed maps say:
//
//   ends    every segment but the last is walked from zero, by the step that carries its map along: no sum, no out,
//           and only the inputs that states need (C[n] of `s6` is none of them)
//   starts  the maps of a channel's segments are composed, one after another, into where each begins
//   sums    every segment is walked from there
//   check   where a segment ended is compared with where the next one began, by one step from either, and beside the
//           largest state that any segment began with so far: states that pass zero are no news
//   again   channels of which one boundary was off, as where maps have passed numbers much larger than what they
//           leave, walk their whole sequence. Mostly every warp ends at once
//
// Of the five launches two are walks, and take about 1.7 times the arithmetic of one, which as many lanes as the card
// has room for share. On an H100 in f32: `s6` of (2, 2048, 1024 x 16) 0.143 ms for 0.178 of one walk, (8, 2048, 64 x
// 16) 0.050 for 0.109 of a scan and a kernel that adds up. Composing stands apart: within the second walk every lane
// composes the maps of all segments before its own.
//
// Stages whose maps are a factor for each state have it, with sums along their innermost channels: s6, mamba2, mlstm.
// It lacks s4d, two states of which are coupled, so that composing costs more than it saves; gradients, whose sums run
// along outer channels and over all steps too; and a stage that later ones read.
//
// The first segment begins where its sequence does in either pass, so that its end needs no map.
//
// Needs sums.cuh, outer_sums.cuh, sequential.cuh, transitions.cuh and boundary.cuh.
#pragma once

namespace cellc {

struct TwoPasses {
  Lanes lanes;  ///< of whole sequences in the last kernel, else of their segments
  ScanControl* control;
  Real* ended;      ///< [state of StepWithTransition][lane]: first of a walk from zero, then of that with sums
  Real* starts;     ///< [state][lane]
  Real* sizes;      ///< [state][lane]: the largest that any segment began with so far
  unsigned* again;  ///< by channel of a sequence: whether a boundary of it was off
  Real tolerance;
  Real ground[Step::kStates];  ///< what is tolerated besides, over the tolerance: a size that every row has
};

static_assert(kSums == 0 || (kOuterSums == 0 && kAccumulated == 0 && kShiftedInputs == 0), "sums of neighbours alone");

CELLC_DEVICE long long lanes_of_segments(const Lanes& lanes) {
  return static_cast<long long>(lanes.sequences) * lanes.segments * lanes.channels;
}
CELLC_DEVICE long long first_step(const Lanes& lanes, const Lane& lane, int segment) {
  const long long at = segment * lanes.segment;
  return at < lane.steps ? at : lane.steps;
}

/// The lanes of a thread, and the steps of their segment.
struct SegmentLanes {
  long long own, count;
  Lane lane[kWidth];
  long long begin, end;
  bool real;

  CELLC_DEVICE explicit SegmentLanes(const Lanes& lanes) {
    const int warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    count = lanes_of_segments(lanes);
    own = (static_cast<long long>(blockIdx.x) * warps + warp) * kTile + threadIdx.x % kWarp * kWidth;
    real = own < count;
    resolve_own(lanes, own, count, lane);
    begin = first_step(lanes, lane[0], lane[0].segment);
    end = first_step(lanes, lane[0], lane[0].segment + 1);
  }
};

template <bool kRows>
CELLC_DEVICE void segment_ends(const TwoPasses& run) {
  CELLC_DYNAMIC_SHARED(Stored, shared);
  const Lanes& lanes = run.lanes;
  Stored* const memory = shared + threadIdx.x / kWarp * kStageEntries<StepWithTransition>;
  if (blockIdx.x == 0 && threadIdx.x == 0) ++run.control->calls;
  const SegmentLanes here(lanes);
  const bool first = here.lane[0].segment == 0, runs = here.real && here.end < here.lane[0].steps;
  Real state[kWidth][StepWithTransition::kStates];
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) state[v][e] = first ? start_of(lanes, here.lane[v], e) : Real(0);
    Transitions::identity(&state[v][kCarried]);
  }
  if (!__any_sync(0xffffffffu, runs)) return;
  walk<StepWithTransition, kRows, false, kSteps>(
      lanes, here.lane, here.begin, runs ? here.end : here.begin, state, memory, Ready(),
      [](long long, const auto&) { return true; }, [](long long, const auto&, bool) {});
  if (!runs) return;
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    CELLC_UNROLL()
    for (int e = 0; e < StepWithTransition::kStates; ++e) run.ended[e * here.count + here.own + v] = state[v][e];
  }
}

/// A channel of a sequence a thread. The maps of many segments are on their way at once: one after the other, those of
/// 128 took as long as a walk.
CELLC_DEVICE void compose_starts(const TwoPasses& run) {
  constexpr int kNumbers = StepWithTransition::kStates, kAtOnce = kNumbers <= 2 ? 16 : 4;
  const Lanes& lanes = run.lanes;
  const long long chain = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (chain >= lanes.sequences * lanes.channels) return;
  const long long sequence = quotient(chain, lanes.channels), count = lanes_of_segments(lanes),
                  first = chain + sequence * (lanes.segments - 1) * lanes.channels;
  const Lane lane = resolve_here(lanes, first);
  run.again[chain] = 0;
  Real state[Step::kStates], size[kCarried];
  CELLC_UNROLL()
  for (int e = 0; e < kCarried; ++e) {
    state[e] = start_of(lanes, lane, e);
    size[e] = 0;
  }
  const auto begin = [&](int segment) {
    const long long at = first + segment * lanes.channels;
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) {
      size[e] = larger(size[e], finite_size(state[e]));
      run.starts[e * count + at] = state[e];
      run.sizes[e * count + at] = size[e];
    }
  };
  begin(0);
  const int segments = static_cast<int>((lane.steps + lanes.segment - 1) / lanes.segment);
  CELLC_UNROLL(1)
  for (int s = 0; s + 1 < segments; s += kAtOnce) {
    Real number[kAtOnce][kNumbers];
    CELLC_UNROLL()
    for (int k = 0; k < kAtOnce; ++k) {
      const long long at = first + (s + k + 1 < segments ? s + k : s) * lanes.channels;
      CELLC_UNROLL()
      for (int e = 0; e < kNumbers; ++e) number[k][e] = run.ended[e * count + at];
    }
    CELLC_UNROLL()
    for (int k = 0; k < kAtOnce; ++k) {
      if (s + k + 1 >= segments) continue;
      Transitions::Map map;
      map.from(number[k], number[k] + kCarried);
      if (s + k > 0) map.move(state);
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) state[e] = s + k > 0 ? state[e] : number[k][e];
      begin(s + k + 1);
    }
  }
}

template <bool kRows, int kSumLanes>
CELLC_DEVICE void segment_sums(const TwoPasses& run) {
  CELLC_DYNAMIC_SHARED(Stored, shared);
  const Lanes& lanes = run.lanes;
  Stored* const memory = shared + threadIdx.x / kWarp * kStageEntries<Step>;
  const SegmentLanes here(lanes);
  // A sequence without steps ends where it starts.
  const bool runs = here.real && here.begin < here.end, begins = runs || (here.real && here.lane[0].segment == 0);
  Real state[kWidth][Step::kStates] = {};
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e)
      if (begins) state[v][e] = run.starts[e * here.count + here.own + v];
  }
  Rows rows;
  rows.begin(lanes, here.lane[0], here.begin);
  Accumulators<kWidth> none;
  Sums<kSumLanes> sums;
  sums.begin(lanes, here.lane[0], here.begin);
  OuterSums<kWidth> outer(lanes, here.lane[0], nullptr);
  RowsAndSums<kSumLanes, kWidth> both{rows, none, sums, outer};
  walk<Step, kRows, false, kSteps>(
      lanes, here.lane, here.begin, runs ? here.end : here.begin, state, memory, Ready(),
      [](long long, const auto&) { return true; }, both);
  if (!begins) return;
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) {
      if (here.end == here.lane[0].steps)
        finish(lanes, here.lane[v], e, state[v][e]);
      else
        run.ended[e * here.count + here.own + v] = state[v][e];
    }
  }
}

/// A channel of a segment a thread: whether the next one began where it has ended.
CELLC_DEVICE void check_boundaries(const TwoPasses& run) {
  const Lanes& lanes = run.lanes;
  const long long own = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x, count = lanes_of_segments(lanes);
  if (own >= count) return;
  const Lane lane = resolve_here(lanes, own);
  const long long end = first_step(lanes, lane, lane.segment + 1);
  if (end == lane.steps) return;
  Real began[Step::kStates] = {}, ended[Step::kStates] = {}, size[Step::kStates] = {};
  CELLC_UNROLL()
  for (int e = 0; e < kCarried; ++e) {
    began[e] = run.starts[e * count + own + lanes.channels];
    size[e] = run.sizes[e * count + own + lanes.channels];
    ended[e] = run.ended[e * count + own];
  }
  if (!begins_where(lanes, lane, end, began, ended, run.tolerance, size, run.ground))
    run.again[lane.sequence * lanes.channels + lane.channel_index] = 1;
}

template <bool kRows, int kSumLanes>
CELLC_DEVICE void walk_again(const TwoPasses& run) {
  const Lanes& lanes = run.lanes;
  const int warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const long long count = static_cast<long long>(lanes.sequences) * lanes.channels;
  const long long own = (static_cast<long long>(blockIdx.x) * warps + warp) * kTile + threadIdx.x % kWarp * kWidth;
  unsigned marked = 0;
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) marked += own + v < count ? run.again[own + v] : 0u;
  if (!__any_sync(0xffffffffu, marked > 0)) return;
  if (marked > 0) atomicAdd(&run.control->repaired, marked);
  sequential<kRows, false, kSumLanes>(lanes);
}

}  // namespace cellc
