// Segments of time that start early from a cold state, because a contractive cell forgets; what does
// not forget is found at the boundaries and mended on the device, in one launch.
//
//   sweep    each segment starts `burn_in` steps early, then writes; at its end the left neighbour's end
//            is compared with what the segment started from, by one step of either
//   compose  where boundaries missed: new starts by the affine recurrence over the segments of a chain
//            (a channel of a sequence), start(s) = end(s-1) + P(s-1) (start(s-1) - old start(s-1)).
//            P is the product of the Jacobians over a segment where it was carried along (multiple
//            shooting with Newton), else 0 (the left neighbour's end as it is); from the second round on
//            the map over a segment is not its tangent, but a cubic (bends.cuh)
//   repair   segments whose first step is off are run again from there, until what they would write is
//            what stands there; compose again
//   tail     what rounds do not settle is walked along its chain, through segment after segment, until it merges
//
// Every step is made by the step code or checked against it, so a result is exact to the tolerance.
// All blocks are resident (a cooperative launch), and nothing returns to the host to decide.
//
// Needs compose.cuh.
#pragma once

namespace cellc {

template <bool kRows>
struct SegmentedRun {
  const Segmented& run;
  const Lanes& lanes;
  Stored* memory;
  long long count;       // of lanes
  int thread, warp, warps;
  unsigned call;
  Tally* of;             // this call's
  /// What this thread has seen since it last reported: many threads' atomics on one word would be waited for.
  struct Seen {
    Real residual = 0, growth = 0;
  } seen;
  Real remembers;        // a lane whose P over a segment is larger would need a longer run-up than the longest

  CELLC_DEVICE SegmentedRun(const Segmented& run, Stored* shared, unsigned call)
      : run(run), lanes(run.lanes), count(lanes.sequences * static_cast<long long>(lanes.segments) * lanes.channels),
        thread(threadIdx.x % kWarp), call(call), of(run.control->of + (call & 1)) {
    const int in_block = threadIdx.x / kWarp, per_block = blockDim.x / kWarp;
    memory = shared + in_block * kStageEntries<Carried>;
    warp = blockIdx.x * per_block + in_block;
    warps = gridDim.x * per_block;
    remembers = 0;
  }

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

  // The first sweep ----------------------------------------------------------------------------------

  /// To the right neighbour, who waits for it.
  CELLC_DEVICE void send_end(long long lane, const Real* state) const {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) publish(run.sent + e * kHalves * count + lane, count, call, state[e]);
  }

  CELLC_DEVICE void sweep(long long tile, int burn_in) {
    const long long own = tile * kTile + thread * kWidth;
    Lane lane[kWidth];
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) lane[v] = resolve(lanes, own + v < count ? own + v : count - 1);
    const long long first = first_step(lane[0]), last = last_step(lane[0]);
    const bool empty = own >= count || first >= lane[0].steps;
    const long long begin = first > burn_in ? first - burn_in : 0;
    Real state[kWidth][Step::kStates];
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) state[v][e] = start_of(lanes, lane[v], e);
    }
    Rows rows(lanes, lane[0], begin);
    bool writes = false;
    walk<Step, kRows, false>(
        lanes, lane, begin, empty ? begin : last, state, memory,
        [&](long long t, auto& now) {
          if (t == first) {
            writes = true;
            CELLC_UNROLL()
            for (int v = 0; v < kWidth; ++v) {
              CELLC_UNROLL()
              for (int e = 0; e < Step::kStates; ++e) at(run.began, e, own + v) = now[v][e];
            }
          }
          return true;
        },
        [&](long long, const auto& now, bool) { rows.write(now, writes); });
    if (empty) return;
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      send_end(own + v, state[v]);
      keep_end(own, lane[v], v, state[v]);
      keep_carriers<Step>(own, v, state[v]);
    }
  }

  template <class Cell>
  static CELLC_DEVICE void identity(Real (&state)[kWidth][Cell::kStates]) {
    if constexpr (Cell::kStates > Step::kStates) {
      CELLC_UNROLL()
      for (int v = 0; v < kWidth; ++v) Carriers::identity(&state[v][Step::kStates]);
    }
  }
  /// By how much the segment has grown a difference; 0 where nobody can tell.
  template <class Cell>
  CELLC_DEVICE Real keep_carriers(long long own, int v, const Real* state) {
    Real carrier[kCarriers ? kCarriers : 1], growth = 0;
    if constexpr (Cell::kStates > Step::kStates) {
      CELLC_UNROLL()
      for (int c = 0; c < kCarriers; ++c) carrier[c] = state[Step::kStates + c];
      growth = Carriers::growth(carrier);
      if (is_finite(growth) && growth > seen.growth) seen.growth = growth;
    } else {
      Carriers::forget(carrier, state);
    }
    CELLC_UNROLL()
    for (int c = 0; c < kCarriers; ++c) at(run.carriers, c, own + v) = carrier[c];
    return growth;
  }

  /// Once the left neighbours have ended: how many lanes of this thread miss.
  CELLC_DEVICE unsigned check(long long tile, int burn_in) {
    unsigned missed = 0;
    __syncwarp();  // a neighbour may be a thread of this warp
    CELLC_UNROLL(1)
    for (int v = 0; v < kWidth; ++v) {
      const long long own = tile * kTile + thread * kWidth + v;
      const Lane lane = resolve(lanes, own < count ? own : count - 1);
      const bool checks = own < count && lane.segment > 0 && first_step(lane) < lane.steps;
      // Everything but the neighbour's end is here before it is waited for.
      const Probe probe(lanes, lane, first_step(lane), checks);
      Real from[Step::kStates], to[Step::kStates], reached[Step::kStates];
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) to[e] = checks ? at(run.began, e, own) : Real(0);
      probe.step(to, reached);
      int need = -1;
      if (checks) {
        CELLC_UNROLL()
        for (int e = 0; e < Step::kStates; ++e)
          while (!look_at(run.sent + e * kHalves * count + own - lanes.channels, count, call, from[e])) {
          }
        const Real r = probe.residual(from, reached);
        if (r <= run.tolerance) note(r);
        else ++missed, need = classify(from, to, burn_in);
      }
      if (__any_sync(0xffffffffu, need >= 0)) {
        CELLC_UNROLL(1)
        for (int place = 0; place <= kNeeds; ++place) {
          const int many = __popc(__ballot_sync(0xffffffffu, need == place));
          if (thread == 0 && many) atomicAdd(&run.control->needed[place], static_cast<unsigned>(many));
        }
      }
    }
    return missed;
  }
  /// Of a step that stays as it is.
  CELLC_DEVICE void note(Real residual) { seen.residual = residual > seen.residual ? residual : seen.residual; }

  /// How many times the plan's run-up would have been enough, as a place in need(); kNeeds: more than all. A
  /// start that is off by m after w steps would have been right after w log(tolerance) / log(m).
  CELLC_DEVICE int classify(const Real* from, const Real* to, int burn_in) const {
    Real left = 0;
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) {
      const Real d = relative_difference(from[e], to[e]);
      left = d > left ? d : left;
    }
    if (!(left < Real(0.9))) return kNeeds;
    const float times = static_cast<float>(burn_in) * __log2f(static_cast<float>(run.tolerance) * 0.25f) /
                        (static_cast<float>(run.burn_in) * __log2f(static_cast<float>(left)));
    int place = 0;
    while (place < kNeeds && !(times <= need(place))) ++place;
    return place;
  }

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

  // With carriers --------------------------------------------------------------------------------------

  /// What one warp runs with carriers. One piece of code serves all three: what is not there is neither
  /// compiled nor fetched.
  enum Pass {
    First,  ///< the first sweep, where the last call's data did not forget
    Again,  ///< segments whose start is off, from their new start until they merge with what stands there
    Tail,   ///< chains from segment `at_segment` on, where they are marked: from the neighbour's end until they merge
  };

  /// `ran` counts the segments that were run again, in the first pass those that remember. Returns, after the
  /// tail, the segment that comes next.
  CELLC_DEVICE int carried(Pass pass, int round, long long tile, int at_segment, int burn_in, Real tolerance, unsigned& ran) {
    const long long place = tile * kTile + thread * kWidth, all = pass == Tail ? lanes.sequences * lanes.channels : count;
    // Where every step is a boundary, what each may leave adds up. In the first rounds most warps run anyway: what
    // they mend now is not left for a round in which few would run.
    const Real left = pass == Again && (lanes.segment == 1 || round < 2) ? run.tolerance / 8 : run.tolerance;
    const auto lane_of = [&](int v) {
      const long long at_most = place + v < all ? place + v : all - 1;
      return pass == Tail ? chain_lane(lanes, at_most) + at_segment * lanes.channels : at_most;
    };
    const long long own = lane_of(0);
    Lane lane[kWidth];
    bool open[kWidth], walks[kWidth];   // walks: to the end of its sequence, open or not
    unsigned many = 0;
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      lane[v] = resolve(lanes, lane_of(v));
      const bool real = place + v < all && first_step(lane[v]) < lane[v].steps;
      walks[v] = pass == Tail && real;
      open[v] = pass == First && real;
      if (pass != Again || !real || lane[v].segment == 0) continue;
      // What is promised is the step from the neighbour's end, wherever the next run would start.
      Real end[Step::kStates], began[Step::kStates];
      // What has been checked need not be checked again where the neighbour still ends as it did.
      const bool fresh = round == 0 || run.off[own + v - lanes.channels] == static_cast<unsigned>(round);
      bool moved = false, far = false;
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        end[e] = at(run.ended, e, own + v - lanes.channels);
        began[e] = at(run.began, e, own + v);
        moved = moved || !(end[e] == began[e]);
        far = far || !are_near(at(run.starts, e, own + v), began[e], tolerance < left ? tolerance : left);
      }
      if ((moved && fresh) || far) {
        const Real r = step_residual(lanes, lane[v], first_step(lane[v]), end, began);
        open[v] = far || !(r <= left);
        if (!open[v]) note(r);
      }
      many += open[v];
      if (round == 0) run.off[own + v] = 0;
      if constexpr (kBends) {
        if (open[v] || round == 0) {
          at(run.before, 0, own + v) = began[0];
          at(run.before, 1, own + v) = at(run.ended, 0, own + v);
          at(run.before, 2, own + v) = at(run.carriers, 0, own + v);
        }
      }
    }
    if (pass == Again) {
      if (!__any_sync(0xffffffffu, many)) return 0;
      ran += many;
    }

    const long long first = first_step(lane[0]), last = pass == Tail ? lane[0].steps : last_step(lane[0]);
    const long long begin = pass != First ? first : first > burn_in ? first - burn_in : 0;
    Real state[kWidth][Carried::kStates];
    Stored* row[kWidth][Step::kStates];
    long long stride[Step::kStates];
    // What stands at the first step of this stage and of those that come: memory takes longer than a stage.
    constexpr int kSight = 3;
    Real stands[kWidth][Step::kStates][kSight];
    bool runs = kRows;
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      runs = runs || open[v] || walks[v];
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        const ArrayView& array = lanes.array[Step::state_array(e)];
        stride[e] = lane[0].direction * array.row;
        row[v][e] = static_cast<Stored*>(array.data) + cellc::place(lanes, array, lane[v], begin) + lanes.step.state[e];
        CELLC_UNROLL()
        for (int i = 0; i < kSight; ++i) stands[v][e][i] = 0;
        state[v][e] = 0;
        if (!open[v]) continue;
        state[v][e] = pass == First ? start_of(lanes, lane[v], e) : at(run.starts, e, own + v);
      }
    }
    const auto look_ahead = [&](int v, long long t) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        CELLC_UNROLL()
        for (int i = 0; i < kSight; ++i)
          if (t + i * kSteps < last) stands[v][e][i] = load(row[v][e] + i * kSteps * stride[e]);
      }
    };
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v)
      if (pass == Again && open[v]) look_ahead(v, begin);
    identity<Carried>(state);
    int next = at_segment;   // of the tail: the segment that begins here or later
    // Rows are compared one step a stage: where what would be written agrees with what stands there, the
    // step's residual is their difference, and all that follows may stay. Rounded rows do not tell a
    // residual (bf16 keeps 8 bits): there a segment is run to its end. And nothing follows a segment of one
    // step, where every such difference would be left in the result and add up.
    const bool merges = !kNarrow && pass != First && lanes.segment > 1;
    bool writes[kWidth] = {};
    walk<Carried, kRows, false>(
        lanes, lane, begin, runs ? last : begin, state, memory,
        [&](long long t, auto& now) {
          if (pass != Tail && t == first) {
            identity<Carried>(now);
            CELLC_UNROLL()
            for (int v = 0; v < kWidth; ++v) {
              writes[v] = open[v];
              CELLC_UNROLL()
              for (int e = 0; e < Step::kStates; ++e)
                if (open[v]) at(run.began, e, own + v) = now[v][e];
            }
          }
          // The segments that begin in this stage: one, or one a step.
          for (; pass == Tail && next < lanes.segments && next * lanes.segment < t + kSteps; ++next) {
            CELLC_UNROLL()
            for (int v = 0; v < kWidth; ++v) {
              const long long here = own + v + (next - at_segment) * lanes.channels;
              if (walks[v] && !open[v] && run.off[here]) {
                open[v] = writes[v] = true;
                CELLC_UNROLL()
                for (int e = 0; e < Step::kStates; ++e) now[v][e] = at(run.ended, e, here - (next - t / lanes.segment + 1) * lanes.channels);
                look_ahead(v, t);
              }
              ran += open[v];
            }
          }
          bool any = false;
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) any = any || open[v] || (!kRows && walks[v]);
          return static_cast<bool>(kRows ? __any_sync(0xffffffffu, any) : any);
        },
        [&](long long t, const auto& now, bool first_of_stage) {
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) {
            if (first_of_stage && merges && open[v]) {
              Real far = 0;
              CELLC_UNROLL()
              for (int e = 0; e < Step::kStates; ++e) {
                const Real d = relative_difference(now[v][e], stands[v][e][0]);
                far = d > far ? d : far;
              }
              if (far <= run.tolerance) {
                open[v] = writes[v] = false;
                note(far);
              } else {
                const bool more = t + kSight * kSteps < last;
                CELLC_UNROLL()
                for (int e = 0; e < Step::kStates; ++e) {
                  CELLC_UNROLL()
                  for (int i = 0; i + 1 < kSight; ++i) stands[v][e][i] = stands[v][e][i + 1];
                  if (more) stands[v][e][kSight - 1] = load(row[v][e] + kSight * kSteps * stride[e]);
                }
              }
            }
            CELLC_UNROLL()
            for (int e = 0; e < Step::kStates; ++e) {
              if (writes[v]) store(row[v][e], now[v][e]);
              row[v][e] += stride[e];
            }
          }
        });
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      if (!open[v]) continue;
      if (pass == Tail) {
        CELLC_UNROLL()
        for (int e = 0; e < Step::kStates; ++e) finish(lanes, lane[v], e, state[v][e]);
        continue;
      }
      if (pass == First) send_end(own + v, state[v]);
      keep_end(own, lane[v], v, state[v]);
      const Real growth = keep_carriers<Carried>(own, v, state[v]);
      if (pass == First) ran += !(growth <= remembers);
      if (pass == Again) run.off[own + v] = round + 1;
    }
    return kRows ? next : lanes.segments;
  }

  // What rounds do not settle ------------------------------------------------------------------------------

  /// Which boundaries are off: marked for the tail, or written down where nothing is repaired.
  CELLC_DEVICE void look(long long tile) {
    CELLC_UNROLL(1)
    for (int v = 0; v < kWidth; ++v) {
      const long long own = tile * kTile + thread * kWidth + v;
      if (own >= count) return;
      const Lane lane = resolve(lanes, own);
      run.off[own] = 0;
      if (lane.segment == 0 || first_step(lane) >= lane.steps) continue;
      Real from[Step::kStates], to[Step::kStates];
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        from[e] = at(run.ended, e, own - lanes.channels);
        to[e] = at(run.began, e, own);
      }
      const Real r = step_residual(lanes, lane, first_step(lane), from, to);
      if (r <= run.tolerance) continue;
      run.off[own] = 1;
      if (run.repairs) continue;
      atomicMin(run.first_bad + lane.sequence, static_cast<unsigned long long>(first_step(lane)));
      atomicMax(run.residual + lane.sequence, __float_as_uint(static_cast<float>(r)));
    }
  }

  /// The first segment from `s` on that is marked in a chain of this tile.
  CELLC_DEVICE int next_marked(long long tile, int s) const {
    const long long chains = lanes.sequences * lanes.channels;
    for (; s < lanes.segments; s += kBatch) {
      unsigned marks = 0;   // bit i: of segment s + i
      CELLC_UNROLL(1)
      for (int v = 0; v < kWidth; ++v) {
        const long long chain = tile * kTile + thread * kWidth + v;
        if (chain >= chains) break;
        const unsigned* const from = run.off + chain_lane(lanes, chain);
        CELLC_UNROLL()
        for (int i = 0; i < kBatch; ++i)
          if (s + i < lanes.segments && from[(s + i) * lanes.channels]) marks |= 1u << i;
      }
      CELLC_UNROLL(1)
      for (int i = 0; i < kBatch; ++i)
        if (__any_sync(0xffffffffu, marks >> i & 1u)) return s + i;
    }
    return s;
  }

  /// One pass over all tiles with carriers: how many segments of this thread forget too slowly for any run-up (the
  /// first), or ran. The tail goes along the chains of a tile: from the first boundary that is off to the end of
  /// the sequence, or until all of its lanes have merged with what stands; a lane whose boundary is off joins
  /// where that is. So it ends in the right answer whatever the data, in little more than the time of walking.
  CELLC_DEVICE unsigned all_tiles(Pass pass, int round, int burn_in, Real tolerance) {
    const long long all = pass == Tail ? lanes.sequences * lanes.channels : count;
    unsigned result = 0;
    for (long long tile = warp; tile * kTile < all; tile += warps) {
      int s = pass == Tail ? next_marked(tile, 1) : 0;
      do {
        if (pass == Tail && s >= lanes.segments) break;
        s = carried(pass, round, tile, s, burn_in, tolerance, result);
        if (pass == Tail) s = next_marked(tile, s);
      } while (pass == Tail);
    }
    report();
    return result;
  }
};

/// What this call saw decides what the next one starts from. `slower`: boundaries that no run-up of need()
/// would have made right.
CELLC_DEVICE void learn(const Segmented& run, unsigned slower, int burn_in) {
  const float boundaries = static_cast<float>(run.lanes.segments - 1) * static_cast<float>(run.lanes.sequences) *
                           static_cast<float>(run.lanes.channels);
  Control* const c = run.control;
  int next = burn_in > run.burn_in ? burn_in : run.burn_in;
  // A few steps more cost less than a single repair.
  CELLC_UNROLL(1)
  for (int place = 0; place < kNeeds; ++place) {
    const int steps = static_cast<int>(run.burn_in * need(place));
    if (c->needed[place] && steps > next) next = steps;
  }
  c->slow = slower;
  c->carries = kCarriers > 0 && static_cast<float>(slower) > 0.001f * boundaries;
  // Where most warps will run again for the slow, the others are mended with them. Without P a short run-up
  // would not tell the slow from the others the next time.
  if (kCarriers > 0 && static_cast<float>(slower) > 0.02f * boundaries) next = kSteps;
  c->burn_in = (next + kSteps - 1) / kSteps * kSteps;
  CELLC_UNROLL(1)
  for (int i = 0; i < 8; ++i) c->needed[i] = 0;
}

CELLC_DEVICE bool lanes_may_be_empty(const Lanes& lanes) { return lanes.offsets || lanes.length == 0; }

/// When something happened, by the clock of the first thread.
struct Marks {
  unsigned long long* time;   ///< null: another thread
  int count;
  CELLC_DEVICE void operator()() {
    if (time && count < 32) time[count++] = nanoseconds();
  }
};

/// All that comes after the first sweep, and that too where it carries P. Most calls need nothing of it.
template <bool kRows>
CELLC_DEVICE void mend(SegmentedRun<kRows>& work, unsigned passed, unsigned misses, int burn_in, bool carries, Marks mark) {
  using Work = SegmentedRun<kRows>;
  const Segmented& run = work.run;
  Control* const control = run.control;
  const bool leads = blockIdx.x == 0 && threadIdx.x == 0;
  Tally* const of = work.of;
  const long long tiles = (work.count + kTile - 1) / kTile;
  // So many parts of a chain that each is one batch of boundaries, and whole rows of memory where chains are short.
  int group = kWarp;
  while (kShares && group > 1 && static_cast<int>(blockDim.x) / group * kBatch < run.lanes.segments) group /= 2;
  const int parts = kShares ? static_cast<int>(blockDim.x) / group : 1;
  // What is off after the longest run-up is what P over so many steps has left of it.
  work.remembers = exp2f(__log2f(static_cast<float>(run.tolerance) * 0.25f) * static_cast<float>(run.lanes.segment) /
                         (need(kNeeds - 1) * static_cast<float>(run.burn_in ? run.burn_in : kSteps)));
  auto pass = Work::First;
  int round = 0;
  unsigned active = misses, slower = 0, repaired = 0;
  for (bool runs = carries;; runs = true) {
    if (!runs) {
      sum_over_grid<true>(&control->grid, passed, 0);  // what the sweep wrote is needed now
    } else {
      // The one place from which lanes are run with carriers: each would be a copy of the walk.
      const unsigned own = work.all_tiles(pass, round, burn_in, pass == Work::Again && round < run.eager ? Real(0) : run.tolerance);
      if (pass == Work::Tail) {
        work.count_in(&of->tails, own);
        break;
      }
      const unsigned sum = sum_over_grid<true>(&control->grid, passed, own);
      if (pass == Work::First) {
        // Nearly every boundary is off, and the next pass sees which.
        slower = sum;
        active = 1;
      } else {
        active = sum;
        if (carries && round == 0) misses = active;
        repaired += active;
        if (leads) of->ran[round & 15] = active;
        ++round;
      }
      mark();
    }
    if (!active) break;
    // Chains that will not settle show early: most of what missed is still off after a few rounds. The others
    // need few rounds more, and each costs a segment where walking costs the sequence.
    if (round < run.rounds && (run.fixed || round < 4 || active < misses / 2 || active < 32)) {
      // Newton's iteration, where it is asked for, is that and nothing better.
      compose(work, group, parts, round > 0 && !run.fixed);
      pass = Work::Again;
    } else {
      for (long long tile = work.warp; tile < tiles; tile += work.warps) work.look(tile);
      if (!run.repairs) break;
      pass = Work::Tail;
    }
    sum_over_grid<true>(&control->grid, passed, 0);
    mark();
  }
  if (leads) {
    of->misses = misses;
    of->repaired = repaired;
    of->rounds = round;
    of->phases = mark.count;
    if (run.carries < 0) learn(run, carries ? slower : control->needed[kNeeds], burn_in);
    control->grid.passed = passed;
  }
}

template <bool kRows>
CELLC_DEVICE void segmented(const Segmented& run) {
  CELLC_DYNAMIC_SHARED(Stored, shared);
  Control* const control = run.control;
  const unsigned call = control->calls + 1;
  const int learned = static_cast<int>(control->burn_in), burn_in = learned && run.carries < 0 ? learned : run.burn_in;
  // All threads agree on these; by votes the compiler knows it, too, and lays the sweep out for whole warps.
  const bool carries = __any_sync(0xffffffffu, run.carries < 0 ? control->carries != 0 : run.carries != 0);
  unsigned passed = control->grid.passed, misses = 0;
  SegmentedRun<kRows> work(run, shared, call);
  const bool leads = blockIdx.x == 0 && threadIdx.x == 0;
  Marks mark{leads ? work.of->time : nullptr, 0};
  mark();
  const long long tiles = (work.count + kTile - 1) / kTile;
  if (lanes_may_be_empty(run.lanes))
    for (long long tile = work.warp; tile < tiles; tile += work.warps) finish_empty(run.lanes, work.count, tile);
  if (blockIdx.x == gridDim.x - 1)
    for (unsigned i = threadIdx.x; i < sizeof(Tally) / 4; i += blockDim.x) reinterpret_cast<unsigned*>(control->of + ((call + 1) & 1))[i] = 0;
  if (!carries) {
    unsigned own = 0;
    for (long long tile = work.warp; tile < tiles; tile += work.warps) {
      work.sweep(tile, burn_in);
      own += work.check(tile, burn_in);
    }
    work.report();
    // Mostly nothing is off, and then nobody needs to see what another block has written.
    misses = sum_over_grid<false>(&control->grid, passed, own);
    mark();
  }
  if (__any_sync(0xffffffffu, carries || misses)) {
    mend<kRows>(work, passed, misses, burn_in, carries, mark);
  } else if (leads) {
    work.of->phases = mark.count;
    if (run.carries < 0) control->burn_in = burn_in, control->slow = control->carries = 0;
    control->grid.passed = passed;
  }
  if (leads) control->calls = call;
}

}  // namespace cellc
