// Rows of a scan that do not follow from the row before them.
//
// The steps of a thread follow from each other; its first row follows from a start that comes from composed maps. Those
// are as exact as the arithmetic, but they round by the largest state that they pass. Where a chain comes from large
// states to small ones, or grows, such a start is off by several tolerances: h' = a*h + x in f32 by 7e-6 for |a| = 0.99
// and x of 10. And what is infinite makes NaN of a map (0 times it) where steps come back from it. So every thread does
// its last step once more, for the step after it: from the end that it came to, and from the start that the next one
// took, which it knows, since it is made of the same numbers. Where the two rows differ by more than the tolerance the
// boundary is marked.
//
// Sizes are what is at hand: the row before, and, where that is small, some of the thread's own rows. Whoever walks
// knows the largest row that it has come by.
//
// Of most data none is (gates between 0 and 1, states of a few units), and then all that this costs is two steps a
// thread and a word that each block adds when it ends (in a cluster, a barrier that nobody waits at for long). A block
// that has marked something stays until all rows are written, takes chains that are marked, and walks them: from the
// row before a mark on, until a row agrees with what stands there. From there on everything follows as it did before.
// Rows between marks are not looked at.
//
// What is compared has not been rounded to 16 bits, but rows have, and are no place for a walk to begin at: where a
// chain comes from large states to small ones, the rounding of a large row is more than the small ones are. So in 16
// bits a channel that is marked is walked as a whole, from the state that it starts from, by one thread.
//
// Where nothing is to be repaired, no row is written: the first step of each sequence that is off is written down, and
// by how much.
//
// The warps of a block, and the parts of a warp, take a share of a chain's tiles each, and afterwards walk on, one
// after the other, over where shares meet. What that costs if everything is marked: docs/notes/device-scan.md.
//
// Needs scan_tile.cuh.
#pragma once

namespace cellc {

// In a cluster, which has no registers to spare, each function that may be called costs some; there is no cluster where
// nothing is to be repaired.
constexpr bool kWritesDown = Traits::kScanCluster == 0;

template <ScanCopy kCopy>
struct ScanRepair : ScanTile<kCopy, 0> {
  using Tile = ScanTile<kCopy, 0>;
  using Tile::scan, Tile::lanes, Tile::lane, Tile::warp, Tile::channel, Tile::part, Tile::real;
  static constexpr int kStrip = kScanSteps * kScanParts;  ///< steps of a warp
  /// By how much of its size a row may be off because it is rounded when it is written.
#if defined(CELLC_STORAGE_BF16)
  static constexpr Real kRounding = Real(1.0 / 256);
#elif defined(CELLC_STORAGE_F16)
  static constexpr Real kRounding = Real(1.0 / 2048);
#else
  static constexpr Real kRounding = 0;
#endif
  static constexpr int kAhead = Tile::kInputs + kCarried <= 3 ? 8 : 4;  ///< steps whose numbers are read together

  bool changed = false;

  /// Whether a row may stand where that follows from the one before. (The tolerance is handed over since it is at
  /// hand.) `size`: the largest row of state e so far, as far as that is known.
  CELLC_DEVICE bool stands(int e, Real row, Real next, Real tolerance, Real size) const {
    return are_near(row, next, tolerance, size + scan.ground[e]) |
           (magnitude(row - next) < kRounding * magnitude(next));
  }
  /// Of a quarter: of the largest numbers no sum is infinite.
  CELLC_DEVICE Real residual(int e, Real row, Real next, Real size) const {
    constexpr Real kQuarter = 0.25;
    return magnitude(row - next) * kQuarter /
           (size * kQuarter + scan.ground[e] * kQuarter + magnitude(next) * kQuarter);
  }

  CELLC_DEVICE explicit ScanRepair(const Scan& scan) : Tile(scan, nullptr) {}

  /// From the row before step `from` on, up to step `to`; until rows agree, where that is asked for. Whether the last
  /// ones did: a thread's boundary was perhaps judged beside its own rows, and where these have changed, that row is
  /// looked at again. Called, and not a part of who calls it: it takes as long to compile as all else that a scan does.
  static __device__ __noinline__ bool walk(ScanRepair& work, long long from, const long long to,
                                           const bool until_agrees) {
    const Lanes& lanes = work.lanes;
    const Lane lane[1] = {work.lane[0]};
    const Real tolerance = work.scan.tolerance;
    Real param[1][(Step::kInvariants > 0 ? Step::kInvariants : 1)];
    load_params<Step>(lanes, lane, param);
    const Uniforms<Step> uniforms(lanes);
    const Stored* input_at[Tile::kInputs];
    long long input_stride[Tile::kInputs], row_stride[kCarried];
    Stored* row_at[kCarried];
    Real state[kCarried], size[kCarried];
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) {
      input_at[e] = work.input_at(e, from);
      input_stride[e] = work.input_stride(e);
    }
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) {
      row_at[e] = work.row_at(e, from);
      row_stride[e] = work.row_stride(e);
      state[e] = from == 0 ? start_of(lanes, lane[0], e) : load(row_at[e] - row_stride[e]);
      size[e] = finite_size(state[e]);
    }
    bool agrees = true, changed = false;
    long long settles = from;  // the first step behind all rows that changed ones may have excused
    CELLC_UNROLL(1)
    for (; from < to; from += kAhead) {
      const int steps = to - from < kAhead ? static_cast<int>(to - from) : kAhead;
      Real input[kAhead][Tile::kInputs], row[kAhead][kCarried];
      CELLC_UNROLL()
      for (int i = 0; i < kAhead; ++i) {
        const int k = i < steps ? i : 0;  // read again rather than asked for
        CELLC_UNROLL()
        for (int e = 0; e < Step::kInputs; ++e) input[i][e] = load(input_at[e] + k * input_stride[e]);
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) row[i][e] = load(row_at[e] + k * row_stride[e]);
      }
      CELLC_UNROLL()
      for (int i = 0; i < kAhead; ++i) {
        if (i >= steps) continue;
        Real next[Step::kStates];
        Step::step(param[0], input[i], state, next, uniforms.data);
        agrees = true;
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) agrees = agrees & work.stands(e, row[i][e], next[e], tolerance, size[e]);
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) {
          if (!agrees) store(row_at[e] + i * row_stride[e], next[e]);
          state[e] = agrees ? row[i][e] : next[e];
          size[e] = larger(size[e], finite_size(state[e]));
        }
        changed = changed | !agrees;
        settles = agrees ? settles : from + i + kScanSteps + 1;
      }
      CELLC_UNROLL()
      for (int e = 0; e < Step::kInputs; ++e) input_at[e] += kAhead * input_stride[e];
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) row_at[e] += kAhead * row_stride[e];
      if (until_agrees && agrees && from + steps >= settles) break;
    }
    work.changed = work.changed || changed;
    if (from + kAhead >= to && to == lane[0].steps) {
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) finish(lanes, lane[0], e, state[e]);
    }
    return agrees && to >= settles;
  }

  /// Where nothing is to be walked: how far the row of step t, which is not the first, is from what follows from the
  /// row before it.
  static __device__ __noinline__ void write_down(const ScanRepair& work, const long long t) {
    const Lane lane[1] = {work.lane[0]};
    Real param[1][(Step::kInvariants > 0 ? Step::kInvariants : 1)], input[Tile::kInputs], state[kCarried],
        next[Step::kStates], far = 0;
    load_params<Step>(work.lanes, lane, param);
    const Uniforms<Step> uniforms(work.lanes);
    CELLC_UNROLL()
    for (int e = 0; e < Step::kInputs; ++e) input[e] = load(work.input_at(e, t));
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) state[e] = load(work.row_at(e, t - 1));
    Step::step(param[0], input, state, next, uniforms.data);
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) {
      Real size = 0;
      CELLC_UNROLL(1)
      for (long long before = t - 1; before >= 0 && before >= t - kScanSteps; --before)
        size = larger(size, finite_size(load(work.row_at(e, before))));
      const Real row = load(work.row_at(e, t)), d = work.residual(e, row, next[e], size);
      if (!work.stands(e, row, next[e], work.scan.tolerance, size) && !(d <= far))
        far = is_finite(d) ? d : Real(3.4e38);
    }
    if (far == 0) return;  // another of the warp's parts began with it
    atomicMin(work.scan.first_bad + lane[0].sequence, static_cast<unsigned long long>(t));
    atomicMax(work.scan.residual + lane[0].sequence, __float_as_uint(static_cast<float>(far)));
  }

  /// Of 16 bits: all steps of a channel, with nothing rounded between them. Rows and finals are written anew; or, where
  /// nothing is to be walked, those at marks are compared with what they should be, but for their own rounding.
  static __device__ __noinline__ void walk_all(const ScanRepair& work, const unsigned* marks, const int warps) {
    const Lanes& lanes = work.lanes;
    const Lane lane[1] = {work.lane[0]};
    const long long steps = lane[0].steps, tile_steps = warps * kStrip;
    const int skewed = work.skew();
    const bool notes = kWritesDown && work.scan.first_bad;
    Real param[1][(Step::kInvariants > 0 ? Step::kInvariants : 1)], state[kCarried], next[Step::kStates],
        size[kCarried], far = 0;
    long long first = steps;
    load_params<Step>(lanes, lane, param);
    const Uniforms<Step> uniforms(lanes);
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) {
      state[e] = start_of(lanes, lane[0], e);
      size[e] = finite_size(state[e]);
    }
    CELLC_UNROLL(1)
    for (long long from = 0; from < steps; from += kAhead) {
      const int count = steps - from < kAhead ? static_cast<int>(steps - from) : kAhead;
      Real input[kAhead][Tile::kInputs];
      CELLC_UNROLL()
      for (int i = 0; i < kAhead; ++i) {
        CELLC_UNROLL()
        for (int e = 0; e < Step::kInputs; ++e)
          input[i][e] = load(work.input_at(e, from + (i < count ? i : 0)));  // read again rather than asked for
      }
      CELLC_UNROLL()
      for (int i = 0; i < kAhead; ++i) {
        if (i >= count) continue;
        Step::step(param[0], input[i], state, next, uniforms.data);
        const long long t = from + i, place = t + skewed;
        const bool marked = notes && t > 0 && place % kScanSteps == 0 &&
                            marks[place / tile_steps * kScanChannels] >> (place % tile_steps / kStrip) & 1;
        CELLC_UNROLL()
        for (int e = 0; e < kCarried; ++e) {
          if (marked) {
            const Real row = load(work.row_at(e, t)), d = work.residual(e, row, next[e], size[e]);
            if (!work.stands(e, row, next[e], work.scan.tolerance, size[e])) {
              first = t < first ? t : first;
              if (!(d <= far)) far = is_finite(d) ? d : Real(3.4e38);
            }
          } else if (!notes) {
            store(work.row_at(e, t), next[e]);
          }
          state[e] = next[e];
          size[e] = larger(size[e], finite_size(state[e]));
        }
      }
    }
    if (first < steps) {
      atomicMin(work.scan.first_bad + lane[0].sequence, static_cast<unsigned long long>(first));
      atomicMax(work.scan.residual + lane[0].sequence, __float_as_uint(static_cast<float>(far)));
    }
    CELLC_UNROLL()
    for (int e = 0; e < kCarried && !notes; ++e) finish(lanes, lane[0], e, state[e]);
  }
  CELLC_DEVICE void repair_rounded(unsigned* marks, int warps, int tiles) {
    unsigned any = 0;
    CELLC_UNROLL(1)
    for (int tile = 0; tile < tiles; ++tile) any |= marks[static_cast<long long>(tile) * kScanChannels];
    if (!any) return;
    walk_all(*this, marks, warps);
    CELLC_UNROLL(1)
    for (int tile = 0; tile < tiles; ++tile) marks[static_cast<long long>(tile) * kScanChannels] = 0;
    if (!kWritesDown || !scan.first_bad) atomicAdd(&scan.control->repaired, 1u);
  }

  /// All marked rows of a chain whose tiles are of so many warps, by as many warps of this block as are in the active
  /// blocks: the first ones.
  CELLC_DEVICE void repair_chain(int chain, int warps, int active_blocks) {
    const int sequence = chain / scan.groups;
    const long long at_channel = static_cast<long long>(chain - sequence * scan.groups) * kScanChannels + channel;
    real = at_channel < lanes.channels;
    this->resolve(sequence, chain, real ? at_channel : lanes.channels - 1);
    const long long steps = lane[0].steps;
    const int skewed = this->skew(), tile_steps = warps * kStrip;
    const int tiles = static_cast<int>((steps + skewed + tile_steps - 1) / tile_steps),
              shares = active_blocks * kScanParts, mine = warp * kScanParts + part;
    const int share = (tiles + shares - 1) / shares, first = mine * share,
              end = first + share < tiles ? first + share : tiles;
    unsigned* const marks = this->marks_of(chain);
    if constexpr (kNarrow) {
      if (mine == 0 && real) repair_rounded(marks, warps, tiles);
      return;
    }
    changed = false;
    bool open = false;  // the last row that was looked at has changed
    CELLC_UNROLL(1)
    for (int tile = first; tile < end && real; ++tile) {
      const unsigned marked = marks[static_cast<long long>(tile) * kScanChannels];
      if (marked) marks[static_cast<long long>(tile) * kScanChannels] = 0;
      CELLC_UNROLL(1)
      for (int w = 0; w < warps && (marked >> w || open); ++w) {
        if (!(marked >> w & 1) && !open) continue;
        const long long strip = static_cast<long long>(tile) * tile_steps - skewed + w * kStrip;
        if (kWritesDown && scan.first_bad) {
          CELLC_UNROLL(1)
          for (int p = 0; p < kScanParts; ++p)  // any of the warp's parts may begin with it
            if (strip + p * kScanSteps > 0 && strip + p * kScanSteps < steps) write_down(*this, strip + p * kScanSteps);
          continue;
        }
        const long long to = strip + kStrip < steps ? strip + kStrip : steps;
        // The row before a share is another's to make.
        const long long from = strip < 0 ? 0 : strip + (mine > 0 && tile == first && w == 0);
        if (from < to) open = !walk(*this, from, to, false);
      }
    }
    if (kWritesDown && scan.first_bad) return;
    CELLC_UNROLL(1)
    for (int turn = 1; turn < shares && turn * share < tiles; ++turn) {
      if (active_blocks > 1)
        __syncthreads();
      else
        __syncwarp();
      const long long from = static_cast<long long>(first) * tile_steps - skewed;
      if (mine == turn && from < steps && real) walk(*this, from, steps, true);
    }
    if (changed) atomicAdd(&scan.control->repaired, 1u);
  }
};

/// The ticket of the first tile is the first to be drawn: the other number's calls have ended, or have not begun.
/// Kernels that do not check do it as well, since one that does may come next.
CELLC_DEVICE void begin_finished(const Scan& scan, unsigned call) { scan.control->finished[(call + 1) & 1] = 0; }
/// By one thread, when all of the block have written their rows.
CELLC_DEVICE void tell_finished(const Scan& scan, unsigned call, unsigned tickets) {
  add_release(&scan.control->finished[call & 1], tickets);
}
/// By a warp, until everybody has. Who has a ticket is running, so nobody waits for a block that is yet to come.
CELLC_DEVICE void await_finished(const Scan& scan, unsigned call, unsigned tickets) {
  while (load_acquire(&scan.control->finished[call & 1]) != tickets) {
  }
  __syncwarp();
}

/// All chains that are marked, by the blocks that have stayed, each by one of them. `own`: only those that this block
/// has marked, which has all of them itself. `told`: in shared memory, for what one warp tells the others.
template <ScanCopy kCopy>
CELLC_APART void repair(const Scan& scan, int warps, unsigned* told, bool own) {
  ScanRepair<kCopy> work(scan);
  const int chains = scan.lanes.sequences * scan.groups, windows = (chains + kWarp - 1) / kWarp;
  CELLC_UNROLL(1)
  for (int i = 0; i < windows;) {
    const int begin = static_cast<int>((i + blockIdx.x) % windows) * kWarp;  // blocks begin at different ones
    const int mine = begin + work.thread;
    __syncthreads();
    if (work.warp == 0) {
      const unsigned mark = mine < chains ? scan.marks[mine] : 0;
      unsigned taken = 0;
      for (unsigned marked = __ballot_sync(0xffffffffu, own ? mark == blockIdx.x + 1 : mark != 0); marked && !taken;
           marked &= marked - 1) {
        const int chain = begin + __ffs(static_cast<int>(marked)) - 1;
        unsigned claimed = 0;
        if (work.thread == 0) claimed = atomicExch(scan.marks + chain, 0u);
        if (__shfl_sync(0xffffffffu, claimed, 0)) taken = static_cast<unsigned>(chain) + 1;
      }
      if (work.thread == 0) *told = taken;
    }
    __syncthreads();
    if (*told)
      work.repair_chain(static_cast<int>(*told) - 1, warps, warps);
    else
      ++i;
  }
}

}  // namespace cellc
