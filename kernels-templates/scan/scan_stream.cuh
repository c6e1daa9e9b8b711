// A scan (scan.cuh) of few channels: long sequences whose tiles stream through the blocks.
//
// With few channels nearly all tiles that are under way belong to one chain, and each waits for those before it. If
// every block looked for its start among its predecessors, as in scan.cuh, all blocks would read the words of the same
// two hundred tiles at about the same time; these few lines of memory then answer so late that this was a quarter of
// the time and more. So somebody else reads them, once: the first blocks are carry blocks. Each follows some channels
// of one chain, takes the maps of tiles as they appear, and publishes the states at their ends. A block that works on
// rows waits for one word.
//
// It holds kScanBuffers tiles at once: the inputs of the later ones are on their way, the next one is swept with
// carry blocks and its map published, and only then the state before the last one is looked at, whose maps are by then
// a round old. The last warp of a block does nothing but draw tickets.
//
// Tiles are handed out in order of time, a block takes its own in order, and a map is published before any
// start is waited for. All blocks are resident (a cooperative launch): carry blocks and those who wait for them.
//
// What it saves, of 2^26 steps of one channel on an H200: f32 at 0.45 of a copy's speed by scan.cuh, 0.75 in a stream
// whose blocks look back for themselves, 0.87 with a carry block; clip maps, of four numbers, 0.40 and 0.57 in the last
// two.
//
// Larger than most (the file, ScanStream, run): one struct, whose phases (tickets, carry blocks, tiles) run side by
// side in the warps of one block and share what that holds on chip, so that each would need all of the others' members.
//
// Needs scan.cuh and scan_tma.cuh.
#pragma once

namespace cellc {

constexpr int kScanBuffers = Traits::kScanBuffers;  ///< tiles of a block that are on chip at once: 3 or 4
constexpr int kMostStreamWarps = 8;                 ///< that work on rows
constexpr int kTileRing = 8;                        ///< more than a block has to do with at once
constexpr int kWarpBytes = kSlots * kSlotPitch * static_cast<int>(sizeof(Stored));  ///< of a tile
// A warp of a carry block has rows of tiles, side by side, as many as its registers have room for.
constexpr int kCarryChannels = Traits::kScanCarry;  ///< of one carry block: they divide a block's
constexpr int kCarryParts = kWarp / kCarryChannels;
constexpr int kMostCarry = kMapReals * kHalves < 32 ? 32 / (kMapReals * kHalves) : 1;
constexpr int kCarryRows = kCarryChannels < kMostCarry ? kCarryChannels : kMostCarry;
constexpr int kCarryTiles = kCarryRows * kCarryParts;

/// Which tile a ticket stands for.
struct TileAt {
  long long block_first, steps, first_row;
  int tile, sequence, chain;
  int there;  ///< 0: no ticket was left
};

/// Dynamic shared memory of a block of so many warps beside the one that draws tickets.
constexpr int stream_shared_bytes(int warps) {
  return kTileRing * static_cast<int>(sizeof(TileAt)) + kScanBuffers * warps * kFollowingBytes +
         warps * (kScanBuffers * (kWarpBytes + 8) +
                  kScanChannels * static_cast<int>((kChecks ? 4 : 2) * kMapReals * sizeof(Real))) +
         kScanChannels * kCarried * static_cast<int>(sizeof(Real)) +
         (kChecks ? static_cast<int>(sizeof(unsigned long long)) : 0);
}

// Between the warps of a block.
#ifdef CELLC_EMULATOR
CELLC_DEVICE unsigned long long load_shared(const unsigned long long* at) { return cellc_emulator::load_volatile(at); }
CELLC_DEVICE void store_shared(unsigned long long* at, unsigned long long value) {
  cellc_emulator::store_volatile(at, value);
}
#else
CELLC_DEVICE unsigned long long load_shared(const unsigned long long* at) {
  return *static_cast<const volatile unsigned long long*>(at);
}
CELLC_DEVICE void store_shared(unsigned long long* at, unsigned long long value) {
  *static_cast<volatile unsigned long long*>(at) = value;
}
#endif

template <ScanCopy kCopy>
struct ScanStream : ScanMaps<kCopy, kScanBuffers> {
  using Maps = ScanMaps<kCopy, kScanBuffers>;
  using Maps::first_state, Maps::draw;
  using Maps::keep, Maps::fetch, Maps::publish_state, Maps::publish_map;
  using Maps::real, Maps::tile, Maps::begin, Maps::low, Maps::high, Maps::buffer, Maps::words;
  using Maps::scan, Maps::lanes, Maps::lane, Maps::thread, Maps::warp, Maps::warps, Maps::channel, Maps::part;
  using typename Maps::Map, typename Maps::Tile;
  static constexpr int kAhead = kScanBuffers - 1;  ///< tiles from asking for inputs to their sweep

  TileAt* const ring;
  long long first;       // step of the warp's first row
  bool is_last;          // of its sequence
  unsigned parity = 0;   // by buffer: of its gate
  int found_chain = -1;  // whose arrays have been found
  bool leaves = false;   // the engine copies rows from where the next inputs will go
  bool off = false;      // a start that the thread has seen
  unsigned tickets = 0;  // that the thread has drawn

  CELLC_DEVICE ScanStream(const Scan& scan, char* shared)
      : Maps(scan, shared + kTileRing * sizeof(TileAt)), ring(reinterpret_cast<TileAt*>(shared)) {
    --warps;
  }

  CELLC_DEVICE unsigned long long* gates() const {
    return reinterpret_cast<unsigned long long*>(this->shared + kScanBuffers * warps * kWarpBytes +
                                                 kScanBuffers * warps * kFollowingBytes);
  }
  CELLC_DEVICE Real* tables() const { return reinterpret_cast<Real*>(gates() + kScanBuffers * warps); }
  /// By warp: the map of its steps, for two tiles in turn.
  CELLC_DEVICE Real* totals(int turn) const { return tables() + (turn & 1) * warps * (kMapReals * kScanChannels); }
  /// By entry and channel: the state that a tile starts from.
  CELLC_DEVICE Real* starts() const { return tables() + 2 * warps * (kMapReals * kScanChannels); }
  /// By warp: the map of the steps before it, for two tiles in turn.
  CELLC_DEVICE Real* befores(int turn) const {
    return starts() + kScanChannels * kCarried + (turn & 1) * warps * (kMapReals * kScanChannels);
  }
  CELLC_DEVICE unsigned* flagged() const {
    return reinterpret_cast<unsigned*>(starts() + kScanChannels * kCarried +
                                       (kChecks ? 2 : 0) * warps * (kMapReals * kScanChannels));
  }
  /// What tells a warp that the engine has copied the inputs of a buffer.
  CELLC_DEVICE unsigned long long* gate() const { return gates() + warp * kScanBuffers + buffer; }
  /// The maps of the warps before this one. Groups of threads read some each, all at once, and compose them in a tree:
  /// one after the other they took 1300 cycles, a sixth of a tile's time.
  CELLC_DEVICE void compose_before(const Real* table, Map& map) const {
    constexpr int kGroup = kScanParts < 8 ? kScanParts : 8, kShare = (kMostStreamWarps + kGroup - 1) / kGroup;
    map.identity();
    CELLC_UNROLL()
    for (int i = 0; i < kShare; ++i) {
      const int w = part % kGroup * kShare + i;
      if (w >= warp) break;
      Map one;
      fetch(table, w, one);
      one.after(map);
      map = one;
    }
    CELLC_UNROLL(1)
    for (int by = 1; by < kGroup; by *= 2) {
      Map other = map;
      other.shuffle_xor(by * kScanChannels);
      // Which is the later one is chosen first: a branch would compose both ways.
      Real mine[kMapReals];
      int at = 0;
      map.each([&](Real& value) { mine[at++] = value; });
      at = 0;
      other.each([&](Real& value) {
        const Real own = mine[at], its = value;
        value = part & by ? its : own;
        mine[at++] = part & by ? own : its;
      });
      at = 0;
      map.each([&](Real& value) { value = mine[at++]; });
      map.after(other);
    }
  }

  CELLC_DEVICE TileAt* at(int turn) const { return ring + (turn & (kTileRing - 1)); }
  CELLC_DEVICE int chains() const { return lanes.sequences * scan.groups; }

  // Tickets ------------------------------------------------------------------------------------------

  /// What `number` and those after it stand for, until a tile has steps; by one thread.
  CELLC_DEVICE bool plan(TileAt* to, unsigned number) {
    const unsigned all = static_cast<unsigned>(chains()) * scan.tiles;
    TileAt next;
    for (;; number = draw()) {
      next.there = number < all;
      if (!next.there) break;
      ++tickets;
      if (number == 0) begin_finished(scan, this->call);
      const unsigned round = number / chains();
      next.tile = static_cast<int>(round);
      next.chain = static_cast<int>(number - round * chains());
      next.sequence = next.chain / scan.groups;
      const long long at_channel = static_cast<long long>(next.chain - next.sequence * scan.groups) * kScanChannels;
      place_in(next);
      enter(next, at_channel);
      next.block_first = static_cast<long long>(next.tile) * (warps * (kScanSteps * kScanParts)) - this->skew();
      if (next.block_first < next.steps && next.steps > 0) break;
      if (next.tile > 0) continue;
      // A sequence of nothing ends where it starts.
      for (int c = 0; c < kScanChannels && at_channel + c < lanes.channels; ++c) {
        set_channel(lanes, lane[0], at_channel + c);
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) finish(lanes, lane[0], e, start_of(lanes, lane[0], e));
      }
    }
    if (!next.there && number == all + (gridDim.x - scan.carry_blocks) - 1) {
      // Every block but carry blocks draws one ticket in vain; who draws the last leaves the counters to the next call,
      // once all know of this one.
      while (load_relaxed(&scan.control->carrying) != static_cast<unsigned long long>(scan.carry_blocks)) {
      }
      scan.control->carrying = 0;
      scan.control->drawn = 0;
      scan.control->calls = this->call;
    }
    *to = next;
    return next.there;
  }

  /// Where a sequence is, and how long.
  CELLC_DEVICE void place_in(TileAt& of) const {
    long long first_row = 0;
    of.steps = lanes.length;
    if (lanes.offsets) {
      first_row = lanes.offsets[of.sequence];
      of.steps = lanes.offsets[of.sequence + 1] - first_row;
    }
    of.first_row = lanes.reverse ? first_row + of.steps - 1 : first_row;
  }
  CELLC_DEVICE void enter(const TileAt& of, long long at_channel) {
    tile = of.tile;
    real = at_channel < lanes.channels;
    Lane& l = lane[0];
    set_channel(lanes, l, real ? at_channel : lanes.channels - 1);
    l.sequence = of.sequence;
    l.segment = 0;
    l.steps = of.steps;
    l.first_row = of.first_row;
    l.direction = lanes.reverse ? -1 : 1;
    if (of.chain == found_chain) return;
    // Mostly all tiles of a block are of one chain.
    found_chain = of.chain;
    this->find_words(of.chain);
    this->find_inputs();
    this->find_rows();
  }
  /// The thread's place in a tile.
  CELLC_DEVICE void enter(int turn) {
    const TileAt& of = *at(turn);
    enter(of, static_cast<long long>(of.chain - of.sequence * scan.groups) * kScanChannels + channel);
    buffer = turn % kScanBuffers;
    first = of.block_first + warp * (kScanSteps * kScanParts);
    begin = first + part * kScanSteps;
    low = begin < 0 ? static_cast<int>(-begin) : 0;
    high = of.steps - begin < kScanSteps ? static_cast<int>(of.steps - begin) : kScanSteps;
    is_last = of.block_first + warps * (kScanSteps * kScanParts) >= of.steps;
  }

  // Transitions -----------------------------------------------------------------------------------------

  /// The states that a carry block's warps hand on in shared memory: words that say by themselves before which window
  /// it is.
  CELLC_DEVICE unsigned long long* handed() const {
    return reinterpret_cast<unsigned long long*>(this->shared);
  }  // [entry][half][channel]
  CELLC_DEVICE void hand(int window, const Real (&state)[kCarried]) const {
    const unsigned long long mark = static_cast<unsigned long long>(window + 1) << 32;
    unsigned long long* at = handed() + channel;
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) {
#ifdef CELLC_STORAGE_F64
      const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(state[e]));
      store_shared(at, mark | (bits & 0xffffffffu));
      store_shared(at + kScanChannels, mark | bits >> 32);
#else
      store_shared(at, mark | __float_as_uint(state[e]));
#endif
      at += kHalves * kScanChannels;
    }
  }
  CELLC_DEVICE bool take(int window, Real (&state)[kCarried]) const {
    bool there = true;
    const unsigned long long* at = handed() + channel;
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) {
      const unsigned long long low = load_shared(at);
#ifdef CELLC_STORAGE_F64
      const unsigned long long high = load_shared(at + kScanChannels);
      state[e] = __hiloint2double(static_cast<int>(high), static_cast<int>(low));
      there &= high >> 32 == window + 1u;
#else
      state[e] = __uint_as_float(static_cast<unsigned>(low));
#endif
      there &= low >> 32 == window + 1u;
      at += kHalves * kScanChannels;
    }
    return there;
  }

  /// By one block: the states at the ends of a chain's tiles, of some channels, from their maps as they appear. Its
  /// warps take windows of kCarryTiles in turn. Each composes what it sees of its own, and when the states before it
  /// have been handed on, what is left to do takes a hundred cycles; then the next one's maps have mostly come, too.
  CELLC_DEVICE void carry(int unit) {
    constexpr int kUnits = kScanChannels / kCarryChannels;  // of a chain
    const int chain = unit / kUnits;
    channel = unit % kUnits * kCarryChannels + thread % kCarryChannels;
    part = thread / kCarryChannels;
    const int sequence = chain / scan.groups;
    const long long at_channel = static_cast<long long>(chain - sequence * scan.groups) * kScanChannels + channel;
    if (at_channel - thread % kCarryChannels >= lanes.channels) return;
    TileAt whole{};
    whole.chain = chain;
    whole.sequence = sequence;
    place_in(whole);
    enter(whole, at_channel);
    const int tile_steps = warps * (kScanSteps * kScanParts);
    const int tiles = static_cast<int>((whole.steps + this->skew() + tile_steps - 1) / tile_steps);
    Real state[kCarried];
    for (int w = threadIdx.x; w < kCarried * kHalves * kScanChannels; w += blockDim.x) store_shared(handed() + w, 0);
    __syncthreads();
    if (warp == 0 && part == 0) {
      first_state(state);
      hand(0, state);
    }
    const int last = tiles - 2;  // nobody starts from the end of the one after it
    for (int window = warp; window * kCarryTiles <= last; window += warps + 1) {
      const int first_tile = window * kCarryTiles,
                all = last - first_tile + 1 < kCarryTiles ? last - first_tile + 1 : kCarryTiles;
      Map own[kCarryRows], composed[kCarryRows];
      CELLC_UNROLL()
      for (int i = 0; i < kCarryRows; ++i) composed[i].identity();
      bool mine = false;  // the state before the window
      int known = 0,
          published = 0;  // of the window's tiles, from its first on: whose maps are composed; whose states are out
      while (published < all) {
        if (known < all) {
          // All at once: a branch between them would wait for each. In the place of tiles that are none stands some
          // other.
          bool there[kCarryRows];
          CELLC_UNROLL()
          for (int i = 0; i < kCarryRows; ++i) {
            const int of = i * kCarryParts + part;
            there[i] = this->look_at_map(first_tile + (of < all ? of : all - 1), own[i]) || !real;
          }
          int run = 0;
          CELLC_UNROLL()
          for (int i = 0; i < kCarryRows; ++i) {
            const unsigned lacking = __ballot_sync(0xffffffffu, !there[i]);
            if (run == i * kCarryParts)
              run += lacking ? (__ffs(static_cast<int>(lacking)) - 1) / kCarryChannels : kCarryParts;
          }
          if (run > all) run = all;
          if (run > known) {
            CELLC_UNROLL()
            for (int i = 0; i < kCarryRows; ++i) {
              if (run <= i * kCarryParts || known >= (i + 1) * kCarryParts) continue;
              composed[i] = own[i];
              CELLC_UNROLL(1)
              for (int by = kCarryChannels; by < kWarp; by *= 2) {
                Map before = composed[i];
                before.shuffle_up(by);
                if (thread >= by) composed[i].after(before);
              }
              if (i == 0) continue;
              Map row = composed[i > 0 ? i - 1 : 0];
              if constexpr (kCarryParts > 1) row.shuffle(kWarp - kCarryChannels + thread % kCarryChannels);
              composed[i].after(row);
            }
            known = run;
          }
        }
        // Of all or none, though a thread may see it before another does.
        if (!mine) mine = __all_sync(0xffffffffu, !real || take(window, state));
        if (!mine || published == known) continue;
        Real end[kCarryRows][kCarried];
        CELLC_UNROLL()
        for (int i = 0; i < kCarryRows; ++i) {
          CELLC_UNROLL()
          for (int e = 0; e < kCarried; ++e) end[i][e] = state[e];
          composed[i].move(end[i]);
          // First of all to the next one.
          if (known == all && i * kCarryParts + part == all - 1) hand(window + 1, end[i]);
        }
        CELLC_UNROLL()
        for (int i = 0; i < kCarryRows; ++i) {
          tile = first_tile + i * kCarryParts + part;
          if (real && tile - first_tile >= published && tile - first_tile < known) publish_state(end[i]);
        }
        published = known;
      }
    }
  }

  // Tiles -------------------------------------------------------------------------------------------

  /// The map of the thread's steps, from no state in particular.
  CELLC_DEVICE void sweep_map(Map& map) {
    Real param[1][(StepWithTransition::kInvariants > 0 ? StepWithTransition::kInvariants : 1)];
    load_params<StepWithTransition>(lanes, lane, param);
    const Uniforms<StepWithTransition> uniforms(lanes);
    Real carried[StepWithTransition::kStates];
    CELLC_UNROLL()
    for (int e = 0; e < StepWithTransition::kStates; ++e) carried[e] = 0;
    Transitions::identity(&carried[kCarried]);
    this->template sweep<StepWithTransition>(param, uniforms, carried, typename Tile::Nothing());
    map.identity();
    if (low < high) map.from(carried, &carried[kCarried]);
  }
  /// From the thread's start. `after`: where the next tile starts, if that is known.
  CELLC_DEVICE void sweep_rows(Real (&state)[kCarried], int turn, bool known, Real (&after)[kCarried]) {
    typename Tile::Following next = this->follow(state);
    if (kChecks && part == kScanParts - 1 && warp + 1 < warps && next.there) {
      Map before;
      fetch(befores(turn), warp + 1, before);
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) next.start[e] = starts()[e * kScanChannels + channel];
      before.move(next.start);
    }
    Real param[1][(Step::kInvariants > 0 ? Step::kInvariants : 1)];
    load_params<Step>(lanes, lane, param);
    const Uniforms<Step> uniforms(lanes);
    const long long number_of_warp = static_cast<long long>(tile) * warps + warp;
    if constexpr (kStaged) {
      this->sweep_from(param, uniforms, state, number_of_warp, typename Tile::Staged(*this));
      leaves = is_bulk_out();
      if (leaves)
        copy_out();
      else
        this->write_staged(first);
    } else {
      this->sweep_from(param, uniforms, state, number_of_warp, typename Tile::Direct(*this));
    }
    if (real && low < high && begin + high == lane[0].steps) {
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) finish(lanes, lane[0], e, state[e]);
    }
    if (kChecks && ends_tile() && next.there) {
      // Its carry block has published the state before, and so this one, or is about to.
      while (!known) known = this->look_at_state(tile, after);
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) next.start[e] = after[e];
    }
    off = this->is_off(param, uniforms, state, next, at(turn)->chain) || off;
  }
  CELLC_DEVICE bool ends_tile() const { return warp == warps - 1 && part == kScanParts - 1; }

  /// Whether the engine copies the warp's rows.
  CELLC_DEVICE bool is_bulk() const {
    bool all = kBulk && kCopy != ScanCopy::Each && Step::kInputs > 0 && !lanes.reverse && first >= 0 &&
               first + kScanSteps * kScanParts + (kShiftedInputs != 0) <= lane[0].steps;
    if constexpr (kCopy == ScanCopy::Contiguous) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kInputs; ++e)
        all = all && this->input_stride(e) == kScanChannels;  // there is no other group
    }
    return all;
  }
  /// Whether it can take them back, too.
  CELLC_DEVICE bool is_bulk_out() const {
    bool all = is_bulk();
    CELLC_UNROLL()
    for (int e = 0; e < kRowStates; ++e) all = all && (!this->row_base[e] || this->is_chunked(e, first));
    return kBulk && __all_sync(0xffffffffu, all && real);
  }
  CELLC_DEVICE void copy_out() {
    bulk_fence();
    __syncwarp();
    if (thread >= kBulkCopies) return;
    CELLC_UNROLL()
    for (int e = 0; e < kRowStates; ++e)
      if (this->row_base[e])
        bulk_store(this->row_at(e, first) - channel + thread * kBulkEntries,
                   this->region() + e * kSlotPitch + thread * kPartPitch,
                   kBulkEntries * static_cast<int>(sizeof(Stored)));
    bulk_commit();
  }
  CELLC_DEVICE void ask_for(int turn) {
    enter(turn);
    if (is_bulk()) {
      this->ask_following(first);
      constexpr int kBytes = kBulkEntries * static_cast<int>(sizeof(Stored));
      bulk_fence();
      if (thread == 0) bulk_expect(gate(), Step::kInputs * kBulkCopies * kBytes);
      __syncwarp();
      if (thread < kBulkCopies) {
        CELLC_UNROLL()
        for (int e = 0; e < Step::kInputs; ++e)
          bulk_copy(this->region() + e * kSlotPitch + thread * kPartPitch,
                    this->input_at(e, first) - channel + thread * kBulkEntries, kBytes, gate());
      }
      copy_commit();
    } else {
      this->ask(first);
    }
  }
  CELLC_DEVICE void wait_for_inputs() {
    if (leaves)
      copy_wait<0>();  // those after them have not been asked for
    else
      copy_wait<kAhead - 1>();
    if (is_bulk()) {
      bulk_wait(gate(), parity >> buffer & 1);
      parity ^= 1u << buffer;
    }
    __syncwarp();
  }

  /// Finds out which tiles the block works on.
  CELLC_DEVICE void draw_tickets() {
    channel = part = 0;
    bool draws = true;
    for (int turn = -kAhead;; ++turn) {
      if (turn >= 0 && !at(turn)->there && !(turn > 0 && at(turn - 1)->there)) {
        if constexpr (kChecks && !kRewalks) {
          __syncthreads();
          if (thread == 0) tell_finished(scan, this->call, tickets);
          if (*flagged()) repair<kCopy>(scan, warps, flagged(), false);  // comes to its barriers
        }
        return;
      }
      if (thread == 0) {
        if (draws)
          draws = plan(at(turn + kAhead), draw());
        else
          at(turn + kAhead)->there = 0;
      }
      __syncthreads();
      __syncthreads();
    }
  }

  CELLC_DEVICE void run() {
    if (static_cast<int>(blockIdx.x) < scan.carry_blocks) {
      __syncthreads();  // all of the block have read this call's number
      if (threadIdx.x == 0) add_release(&scan.control->carrying, 1);
      carry(static_cast<int>(blockIdx.x));
      return;
    }
    if (warp == warps) {
      draw_tickets();
      return;
    }
    if (kBulk && thread == 0) {
      for (buffer = 0; buffer < kScanBuffers; ++buffer) bulk_init(gate());
      bulk_fence();
    }
    if (kChecks && threadIdx.x == 0) *flagged() = 0;  // looked at behind many barriers
    const bool publishes = ends_tile();
    // Of the tile whose start is looked for next: what lies before the thread's steps.
    Map prefix;
    prefix.identity();
    for (int turn = -kAhead;; ++turn) {
      const bool sweeps = turn >= 0 && at(turn)->there, writes = turn > 0 && at(turn - 1)->there;
      if (turn >= 0 && !sweeps && !writes) {
        if (thread < kBulkCopies) bulk_wait_written();
        if constexpr (kChecks && !kRewalks) {
          if (off) *flagged() = 1;
          __syncthreads();
          if (*flagged()) {
            await_finished(scan, this->call, static_cast<unsigned>(chains()) * scan.tiles);
            repair<kCopy>(scan, warps, flagged(), false);
          }
        }
        return;
      }
      Real state[kCarried], after[kCarried];
      // By one thread of each channel, early: mostly it is there, and memory takes its time.
      const bool asks = writes && warp == 0 && part == 0;
      bool known = true;
      if (asks) {
        enter(turn - 1);
        if (tile == 0)
          first_state(state);
        else if (real)
          known = this->look_at_state(tile - 1, state);
      }
      bool ended = false;
      if (kChecks && writes && ends_tile()) {
        enter(turn - 1);
        if (real && !is_last) ended = this->look_at_state(tile, after);
      }
      Map own;
      if (sweeps) {
        enter(turn);
        wait_for_inputs();
        sweep_map(own);
        CELLC_UNROLL(1)
        for (int by = kScanChannels; by < kWarp; by *= 2) {
          Map before = own;
          before.shuffle_up(by);
          if (thread >= by) own.after(before);
        }
        if (part == kScanParts - 1) keep(totals(turn), own);
      }
      __syncthreads();
      Map next_prefix = prefix;
      if (sweeps) {
        Map before;
        compose_before(totals(turn), before);
        Map whole = own;  // in who publishes, all of the tile
        whole.after(before);
        own.shuffle_up(kScanChannels);
        if (part == 0) own.identity();
        own.after(before);
        if (kChecks && part == 0) keep(befores(turn), own);
        next_prefix = own;
        if (publishes) enter(turn);
        if (publishes && real && !is_last) publish_map(whole);
      }
      if (leaves) {
        // By now those rows have mostly been read.
        leaves = false;
        if (thread < kBulkCopies) bulk_wait_read();
        __syncwarp();
        if (at(turn + kAhead - 1)->there)
          ask_for(turn + kAhead - 1);
        else
          copy_commit();
      }
      if (writes) enter(turn - 1);
      if (asks) {
        while (!known) known = this->look_at_state(tile - 1, state);
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) starts()[e * kScanChannels + channel] = state[e];
      }
      __syncthreads();
      if (writes) {
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) state[e] = starts()[e * kScanChannels + channel];
        prefix.move(state);
        sweep_rows(state, turn - 1, ended, after);
      }
      __syncwarp();  // the place of the rows is free
      prefix = next_prefix;
      if (leaves) continue;
      if (at(turn + kAhead)->there)
        ask_for(turn + kAhead);
      else
        copy_commit();
    }
  }
};

/// Blocks of any number of warps, beside the one that draws tickets, in any number beside the carry blocks.
template <ScanCopy kCopy>
CELLC_DEVICE void scan_stream(const Scan& scan) {
  static_assert(kScanChannels >= 1 && kScanChannels <= kWarp && (kScanChannels & (kScanChannels - 1)) == 0);
  static_assert(kCopy != ScanCopy::Time || kScanChannels <= kChunk);
  static_assert(kCopy != ScanCopy::Contiguous || kScanChannels * sizeof(Stored) >= 16);
  static_assert(kScanBuffers >= 3 && kScanBuffers + 2 <= kTileRing && sizeof(TileAt) % 8 == 0);
  CELLC_DYNAMIC_SHARED(char, scan_shared);
  ScanStream<kCopy>(scan, scan_shared).run();
}

}  // namespace cellc
