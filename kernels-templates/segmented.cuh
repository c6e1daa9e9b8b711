// Segments of time that start early from a cold state, because a contractive cell forgets; what does
// not forget is found at the boundaries and mended on the device, in one launch.
//
//   sweep    each segment starts `burn_in` steps early, then writes; at its end the left neighbour's end
//            is compared with what the segment started from, by one step of either
//   compose  where boundaries missed: new starts by the affine recurrence over the segments of a chain
//            (a channel of a sequence), start(s) = end(s-1) + P(s-1) (start(s-1) - old start(s-1)).
//            P is the product of the Jacobians over a segment where it was carried along (multiple
//            shooting with Newton), else 0 (the left neighbour's end as it is)
//   repair   segments whose first step is off are run again from there, until what they would write is
//            what stands there; compose again
//   tail     what rounds do not settle is walked along its chain, segment after segment, until it merges
//
// Every step is made by the step code or checked against it, so a result is exact to the tolerance.
// All blocks are resident (a cooperative launch), and nothing returns to the host to decide.
//
// Needs segments.cuh.
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

  CELLC_DEVICE SegmentedRun(const Segmented& run, Stored* shared, unsigned call)
      : run(run), lanes(run.lanes), count(lanes.sequences * static_cast<long long>(lanes.segments) * lanes.channels),
        thread(threadIdx.x % kWarp), call(call), of(run.control->of + (call & 1)) {
    const int in_block = threadIdx.x / kWarp, per_block = blockDim.x / kWarp;
    memory = shared + in_block * kStageEntries<Carried>;
    warp = blockIdx.x * per_block + in_block;
    warps = gridDim.x * per_block;
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
        [&](long long, const auto& now) { rows.write(now, writes); });
    if (empty) return;
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      send_end(own + v, state[v]);
      keep_end(own, lane[v], v, state[v]);
      keep_carriers<Step>(own, v, state[v]);
    }
  }

  /// A sequence without steps ends where it starts.
  CELLC_DEVICE void finish_empty(long long tile) {
    CELLC_UNROLL(1)
    for (int v = 0; v < kWidth; ++v) {
      const long long own = tile * kTile + thread * kWidth + v;
      if (own >= count) return;
      const Lane lane = resolve(lanes, own);
      if (lane.steps > 0 || lane.segment > 0) continue;
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) finish(lanes, lane, e, start_of(lanes, lane, e));
    }
  }

  template <class Cell>
  static CELLC_DEVICE void identity(Real (&state)[kWidth][Cell::kStates]) {
    if constexpr (Cell::kStates > Step::kStates) {
      CELLC_UNROLL()
      for (int v = 0; v < kWidth; ++v) Carriers::identity(&state[v][Step::kStates]);
    }
  }
  template <class Cell>
  CELLC_DEVICE void keep_carriers(long long own, int v, const Real* state) {
    Real carrier[kCarriers ? kCarriers : 1];
    if constexpr (Cell::kStates > Step::kStates) {
      CELLC_UNROLL()
      for (int c = 0; c < kCarriers; ++c) carrier[c] = state[Step::kStates + c];
      const Real growth = Carriers::growth(carrier);
      if (is_finite(growth) && growth > seen.growth) seen.growth = growth;
    } else {
      Carriers::forget(carrier, state);
    }
    CELLC_UNROLL()
    for (int c = 0; c < kCarriers; ++c) at(run.carriers, c, own + v) = carrier[c];
  }

  /// Once the left neighbours have ended: how many lanes of this thread miss. `carries`: the sweep did.
  CELLC_DEVICE unsigned check(long long tile, int burn_in, bool carries) {
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
        else ++missed, need = classify(from, to, burn_in, carries, own);
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
  /// start that is off by m after w steps would have been right after w log(tolerance) / log(m); where P over a
  /// segment is known, so is how it forgets, whatever the run-up was.
  CELLC_DEVICE int classify(const Real* from, const Real* to, int burn_in, bool carries, long long own) const {
    Real left = 0;
    float over = static_cast<float>(burn_in);
    if (carries && kCarriers > 0) {
      Real carrier[kCarriers ? kCarriers : 1];
      CELLC_UNROLL()
      for (int c = 0; c < kCarriers; ++c) carrier[c] = at(run.carriers, c, own);
      left = Carriers::growth(carrier);
      over = static_cast<float>(lanes.segment);
    } else {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        const Real d = relative_difference(from[e], to[e]);
        left = d > left ? d : left;
      }
    }
    if (!(left < Real(0.9))) return kNeeds;
    const float steps = over * logf(static_cast<float>(run.tolerance) * 0.25f) / logf(static_cast<float>(left));
    for (int place = 0; place < kNeeds; ++place)
      if (steps <= need(place) * run.burn_in) return place;
    return kNeeds;
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

  // Starts -------------------------------------------------------------------------------------------

  /// New starts of all chains. A chain is cut among `parts` groups of `group` threads of a block, whose
  /// maps are composed: within a warp by shuffles, between warps through shared memory. Neighbouring
  /// threads take neighbouring chains, since a multiprocessor can wait for few lines of memory at once.
  CELLC_DEVICE void compose(int group, int parts) {
    __shared__ Carriers::Map totals[kMostWarps * kWarp];
    const int in_block = threadIdx.x / kWarp, in_warp = kShares ? kWarp / group : 1;  // parts of a warp
    const int part = kShares ? threadIdx.x / group : 0;
    const long long chains = lanes.sequences * lanes.channels;
    const int length = (lanes.segments + parts - 1) / parts;
    const long long step = kShares ? static_cast<long long>(gridDim.x) * group : static_cast<long long>(warps) * kWarp;
    for (long long chain0 = kShares ? static_cast<long long>(blockIdx.x) * group : static_cast<long long>(warp) * kWarp; chain0 < chains;
         chain0 += step) {
      const int mine = kShares ? thread % group : thread;
      const bool real = chain0 + mine < chains && part < parts;
      const long long chain = chain0 + mine < chains ? chain0 + mine : chains - 1;
      const long long lane0 = chain_lane(chain);
      const int begin = part * length < 1 ? 1 : part * length;
      int end = (part + 1) * length;
      if (end > lanes.segments) end = lanes.segments;
      Carriers::Change change;
      change.begin(*this, lane0);
      // Boundaries in batches: what one needs is read before any of them is worked on.
      Carriers::Boundary batch[kBatch];
      const auto read = [&](int from) {
        // Without branches, so that all of them are under way at once; past the end the last is read again.
        CELLC_UNROLL()
        for (int i = 0; i < kBatch; ++i) {
          const int s = from + i < lanes.segments ? from + i : lanes.segments - 1;
          batch[i].read(*this, lane0 + s * lanes.channels);
        }
      };
      if (kShares && parts > 1) {
        Carriers::Map map;
        map.identity();
        for (int s = begin; s < end; s += kBatch) {
          read(s);
          CELLC_UNROLL()
          for (int i = 0; i < kBatch; ++i)
            if (s + i < end) map.then(batch[i]);
        }
        for (int reach = 1; reach < in_warp; reach *= 2) {
          Carriers::Map before = map;
          before.shuffle_up(reach * group);
          if (thread / group >= reach) map.after(before);
        }
        __syncthreads();
        if (thread >= kWarp - group) totals[in_block * group + mine] = map;
        __syncthreads();
        // What reaches this part is what the parts before it made of nothing.
        for (int w = 0; w < in_block; ++w) totals[w * group + mine].apply(change);
        map.shuffle_up(group);
        if (thread >= group) map.apply(change);
      }
      for (int s = begin; s < end; s += kBatch) {
        if (!kShares || parts == 1 || end - begin > kBatch) read(s);
        CELLC_UNROLL()
        for (int i = 0; i < kBatch; ++i)
          if (real && s + i < end) change.step(*this, lane0 + (s + i) * lanes.channels, batch[i]);
      }
    }
  }

  // With carriers --------------------------------------------------------------------------------------

  /// What one warp runs with carriers. One piece of code serves all three: what is not there is neither
  /// compiled nor fetched.
  enum Pass {
    First,  ///< the first sweep, where the last call's data did not forget
    Again,  ///< segments whose start is off, from their new start until they merge with what stands there
    Tail,   ///< segment `at_segment` of the tile's chains, where it is off, likewise from the neighbour's end
  };

  /// Whose ends have changed: bit v of this thread's. `ran` counts the lanes that were run again.
  CELLC_DEVICE unsigned carried(Pass pass, long long tile, int at_segment, int burn_in, Real tolerance, unsigned& ran) {
    const long long place = tile * kTile + thread * kWidth, all = pass == Tail ? lanes.sequences * lanes.channels : count;
    // Where every step is a boundary, what each may leave adds up: less is left, as the next round is cheap.
    const Real left = pass == Again && lanes.segment == 1 ? run.tolerance / 8 : run.tolerance;
    const auto lane_of = [&](int v) {
      const long long at_most = place + v < all ? place + v : all - 1;
      return pass == Tail ? chain_lane(at_most) + at_segment * lanes.channels : at_most;
    };
    const long long own = lane_of(0);
    Lane lane[kWidth];
    bool open[kWidth];
    unsigned many = 0;
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      lane[v] = resolve(lanes, lane_of(v));
      const bool real = place + v < all && first_step(lane[v]) < lane[v].steps;
      open[v] = pass == First && real;
      if (pass == First || !real || lane[v].segment == 0) continue;
      // What is promised is the step from the neighbour's end, wherever the next run would start.
      Real end[Step::kStates], began[Step::kStates];
      bool moved = false, far = false;
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        end[e] = at(run.ended, e, own + v - lanes.channels);
        began[e] = at(run.began, e, own + v);
        moved = moved || !(end[e] == began[e]);
        const Real start = pass == Tail ? began[e] : at(run.starts, e, own + v);
        far = far || !are_near(start, began[e], tolerance < left ? tolerance : left);
      }
      if (moved || far) {
        const Real r = step_residual(lanes, lane[v], first_step(lane[v]), end, began);
        open[v] = far || !(r <= left);
        if (!open[v]) note(r);
      }
      many += open[v];
    }
    if (pass != First) {
      if (!__any_sync(0xffffffffu, many)) return 0;
      ran += many;
    }

    const long long first = first_step(lane[0]), last = last_step(lane[0]);
    const long long begin = pass != First ? first : first > burn_in ? first - burn_in : 0;
    Real state[kWidth][Carried::kStates];
    Stored* row[kWidth][Step::kStates];
    long long stride[Step::kStates];
    Real stands[kWidth][Step::kStates];
    bool runs = kRows;
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      runs = runs || open[v];
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        const ArrayView& array = lanes.array[Step::state_array(e)];
        stride[e] = lane[0].direction * array.row;
        row[v][e] = static_cast<Stored*>(array.data) + cellc::place(lanes, array, lane[v], begin) + lanes.step.state[e];
        stands[v][e] = state[v][e] = 0;
        if (!open[v]) continue;
        if (pass == First) {
          state[v][e] = start_of(lanes, lane[v], e);
        } else {
          state[v][e] = pass == Again ? at(run.starts, e, own + v) : at(run.ended, e, own + v - lanes.channels);
          stands[v][e] = load(row[v][e]);
        }
      }
    }
    identity<Carried>(state);
    // Rows are compared one step a stage: where what would be written agrees with what stands there, the
    // step's residual is their difference, and all that follows may stay. Rounded rows do not tell a
    // residual (bf16 keeps 8 bits): there a segment is run to its end. And nothing follows a segment of one
    // step, where every such difference would be left in the result and add up.
    const bool merges = !kNarrow && pass != First && lanes.segment > 1;
    int k = 0;
    bool writes = false;
    walk<Carried, kRows, false>(
        lanes, lane, begin, runs ? last : begin, state, memory,
        [&](long long t, auto& now) {
          k = 0;
          if (t == first) {
            writes = true;
            identity<Carried>(now);
            CELLC_UNROLL()
            for (int v = 0; v < kWidth; ++v) {
              CELLC_UNROLL()
              for (int e = 0; e < Step::kStates; ++e)
                if (open[v]) at(run.began, e, own + v) = now[v][e];
            }
          }
          bool any = false;
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) any = any || open[v];
          return static_cast<bool>(kRows ? __any_sync(0xffffffffu, any) : any);
        },
        [&](long long t, const auto& now) {
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) {
            if (k == 0 && merges && open[v]) {
              Real far = 0;
              CELLC_UNROLL()
              for (int e = 0; e < Step::kStates; ++e) {
                const Real d = relative_difference(now[v][e], stands[v][e]);
                far = d > far ? d : far;
              }
              if (far <= run.tolerance) {
                open[v] = false;
                note(far);
              } else if (t + kSteps < last) {
                CELLC_UNROLL()
                for (int e = 0; e < Step::kStates; ++e) stands[v][e] = load(row[v][e] + kSteps * stride[e]);
              }
            }
            CELLC_UNROLL()
            for (int e = 0; e < Step::kStates; ++e) {
              if (open[v] && writes) store(row[v][e], now[v][e]);
              row[v][e] += stride[e];
            }
          }
          ++k;
        });
    unsigned changed = 0;
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      if (!open[v]) continue;
      changed |= 1u << v;
      if (pass == First) send_end(own + v, state[v]);
      keep_end(own, lane[v], v, state[v]);
      keep_carriers<Carried>(own, v, state[v]);
    }
    return changed;
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

  /// Bit i: this thread's chains have something to look at in segment s + i.
  CELLC_DEVICE unsigned marks(long long tile, int s) const {
    unsigned result = 0;
    CELLC_UNROLL()
    for (int i = 0; i < kBatch; ++i) {
      CELLC_UNROLL()
      for (int v = 0; v < kWidth; ++v) {
        const long long chain = tile * kTile + thread * kWidth + v;
        if (chain < lanes.sequences * lanes.channels && s + i < lanes.segments &&
            run.off[chain_lane(chain) + (s + i) * lanes.channels])
          result |= 1u << i;
      }
    }
    return result;
  }

  /// One pass over all tiles with carriers: how many lanes of this thread missed in the first, or ran. The
  /// tail goes along the chains of a tile, segment after segment: one that is off is run from its neighbour's
  /// end, and the next is looked at only if it is off itself or that changed. So it ends in the right answer
  /// whatever the data.
  CELLC_DEVICE unsigned all_tiles(Pass pass, int burn_in, Real tolerance) {
    const long long all = pass == Tail ? lanes.sequences * lanes.channels : count;
    unsigned result = 0;
    for (long long tile = warp; tile * kTile < all; tile += warps) {
      unsigned changed = 0, marked = 0;
      int s = pass == Tail ? 1 : 0;
      do {
        bool runs = true;
        if (pass == Tail) {
          if ((s - 1) % kBatch == 0) marked = marks(tile, s);
          runs = __any_sync(0xffffffffu, changed || (marked >> (s - 1) % kBatch & 1u));
        }
        if (runs) changed = carried(pass, tile, s, burn_in, tolerance, result);
      } while (pass == Tail && ++s < lanes.segments);
      if (pass == First) result += check(tile, burn_in, true);
    }
    report();
    return result;
  }

  /// The lane of a chain's first segment.
  CELLC_DEVICE long long chain_lane(long long chain) const {
    const long long sequence = quotient(chain, lanes.channels);
    return sequence * lanes.segments * lanes.channels + (chain - sequence * lanes.channels);
  }
};

/// What this call saw decides what the next one starts from.
CELLC_DEVICE void learn(const Segmented& run, unsigned misses, int burn_in) {
  const long long boundaries = (run.lanes.segments - 1) * static_cast<long long>(run.lanes.sequences) * run.lanes.channels;
  Control* const c = run.control;
  unsigned slower = misses;
  int next = burn_in > run.burn_in ? burn_in : run.burn_in;
  // A few steps more cost less than a single repair.
  for (int place = 0; place < kNeeds; ++place) {
    slower -= c->needed[place];
    const int steps = static_cast<int>(run.burn_in * need(place));
    if (c->needed[place] && steps > next) next = steps;
  }
  c->slow = slower;
  c->carries = static_cast<float>(slower) > 0.001f * static_cast<float>(boundaries);
  // Where most warps will run again for the slow, the others are mended with them. Without P a short run-up
  // would not tell the slow from the others the next time.
  if (kCarriers > 0 && static_cast<float>(slower) > 0.02f * static_cast<float>(boundaries)) next = kSteps;
  c->burn_in = (next + kSteps - 1) / kSteps * kSteps;
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
CELLC_DEVICE void mend(const Segmented& run, unsigned call, unsigned passed, unsigned misses, int burn_in, bool carries, Marks mark) {
  CELLC_DYNAMIC_SHARED(Stored, shared);
  using Work = SegmentedRun<kRows>;
  Work work(run, shared, call);
  Control* const control = run.control;
  const bool leads = blockIdx.x == 0 && threadIdx.x == 0;
  Tally* const of = work.of;
  const long long tiles = (work.count + kTile - 1) / kTile;
  // So many parts of a chain that each is one batch of boundaries, and whole rows of memory where chains are short.
  int group = kWarp;
  while (kShares && group > 1 && static_cast<int>(blockDim.x) / group * kBatch < run.lanes.segments) group /= 2;
  const int parts = kShares ? static_cast<int>(blockDim.x) / group : 1;
  auto pass = Work::First;
  int round = 0;
  unsigned active = misses, repaired = 0;
  for (bool runs = carries;; runs = true) {
    if (!runs) {
      sum_over_grid<true>(&control->grid, passed, 0);  // what the sweep wrote is needed now
    } else {
      // The one place from which lanes are run with carriers: each would be a copy of the walk.
      const unsigned own = work.all_tiles(pass, burn_in, pass == Work::Again && round < run.eager ? Real(0) : run.tolerance);
      if (pass == Work::Tail) {
        work.count_in(&of->tails, own);
        break;
      }
      active = sum_over_grid<true>(&control->grid, passed, own);
      if (pass == Work::First) {
        misses = active;
      } else {
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
      work.compose(group, parts);
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
    if (run.carries < 0) learn(run, misses, burn_in);
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
    for (long long tile = work.warp; tile < tiles; tile += work.warps) work.finish_empty(tile);
  if (blockIdx.x == gridDim.x - 1)
    for (unsigned i = threadIdx.x; i < sizeof(Tally) / 4; i += blockDim.x) reinterpret_cast<unsigned*>(control->of + ((call + 1) & 1))[i] = 0;
  if (!carries) {
    unsigned own = 0;
    for (long long tile = work.warp; tile < tiles; tile += work.warps) {
      work.sweep(tile, burn_in);
      own += work.check(tile, burn_in, false);
    }
    work.report();
    // Mostly nothing is off, and then nobody needs to see what another block has written.
    misses = sum_over_grid<false>(&control->grid, passed, own);
    mark();
  }
  if (__any_sync(0xffffffffu, carries || misses)) {
    mend<kRows>(run, call, passed, misses, burn_in, carries, mark);
  } else if (leads) {
    work.of->phases = mark.count;
    if (run.carries < 0) control->burn_in = burn_in, control->slow = control->carries = 0;
    control->grid.passed = passed;
  }
  if (leads) control->calls = call;
}

}  // namespace cellc
