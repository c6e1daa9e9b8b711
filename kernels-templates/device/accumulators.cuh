// What a lane adds up over its steps instead of writing it: the summands of params' gradients
// (compiler/derive/fused_outs.h). Every lane, or the lanes of a warp that have the same channel, leave one part of the
// sum; parts are added up afterwards in the order of their numbers (gradient/step_sums.cuh). Which steps a part has
// follows from the shape and the plan, so that a sum has the same bits in every run.
//
// Needs lanes.cuh.
#pragma once

namespace cellc {

/// Of `kLanes` lanes of a thread.
template <int kLanes>
struct Accumulators {
  static constexpr int kFirst = kRowStates, kCount = kAccumulated > 0 ? kAccumulated : 1;
  // With what the last addition has lost (Kahan, 1965): a long sum of small numbers would lose them to the large one
  // that it has become. Memory is what lanes wait for, not these three operations.
  Real sum[kLanes][kCount], lost[kLanes][kCount];

  CELLC_DEVICE Accumulators() {
    CELLC_UNROLL()
    for (int v = 0; v < kLanes; ++v) {
      CELLC_UNROLL()
      for (int i = 0; i < kAccumulated; ++i) sum[v][i] = lost[v][i] = 0;
    }
  }
  CELLC_DEVICE void add(int v, const Real (&now)[Step::kStates]) {
    CELLC_UNROLL()
    for (int i = 0; i < kAccumulated; ++i) {
      const Real term = now[kFirst + i] - lost[v][i], all = sum[v][i] + term;
      lost[v][i] = (all - sum[v][i]) - term;
      sum[v][i] = all;
    }
  }
  CELLC_DEVICE void add(const Real (&now)[kLanes][Step::kStates]) {
    CELLC_UNROLL()
    for (int v = 0; v < kLanes; ++v) add(v, now[v]);
  }
  /// With the lanes `by`, 2*by, … threads away.
  CELLC_DEVICE void join(int by) {
    CELLC_UNROLL(1)
    for (; by < 32; by *= 2) {
      CELLC_UNROLL()
      for (int v = 0; v < kLanes; ++v) {
        CELLC_UNROLL()
        for (int i = 0; i < kAccumulated; ++i) sum[v][i] += __shfl_xor_sync(0xffffffffu, sum[v][i], by);
      }
    }
  }
  /// As part `part` of all, which are ArrayView::batch entries apart.
  CELLC_DEVICE void leave_part(const Lanes& lanes, const Lane& lane, int v, long long part) const {
    CELLC_UNROLL()
    for (int i = 0; i < kAccumulated; ++i) {
      const ArrayView& array = lanes.array[Step::state_array(kFirst + i)];
      static_cast<Real*>(array.data)[part * array.batch + channel_offset(array, lane)] = sum[v][i];
    }
  }
  /// Of all steps of a sequence, which is one part.
  CELLC_DEVICE void leave(const Lanes& lanes, const Lane& lane, int v) const {
    leave_part(lanes, lane, v, lane.sequence);
  }
};

}  // namespace cellc
