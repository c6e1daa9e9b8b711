// Where segments should start: along every chain (a channel of a sequence) the recurrence of segmented.cuh over
// the boundaries between its segments, cut among the threads of a block.
//
// Needs transitions.cuh, hermite.cuh and segments.cuh.
#pragma once

namespace cellc {

/// What is known of the maps over segments.
enum class Maps {
  Lines,  ///< a slope, or none
  Bent,   ///< segments have been run twice (hermite.cuh), near where they should start
  Pairs,
  Triples  ///< from either side of it (multistart.cuh), and from between
};

/// What composing reads and writes. By value, where a reference to a kernel's arguments would have pointers read again
/// after every store.
struct Chains {
  struct Run {
    Real *began, *ended, *starts, *transitions, *sizes;
    const Runs* runs;
  } run;
  struct Shape {
    long long sequences, channels;
    int segments;
  } lanes;
  ResidualBudget slack;  ///< what may stay as it is
  Maps maps;
  bool hermite;  ///< the maps' lines are tangents that a polynomial tells where to draw
  long long count;
  ActiveBlocks active_blocks;
  int thread, warp, warps;

  template <class Work>
  CELLC_DEVICE Chains(const Work& work, Maps maps, ResidualBudget slack)
      : run{work.run.began, work.run.ended, work.run.starts, work.run.transitions, work.run.sizes, work.run.runs},
        lanes{work.lanes.sequences, work.lanes.channels, work.lanes.segments},
        slack(slack),
        maps(maps),
        hermite(kHermite && maps != Maps::Lines),
        count(work.count),
        active_blocks(work.active_blocks),
        thread(work.thread),
        warp(work.warp),
        warps(work.warps) {}
  CELLC_DEVICE Real& at(Real* array, int entry, long long lane) const { return array[entry * count + lane]; }
  CELLC_DEVICE long long first_lane(long long chain) const {
    const long long sequence = quotient(chain, lanes.channels);
    return sequence * lanes.segments * lanes.channels + (chain - sequence * lanes.channels);
  }
};

/// Boundaries of a batch that are worked on side by side. In f64 the registers do not last for all of them.
constexpr int kAbreast = sizeof(Real) == 8 ? 1 : kBatch;

/// The boundaries of a batch. `lane_of` tells the lane on the right of each.
template <class Boundary, class LaneOf>
CELLC_DEVICE void read(Boundary (&batch)[kBatch], const Chains& work, const LaneOf& lane_of) {
  CELLC_UNROLL()
  for (int i = 0; i < kBatch; ++i) batch[i].read(work, lane_of(i));
}

/// Those and a bend to each, of the map over the lane that ends there. Of bundles the line that is begun with is the
/// tangent midway. `to`: about where the first of these lanes should start, and then the one after them.
template <class Boundary, class LaneOf>
CELLC_DEVICE void read_bent(Boundary (&batch)[kBatch], HermiteMap (&bend)[kBatch], const Chains& work,
                            const LaneOf& lane_of, Real& to) {
  const bool last =
      work.maps == Maps::Bent;  // the last run stands where all lanes' do, otherwise among the lane's runs
  Runs runs[kBatch];
  Real began[kBatch];  // of the lane that ends at the boundary
  CELLC_UNROLL()
  for (int i = 0; i < kBatch; ++i) runs[i] = load_whole(work.run.runs + (lane_of(i) - work.lanes.channels));
  if (last) {
    CELLC_UNROLL()
    for (int i = 0; i < kBatch; ++i) {
      batch[i].read(work, lane_of(i));
      began[i] = work.at(work.run.began, 0, lane_of(i) - work.lanes.channels);
    }
  } else {
    // Where the lane on the right began, which ends at the next boundary. What is said of a chain's last lane is not
    // used.
    const Real right = work.run.runs[lane_of(kBatch - 1)].start[2];
    CELLC_UNROLL()
    for (int i = 0; i < kBatch; ++i) {
      batch[i].began[0] = i + 1 < kBatch ? runs[i + 1 < kBatch ? i + 1 : i].start[2] : right;
      batch[i].end[0] = runs[i].end[2];
      batch[i].transition[0] = runs[i].slope[2];
      // Nothing has been written yet. States are about as large as what runs start from.
      batch[i].size[0] = larger(magnitude(runs[i].start[Runs::kLow]), magnitude(runs[i].start[Runs::kHigh]));
      began[i] = runs[i].start[2];
    }
  }
  CELLC_UNROLL()
  for (int i = 0; i < kBatch; ++i) {
    if (!last) {
      bend[i].take(began[i], runs[i], work.maps == Maps::Triples);
      continue;
    }
    bend[i].take_towards(began[i], to, runs[i]);
    to = batch[i].end[0];
  }
  CELLC_UNROLL(kAbreast)
  for (int i = 0; i < kBatch; ++i) {
    bend[i].fit(batch[i].end[0], batch[i].transition[0], Real(64) * work.slack.tolerance * batch[i].size[0]);
    if (!last) bend[i].follow(Real(-0.5) * bend[i].apart, batch[i].end[0], batch[i].transition[0]);
  }
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
/// Where maps bend, the slope that each has where its segment should now start is left as its transition.
/// A template, so that what other transitions lack is not compiled with them.
template <class Of>
CELLC_APART void compose(const Chains work, int group, int parts) {
  const auto lanes = work.lanes;
  const Maps maps = work.maps;
  const int thread = work.thread;
  __shared__ typename Of::Map totals[kShares ? kMostWarps * kWarp : 1];
  const int part = kShares ? threadIdx.x / group : 0;
  const long long chains = lanes.sequences * lanes.channels;
  const int length = (lanes.segments + parts - 1) / parts;
  const long long step =
      kShares ? static_cast<long long>(work.active_blocks.size) * group : static_cast<long long>(work.warps) * kWarp;
  // A part of one batch is kept from turn to turn. A longer one is read again, and its tangents are drawn again where
  // the last walk drew them, which is left where starts will be.
  const bool whole = length <= kBatch;
  for (long long chain0 = kShares ? static_cast<long long>(work.active_blocks.rank) * group
                                  : static_cast<long long>(work.warp) * kWarp;
       chain0 < chains; chain0 += step) {
    const int mine = kShares ? thread % group : thread;
    const bool real = chain0 + mine < chains && part < parts;
    const long long lane0 = work.first_lane(chain0 + mine < chains ? chain0 + mine : chains - 1);
    const int begin = part * length < 1 ? 1 : part * length;
    int end = (part + 1) * length;
    if (end > lanes.segments) end = lanes.segments;
    typename Of::Change change;
    typename Of::Boundary before;  // that this part's first one follows
    const bool settles = kShares && lanes.segments > 1 && (maps == Maps::Lines || maps == Maps::Bent);
    if (settles) before.read(work, lane0 + (begin > 1 && begin <= lanes.segments ? begin - 1 : 1) * lanes.channels);
    // Boundaries in batches: what one needs is read before any of them is worked on.
    typename Of::Boundary batch[kBatch];
    HermiteMap bend[kBatch];
    // Turns count down. Even ones compose the maps of the parts, odd ones walk each part from where it begins;
    // a single part is only walked. Where maps bend, earlier walks find where their slopes are needed.
    const int first_turn = (parts > 1 ? 2 : 1) * (!work.hermite ? 1 : maps == Maps::Bent ? 2 : 3);
    CELLC_UNROLL(1)
    for (int turn = first_turn; turn > 0; --turn) {
      const bool walks = !kShares || parts == 1 || turn % 2, last = turn == 1;
      typename Of::Map map;
      map.identity();
      if (parts == 1 || !walks)
        change.begin(work, lane0);
      else if (settles && begin > 1)
        change.settle(work, before);
      const bool redraws = work.hermite && !walks && !whole && turn < first_turn;
      Real to = settles ? before.end[0] : Real(0), drawn[kBatch] = {};
      for (int s = begin; s < end; s += kBatch) {
        if (turn == first_turn || !whole) {
          // Without branches, so that several are under way at once; past the end the last is read again.
          const auto lane_of = [&](int i) {
            return lane0 + (s + i < lanes.segments ? s + i : lanes.segments - 1) * lanes.channels;
          };
          if (maps == Maps::Lines || !kHermite) read(batch, work, lane_of);
          if constexpr (kHermite) {
            if (maps != Maps::Lines) read_bent(batch, bend, work, lane_of, to);
            if (redraws) {
              CELLC_UNROLL()
              for (int i = 0; i < kBatch; ++i) drawn[i] = work.at(work.run.starts, 0, lane_of(i));
            }
          }
        }
        CELLC_UNROLL(kAbreast)
        for (int i = 0; i < kBatch; ++i) {
          if (s + i >= end) continue;
          const long long lane = lane0 + (s + i) * lanes.channels;
          if constexpr (kHermite) {
            if (redraws || (work.hermite && walks))
              bend[i].follow(walks ? change.by[0] : drawn[i], batch[i].end[0], batch[i].transition[0]);
            if (work.hermite && walks && real) {
              if (last)
                work.at(work.run.transitions, 0, lane - lanes.channels) = batch[i].transition[0];
              else if (!whole)
                work.at(work.run.starts, 0, lane) = change.by[0];
            }
          }
          if (!walks) {
            map.then(work, batch[i]);
            continue;
          }
          change.step(work, lane, batch[i], real && last);
        }
      }
      if constexpr (kShares)
        if (!walks) join(map, change, totals, group);
    }
  }
}

}  // namespace cellc
