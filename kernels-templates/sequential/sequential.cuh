// Every lane walks its whole sequence: optimal in work and indifferent to the data. At 1.00-1.03 times
// the time of a copy of the same bytes once sequences x channels fill the card (32k lanes on an H200).
// Below that the latency of the step rules: 73-80 ns for a GRU.
//
// Lanes::segments is 1 here. In lockstep all sequences are as long and the tiles fill the blocks. Where states are
// terms of sums, `kSumLanes` lanes of a warp make one (sums.cuh), and a sum over lanes that lie apart has `kKept`
// entries (outer_sums.cuh).
#pragma once

namespace cellc {

template <bool kRows, bool kLockstep, int kSumLanes = 1, int kKept = kWidth>
CELLC_DEVICE void sequential(const Lanes& lanes) {
  CELLC_DYNAMIC_SHARED(Stored, shared);
  const int warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  Stored* const memory = shared + warp * kStageEntries<Step>;
  const long long count = lanes.sequences * lanes.channels;
  const long long tile = static_cast<long long>(blockIdx.x) * warps + warp;
  if (tile * kTile >= count && !kLockstep) return;
  const long long own = tile * kTile + threadIdx.x % kWarp * kWidth;
  Lane lane[kWidth];
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) lane[v] = resolve(lanes, own + v < count ? own + v : count - kWidth + v);
  const bool real = own < count;
  Real state[kWidth][Step::kStates];
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) state[v][e] = start_of(lanes, lane[v], e);
    CELLC_UNROLL()
    for (int e = kCarried; e < Step::kStates; ++e) state[v][e] = Real(0);
  }
  Rows rows;
  rows.begin(lanes, lane[0], 0);
  const auto go = [&](auto&& after) {
    walk<Step, kRows, kLockstep, kSteps>(
        lanes, lane, 0, real ? lane[0].steps : 0, state, memory, Ready(), [](long long, const auto&) { return true; },
        after);
  };
  if constexpr (kSums > 0) {
    // Behind the inputs, where a real number of any size may begin.
    constexpr int kAligned = 16 / static_cast<int>(sizeof(Stored));
    Stored* const behind = shared + (warps * kStageEntries<Step> + kAligned - 1) / kAligned * kAligned;
    Accumulators<kWidth> all;
    Sums<kSumLanes> sums;
    OuterSums<kKept> outer(lanes, lane[0], reinterpret_cast<Real*>(behind));
    if constexpr (kInnerSums > 0) sums.begin(lanes, lane[0], 0);
    RowsAndSums<kSumLanes, kKept> both{rows, all, sums, outer};
    go(both);
    if constexpr (kAccumulated > 0) {
      CELLC_UNROLL()
      for (int v = 0; v < kWidth; ++v)
        if (real) all.leave(lanes, lane[v], v);
    }
  } else if constexpr (kAccumulated > 0) {
    Accumulators<kWidth> all;
    go([&](long long, const auto& now, bool) {
      rows.write(now, true);
      all.add(now);
    });
    if (real) {
      CELLC_UNROLL()
      for (int v = 0; v < kWidth; ++v) all.leave(lanes, lane[v], v);
    }
  } else {
    go([&](long long, const auto& now, bool) { rows.write(now, true); });
  }
  if (!real) return;
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) {
    CELLC_UNROLL()
    for (int e = 0; e < kCarried; ++e) finish(lanes, lane[v], e, state[v][e]);
  }
}

}  // namespace cellc
