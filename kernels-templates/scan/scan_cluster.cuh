// Scans that are on the card as a whole at once: a cluster of blocks for each group of channels of a sequence.
//
// Where a sequence is short enough, its inputs fit into the registers of a few multiprocessors, and the blocks that
// hold them can be resident together (clusters, sm_90). Then nothing is left to hand out and nobody looks back through
// memory: block r of a cluster takes the r-th tile of time, a thread loads its steps of one channel all at once, and
// the blocks write the maps of their tiles into each other's shared memory, the earlier ones to the later ones.
//
// Has it: linear, clip and Moebius stages over at most 16 tiles of a sequence, whose clusters all fit the card (minGRU
// of 1024 channels over 2048 steps, a chunk of a longer text). Has it not: longer sequences, and more of them than fit:
// there scan.cuh comes near the speed of a copy anyway, since it loads one tile while it writes another.
//
// What it saves, h' = a*h + x in f32 at (1, 2048, 1024) on an H200: docs/notes/device-scan.md. Each of these counts
// there: inputs in registers instead of shared memory, letters (st.async) instead of a barrier of the cluster, all
// warps writing some of them, no barrier at the end (a block that has its letters is written to no more), and the next
// kernel let in before the rows are written.
//
// Where starts are looked at (kChecks) each thread also makes the start of the one after it, from the same numbers, and
// looks at it before rows are written. What a block has found the others know when theirs are: mostly nothing, and then
// nobody waits for rows to be in memory (scan_repair.cuh).
//
// Larger than most (ClusterRun, run): a thread holds its steps in registers from the first load to the last row,
// through letters, looks and repair; what is cut out of that would have to put them into memory.
//
// Needs scan.cuh.
#pragma once

namespace cellc {

constexpr int kCluster = Traits::kScanCluster > 0 ? Traits::kScanCluster : 1;  ///< blocks of a cluster: 1, 2, 4, 8, 16
/// All sequences are as long, of whole tiles, and channels fill whole groups: nobody asks for each step.
constexpr bool kWhole = Traits::kScanWhole;

constexpr int kMailboxBytes = 16;
/// Dynamic shared memory of a block: its mailbox, the maps of its warps and those of the tiles before its own, and
/// what the steps after those of its threads read.
constexpr int cluster_shared_bytes(int warps) {
  return kMailboxBytes + (warps + kCluster) * kMapReals * kScanChannels * static_cast<int>(sizeof(Real)) +
         warps * kWarp * Step::kInputs * static_cast<int>(sizeof(Stored));
}

/// By one warp: what is marked of a chain, all of whose rows are written.
CELLC_APART void repair_of_cluster(const Scan& scan, int chain, int warps) {
  unsigned claimed = 0;
  if (threadIdx.x % kWarp == 0) claimed = atomicExch(scan.marks + chain, 0u);
  if (!__shfl_sync(0xffffffffu, claimed, 0)) return;
  ScanRepair<ScanCopy::Each> repair(scan);
  repair.warp = 0;
  repair.repair_chain(chain, warps, 1);
}

struct ClusterRun : ScanMaps<ScanCopy::Each, 0> {
  using Maps = ScanMaps<ScanCopy::Each, 0>;
  using typename Maps::Map, typename Maps::Tile;

  static constexpr int kWarpSteps = kScanSteps * kScanParts;
  static constexpr int kLetters = kCluster < 4 ? kCluster : 4;

  Mailbox* mailbox;
  int rank;
  static constexpr int kInvariants = Maps::kInputs > kRowStates ? Maps::kInputs : kRowStates;
  /// Inputs as they stand in memory, since what is made of one would be waited for; and in the end, in their place,
  /// rows.
  Stored held[kScanSteps][kInvariants];
  long long first_place[Maps::kInputs],
      following_place[Maps::kInputs];  ///< of the thread's first step in each input, and of the one after its last

  CELLC_DEVICE ClusterRun(const Scan& scan, char* shared)
      : Maps(scan, shared + kMailboxBytes),
        mailbox(reinterpret_cast<Mailbox*>(shared)),
        rank(kCluster > 1 ? static_cast<int>(cluster_rank()) : 0) {}

  CELLC_DEVICE Real* letters() const { return totals() + warps * (kMapReals * kScanChannels); }

  /// Whether the thread after this one, of the next tile perhaps, started elsewhere than where this one has come to.
  CELLC_DEVICE bool is_off(const Real (&end)[kCarried], const typename Tile::Following& next, int chain) const {
    if (!next.there) return false;
    Real param[1][(Step::kInvariants > 0 ? Step::kInvariants : 1)];
    load_params<Step>(lanes, lane, param);
    const Uniforms<Step> uniforms(lanes);
    // Rows that are still to be written are at hand.
    const auto size_before = [&](int e) {
      Real size = 0;
      CELLC_UNROLL()
      for (int k = kScanSteps / 2; k < kScanSteps; ++k) size = larger(size, finite_size(widen(held[k][e])));
      return size;
    };
    if (this->agrees(param, uniforms, end, next.start, next.input, scan.tolerance, size_before)) return false;
    const int of_warp = part < kScanParts - 1 ? warp : warp + 1;
    return this->mark(chain, of_warp == warps ? rank + 1 : rank, of_warp == warps ? 0 : of_warp);
  }
  /// By each warp, before it writes its rows: whether it has found anything off. The first that has tells all blocks.
  /// The others order nothing, and so need not wait for memory.
  CELLC_DEVICE void tell(bool off, int chain, int tiles) {
    if (!__any_sync(0xffffffffu, off)) {
      if (kCluster > 1) cluster_arrive_relaxed();
      return;
    }
    const bool first = thread == 0 && atomicExch(scan.marks + chain, blockIdx.x + 1) == 0;
    if (kCluster == 1) return;
    for (int to = 0; first && to < tiles; ++to) ring(mailbox, to);
    __syncwarp();
    cluster_arrive();
  }
  /// By each warp, when it has written them. Mostly nobody has found anything, and all may end. Otherwise who has waits
  /// until all rows are there, and one of those warps walks what is marked.
  CELLC_DEVICE void agree(bool off, int chain) {
    if (kCluster > 1) {
      cluster_wait();
      if (!has_rung(mailbox)) return;
      __syncwarp();
      cluster_arrive();
      if (!__any_sync(0xffffffffu, off)) return;
      cluster_wait();
    } else if (!__syncthreads_or(off)) {
      return;
    }
    repair_of_cluster(scan, chain, warps);
  }

  /// Whether there is a step after the thread's own, to look at.
  CELLC_DEVICE bool is_followed() const {
    return kChecks && real && high == kScanSteps && begin + kScanSteps < lane[0].steps;
  }
  /// The thread's own place for what that step reads: of [input][thread].
  CELLC_DEVICE Stored* following() const {
    return reinterpret_cast<Stored*>(letters() + kCluster * (kMapReals * kScanChannels)) + threadIdx.x;
  }

  /// Where an input's entry of step t lies in its array.
  CELLC_DEVICE long long place_of(int e, long long t) const {
    return this->input_at(e, t) - static_cast<const Stored*>(lanes.array[Step::input_array(e)].data);
  }
  /// Works out what read() will need in one tile, before all else that it has to do.
  CELLC_DEVICE void prepare() {
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) {
      first_place[e] = place_of(e, begin);
      following_place[e] = kChecks ? place_of(e, begin + kScanSteps) : 0;
      make_now(first_place[e]);
      if (kChecks) make_now(following_place[e]);
    }
  }
  /// All at once, the first steps first: nothing waits for any of them before the last is on its way.
  CELLC_DEVICE void read() {
    // What is looked at in the end comes to shared memory, since there are no registers left. Behind the others the
    // compiler would go the whole way to its place once more, in as many sums.
    Stored next[Maps::kInputs];
    if (is_followed()) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kInputs; ++e) {
        const Stored* const from =
            static_cast<const Stored*>(lanes.array[Step::input_array(e)].data) + following_place[e];
        if constexpr (kNarrow)
          next[e] = *from;  // copies are of four bytes at least
        else
          copy_async<sizeof(Stored)>(following() + e * blockDim.x, from);
      }
      copy_commit();
    }
    const Stored* from[Maps::kInputs];
    long long stride[Maps::kInputs];
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) {
      from[e] = static_cast<const Stored*>(lanes.array[Step::input_array(e)].data) + first_place[e];
      stride[e] = this->input_stride(e);
    }
    CELLC_UNROLL()
    for (int k = 0; k < kScanSteps; ++k) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kInputs; ++e) {
        if (kWhole || k < high)
          held[k][e] = is_shifted(e) && begin + k + 1 >= lane[0].steps ? *last_input[kShiftedInputs ? e : 0] : *from[e];
        from[e] += stride[e];
      }
    }
    if (kNarrow && is_followed()) {
      CELLC_UNROLL()
      for (int e = 0; e < Step::kInputs; ++e) following()[e * blockDim.x] = next[e];
    }
  }

  /// Runs the thread's steps; after(k, states) for each. To ask for each whether there is such a step takes less than a
  /// second copy of the code, for threads that have all: it is run once, and fetching it counts.
  template <class Cell, class After>
  CELLC_DEVICE void sweep(Real (&state)[Cell::kStates], After&& after) {
    Real param[1][(Cell::kInvariants > 0 ? Cell::kInvariants : 1)];
    load_params<Cell>(lanes, lane, param);
    const Uniforms<Cell> uniforms(lanes);
    CELLC_UNROLL()
    for (int k = 0; k < kScanSteps; ++k) {
      if (!kWhole && k >= high) continue;
      Real reads[Maps::kInputs], next[Cell::kStates];
      CELLC_UNROLL()
      for (int e = 0; e < Step::kInputs; ++e) reads[e] = widen(held[k][e]);
      Cell::step(param[0], reads, state, next, uniforms.data);
      CELLC_UNROLL()
      for (int e = 0; e < Cell::kStates; ++e) state[e] = next[e];
      after(k, state);
    }
  }

  /// The map of this block's tile, to those that come later: each warp writes to some of them.
  CELLC_DEVICE void send(Map& map, int tiles) {
    if (part > 0) return;
    CELLC_UNROLL(1)
    for (int to = rank + 1 + warp; to < tiles; to += warps) {
      Real* at = letters() + rank * (kMapReals * kScanChannels) + channel;
      map.each([&](Real& value) {
        send_letter(mailbox, at, to, value);
        at += kScanChannels;
      });
    }
  }

  CELLC_DEVICE void run() {
    if (lanes.offsets) await_stream();  // another kernel may have to do with these
    const int chain = static_cast<int>(blockIdx.x / kCluster), sequence = chain / scan.groups;
    const long long at_channel = static_cast<long long>(chain - sequence * scan.groups) * kScanChannels + channel;
    real = kWhole || at_channel < lanes.channels;
    this->resolve(sequence, chain, real ? at_channel : lanes.channels - 1);
    begin = (rank * warps + warp) * kWarpSteps + part * kScanSteps;
    const long long steps = lane[0].steps;
    const int block_steps = warps * kWarpSteps, tiles = static_cast<int>((steps + block_steps - 1) / block_steps);
    high = steps - begin >= kScanSteps ? kScanSteps : steps > begin ? static_cast<int>(steps - begin) : 0;
    if (kCluster > 1) {
      constexpr int kReal = static_cast<int>(sizeof(Real));
      if (threadIdx.x == 0) open_mailbox(mailbox, rank < tiles ? rank * (kMapReals * kScanChannels * kReal) : 0);
      __syncwarp();
      cluster_arrive_relaxed();
    }
    prepare();
    await_stream();
    if (kWhole && rank >= tiles) {
      cluster_wait();
      return;
    }
    read();
    if (kChecks && blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(&scan.control->clustered, 1u);
    Real state[kCarried];
    first_state(state);
    Map own_map;
    {
      Real carried[StepWithTransition::kStates];
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) carried[e] = 0;
      Transitions::identity(&carried[kCarried]);
      sweep<StepWithTransition>(carried, [](int, const Real(&)[StepWithTransition::kStates]) {});
      own_map.identity();
      if (kWhole || high > 0) own_map.from(carried, &carried[kCarried]);
    }
    // What the warp's parts make of what they start from.
    CELLC_UNROLL()
    for (int by = kScanChannels; by < kWarp; by *= 2) {
      Map before = own_map;
      before.shuffle_up(by);
      if (thread >= by) own_map.after(before);
    }
    if (part == kScanParts - 1) keep(totals(), own_map);
    if constexpr (kScanParts > 1) own_map.shuffle_up(kScanChannels);
    if (kCluster > 1) cluster_wait();  // all mailboxes are open
    __syncthreads();
    Map before, upto, all;  // the warp; the next one
    before.identity();
    all.identity();
    CELLC_UNROLL(4)
    for (int w = 0; w < warps; ++w) {
      if (w == warp) before = all;
      Map one;
      fetch(totals(), w, one);
      one.after(all);
      all = one;
      if (kChecks && w == warp) upto = all;
    }
    // Nobody waits for those that have no steps, or writes to them.
    if (rank >= tiles) {
      if (steps == 0 && rank == 0 && warp == 0 && part == 0 && real) {
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) finish(lanes, lane[0], e, state[e]);
      }
      return;
    }
    if (kCluster > 1) send(all, tiles);
    typename Tile::Following next;
    next.there = is_followed();
    Stored* to[kRowStates];
    bool writes[kRowStates];
    long long stride[kRowStates];
    CELLC_UNROLL()
    for (int e = 0; e < kRowStates; ++e) {
      writes[e] = real && row_base[e];
      to[e] = this->row_at(e, begin);
      stride[e] = this->row_stride(e);
    }
    const bool ends = real && high > 0 && begin + high == lane[0].steps;
    if (kCluster > 1) await_letters(mailbox);
    let_next_begin();
    // Read several at once: one after the other, each would be waited for.
    CELLC_UNROLL(1)
    for (int first = 0; first < rank; first += kLetters) {
      Map one[kLetters];
      CELLC_UNROLL()
      for (int i = 0; i < kLetters; ++i) fetch(letters(), first + i, one[i]);
      CELLC_UNROLL()
      for (int i = 0; i < kLetters; ++i)
        if (first + i < rank) one[i].move(state);
    }
    if constexpr (kChecks) {
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) next.start[e] = state[e];
      upto.move(next.start);
    }
    if (warp > 0) before.move(state);
    if (kScanParts > 1 && part > 0) own_map.move(state);
    if constexpr (kChecks && kScanParts > 1) {
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) {
        const Real start = __shfl_down_sync(0xffffffffu, state[e], kScanChannels);
        if (part < kScanParts - 1) next.start[e] = start;
      }
    }
    const auto write = [&](int e, Stored row) {
      if (writes[e]) *to[e] = row;
      to[e] += stride[e];
    };
    Real last[Step::kStates];
    CELLC_UNROLL()
    for (int e = 0; e < Step::kStates; ++e) last[e] = e < kCarried ? state[e < kCarried ? e : 0] : Real(0);
    Accumulators<1> added;
    sweep<Step>(last, [&](int k, const Real(&now)[Step::kStates]) {
      added.add(0, now);
      CELLC_UNROLL()
      for (int e = 0; e < kRowStates; ++e) {
        if (kChecks)
          held[k][e] = narrow(now[e]);
        else
          write(e, narrow(now[e]));
      }
    });
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) state[e] = last[e];
    if constexpr (kAccumulated > 0) {
      added.join(kScanChannels);
      if (part == 0 && real)
        added.leave_part(lanes, lane[0], 0, (static_cast<long long>(sequence) * scan.tiles + rank) * warps + warp);
    }
    bool off = false;
    if constexpr (kChecks) {
      copy_wait<0>();
      CELLC_UNROLL()
      for (int e = 0; e < Step::kInputs; ++e) next.input[e] = widen(following()[e * blockDim.x]);
      // Memory takes several times as long for rows as it takes to make them. What is worked out while they are on
      // their way costs nothing, nor does what others have to say of it, if it is asked for early.
      CELLC_UNROLL()
      for (int k = 0; k < kScanSteps; ++k) {
        if (k == kScanSteps / 2) {
          off = is_off(state, next, chain);
          tell(off, chain, tiles);
        }
        if (!kWhole && k >= high) continue;
        CELLC_UNROLL()
        for (int e = 0; e < kRowStates; ++e) write(e, held[k][e]);
      }
    }
    if (ends) {
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) finish(lanes, lane[0], e, state[e]);
    }
    if constexpr (kChecks) agree(off, chain);
  }
};

/// Blocks of any number of whole warps, kCluster for each group of channels of a sequence: clusters of so many, or
/// single ones.
CELLC_DEVICE void scan_cluster(const Scan& scan) {
  CELLC_DYNAMIC_SHARED(char, scan_shared);
  ClusterRun work(scan, scan_shared);
  work.run();
}

}  // namespace cellc
