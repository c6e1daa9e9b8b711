// The first sweep of segmented.cuh over the segments of one warp, and its check.
//
// Needs segment_work.cuh.
#pragma once

namespace cellc {

/// To the left neighbour, who asks for it when it ends.
CELLC_DEVICE void send_start(const SegmentWork& work, long long lane, const Real* state) {
  CELLC_UNROLL()
  for (int e = 0; e < Step::kStates; ++e)
    publish(work.run.sent + e * kHalves * work.count + lane, work.count, work.call, state[e]);
}

CELLC_DEVICE bool has_start(const SegmentWork& work, long long lane, Real* state) {
  bool there = true;
  CELLC_UNROLL()
  for (int e = 0; e < Step::kStates; ++e)
    there = look_at(work.run.sent + e * kHalves * work.count + lane, work.count, work.call, state[e]) && there;
  return there;
}

/// How many times the plan's burn-in would have been enough, as a place in need(); kNeeds: more than all. A
/// start that is off by m after w steps would have been right after w log(tolerance) / log(m).
CELLC_DEVICE int classify(const Segmented& run, const Real* from, const Real* to, const Real* size, int burn_in) {
  const Real left = residual_of(from, to, size);
  if (!(left < Real(0.9))) return kNeeds;
  const float times = static_cast<float>(burn_in) * __log2f(static_cast<float>(run.tolerance) * 0.25f) /
                      (static_cast<float>(run.burn_in) * __log2f(static_cast<float>(left)));
  int place = 0;
  while (place < kNeeds && !(times <= need(place))) ++place;
  return place;
}

/// `beyond`: of the steps after the thread's lanes.
CELLC_DEVICE unsigned check(SegmentWork& work, long long own, const Lane (&lane)[kWidth], bool checks,
                            const Real (&ended)[kWidth][Step::kStates], const Probe (&beyond)[kWidth], int burn_in,
                            bool composed) {
  unsigned missed = 0;
  SpinLimit patience;
  Real began[kWidth][Step::kStates] = {};
  bool there[kWidth] = {};
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v)
    if (checks) there[v] = has_start(work, own + v + work.lanes.channels, began[v]);
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    int need = -1;
    if (checks) {
      while (!there[v] && !patience.is_over(&work.run.control->grid))
        there[v] = has_start(work, own + v + work.lanes.channels, began[v]);
      Real reached[Step::kStates], made[Step::kStates], size[Step::kStates];
      beyond[v].step(work.lanes, began[v], reached);
      beyond[v].step(work.lanes, ended[v], made);
      const Real left = !composed ? work.run.tolerance : work.slack(2).at(work.growth_of(own + v));
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e)
        size[e] = larger(work.size_of(e, ended[v][e]), work.size_of(e, reached[e]));
      Real r = residual_of(made, reached, size);
      // Beside these rows it is too large, as where a state passes zero. Beside others of the sequence it may be small:
      // of this segment, and of those before as the composition knows them. Others may not have been written yet. If
      // any boundary is off, all are looked at again.
      if (!(r <= left)) {
        CELLC_UNROLL()
        for (int e = 0; e < Step::kStates; ++e) {
          size[e] = larger(size[e], work.size_of_rows<false>(lane[v], e));
          if (composed)
            size[e] = larger(size[e], work.size_of(e, largest_before(lane[v].segment, [&](long long places) {
                                                     return work.at(work.run.starts, e,
                                                                    own + v + (1 - places) * work.lanes.channels);
                                                   })));
        }
        r = residual_of(made, reached, size);
      }
      if (there[v] && r <= left)
        work.note(r);
      else
        ++missed, need = !there[v] || composed || work.run.measures_slope >= 0
                             ? -1
                             : classify(work.run, ended[v], began[v], size, burn_in);
    }
    if (__any_sync(0xffffffffu, need >= 0)) {
      CELLC_UNROLL(1)
      for (int place = 0; place <= kNeeds; ++place) {
        const int many = __popc(__ballot_sync(0xffffffffu, need == place));
        if (work.thread == 0 && many) atomicAdd(&work.run.control->needed[place], static_cast<unsigned>(many));
      }
    }
  }
  return missed;
}

/// A segment begins to write long before the one on its left ends, so it is the left one that compares the two, and
/// waits for nobody. What the first step there reads is here long before. (To ask for the rest a stage before the end
/// takes longer, since it stands in the loop of the walk.) Where lanes are many, tiles wait for later ones, and a
/// warp's last comes first.
///
/// `composed`: from the composed starts, whose slopes are transitions already; otherwise burn_in steps early.
/// Returns how many lanes of this thread end elsewhere than where the next segment began. Composed starts tell
/// nothing of burn-ins.
template <bool kRows>
CELLC_DEVICE unsigned sweep(SegmentWork& work, long long tile, const Lane (&lane)[kWidth], int burn_in, bool composed) {
  const long long own = work.first_lane(tile);
  const long long first = work.first_step(lane[0]), last = work.last_step(lane[0]);
  const bool empty = own >= work.count || first >= lane[0].steps;
  const long long begin = first > burn_in ? first - burn_in : 0;
  Real state[kWidth][Step::kStates];
  Rows rows;
  // The burn-in goes over the last steps of the left neighbour, who comes to them when most of the sweep is over: they
  // stay in the second-level cache until then (3 % at (1, 8192, 1024)). The others, where that is `cyclic`, leave
  // first.
  const CachePolicy own_steps = work.run.cyclic ? goes_first() : goes_in_turn();
  CachePolicy policy = begin < first ? stays_last() : own_steps;
  bool writes = false;
  const bool checks = !empty && last < lane[0].steps;
  Probe beyond[kWidth];
  walk<Step, kRows, false, kSteps>(
      work.lanes, lane, begin, empty ? begin : last, state, work.memory,
      [&](const auto& param) {
        CELLC_UNROLL()
        for (int v = 0; v < kWidth; ++v) {
          CELLC_UNROLL()
          for (int e = 0; e < Step::kStates; ++e)
            state[v][e] = composed && !empty && lane[v].segment > 0 ? work.at(work.run.starts, e, own + v)
                                                                    : start_of(work.lanes, lane[v], e);
          CELLC_UNROLL()
          for (int e = 0; e < Step::kInvariants; ++e) beyond[v].param[e] = param[v][e];
          if (checks) beyond[v].read_inputs(work.lanes, lane[v], last);
        }
        rows.begin(work.lanes, lane[0], begin);
      },
      [&](long long t, auto& now) {
        if (t == first) {
          writes = true;
          policy = own_steps;
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) {
            CELLC_UNROLL()
            for (int e = 0; e < Step::kStates; ++e) work.at(work.run.began, e, own + v) = now[v][e];
            send_start(work, own + v, now[v]);
          }
        }
        return true;
      },
      [&](long long, const auto& now, bool) { rows.write(now, writes); }, AsSaid{policy});
  if (!empty) {
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      work.keep_end(own, lane[v], v, state[v]);
      if (!composed) work.keep_transitions<Step>(own, v, state[v]);
    }
  }
  __syncwarp();  // the next segment may be another thread's of this warp
  return check(work, own, lane, checks, state, beyond, burn_in, composed);
}

/// What rows tell of sizes, for who composes a tile's segments.
CELLC_DEVICE void keep_sizes(SegmentWork& work, long long tile) {
  CELLC_UNROLL(1)
  for (int v = 0; v < kWidth; ++v) {
    const long long own = tile * kTile + work.thread * kWidth + v;
    if (own >= work.count) break;
    const Lane lane = resolve(work.lanes, own);
    if (work.first_step(lane) < lane.steps) work.keep_size(own, lane);
  }
}

/// Segments of this thread that ended their burn-in more than twice as far from their neighbour's end as they had
/// begun it from what stands there: whatever they start from grows. By a model on the CPU: of the logistic map and of
/// Lorenz' equations 29 % and more, since differences are as large as they can be before and after; of slow and stiff
/// data at most 12 %, near the beginning of short sequences, where states have not gone far from where runs start.
CELLC_DEVICE unsigned grown_apart(const SegmentWork& work, long long tile, int burn_in) {
  unsigned many = 0;
  CELLC_UNROLL(1)
  for (int v = 0; v < kWidth; ++v) {
    const long long own = tile * kTile + work.thread * kWidth + v;
    if (own >= work.count) break;
    const Lane lane = resolve(work.lanes, own);
    const long long first = work.first_step(lane);
    if (first <= burn_in || first >= lane.steps) continue;
    Real then = 0, now = 0;
    Lane before_it = lane;
    --before_it.segment;
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      const ArrayView& array = work.lanes.array[Step::state_array(e)];
      const Real stood = load(static_cast<const Stored*>(array.data) + place(array, lane, first - burn_in - 1) +
                              work.lanes.step.state[e]);
      const Real end = work.at(work.run.ended, e, own - work.lanes.channels);
      const Real size = larger(larger(work.size_of(e, end), work.size_of(e, stood)), work.size_of_rows(before_it, e));
      const Real before = relative_difference(start_of(work.lanes, lane, e), stood, size);
      const Real after = relative_difference(work.at(work.run.began, e, own), end, size);
      then = before > then ? before : then;
      now = after > now ? after : now;
    }
    many += now > work.run.tolerance && !(now <= Real(2) * then);
  }
  return many;
}

}  // namespace cellc
