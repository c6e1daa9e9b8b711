// What the phases of segmented.cuh do to the segments of one warp: the sweep and its check, runs with transitions, how
// boundaries are looked at between them, and the walk along chains in the end.
//
// Needs segments.cuh and transitions.cuh.
#pragma once

namespace cellc {

template <bool kRows>
struct SegmentedRun {
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

  CELLC_DEVICE SegmentedRun(const Segmented& run, Stored* shared)
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

  // The first sweep ----------------------------------------------------------------------------------

  /// To the left neighbour, who asks for it when it ends.
  CELLC_DEVICE void send_start(long long lane, const Real* state) const {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) publish(run.sent + e * kHalves * count + lane, count, call, state[e]);
  }
  CELLC_DEVICE bool has_start(long long lane, Real* state) const {
    bool there = true;
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e)
      there = look_at(run.sent + e * kHalves * count + lane, count, call, state[e]) && there;
    return there;
  }

  /// A segment begins to write long before the one on its left ends, so it is the left one that compares the two, and
  /// waits for nobody. What the first step there reads is here long before. (To ask for the rest a stage before the end
  /// takes longer, since it stands in the loop of the walk.) Where lanes are many, tiles wait for later ones, and a
  /// warp's last comes first.
  ///
  /// `composed`: from the composed starts, whose slopes are transitions already; otherwise burn_in steps early.
  /// Returns how many lanes of this thread end elsewhere than where the next segment began. Composed starts tell
  /// nothing of run-ups.
  CELLC_DEVICE unsigned sweep(long long tile, const Lane (&lane)[kWidth], int burn_in, bool composed) {
    const long long own = first_lane(tile);
    const long long first = first_step(lane[0]), last = last_step(lane[0]);
    const bool empty = own >= count || first >= lane[0].steps;
    const long long begin = first > burn_in ? first - burn_in : 0;
    Real state[kWidth][Step::kStates];
    Rows rows;
    // The run-up goes over the last steps of the left neighbour, who comes to them when most of the sweep is over: they
    // stay in the second-level cache until then (3 % at (1, 8192, 1024)). The others, where that is `cyclic`, leave
    // first.
    const CachePolicy own_steps = run.cyclic ? goes_first() : goes_in_turn();
    CachePolicy policy = begin < first ? stays_last() : own_steps;
    bool writes = false;
    const bool checks = !empty && last < lane[0].steps;
    Probe beyond[kWidth];
    walk<Step, kRows, false, kSteps>(
        lanes, lane, begin, empty ? begin : last, state, memory,
        [&](const auto& param) {
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) {
            CELLC_UNROLL()
            for (int e = 0; e < Step::kStates; ++e)
              state[v][e] =
                  composed && !empty && lane[v].segment > 0 ? at(run.starts, e, own + v) : start_of(lanes, lane[v], e);
            CELLC_UNROLL()
            for (int e = 0; e < Step::kInvariants; ++e) beyond[v].param[e] = param[v][e];
            if (checks) beyond[v].read_inputs(lanes, lane[v], last);
          }
          rows.begin(lanes, lane[0], begin);
        },
        [&](long long t, auto& now) {
          if (t == first) {
            writes = true;
            policy = own_steps;
            CELLC_UNROLL()
            for (int v = 0; v < kWidth; ++v) {
              CELLC_UNROLL()
              for (int e = 0; e < Step::kStates; ++e) at(run.began, e, own + v) = now[v][e];
              send_start(own + v, now[v]);
            }
          }
          return true;
        },
        [&](long long, const auto& now, bool) { rows.write(now, writes); }, AsSaid{policy});
    if (!empty) {
      CELLC_UNROLL()
      for (int v = 0; v < kWidth; ++v) {
        keep_end(own, lane[v], v, state[v]);
        if (!composed) keep_transitions<Step>(own, v, state[v]);
      }
    }
    __syncwarp();  // the next segment may be another thread's of this warp
    return check(own, checks, state, beyond, burn_in, composed);
  }

  template <class Cell>
  static CELLC_DEVICE void identity(Real (&state)[kWidth][Cell::kStates]) {
    if constexpr (Cell::kStates > Step::kStates) {
      CELLC_UNROLL()
      for (int v = 0; v < kWidth; ++v) Transitions::identity(&state[v][Step::kStates]);
    }
  }
  /// By how much a lane grows what it starts from, as far as its transitions know.
  CELLC_DEVICE Real growth_of(long long lane) const {
    Real transition[kTransitions ? kTransitions : 1];
    CELLC_UNROLL()
    for (int c = 0; c < kTransitions; ++c) transition[c] = at(run.transitions, c, lane);
    return kTransitions ? Transitions::growth(transition) : Real(0);
  }
  /// Of a round. In the first ones most warps run anyway: what they mend now is not left for a round in which few would
  /// run. Later ones, in which few chains are off and each costs as much, leave about what the promise allows. Where
  /// every step is a boundary, what each leaves adds up.
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
  /// A lane whose P over a segment is larger would need a longer run-up than the longest: what is off after that is
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

  /// `beyond`: of the steps after the thread's lanes.
  CELLC_DEVICE unsigned check(long long own, bool checks, const Real (&ended)[kWidth][Step::kStates],
                              const Probe (&beyond)[kWidth], int burn_in, bool composed) {
    unsigned missed = 0;
    SpinLimit patience;
    Real began[kWidth][Step::kStates] = {};
    bool there[kWidth] = {};
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v)
      if (checks) there[v] = has_start(own + v + lanes.channels, began[v]);
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      int need = -1;
      if (checks) {
        while (!there[v] && !patience.is_over(&run.control->grid))
          there[v] = has_start(own + v + lanes.channels, began[v]);
        Real reached[Step::kStates];
        beyond[v].step(lanes, began[v], reached);
        const Real left = !composed ? run.tolerance : slack(2).at(growth_of(own + v));
        const Real r = beyond[v].residual(lanes, ended[v], reached);
        if (there[v] && r <= left)
          note(r);
        else
          ++missed,
              need = !there[v] || composed || run.measures_slope >= 0 ? -1 : classify(ended[v], began[v], burn_in);
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

  /// Segments of this thread that ended their run-up more than twice as far from their neighbour's end as they had
  /// begun it from what stands there: whatever they start from grows. By a model on the CPU: of the logistic map and of
  /// Lorenz' equations 29 % and more, since differences are as large as they can be before and after; of slow and stiff
  /// data at most 12 %, near the beginning of short sequences, where states have not gone far from where runs start.
  CELLC_DEVICE unsigned grown_apart(long long tile, int burn_in) const {
    unsigned many = 0;
    CELLC_UNROLL(1)
    for (int v = 0; v < kWidth; ++v) {
      const long long own = tile * kTile + thread * kWidth + v;
      if (own >= count) break;
      const Lane lane = resolve(lanes, own);
      const long long first = first_step(lane);
      if (first <= burn_in || first >= lane.steps) continue;
      Real then = 0, now = 0;
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        const ArrayView& array = lanes.array[Step::state_array(e)];
        const Real stood = load(static_cast<const Stored*>(array.data) + place(array, lane, first - burn_in - 1) +
                                lanes.step.state[e]);
        const Real before = relative_difference(start_of(lanes, lane, e), stood);
        const Real after = relative_difference(at(run.began, e, own), at(run.ended, e, own - lanes.channels));
        then = before > then ? before : then;
        now = after > now ? after : now;
      }
      many += now > run.tolerance && !(now <= Real(2) * then);
    }
    return many;
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

  // With transitions --------------------------------------------------------------------------------------

  /// What one warp runs with transitions. One piece of code serves all three: what is not there is neither
  /// compiled nor fetched.
  enum Pass {
    First,  ///< the first sweep, where the last call's data did not forget
    Again,  ///< segments whose start is off, from their new start until they merge with what stands there
    Look,   ///< which those would be: nothing runs
  };

  /// Counts what `ran`: segments that were run again or would be, in the first pass those that remember; and of those
  /// that ran again the ones that `expand` what they start from.
  CELLC_DEVICE void carried(Pass pass, int round, long long tile, int burn_in, Real tolerance, unsigned& ran,
                            unsigned& expand) {
    const long long place = tile * kTile + thread * kWidth, own = place < count ? place : count - 1;
    const ResidualBudget may_stay = slack(round);
    Lane lane[kWidth];
    bool open[kWidth];
    Real left[kWidth];
    unsigned many = 0;
    resolve_own(lanes, place, count, lane);
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      const bool real = place + v < count && first_step(lane[v]) < lane[v].steps;
      open[v] = pass == First && real;
      left[v] = run.tolerance;
      if (pass == First || !real || lane[v].segment == 0) continue;
      // What is promised is the step from the neighbour's end, wherever the next run would start.
      Real end[Step::kStates], began[Step::kStates];
      // What has been checked need not be checked again unless either side has run since. (The neighbour may run now,
      // too, and say so already: then the next pass checks.)
      left[v] = may_stay.at(growth_of(own + v - lanes.channels));
      const bool fresh = round == 0 || run.off[own + v - lanes.channels] == static_cast<unsigned>(round) ||
                         run.off[own + v] == static_cast<unsigned>(round);
      bool moved = false, far = false;
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) {
        end[e] = at(run.ended, e, own + v - lanes.channels);
        began[e] = at(run.began, e, own + v);
        moved = moved || !(end[e] == began[e]);
        far = far || !are_near(at(run.starts, e, own + v), began[e], tolerance < left[v] ? tolerance : left[v]);
      }
      if ((moved && fresh) || far) {
        const Real r = step_residual(lanes, lane[v], first_step(lane[v]), end, began);
        open[v] = far || !(r <= left[v]);
        if (!open[v]) note(r);
      }
      many += open[v];
      if (pass == Look) continue;
      if (open[v] || round == 0) run.off[own + v] = open[v] ? round + 1 : 0;
      if constexpr (kHermite) {
        if (round == 0 && !multistarted) {
          Runs& runs = run.runs[own + v];
          const Real ended = at(run.ended, 0, own + v), slope = at(run.transitions, 0, own + v);
          CELLC_UNROLL()
          for (int r = 0; r < 3; ++r) {
            runs.start[r] = began[0];
            runs.end[r] = ended;
            runs.slope[r] = slope;
          }
        }
      }
    }
    if (pass != First) {
      ran += many;
      if (pass == Look || !__any_sync(0xffffffffu, many)) return;
    }

    const long long first = first_step(lane[0]), last = last_step(lane[0]);
    const long long begin = pass != First ? first : first > burn_in ? first - burn_in : 0;
    Real state[kWidth][StepWithTransition::kStates];
    BoundaryState rows(lanes, lane, begin, last);
    bool runs = kRows;
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      runs = runs || open[v];
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e)
        state[v][e] = !open[v] ? Real(0) : pass == First ? start_of(lanes, lane[v], e) : at(run.starts, e, own + v);
      if (pass == Again && open[v]) rows.look_ahead(v, begin);
    }
    identity<StepWithTransition>(state);
    bool writes[kWidth] = {};
    walk<StepWithTransition, kRows, false, kTogether<StepWithTransition>>(
        lanes, lane, begin, runs ? last : begin, state, memory, [](const auto&) {},
        [&](long long t, auto& now) {
          if (t == first) {
            identity<StepWithTransition>(now);
            CELLC_UNROLL()
            for (int v = 0; v < kWidth; ++v) {
              writes[v] = open[v];
              CELLC_UNROLL()
              for (int e = 0; e < Step::kStates; ++e)
                if (open[v]) at(run.began, e, own + v) = now[v][e];
            }
          }
          return any_of(open);
        },
        [&](long long t, const auto& now, bool first_of_stage) {
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) {
            if (first_of_stage && pass == Again && open[v] && merges(rows, v, now[v], t, left[v]))
              open[v] = writes[v] = false;
            rows.write(v, now[v], writes[v]);
          }
        });
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) {
      if (!open[v]) continue;
      keep_end(own, lane[v], v, state[v]);
      const Real growth = keep_transitions<StepWithTransition>(own, v, state[v]);
      if (pass == First) ran += !(growth <= remembers());
      expand += !(growth <= Real(1));
    }
  }
  /// Rows are compared one step in two stages: where what would be written agrees with what stands there, the
  /// step's residual is their difference, and all that follows may stay (but for a first row, below). Rounded rows do
  /// not tell a residual (bf16 keeps 8 bits): there a segment is run to its end. And nothing follows a segment of one
  /// step, where every such difference would be left in the result and add up.
  CELLC_DEVICE bool merges(BoundaryState& rows, int v, const Real* now, long long t, Real left) {
    if (kNarrow || lanes.segment == 1 || !rows.is_due(t)) return false;
    const Real far = rows.difference(v, now, t);
    // The first row only where it is the same: its boundary will be judged by what it was begun from now, and what may
    // be left there and what would be left here would add up to twice the tolerance.
    if (!(far <= (t == rows.begin ? Real(0) : left))) return false;
    note(far);
    return true;
  }
  static CELLC_DEVICE bool any_of(const bool (&open)[kWidth]) {
    bool any = false;
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) any = any || open[v];
    return static_cast<bool>(kRows ? __any_sync(0xffffffffu, any) : any);
  }

  /// One pass over all tiles with transitions, counted as carried() says.
  CELLC_DEVICE unsigned all_tiles(Pass pass, int round, int burn_in, Real tolerance, unsigned& expand) {
    unsigned ran = 0;
    for (long long tile = warp; tile * kTile < count; tile += warps)
      carried(pass, round, tile, burn_in, tolerance, ran, expand);
    report();
    return ran;
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
      unsigned marks = 0;  // bit i: of segment s + i
      CELLC_UNROLL(1)
      for (int v = 0; v < kWidth; ++v) {
        const long long chain = tile * kTile + thread * kWidth + v;
        if (chain >= chains) break;
        const unsigned* from = run.off + (chain_lane(lanes, chain) + s * lanes.channels);
        // Without branches, so that all of them are under way at once; past the end the last is read again.
        CELLC_UNROLL()
        for (int i = 0; i < kBatch; ++i) {
          marks |= *from ? 1u << i : 0u;
          from += s + i + 1 < lanes.segments ? lanes.channels : 0;
        }
      }
      if (lanes.segments - s < kBatch) marks &= (1u << (lanes.segments - s)) - 1;
      const unsigned from_first = warp_max(marks ? kBatch + 1 - __ffs(static_cast<int>(marks)) : 0);
      if (from_first) return s + kBatch - static_cast<int>(from_first);
    }
    return s;
  }

  /// The chains of a tile from segment `from` on, where they are marked: each from its neighbour's end until it merges
  /// with what stands. Returns the segment that comes next, and counts those that `ran`.
  CELLC_DEVICE int walk_on(long long tile, int from, unsigned& ran) {
    const long long place = tile * kTile + thread * kWidth, chains = lanes.sequences * lanes.channels;
    const auto lane_of = [&](int v) {
      return chain_lane(lanes, place + v < chains ? place + v : chains - 1) + from * lanes.channels;
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
      lane[v] = resolve(lanes, lane_of(v));
      walks[v] = first_step(lane[v]) < lane[v].steps;
      runs = runs || walks[v];
      chains_here += walks[v] && place + v < chains;
    }
    const long long begin = first_step(lane[0]), last = lane[0].steps;
    BoundaryState rows(lanes, lane, begin, last);
    Real state[kWidth][Step::kStates] = {};
    // The segment that begins here or later. Where all of a thread's chains are open it does not ask where segments
    // begin: that took a fifth of the time of a cell of three operations.
    int next = from;
    bool all_open = false;
    const auto pass = [&](long long t) {
      for (; next < lanes.segments && next * lanes.segment < t; ++next) ran += chains_here;
    };
    walk<Step, kRows, false, kTogether<Step>>(
        lanes, lane, begin, runs ? last : begin, state, memory, [](const auto&) {},
        [&](long long t, auto& now) {
          if (!all_open) {
            // The segments that begin in this stage: one, at its first step, or one a step. All that began before have
            // been passed, and the last of them ended where the stage begins.
            const int ended = next - 1;
            for (; next < lanes.segments && next * lanes.segment < t + kSteps; ++next) {
              CELLC_UNROLL()
              for (int v = 0; v < kWidth; ++v) {
                const long long here = own + v + (next - from) * lanes.channels;
                if (walks[v] && !open[v] && place + v < chains && run.off[here]) {
                  open[v] = true;
                  CELLC_UNROLL()
                  for (int e = 0; e < Step::kStates; ++e)
                    now[v][e] = at(run.ended, e, own + v + (ended - from) * lanes.channels);
                  if (!hopeless) rows.look_ahead(v, t);
                }
                ran += open[v];
              }
            }
            unsigned opened = 0;
            CELLC_UNROLL()
            for (int v = 0; v < kWidth; ++v) opened += open[v];
            all_open = opened == chains_here;
          }
          return any_of(kRows ? open : walks);
        },
        [&](long long t, const auto& now, bool first_of_stage) {
          CELLC_UNROLL()
          for (int v = 0; v < kWidth; ++v) {
            // What merges here is not looked at again: where segments do not forget, all of it stays.
            if (first_of_stage && open[v] && !hopeless && merges(rows, v, now[v], t, run.tolerance / 8)) {
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
        if (open[v]) finish(lanes, lane[v], e, state[v][e]);
    }
    return kRows ? static_cast<int>(warp_max(static_cast<unsigned>(next))) : lanes.segments;
  }

  /// Along all chains: from the first boundary that is off to the end of the sequence, or until all lanes of a tile
  /// have merged with what stands; a lane whose boundary is off joins where that is. So it ends in the right answer
  /// whatever the data, in little more than the time of walking.
  CELLC_DEVICE unsigned walk_chains() {
    unsigned ran = 0;
    for (long long tile = warp; tile * kTile < lanes.sequences * lanes.channels; tile += warps)
      for (int s = 1; (s = next_marked(tile, s)) < lanes.segments;) s = walk_on(tile, s, ran);
    report();
    if (thread == 0) atomicMax(&of->ended, nanoseconds());
    return ran;
  }
};

}  // namespace cellc
