// After a scan whose lanes also make outs or add up: what was made of a start that was off is made again, by a kernel
// of its own. Rows alone can be mended where they stand (scan_repair.cuh); an out has to be made with the state that it
// is made of, and a sum of its steps anew, and nobody need have written the rows. Mostly nothing is off, and every warp
// ends at once; but of millions of starts a few are, where composed maps pass numbers much larger than what they leave,
// and then a walk of the whole sequence would take longer than the scan: (1, 65536, 64), h' = f*h + (1 - f)*z,
// backward, 2.8 ms of which 0.1 were the scan.
//
// So a lane that is marked begins at the first tile that is: from the state that the tile before has published, which
// stands in the scan's words until the next call. It walks tile by tile until what it has come to agrees with where the
// next tile began, by one step of either, and goes on at the next tile that is marked.
//
// A chain and its tiles are marked by the number of the call that found them, so that nothing has to be cleared.
//
// Needs sweep.cuh, transitions.cuh, accumulators.cuh and boundary.cuh.
#pragma once

namespace cellc {

struct ScanRewalk {
  Lanes lanes;  ///< parts: of what is added up, by sequence
  ScanControl* control;
  const unsigned* marks;            ///< by chain, a group of channels of a sequence; then by chain, tile and channel
  const unsigned long long* words;  ///< Scan::words
  Real tolerance;                   ///< Scan's, and so is what follows
  Real ground[Step::kStates];
  int tiles, groups, channels;  ///< of the longest sequence; of a sequence; of a group
  int tile_steps, strip_steps;  ///< of a tile; of what is added up as one part, or of a tile
  int chunk_steps;              ///< that 16 bytes hold, where tiles begin at a multiple of those; else 1
};

/// The tiles of a lane.
struct RewalkedTiles {
  const ScanRewalk& run;
  const Lane& lane;
  unsigned call;
  long long chain;
  int channel, early;  ///< of the chain; places of the first tile that are before step 0 (ScanTile::skew)

  CELLC_DEVICE RewalkedTiles(const ScanRewalk& run, const Lane& lane, unsigned call)
      : run(run), lane(lane), call(call), early(0) {
    const int group = static_cast<int>(quotient(lane.channel_index, run.channels));
    channel = static_cast<int>(lane.channel_index - static_cast<long long>(group) * run.channels);
    chain = static_cast<long long>(lane.sequence) * run.groups + group;
    if constexpr (Step::kInputs > 0) {
      if (run.chunk_steps == 1) return;
      const ArrayView& array = run.lanes.array[Step::input_array(0)];
      const Stored* const first = static_cast<const Stored*>(array.data) + place(array, lane, 0) +
                                  run.lanes.step.input[0] - (run.channels > 1 ? channel : 0);
      const int at = static_cast<int>(reinterpret_cast<unsigned long long>(first) / (sizeof(Stored) * run.channels) %
                                      run.chunk_steps);
      early = run.lanes.reverse ? run.chunk_steps - 1 - at : at;
    }
  }
  CELLC_DEVICE bool is_marked() const { return run.marks[chain] == call; }
  CELLC_DEVICE bool is_marked(int tile) const {
    return run.marks[static_cast<long long>(run.lanes.sequences) * run.groups +
                     (chain * run.tiles + tile) * static_cast<long long>(run.channels) + channel] == call;
  }
  /// The first that is marked from `tile` on; all of them, where none is. Many marks are on their way at once: one
  /// after the other, those of 683 tiles took longer than what was to be walked.
  CELLC_DEVICE int next_marked(int tile) const {
    constexpr int kAtOnce = 16;
    CELLC_UNROLL(1)
    for (; tile < run.tiles; tile += kAtOnce) {
      unsigned marked = 0;
      CELLC_UNROLL()
      for (int i = 0; i < kAtOnce; ++i) {
        const bool there = tile + i < run.tiles;
        marked |= is_marked(there ? tile + i : run.tiles - 1) & there ? 1u << i : 0u;
      }
      if (marked) return tile + __ffs(static_cast<int>(marked)) - 1;
    }
    return run.tiles;
  }
  /// Within the sequence.
  CELLC_DEVICE long long step(int tile, int strip) const {
    const long long at =
        static_cast<long long>(tile) * run.tile_steps - early + static_cast<long long>(strip) * run.strip_steps;
    return at < 0 ? 0 : at < lane.steps ? at : lane.steps;
  }
  /// Where the scan began a tile.
  CELLC_DEVICE void begin(int tile, Real (&state)[Step::kStates]) const {
    constexpr int kWords = (kCarried + Transitions::Map::count()) * kHalves;
    const unsigned long long* const at =
        run.words + (chain * run.tiles + (tile > 0 ? tile - 1 : 0)) * static_cast<long long>(kWords * run.channels) +
        channel;
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e)
      if (tile == 0)
        state[e] = start_of(run.lanes, lane, e);
      else
        look_at(at + e * kHalves * run.channels, run.channels, call, state[e]);
  }
  /// Whether the scan has begun a tile where `end` does: half of the tolerance is for what was composed there.
  CELLC_DEVICE bool agrees(int tile, const Real (&end)[Step::kStates]) const {
    Real began[Step::kStates];
    CELLC_UNROLL()
    for (int e = kCarried; e < Step::kStates; ++e) began[e] = 0;
    begin(tile, began);
    return begins_where(run.lanes, lane, step(tile, 0), began, end, run.tolerance / 2, end, run.ground);
  }
};

CELLC_DEVICE void scan_rewalk(const ScanRewalk& run) {
  static_assert(kWidth == 1, "a lane a thread");
  CELLC_DYNAMIC_SHARED(Stored, shared);
  const Lanes& lanes = run.lanes;
  const int warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  Stored* const memory = shared + warp * kStageEntries<Step>;
  const long long count = lanes.sequences * lanes.channels;
  const long long own = (static_cast<long long>(blockIdx.x) * warps + warp) * kWarp + threadIdx.x % kWarp;
  Lane lane[1] = {resolve(lanes, own < count ? own : count - 1)};
  const RewalkedTiles tiles(run, lane[0], run.control->calls);
  int tile = own < count && tiles.is_marked() ? tiles.next_marked(0) : run.tiles;
  if (tile < run.tiles) atomicAdd(&run.control->repaired, 1u);
  Real state[1][Step::kStates] = {};
  if (tile < run.tiles) tiles.begin(tile, state[0]);
  // A lane whose data are what no number is moves no other.
  while (__any_sync(0xffffffffu, tile < run.tiles)) {
    const bool walks = tile < run.tiles;
    CELLC_UNROLL(1)
    for (int strip = 0; strip * run.strip_steps < run.tile_steps; ++strip) {
      const long long begin = walks ? tiles.step(tile, strip) : 0, end = walks ? tiles.step(tile, strip + 1) : 0;
      Rows rows;
      rows.begin(lanes, lane[0], begin);
      Accumulators<1> all;
      walk<Step, false, false, kSteps>(
          lanes, lane, begin, end, state, memory, Ready(), [](long long, const auto&) { return true; },
          [&](long long, const auto& now, bool) {
            rows.write(now, true);
            if constexpr (kAccumulated > 0) all.add(now);
          });
      if constexpr (kAccumulated > 0) {
        if (begin < end)
          all.leave_part(lanes, lane[0], 0,
                         static_cast<long long>(lane[0].sequence) * lanes.parts +
                             static_cast<long long>(tile) * (run.tile_steps / run.strip_steps) + strip);
      }
    }
    if (!walks) continue;
    if (++tile < run.tiles && tiles.step(tile, 0) < lane[0].steps) {
      if (tiles.is_marked(tile) || !tiles.agrees(tile, state[0])) continue;
      tile = tiles.next_marked(tile + 1);
      if (tile < run.tiles) tiles.begin(tile, state[0]);
    } else {
      tile = run.tiles;
      CELLC_UNROLL()
      for (int e = 0; e < kCarried; ++e) finish(lanes, lane[0], e, state[0][e]);
    }
  }
}

}  // namespace cellc
