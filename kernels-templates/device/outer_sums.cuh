// Sums over lanes that lie apart, of what each has just computed: ∂B[n] = sum[d](λ[d,n]*δ[d]*u[d]) of an adjoint whose
// lanes are λ[d,n] (compiler/derive/fused_reductions.h). The terms of one entry are in every thread of a warp that is
// at the same n, and in every other warp.
//
// A warp adds up its own as sums.cuh does, all steps of a stage at once: of 8 steps over 4 threads with two lanes each
// 12 exchanges. Then it leaves its sums in shared memory, the block's threads meet, once a stage, and add up what the
// warps left, each an entry of a step. There are two such places, so that nobody waits twice. What blocks make are
// parts, Lanes::outer_part entries apart in the array of a sum, which add_parts adds up behind the walk; of `s6` with
// 1024 x 16 lanes, 256 of them a block, all parts are a sixteenth of the states.
//
// The lanes of a block are of one sequence, so that all its warps have the same steps; a sum has kKept entries, a power
// of two, which divides a warp's lanes. Which terms are added in which order follows from the shape and the variant: a
// sum has the same bits in every run.
//
// Needs sums.cuh.
#pragma once

namespace cellc {

template <int kKept>
struct OuterSums {
  static constexpr int kApart = kKept < kWidth ? 1 : kKept / kWidth;  ///< from a thread to the next of the same entries
  static constexpr int kThreads = kWarp / kApart;                     ///< of a warp that have the same entries
  static_assert(kOuterSums == 0 || (kKept % kWidth == 0 && kWarp % kApart == 0),
                "a thread's lanes are different entries");
  static constexpr int kSpread = kSteps < kThreads ? kSteps : kThreads;
  static constexpr int kMine = kSteps / kSpread;
  static constexpr int kCount = kOuterSums > 0 ? kOuterSums : 1;

  Real term[kCount][kWidth][kSteps];
  Real* const left;  ///< shared memory: [2][sum][warp][step][entry]
  Real* to[kCount];  ///< of the step that comes next, its first entry
  long long stride[kCount];
  int place;  ///< the half of it that is in use

  /// Entries of shared memory that a block of so many warps needs.
  static CELLC_DEVICE constexpr int entries(int warps) { return 2 * kOuterSums * warps * kSteps * kKept; }

  CELLC_DEVICE OuterSums(const Lanes& lanes, const Lane& lane, Real* shared) : left(shared), place(0) {
    const long long part = lane.channel_index / (blockDim.x * kWidth);
    CELLC_UNROLL()
    for (int s = 0; s < kOuterSums; ++s) {
      const ArrayView& array = lanes.array[Step::state_array(kFirstTerm + kInnerSums + s)];
      to[s] = static_cast<Real*>(array.data) + lane.sequence * array.batch + lane.first_row * array.row +
              part * lanes.outer_part;
      stride[s] = lane.direction * array.row;
    }
  }

  /// Step k of a whole stage of all warps.
  template <int kStep, class States>
  CELLC_DEVICE void keep(const States& now) {
    const int thread = static_cast<int>(threadIdx.x) % kWarp, own = thread / kApart;
    CELLC_UNROLL()
    for (int s = 0; s < kOuterSums; ++s) {
      CELLC_UNROLL()
      for (int v = 0; v < kWidth; ++v) {
        term[s][v][kStep] = now[v][kFirstTerm + kInnerSums + s];
        if constexpr (kStep == kSteps - 1) {
          fold<kApart, kWarp, kSteps>(term[s][v]);
          Real* const here = slot(s, threadIdx.x / kWarp, first_of_fold<kSpread>(own)) + thread % kApart * kWidth + v;
          CELLC_UNROLL()
          for (int j = 0; j < kMine; ++j)
            if (own < kSpread) here[j * kKept] = term[s][v][j];
        }
      }
    }
    if constexpr (kStep == kSteps - 1) join(kSteps);
  }

  /// A step of a stage that is cut short, for all warps of the block.
  template <class States>
  CELLC_DEVICE void add(const States& now) {
    const int thread = static_cast<int>(threadIdx.x) % kWarp;
    CELLC_UNROLL()
    for (int s = 0; s < kOuterSums; ++s) {
      CELLC_UNROLL()
      for (int v = 0; v < kWidth; ++v) {
        Real sum = now[v][kFirstTerm + kInnerSums + s];
        CELLC_UNROLL()
        for (int other = kApart; other < kWarp; other *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
        if (thread < kApart) slot(s, threadIdx.x / kWarp, 0)[thread * kWidth + v] = sum;
      }
    }
    join(1);
  }

 private:
  CELLC_DEVICE Real* slot(int sum, unsigned warp, int step) const {
    return left + (((place * kCount + sum) * (blockDim.x / kWarp) + warp) * kSteps + step) * kKept;
  }
  /// Of so many steps, which all warps have left.
  CELLC_DEVICE void join(int steps) {
    __syncthreads();
    const int warps = static_cast<int>(blockDim.x / kWarp), count = steps * kKept;
    CELLC_UNROLL()
    for (int s = 0; s < kOuterSums; ++s) {
      for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        const Real* const from = slot(s, 0, 0) + i;
        Real sum = from[0];
        for (int w = 1; w < warps; ++w) sum += from[w * (kSteps * kKept)];
        to[s][i / kKept * stride[s] + i % kKept] = sum;
      }
      to[s] += steps * stride[s];
    }
    place ^= 1;
  }
};

/// What blocks have left of a sum, [parts, entries], into its first part.
CELLC_DEVICE void add_parts(Real* sum, long long entries, int parts) {
  const long long all = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < entries; i += all) {
    Real total = sum[i];
    CELLC_UNROLL(8)
    for (int p = 1; p < parts; ++p) total += sum[p * entries + i];
    sum[i] = total;
  }
}

/// Writes states, adds up, and makes sums of the terms behind them.
template <int kSumLanes, int kKept>
struct RowsAndSums {
  Rows& rows;
  Accumulators<kWidth>& all;
  Sums<kSumLanes>& sums;
  OuterSums<kKept>& outer;
  template <class States>
  CELLC_DEVICE void operator()(long long, const States& now, bool) {
    rows.write(now, true);
    if constexpr (kAccumulated > 0) all.add(now);
    if constexpr (kInnerSums > 0) sums.add(now);
    if constexpr (kOuterSums > 0) outer.add(now);
  }
  template <int kStep, class States>
  CELLC_DEVICE void of_stage(const States& now) {
    rows.write(now, true);
    if constexpr (kAccumulated > 0) all.add(now);
    if constexpr (kInnerSums > 0) sums.template keep<kStep>(now);
    if constexpr (kOuterSums > 0) outer.template keep<kStep>(now);
  }
};
template <int kSumLanes, int kKept>
constexpr bool kTakesStages<RowsAndSums<kSumLanes, kKept>&> = true;

}  // namespace cellc
