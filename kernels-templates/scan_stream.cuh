// A scan (scan.cuh) of few channels: long sequences whose pieces stream through the blocks.
//
// With few channels nearly all pieces that are under way belong to one chain, and each waits for those before
// it. A block that did nothing else meanwhile would leave memory idle. So a block holds kScanBuffers pieces at
// once: the inputs of the later ones are on their way; the next one is swept with carriers and its map
// published; and only then the start of the piece before is looked for, whose predecessors' maps have been
// asked for before that sweep. Mostly they are there by then, one look suffices, and nobody waits. The last
// warp of a block does nothing but draw tickets.
//
// Pieces are handed out in order of time, a block takes its own in order, and a map is published before any
// start is waited for: whoever is waited for is running or done, as in scan.cuh.
//
// Needs scan.cuh.
#pragma once

namespace cellc {

#ifndef CELLC_SCAN_BUFFERS
#define CELLC_SCAN_BUFFERS 3
#endif
#ifndef CELLC_STREAM_LOOK
#define CELLC_STREAM_LOOK (CELLC_SCAN_CHANNELS < 4 ? 1 : CELLC_SCAN_CHANNELS < 8 ? 2 : 4)
#endif
constexpr int kScanBuffers = CELLC_SCAN_BUFFERS;  ///< pieces of a block that are on chip at once: 3 or 4
constexpr int kStreamLook = CELLC_STREAM_LOOK;    ///< predecessors that a thread looks at together
constexpr int kPieceRing = 8;                     ///< more than a block has to do with at once
constexpr int kWarpBytes = kSlots * kSlotPitch * static_cast<int>(sizeof(Stored));  ///< of a piece

/// Which piece a ticket stands for.
struct PieceAt {
  long long block_first, steps, first_row;
  int piece, sequence, chain;
  int there;  ///< 0: no ticket was left
};

/// Dynamic shared memory of a block of so many warps beside the one that draws tickets.
constexpr int stream_shared_bytes(int warps) {
  return kPieceRing * static_cast<int>(sizeof(PieceAt)) +
         warps * (kScanBuffers * (kWarpBytes + 8) +
                  kScanChannels * static_cast<int>(3 * kMapReals * sizeof(Real) + sizeof(unsigned)));
}

// Copies of whole rows of a warp by the engine of sm_90, which asks for nothing of the threads: as many
// requests by threads would hold up whatever else they have to read.
#if !defined(CELLC_EMULATOR) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kBulk = !kSwizzled && kPartPad == 0 && kScanChannels <= kChunk;
CELLC_DEVICE void bulk_init(unsigned long long* gate) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(gate)) : "memory");
}
/// What threads read and wrote comes before what the engine copies later.
CELLC_DEVICE void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
CELLC_DEVICE void bulk_expect(unsigned long long* gate, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(gate)), "r"(bytes) : "memory");
}
CELLC_DEVICE void bulk_copy(void* to, const void* from, int bytes, unsigned long long* gate) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(gate))
               : "memory");
}
CELLC_DEVICE void bulk_wait(unsigned long long* gate, unsigned parity) {
  asm volatile(
      "{\n.reg .pred there;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n@!there bra again;\n}" ::"r"(
          shared_address(gate)),
      "r"(parity)
      : "memory");
}
#else
constexpr bool kBulk = false;
CELLC_DEVICE void bulk_init(unsigned long long*) {}
CELLC_DEVICE void bulk_fence() {}
CELLC_DEVICE void bulk_expect(unsigned long long*, int) {}
CELLC_DEVICE void bulk_copy(void*, const void*, int, unsigned long long*) {}
CELLC_DEVICE void bulk_wait(unsigned long long*, unsigned) {}
#endif

template <ScanCopy kCopy>
struct ScanStream : ScanMaps<kCopy, kScanBuffers> {
  using Maps = ScanMaps<kCopy, kScanBuffers>;
  using typename Maps::Map, typename Maps::Piece;
  using Maps::scan, Maps::lanes, Maps::lane, Maps::thread, Maps::warp, Maps::warps, Maps::channel, Maps::part;
  using Maps::real, Maps::piece, Maps::begin, Maps::low, Maps::high, Maps::buffer, Maps::words;
  using Maps::keep, Maps::fetch, Maps::publish_state, Maps::publish_map;
  using Maps::first_state, Maps::draw;
  static constexpr int kAhead = kScanBuffers - 1;  ///< pieces from asking for inputs to their sweep

  PieceAt* const ring;
  long long first;    // step of the warp's first row
  bool is_last;       // of its sequence
  unsigned parity = 0;  // by buffer: of its gate

  CELLC_DEVICE ScanStream(const Scan& scan, char* shared)
      : Maps(scan, shared + kPieceRing * sizeof(PieceAt)), ring(reinterpret_cast<PieceAt*>(shared)) {
    --warps;
  }

  CELLC_DEVICE Real* tables() const {
    return reinterpret_cast<Real*>(this->shared + kScanBuffers * warps * (kWarpBytes + static_cast<int>(sizeof(unsigned long long))));
  }
  /// By warp: the map of its steps, for two pieces in turn; then of the predecessors that it has looked at.
  CELLC_DEVICE Real* totals(int turn) const { return tables() + (turn & 1) * warps * (kMapReals * kScanChannels); }
  CELLC_DEVICE Real* looks() const { return tables() + 2 * warps * (kMapReals * kScanChannels); }
  /// What tells a warp that the engine has copied the inputs of a buffer.
  CELLC_DEVICE unsigned long long* gate() const {
    return reinterpret_cast<unsigned long long*>(this->shared + kScanBuffers * warps * kWarpBytes) + warp * kScanBuffers + buffer;
  }
  CELLC_DEVICE unsigned* ended() const { return reinterpret_cast<unsigned*>(looks() + warps * (kMapReals * kScanChannels)); }

  CELLC_DEVICE PieceAt* at(int turn) const { return ring + (turn & (kPieceRing - 1)); }
  CELLC_DEVICE int chains() const { return lanes.sequences * scan.groups; }

  // Tickets ------------------------------------------------------------------------------------------

  /// What `number` and those after it stand for, until a piece has steps; by one thread.
  CELLC_DEVICE bool plan(PieceAt* to, unsigned number) {
    const unsigned all = static_cast<unsigned>(chains()) * scan.pieces;
    PieceAt next;
    for (;; number = draw()) {
      next.there = number < all;
      if (!next.there) break;
      const unsigned round = number / chains();
      next.piece = static_cast<int>(round);
      next.chain = static_cast<int>(number - round * chains());
      next.sequence = next.chain / scan.groups;
      const long long at_channel = static_cast<long long>(next.chain - next.sequence * scan.groups) * kScanChannels;
      long long first_row = 0;
      next.steps = lanes.length;
      if (lanes.offsets) {
        first_row = lanes.offsets[next.sequence];
        next.steps = lanes.offsets[next.sequence + 1] - first_row;
      }
      next.first_row = lanes.reverse ? first_row + next.steps - 1 : first_row;
      enter(next, at_channel);
      this->find_inputs();
      next.block_first = static_cast<long long>(next.piece) * (warps * (kScanSteps * kScanParts)) - this->skew();
      if (next.block_first < next.steps && next.steps > 0) break;
      if (next.piece > 0) continue;
      // A sequence of nothing ends where it starts.
      for (int c = 0; c < kScanChannels && at_channel + c < lanes.channels; ++c) {
        lane[0].channel_index = at_channel + c;
        CELLC_UNROLL()
        for (int e = 0; e < Step::kStates; ++e) finish(lanes, lane[0], e, start_of(lanes, lane[0], e));
      }
    }
    if (!next.there && number == all + gridDim.x - 1) {
      // Every block draws one ticket in vain; who draws the last leaves the counter to the next call.
      scan.control->drawn = 0;
      scan.control->calls = this->call;
    }
    *to = next;
    return next.there;
  }

  CELLC_DEVICE void enter(const PieceAt& of, long long at_channel) {
    piece = of.piece;
    real = at_channel < lanes.channels;
    Lane& l = lane[0];
    l.channel_index = real ? at_channel : lanes.channels - 1;
    l.sequence = of.sequence;
    l.segment = 0;
    l.steps = of.steps;
    l.first_row = of.first_row;
    l.direction = lanes.reverse ? -1 : 1;
    this->find_words(of.chain);
  }
  /// The thread's place in a piece.
  CELLC_DEVICE void enter(int turn) {
    const PieceAt& of = *at(turn);
    enter(of, static_cast<long long>(of.chain - of.sequence * scan.groups) * kScanChannels + channel);
    buffer = turn % kScanBuffers;
    first = of.block_first + warp * (kScanSteps * kScanParts);
    begin = first + part * kScanSteps;
    low = begin < 0 ? static_cast<int>(-begin) : 0;
    high = of.steps - begin < kScanSteps ? static_cast<int>(of.steps - begin) : kScanSteps;
    is_last = of.block_first + warps * (kScanSteps * kScanParts) >= of.steps;
  }

  // Starts -------------------------------------------------------------------------------------------

  /// What predecessors have published so far, words as they are: loads that are looked at one by one would wait for
  /// one by one.
  struct Glimpse {
    unsigned long long word[kStreamLook][kScanWords];
    CELLC_DEVICE bool read(int i, int& at, unsigned call, Real& value) const {
#ifdef CELLC_STORAGE_F64
      const unsigned long long low = word[i][at], high = word[i][at + 1];
      value = __hiloint2double(static_cast<int>(high), static_cast<int>(low));
      at += 2;
      return low >> 32 == call && high >> 32 == call;
#else
      value = __uint_as_float(static_cast<unsigned>(word[i][at]));
      return word[i][at++] >> 32 == call;
#endif
    }
  };
  CELLC_DEVICE void glance(int nearest, Glimpse& seen) const {
    CELLC_UNROLL()
    for (int i = 0; i < kStreamLook; ++i) {
      const unsigned long long* const from = this->words_of(nearest - i > 0 ? nearest - i : 0);
      CELLC_UNROLL()
      for (int w = 0; w < kScanWords; ++w) seen.word[i][w] = load_relaxed(from + w * kScanChannels);
    }
  }
  /// Composes predecessors, nearest first, as they appear; whether they led back to a state.
  CELLC_DEVICE bool follow(int nearest, Glimpse& seen, Map& all) const {
    int count = 0;
    for (;;) {
      CELLC_UNROLL()
      for (int i = 0; i < kStreamLook; ++i) {
        if (i != count) continue;
        int at = 0;
        bool has_state = true, has_map = true;
        Real state[Step::kStates];
        CELLC_UNROLL()
        for (int e = 0; e < Step::kStates; ++e) has_state = seen.read(i, at, this->call, state[e]) & has_state;
        Map map;
        map.identity();
        map.each([&](Real& value) { has_map = seen.read(i, at, this->call, value) & has_map; });
        if (has_state) map.constant(state);
        else if (!has_map) continue;
        all.after(map);
        if (has_state) return true;
        ++count;
      }
      if (count == kStreamLook) return false;
      glance(nearest, seen);
    }
  }

  /// Of the warps that work on rows.
  CELLC_DEVICE void wait_for_warps() const {
#ifdef CELLC_EMULATOR
    cellc_emulator::named_barrier(1, warps * kWarp);
#else
    asm volatile("bar.sync 1, %0;" ::"r"(warps * kWarp) : "memory");
#endif
  }

  CELLC_DEVICE int place_of_look() const { return (warp * kScanParts + part) * kStreamLook; }
  CELLC_DEVICE int reach() const {
    const int most = warps * kScanParts * kStreamLook;
    return scan.look < most ? (scan.look + kStreamLook - 1) / kStreamLook * kStreamLook : most;
  }
  CELLC_DEVICE bool looks_at(int base) const { return real && place_of_look() < reach() && piece - 1 - base - place_of_look() >= 0; }

  /// The state at the start of the piece, from those on its left; `seen` is a first glance at them. Passes
  /// __syncthreads once.
  CELLC_DEVICE void look_back(Glimpse& seen, Real (&state)[Step::kStates]) {
    Map all;
    all.identity();
    bool found = !real;
    for (int base = 0;; base += reach()) {
      Map map;
      map.identity();
      const int nearest = piece - 1 - base - place_of_look();
      bool done = found;
      if (!found && looks_at(base)) {
        if (base > 0) glance(nearest, seen);
        done = follow(nearest, seen, map);
      }
      __syncwarp();
      CELLC_UNROLL(1)
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
      if (base == 0) __syncthreads();
      else wait_for_warps();
      CELLC_UNROLL(4)
      for (int w = 0; w < warps; ++w) {
        fetch(looks(), w, map);
        const bool ends = ended()[w * kScanChannels + channel];
        if (found) continue;
        all.after(map);
        found = ends;
      }
      // Every warp has all channels and comes to the same answer.
      if (__all_sync(0xffffffffu, found)) break;
      wait_for_warps();
    }
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) state[e] = 0;
    all.move(state);
  }

  // Pieces -------------------------------------------------------------------------------------------

  /// The map of the thread's steps, from no state in particular.
  CELLC_DEVICE void sweep_map(Map& map) {
    Real param[1][(Carried::kParams > 0 ? Carried::kParams : 1)];
    load_params<Carried>(lanes, lane, param);
    const Uniforms<Carried> uniforms(lanes);
    Real carried[Carried::kStates];
    CELLC_UNROLL()
    for (int e = 0; e < Carried::kStates; ++e) carried[e] = 0;
    Carriers::identity(&carried[Step::kStates]);
    this->template sweep<Carried>(param, uniforms, carried, typename Piece::Nothing());
    map.identity();
    if (low < high) map.from(carried, &carried[Step::kStates]);
  }
  CELLC_DEVICE void sweep_rows(Real (&state)[Step::kStates]) {
    Real param[1][(Step::kParams > 0 ? Step::kParams : 1)];
    load_params<Step>(lanes, lane, param);
    const Uniforms<Step> uniforms(lanes);
    if constexpr (kStaged) {
      this->template sweep<Step>(param, uniforms, state, typename Piece::Staged(*this));
      this->write_staged(first);
    } else {
      this->template sweep<Step>(param, uniforms, state, typename Piece::Direct(*this));
    }
    if (real && low < high && begin + high == lane[0].steps) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kStates; ++e) finish(lanes, lane[0], e, state[e]);
    }
  }

  /// Whether the engine copies the warp's rows.
  CELLC_DEVICE bool is_bulk() const {
    return kBulk && Piece::kTime && Step::kInputs > 0 && !lanes.reverse && first >= 0 && first + kScanSteps * kScanParts <= lane[0].steps;
  }
  CELLC_DEVICE void ask_for(int turn) {
    enter(turn);
    this->find_inputs();
    if (is_bulk()) {
      constexpr int kBytes = kSlotPitch * static_cast<int>(sizeof(Stored));
      bulk_fence();
      __syncwarp();
      if (thread == 0) {
        bulk_expect(gate(), Step::kInputs * kBytes);
        CELLC_UNROLL()
        for (int e = 0; e < Step::kInputs; ++e)
          bulk_copy(this->region() + e * kSlotPitch, this->input_at(e, first) - channel, kBytes, gate());
      }
      copy_commit();
    } else {
      this->ask(first);
    }
  }
  CELLC_DEVICE void wait_for_inputs() {
    copy_wait<kAhead - 1>();
    if (is_bulk()) {
      bulk_wait(gate(), parity >> buffer & 1);
      parity ^= 1u << buffer;
    }
    __syncwarp();
  }

  /// Finds out which pieces the block works on.
  CELLC_DEVICE void draw_tickets() {
    channel = part = 0;
    bool draws = true;
    for (int turn = -kAhead;; ++turn) {
      if (turn >= 0 && !at(turn)->there && !(turn > 0 && at(turn - 1)->there)) return;
      if (thread == 0) {
        if (draws) draws = plan(at(turn + kAhead), draw());
        else at(turn + kAhead)->there = 0;
      }
      __syncthreads();
      __syncthreads();
    }
  }

  CELLC_DEVICE void run() {
    if (warp == warps) {
      draw_tickets();
      return;
    }
    if (kBulk && thread == 0) {
      for (buffer = 0; buffer < kScanBuffers; ++buffer) bulk_init(gate());
      bulk_fence();
    }
    const bool publishes = warp == warps - 1 && part == kScanParts - 1;
    // Of the piece whose start is looked for next: what lies before the thread's steps; all of it, in who publishes.
    Map prefix, whole;
    prefix.identity();
    whole.identity();
    for (int turn = -kAhead;; ++turn) {
      const bool sweeps = turn >= 0 && at(turn)->there, writes = turn > 0 && at(turn - 1)->there;
      if (turn >= 0 && !sweeps && !writes) return;
      Glimpse seen;
      if (writes) {
        enter(turn - 1);
        if (looks_at(0)) glance(piece - 1 - place_of_look(), seen);
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
      Map next_prefix = prefix, next_whole = whole;
      if (sweeps) {
        Map before;
        before.identity();
        CELLC_UNROLL(4)
        for (int w = 0; w < warp; ++w) {
          Map one;
          fetch(totals(turn), w, one);
          one.after(before);
          before = one;
        }
        next_whole = own;
        next_whole.after(before);
        own.shuffle_up(kScanChannels);
        if (part == 0) own.identity();
        own.after(before);
        next_prefix = own;
        if (publishes) enter(turn);
        if (publishes && real && !is_last) {
          if (piece == 0) {
            Real end[Step::kStates];
            first_state(end);
            next_whole.move(end);
            publish_state(end);
          } else {
            publish_map(next_whole);
          }
        }
      }
      Real state[Step::kStates];
      const bool follows = writes && at(turn - 1)->piece > 0;
      if (writes) enter(turn - 1);
      if (follows) {
        look_back(seen, state);
        if (publishes && real && !is_last) {
          Real end[Step::kStates];
          CELLC_UNROLL()
          for (int e = 0; e < Step::kStates; ++e) end[e] = state[e];
          whole.move(end);
          publish_state(end);
        }
      } else {
        __syncthreads();
        if (writes) first_state(state);
      }
      if (writes) {
        prefix.move(state);
        this->find_rows();
        sweep_rows(state);
      }
      __syncwarp();  // the place of the rows is free
      prefix = next_prefix;
      whole = next_whole;
      if (at(turn + kAhead)->there) ask_for(turn + kAhead);
      else copy_commit();
    }
  }
};

/// Blocks of any number of warps, beside the one that draws tickets, in any number.
template <ScanCopy kCopy>
CELLC_DEVICE void scan_stream(const Scan& scan) {
  static_assert(kScanChannels >= 1 && kScanChannels <= kWarp && (kScanChannels & (kScanChannels - 1)) == 0);
  static_assert(kCopy != ScanCopy::Time || kScanChannels <= kChunk);
  static_assert(kCopy != ScanCopy::Rows || kScanChannels * sizeof(Stored) >= 16);
  static_assert(kScanBuffers >= 3 && kScanBuffers + 2 <= kPieceRing && sizeof(PieceAt) % 8 == 0);
  CELLC_DYNAMIC_SHARED(char, scan_shared);
  ScanStream<kCopy>(scan, scan_shared).run();
}

}  // namespace cellc
