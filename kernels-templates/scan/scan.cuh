// Stages whose map over any number of steps is known exactly (transitions.cuh): one pass over memory.
//
// A block takes a tile of time of a group of channels, copies its inputs to shared memory and keeps them
// there. Each of its threads owns kScanSteps steps of one channel: it sweeps them with transitions from
// nowhere in particular, the maps of all threads are composed, and that of the whole tile is published.
// Once the state at the tile's start is known, each thread runs its steps again, exactly, from its own
// start, over the inputs that are still on chip, and writes the rows. So memory is read once and written
// once, and every row is made by the step code from the row before it, but for the first of a thread.
//
// The start of a tile comes from the tiles on its left (decoupled look-back: Merrill and Garland, 2016):
// all threads of the block look at as many predecessors at once, and compose what they find until one of
// them has published the state at its end. Tiles are handed out in order of time by a counter, so that
// whoever is waited for is running: any grid will do, and the launch need not be cooperative.
//
// What is published is told from what stood there before by the number of the call beside every 32 bits,
// in one word of 64: no flag is waited for first and no fence stands between.
//
// What look-back composes depends on what it finds, and so do the last bits. Where they must be those of every other
// run (gradients), a tile waits for the state that the one on its left publishes: where channels abound it is mostly
// there.
//
// Where the unit asks for it (Traits::kScanChecks), threads look at each other's starts, and what composed maps rounded
// by more than the tolerance is walked in the end (scan_repair.cuh).
//
// Larger than most (run): the phases of a tile follow each other between barriers of the block and hand on starts, maps
// and inputs in registers; a function a phase would take all of them by reference.
//
// Lanes::segments is 1 here. Needs scan_tile.cuh and scan_repair.cuh.
#pragma once

namespace cellc {

/// Maps of tiles and of what is left of them: within a block through shared memory, between blocks through `words`.
template <ScanCopy kCopy, int kBuffers = 1>
struct ScanMaps : ScanTile<kCopy, kBuffers> {
  using Tile = ScanTile<kCopy, kBuffers>;
  using Map = Transitions::Map;
  using Tile::lanes, Tile::lane, Tile::warp, Tile::channel, Tile::call, Tile::real, Tile::tile, Tile::words;

  CELLC_DEVICE ScanMaps(const Scan& scan, char* shared) : Tile(scan, shared) {}

  CELLC_DEVICE void keep(Real* table, Map& map) const {
    Real* at = table + warp * (kMapReals * kScanChannels) + channel;
    map.each([&](Real& value) {
      *at = value;
      at += kScanChannels;
    });
  }
  CELLC_DEVICE void fetch(const Real* table, int of_warp, Map& map) const {
    const Real* at = table + of_warp * (kMapReals * kScanChannels) + channel;
    map.identity();
    map.each([&](Real& value) {
      value = *at;
      at += kScanChannels;
    });
  }

  CELLC_DEVICE unsigned long long* words_of(int of_tile) const {
    return words + static_cast<long long>(of_tile) * (kScanWords * kScanChannels);
  }
  CELLC_DEVICE bool look_at_state(int of_tile, Real (&state)[kCarried]) const {
    const unsigned long long* const at = words_of(of_tile);
    bool there = true;
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e)
      there = look_at(at + e * kHalves * kScanChannels, kScanChannels, call, state[e]) && there;
    return there;
  }
  CELLC_DEVICE bool look_at_map(int of_tile, Map& map) const {
    const unsigned long long* at = words_of(of_tile) + kCarried * kHalves * kScanChannels;
    bool there = true;
    map.identity();
    map.each([&](Real& value) {
      there = look_at(at, kScanChannels, call, value) && there;
      at += kHalves * kScanChannels;
    });
    return there;
  }
  CELLC_DEVICE void publish_state(const Real (&state)[kCarried]) const {
    unsigned long long* const at = words_of(tile);
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) publish(at + e * kHalves * kScanChannels, kScanChannels, call, state[e]);
  }
  CELLC_DEVICE void publish_map(Map& map) const {
    unsigned long long* at = words_of(tile) + kCarried * kHalves * kScanChannels;
    map.each([&](Real& value) {
      publish(at, kScanChannels, call, value);
      at += kHalves * kScanChannels;
    });
  }
  CELLC_DEVICE void first_state(Real (&state)[kCarried]) const {
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) state[e] = real ? start_of(lanes, lane[0], e) : Real(0);
  }
  CELLC_DEVICE unsigned draw() const { return atomicAdd(&this->scan.control->drawn, 1u); }
};

template <ScanCopy kCopy>
struct ScanRun : ScanMaps<kCopy> {
  using Maps = ScanMaps<kCopy>;
  using Maps::first_state, Maps::draw;
  using Maps::keep, Maps::fetch, Maps::look_at_state, Maps::look_at_map, Maps::publish_state, Maps::publish_map;
  using Maps::real, Maps::tile, Maps::begin, Maps::low, Maps::high;
  using Maps::scan, Maps::lanes, Maps::lane, Maps::thread, Maps::warp, Maps::warps, Maps::channel, Maps::part;
  using Maps::totals, Maps::looks, Maps::known, Maps::ended, Maps::is_known, Maps::ticket, Maps::flagged;
  using typename Maps::Map, typename Maps::Tile;

  CELLC_DEVICE ScanRun(const Scan& scan, char* shared) : Maps(scan, shared) {}

  /// Composes kLookBack predecessors, nearest, nearest - 1, …, as they appear; whether they led back to a state.
  /// The first tile always has its state.
  CELLC_DEVICE bool look(int nearest, Map& all) const {
    int seen = 0;
    while (seen < kLookBack) {
      bool has_state[kLookBack], has_map[kLookBack];
      Real state[kLookBack][kCarried];
      Map map[kLookBack];
      CELLC_UNROLL()
      for (int i = 0; i < kLookBack; ++i) {
        const int other = nearest - i > 0 ? nearest - i : 0;
        has_state[i] = look_at_state(other, state[i]);
        has_map[i] = look_at_map(other, map[i]);
      }
      CELLC_UNROLL()
      for (int i = 0; i < kLookBack; ++i) {
        if (i != seen) continue;
        if (has_state[i])
          map[i].constant(state[i]);
        else if (!has_map[i])
          continue;
        all.after(map[i]);
        if (has_state[i]) return true;
        ++seen;
      }
    }
    return false;
  }

  /// The state at the start of the tile, from the tiles on its left.
  CELLC_DEVICE void look_back(Real (&state)[kCarried]) {
    const int parts = warps * kScanParts, mine = warp * kScanParts + part;
    const int reach =
        scan.look < parts * kLookBack ? (scan.look + kLookBack - 1) / kLookBack * kLookBack : parts * kLookBack;
    Map all;
    all.identity();
    bool found = !real;
    for (int base = 0;; base += reach) {
      Map map;
      map.identity();
      const int nearest = tile - 1 - base - mine * kLookBack;
      const bool looks_on = !found && mine * kLookBack < reach && nearest >= 0;
      bool done = found;
      if (looks_on) done = look(nearest, map);
      __syncwarp();
      CELLC_UNROLL()
      for (int by = kScanChannels; by < kWarp; by *= 2) {
        Map before = map;
        before.shuffle_down(by);
        const int before_done = __shfl_down_sync(0xffffffffu, static_cast<int>(done), by);
        if (!done && thread + by < kWarp) {
          map.after(before);
          done = before_done;
        }
      }
      if (part == 0) {
        keep(looks(), map);
        ended()[warp * kScanChannels + channel] = done;
      }
      __syncthreads();
      CELLC_UNROLL(1)
      for (int w = 0; w < warps && !found; ++w) {
        fetch(looks(), w, map);
        all.after(map);
        found = ended()[w * kScanChannels + channel];
      }
      if (__syncthreads_and(found)) break;
    }
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) state[e] = 0;
    all.move(state);
  }

  /// A start that was composed, and what the tile before has published since, are made differently. Of what may be
  /// left where the tile starts, half is for that.
  struct Since {
    bool asks, there;  ///< the thread has to do with it; the other state has been published
    Real state[kCarried], input[Tile::kInputs];
  };
  /// Asked for before the thread's steps, while inputs are on chip.
  CELLC_DEVICE Since look_again(bool asks) const {
    Since since;
    since.asks = asks;
    since.there = false;
    if (!asks) return since;
    since.there = look_at_state(tile - 1, since.state);
    this->read(0, since.input);
    return since;
  }
  CELLC_DEVICE bool is_off(const Real (&param)[1][(Step::kInvariants > 0 ? Step::kInvariants : 1)],
                           const Uniforms<Step>& uniforms, Since& since, int chain) const {
    if (!since.asks) return false;
    while (!since.there) since.there = look_at_state(tile - 1, since.state);
    Real start[kCarried];
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) start[e] = known()[e * kScanChannels + channel];
    // Rows before are other blocks', and perhaps not written yet. What tiles have published is.
    const auto ends_of_tiles = [&](int e) {
      Real size = 0;
      CELLC_UNROLL(1)
      for (int before = tile - 2; before >= 0 && before > tile - 8; --before) {
        Real end[kCarried];
        if (look_at_state(before, end)) size = larger(size, finite_size(end[e]));
      }
      return size;
    };
    return !this->agrees(param, uniforms, since.state, start, since.input, scan.tolerance / 2, ends_of_tiles) &&
           this->mark(chain, tile, 0) && this->mark_chain(chain);
  }

  // Tiles -------------------------------------------------------------------------------------------

  CELLC_DEVICE void run(unsigned number) {
    const unsigned chains = static_cast<unsigned>(lanes.sequences * scan.groups);
    tile = static_cast<int>(number / chains);
    const int chain = static_cast<int>(number - tile * chains);
    const int sequence = chain / scan.groups;
    const long long at_channel = static_cast<long long>(chain - sequence * scan.groups) * kScanChannels + channel;
    real = at_channel < lanes.channels;
    this->resolve(sequence, chain, real ? at_channel : lanes.channels - 1);
    const int skewed = this->skew();
    const int block_steps = warps * (kScanSteps * kScanParts);
    const long long block_first = static_cast<long long>(tile) * block_steps - skewed, steps = lane[0].steps;
    const long long first = block_first + warp * (kScanSteps * kScanParts);
    begin = first + part * kScanSteps;
    low = begin < 0 ? static_cast<int>(-begin) : 0;
    high = steps - begin < kScanSteps ? static_cast<int>(steps - begin) : kScanSteps;
    if (block_first >= steps || steps == 0) {
      if (tile == 0 && warp == 0 && part == 0 && real) {
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) finish(lanes, lane[0], e, start_of(lanes, lane[0], e));
      }
      __syncthreads();  // all know their ticket
      if (threadIdx.x == 0) *ticket() = draw();
      return;
    }
    this->ask(first);
    // Looked at while the inputs are on their way: mostly the start is there by then, where channels abound.
    const bool nearest = warp == 0 && part == 0;
    Real state[kCarried];
    bool there = true;
    if (nearest && real) {
      if (tile == 0)
        first_state(state);
      else
        there = look_at_state(tile - 1, state);
    }
    Map own_map;
    {
      Real param[1][(StepWithTransition::kInvariants > 0 ? StepWithTransition::kInvariants : 1)];
      load_params<StepWithTransition>(lanes, lane, param);
      const Uniforms<StepWithTransition> uniforms(lanes);
      Real carried[StepWithTransition::kStates];
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) carried[e] = 0;
      Transitions::identity(&carried[kCarried]);
      copy_wait<0>();
      __syncwarp();
      this->template sweep<StepWithTransition>(param, uniforms, carried, typename Tile::Nothing());
      own_map.identity();
      if (low < high) own_map.from(carried, &carried[kCarried]);
    }
    // What the warp's parts make of what they start from.
    CELLC_UNROLL()
    for (int by = kScanChannels; by < kWarp; by *= 2) {
      Map before = own_map;
      before.shuffle_up(by);
      if (thread >= by) own_map.after(before);
    }
    if (part == kScanParts - 1) keep(totals(), own_map);
    if constexpr (kStaged) own_map.shuffle_up(kScanChannels);
    if (nearest) {
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) known()[e * kScanChannels + channel] = state[e];
    }
    if (warp == 0) {
      const bool all_there = __all_sync(0xffffffffu, there);
      if (thread == 0) *is_known() = all_there;
    }
    __syncthreads();
    const bool is_last = block_first + block_steps >= steps;
    const bool publishes = warp == warps - 1 && part == 0 && real && !is_last;
    const bool starts_known = *is_known();
    unsigned next = 0;
    if (threadIdx.x == 0) next = draw();
    // What lies before the warp, and what lies before the next one: made alike in both, they have the same bits.
    Map before, upto;
    upto.identity();
    CELLC_UNROLL(1)
    for (int w = 0; w <= warp; ++w) {
      before = upto;
      Map one;
      fetch(totals(), w, one);
      one.after(before);
      upto = one;
    }
    if (publishes && !starts_known && scan.look > 0) publish_map(upto);
    if (starts_known) {
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) state[e] = known()[e * kScanChannels + channel];
    } else if (scan.look == 0) {
      if (nearest && real) {
        while (!there) there = look_at_state(tile - 1, state);
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) known()[e * kScanChannels + channel] = state[e];
      }
      __syncthreads();
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) state[e] = known()[e * kScanChannels + channel];
    } else {
      look_back(state);
      if (kChecks && nearest) {
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) known()[e * kScanChannels + channel] = state[e];
      }
    }
    Real end[kCarried];
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) end[e] = state[e];
    upto.move(end);
    if (publishes) publish_state(end);
    if (warp > 0) before.move(state);
    if (kStaged && part > 0) own_map.move(state);
    {
      Since since = look_again(kChecks && nearest && real && !starts_known && scan.look > 0);
      typename Tile::Following next = this->follow(state);
      if (part == kScanParts - 1) {
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) next.start[e] = end[e];
      }
      Real param[1][(Step::kInvariants > 0 ? Step::kInvariants : 1)];
      load_params<Step>(lanes, lane, param);
      const Uniforms<Step> uniforms(lanes);
      const long long number_of_warp = static_cast<long long>(tile) * warps + warp;
      if constexpr (kStaged) {
        this->sweep_from(param, uniforms, state, number_of_warp, typename Tile::Staged(*this));
        this->write_staged(first);
      } else {
        this->sweep_from(param, uniforms, state, number_of_warp, typename Tile::Direct(*this));
      }
      bool off = Tile::is_off(param, uniforms, state, next, chain);
      off = is_off(param, uniforms, since, chain) || off;
      if (kChecks && off) *flagged() = 1;
    }
    if (real && low < high && begin + high == steps) {
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) finish(lanes, lane[0], e, state[e]);
    }
    if (threadIdx.x == 0) *ticket() = next;
  }
};

/// Blocks of any number of whole warps, in any number.
template <ScanCopy kCopy>
CELLC_DEVICE void scan(const Scan& scan) {
  static_assert(kScanChannels >= 1 && kScanChannels <= kWarp && (kScanChannels & (kScanChannels - 1)) == 0);
  static_assert((kCopy != ScanCopy::Time || kScanChannels <= kChunk), "chunks of time");
  static_assert(kCopy != ScanCopy::Contiguous || kScanChannels * sizeof(Stored) >= 16);
  CELLC_DYNAMIC_SHARED(char, scan_shared);
  ScanRun<kCopy> work(scan, scan_shared);
  if (threadIdx.x == 0) {
    if (kChecks) *work.flagged() = 0;
    *work.ticket() = work.draw();
  }
  const unsigned all = static_cast<unsigned>(scan.lanes.sequences) * scan.groups * scan.tiles;
  for (unsigned ran = 0;; ++ran) {
    __syncthreads();
    const unsigned number = *work.ticket();
    if (number >= all) {
      // Every block draws one ticket in vain; who draws the last leaves the counter to the next call.
      if (threadIdx.x == 0 && number == all + gridDim.x - 1) {
        scan.control->drawn = 0;
        scan.control->calls = work.call;
      }
      if constexpr (kChecks && !kRewalks) {
        const bool alone = scan.tiles == 1;  // nobody else has to do with what this block has written
        if (!alone && threadIdx.x == 0) tell_finished(scan, work.call, ran);
        if (*work.flagged()) {
          if (!alone) await_finished(scan, work.call, all);
          repair<kCopy>(scan, work.warps, work.flagged(), alone);
        }
      }
      return;
    }
    if (number == 0 && threadIdx.x == 0) begin_finished(scan, work.call);
    work.run(number);
  }
}

}  // namespace cellc
