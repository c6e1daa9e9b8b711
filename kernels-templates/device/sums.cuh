// Sums over lanes that lie beside each other, of what each has just computed: y[d] = sum[n](C[n]*h'[d,n]) is made by
// the kSumLanes lanes that hold h'[d,n], instead of by a kernel that reads all states back
// (compiler/derive/fused_reductions.h). The last kSums states of Step are the terms. They start as nothing and are not
// written; what is written is their sum, by one lane.
//
// A stage's terms are kept until its last step. Then threads exchange halves of what they hold, as long as there are
// several steps: of 8 steps over 16 threads that is 4 + 2 + 1 exchanges, and one more for each thread's own step,
// instead of 8*4. Which thread ends up with which steps is always the same, and so is the order of additions: a sum has
// the same bits in every run.
//
// Along more lanes than a warp has, each warp writes a part of the sum, Lanes::part entries from the one before.
//
// Where sums are outs (compiler/derive/fused_sum_outs.h), there is a state before the terms for each of them: what the
// first of a sum's lanes adds besides. Such a sum is of one warp's lanes.
//
// Terms of sums over lanes that lie apart come behind these (outer_sums.cuh).
#pragma once

namespace cellc {

/// States that are terms of sums over lanes beside each other, and behind them of those over lanes that lie apart.
constexpr int kOuterSums = Traits::kOuterSums, kInnerSums = kSums - kOuterSums, kBases = Traits::kBases;
/// Sums that are outs are stored as rows are; a kernel behind the stage reads others.
template <bool kAreOuts>
struct SumStorage {
  using Type = Real;
  static CELLC_DEVICE void put(Real* at, Real sum) { *at = sum; }
};
template <>
struct SumStorage<true> {
  using Type = Stored;
  static CELLC_DEVICE void put(Stored* at, Real sum) { store(at, sum); }
};
using Summed = SumStorage<(Traits::kBases > 0)>;
static_assert(kBases == 0 || (kBases == kSums && kOuterSums == 0), "all sums are outs, or none is");

/// Adds up what threads have at several steps, with those `kOther`, 2 kOther, … kEnd / 2 threads away: they exchange
/// halves as long as there are several steps.
template <int kOther, int kEnd, int kLeft>
CELLC_DEVICE void fold(Real (&of)[kSteps]) {
  if constexpr (kOther < kEnd) {
    if constexpr (kLeft > 1) {
      constexpr int kHalf = kLeft / 2;
      const bool upper = threadIdx.x & kOther;
      CELLC_UNROLL()
      for (int j = 0; j < kHalf; ++j) {
        const Real mine = upper ? of[j + kHalf] : of[j], others = upper ? of[j] : of[j + kHalf];
        of[j] = mine + __shfl_xor_sync(0xffffffffu, others, kOther);
      }
      fold<kOther * 2, kEnd, kHalf>(of);
    } else {
      of[0] += __shfl_xor_sync(0xffffffffu, of[0], kOther);
      fold<kOther * 2, kEnd, 1>(of);
    }
  }
}
/// The first of the steps that the thread numbered `own` of kSpread then has.
template <int kSpread>
CELLC_DEVICE int first_of_fold(int own) {
  int first = 0;
  CELLC_UNROLL()
  for (int other = 1, left = kSteps; other < kSpread; other *= 2) {
    left /= 2;
    if (own & other) first += left;
  }
  return first;
}

/// `kSumLanes`: lanes of a warp that a sum runs along.
template <int kSumLanes>
struct Sums {
  static constexpr int kSumThreads = kSumLanes < kWidth ? 1 : kSumLanes / kWidth;  ///< that have those lanes
  static_assert(kInnerSums == 0 || kSumLanes % kWidth == 0, "no thread has lanes of two sums");
  static constexpr int kCount = kInnerSums > 0 ? kInnerSums : 1;
  static constexpr int kSpread =
      kSteps < kSumThreads ? kSteps : kSumThreads;  ///< threads that divide a stage's steps among them
  static constexpr int kMine = kSteps / kSpread;    ///< steps of each of them
  static_assert(kSumLanes <= kWarp && kWarp % kSumLanes == 0 && kSteps % kSpread == 0, "lanes in halves");

  Real term[kCount][kSteps];
  Summed::Type* to[kCount];  ///< of the step that this thread writes first of those that come next
  long long stride[kCount];  ///< entries
  unsigned together;         ///< threads that add up one sum
  bool writes, leads;  ///< whether this thread writes any step of a stage; whether it writes those that are not part of
                       ///< a whole one

  /// At step t, the first of a stage.
  CELLC_DEVICE void begin(const Lanes& lanes, const Lane& lane, long long t) {
    const int thread = static_cast<int>(threadIdx.x) % kWarp, own = thread % kSumThreads;
    const int first = first_of_fold<kSpread>(own);
    writes = own < kSpread;
    leads = own == 0;
    together = (kSumThreads < 32 ? (1u << (kSumThreads % 32)) - 1 : 0xffffffffu) << (thread - own);
    const long long part = lanes.parts > 1 ? lane.channel_index / kWarp % lanes.parts : 0;
    CELLC_UNROLL()
    for (int s = 0; s < kInnerSums; ++s) {
      const ArrayView& array = lanes.array[Step::state_array(kFirstTerm + s)];
      to[s] = static_cast<Summed::Type*>(array.data) + place(array, lane, t + first) + part * lanes.part;
      stride[s] = lane.direction * array.row;
    }
  }

  /// Step k of a whole stage of a whole warp.
  template <int kStep, class States>
  CELLC_DEVICE void keep(const States& now) {
    CELLC_UNROLL()
    for (int s = 0; s < kInnerSums; ++s) {
      term[s][kStep] = term_of(now, s);
      if constexpr (kStep == kSteps - 1) {
        fold<1, kSumThreads, kSteps>(term[s]);
        CELLC_UNROLL()
        for (int j = 0; j < kMine; ++j)
          if (writes) Summed::put(to[s] + j * stride[s], term[s][j]);
        to[s] += kSteps * stride[s];
      }
    }
  }

  /// A step of lanes that may not all have one: those of a sum do.
  template <class States>
  CELLC_DEVICE void add(const States& now) {
    CELLC_UNROLL()
    for (int s = 0; s < kInnerSums; ++s) {
      Real sum = term_of(now, s);
      CELLC_UNROLL()
      for (int other = 1; other < kSumThreads; other *= 2) sum += __shfl_xor_sync(together, sum, other);
      if (leads) Summed::put(to[s], sum);
      to[s] += stride[s];
    }
  }

 private:
  /// Of all lanes of this thread.
  template <class States>
  CELLC_DEVICE Real term_of(const States& now, int s) const {
    // In pairs, as threads do: the same bits for any number of lanes a thread.
    Real sum[kWidth];
    CELLC_UNROLL()
    for (int v = 0; v < kWidth; ++v) sum[v] = now[v][kFirstTerm + s];
    CELLC_UNROLL()
    for (int left = kWidth / 2; left > 0; left /= 2) {
      CELLC_UNROLL()
      for (int v = 0; v < left; ++v) sum[v] = sum[2 * v] + sum[2 * v + 1];
    }
    if constexpr (kBases > 0) return sum[0] + (leads ? now[0][kFirstTerm - kBases + s] : Real(0));
    return sum[0];
  }
};

}  // namespace cellc
