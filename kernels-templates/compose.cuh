// Where segments should start: along every chain (a channel of a sequence) the recurrence of segmented.cuh over
// the boundaries between its segments, cut among the threads of a block.
//
// Needs carriers.cuh, bends.cuh and segments.cuh.
#pragma once

namespace cellc {

/// A bend to each boundary of a batch, of the map over the lane that ends there.
template <class Boundary>
CELLC_DEVICE void fit(Bend (&bend)[kBatch], const Boundary (&batch)[kBatch]) {
  CELLC_UNROLL()
  for (int i = 0; i < kBatch; ++i) bend[i].fit(batch[i].end[0], batch[i].carrier[0]);
}
template <class Boundary, class Change>
CELLC_DEVICE void follow(const Bend& bend, Boundary& boundary, const Change& came) {
  bend.follow(came.by[0], boundary.end[0], boundary.carrier[0]);
}

/// Makes of the map over this thread's part, and of what begins the chain, what reaches the part: what the parts
/// before it make of nothing.
template <class Map, class Change>
CELLC_DEVICE void join(Map& map, Change& change, Map* totals, int group) {
  const int thread = threadIdx.x % kWarp, in_block = threadIdx.x / kWarp, mine = thread % group;
  CELLC_UNROLL(1)
  for (int reach = group; reach < kWarp; reach *= 2) {
    Map before = map;
    before.shuffle_up(reach);
    if (thread >= reach) map.after(before);
  }
  __syncthreads();
  if (thread >= kWarp - group) totals[in_block * group + mine] = map;
  __syncthreads();
  CELLC_UNROLL(1)
  for (int w = 0; w < in_block; ++w) totals[w * group + mine].apply(change);
  map.shuffle_up(group);
  if (thread >= group) map.apply(change);
}

/// New starts of all chains. A chain is cut among `parts` groups of `group` threads of a block, whose
/// maps are composed: within a warp by shuffles, between warps through shared memory. Neighbouring
/// threads take neighbouring chains, since a multiprocessor can wait for few lines of memory at once.
/// `again`: segments have been run twice, and so their maps bend.
template <class Work>
CELLC_DEVICE void compose(Work& work, int group, int parts, bool again) {
  const Lanes& lanes = work.lanes;
  const int thread = work.thread;
  __shared__ Carriers::Map totals[kShares ? kMostWarps * kWarp : 1];
  const int part = kShares ? threadIdx.x / group : 0;
  const long long chains = lanes.sequences * lanes.channels;
  const int length = (lanes.segments + parts - 1) / parts;
  const long long step = kShares ? static_cast<long long>(gridDim.x) * group : static_cast<long long>(work.warps) * kWarp;
  const bool bends = kBends && again && length <= kBatch;
  for (long long chain0 = kShares ? static_cast<long long>(blockIdx.x) * group : static_cast<long long>(work.warp) * kWarp; chain0 < chains;
       chain0 += step) {
    const int mine = kShares ? thread % group : thread;
    const bool real = chain0 + mine < chains && part < parts;
    const long long lane0 = chain_lane(lanes, chain0 + mine < chains ? chain0 + mine : chains - 1);
    const int begin = part * length < 1 ? 1 : part * length;
    int end = (part + 1) * length;
    if (end > lanes.segments) end = lanes.segments;
    Carriers::Change change;
    // Boundaries in batches: what one needs is read before any of them is worked on.
    Carriers::Boundary batch[kBatch];
    Bend bend[kBatch];
    // Turns count down. Even ones compose the maps of the parts, odd ones walk each part from where it begins;
    // a single part is only walked. Where maps bend, a first walk finds where they are needed.
    const int first_turn = (parts > 1 ? 2 : 1) * (bends ? 2 : 1);
    CELLC_UNROLL(1)
    for (int turn = first_turn; turn > 0; --turn) {
      const bool walks = !kShares || parts == 1 || turn % 2, last = turn == 1;
      Carriers::Map map;
      map.identity();
      if (parts == 1 || !walks) change.begin(work, lane0);
      for (int s = begin; s < end; s += kBatch) {
        if (turn == first_turn || length > kBatch) {
          // Without branches, so that all of them are under way at once; past the end the last is read again.
          CELLC_UNROLL()
          for (int i = 0; i < kBatch; ++i) {
            const int at_most = s + i < lanes.segments ? s + i : lanes.segments - 1;
            const long long lane = lane0 + at_most * lanes.channels;
            batch[i].read(work, lane);
            if constexpr (kBends)
              if (bends) bend[i].read(work, lane - lanes.channels);
          }
          if constexpr (kBends)
            if (bends) fit(bend, batch);
        }
        CELLC_UNROLL()
        for (int i = 0; i < kBatch; ++i) {
          if (s + i >= end) continue;
          if (!walks) {
            map.then(batch[i]);
            continue;
          }
          const auto came = change;
          change.step(work, lane0 + (s + i) * lanes.channels, batch[i], real && last);
          if constexpr (kBends)
            if (!last) follow(bend[i], batch[i], came);
        }
      }
      if constexpr (kShares)
        if (!walks) join(map, change, totals, group);
    }
  }
}

}  // namespace cellc
