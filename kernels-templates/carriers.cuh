// How the map over a segment acts on what it starts from, and how such maps compose.
//
// A Change is how far a chain's start has moved from the one that a segment was run with; a Map is what
// some segments do to it. Both read the segment to the left of the boundary that they come to.
#pragma once

namespace cellc {

/// start(s) - began(s) = ended(s-1) - began(s) + P(s-1) (start(s-1) - began(s-1)).
template <class Rule, int kN>
struct AffineCarriers {
  static CELLC_DEVICE void identity(Real* carrier) {
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i) {
      CELLC_UNROLL()
      for (int j = 0; j < kN; ++j)
        if (Rule::carrier(i * kN + j) >= 0) carrier[Rule::carrier(i * kN + j) - kN] = i == j ? Real(1) : Real(0);
    }
  }

  /// What stands at the boundary on the left of a lane.
  struct Boundary {
    Real end[kN], began[kN], carrier[kN * kN];
    template <class Work>
    CELLC_DEVICE void read(Work& work, long long lane) {
      const long long left = lane - work.lanes.channels;
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        end[i] = work.at(work.run.ended, i, left);
        began[i] = work.at(work.run.began, i, lane);
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j) {
          const int c = Rule::carrier(i * kN + j);
          carrier[i * kN + j] = c >= 0 ? work.at(work.run.carriers, c >= 0 ? c - kN : 0, left) : Real(0);
        }
      }
    }
  };

  struct Change {
    Real by[kN];
    CELLC_DEVICE void none() {
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) by[i] = 0;
    }
    /// Comes to the boundary on the left of `lane`, and writes where the lane should start.
    template <class Work>
    CELLC_DEVICE void step(Work& work, long long lane, const Boundary& at) {
      Real next[kN];
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        Real to = at.end[i];
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j)
          // An overflowed carrier times no change is no change.
          if (Rule::carrier(i * kN + j) >= 0) to += by[j] == Real(0) ? Real(0) : at.carrier[i * kN + j] * by[j];
        if (!is_finite(to)) to = at.end[i];
        work.at(work.run.starts, i, lane) = to;
        next[i] = to - at.began[i];
        if (!is_finite(next[i])) next[i] = 0;
      }
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) by[i] = next[i];
    }
  };

  struct Map {
    Real matrix[kN * kN], shift[kN];
    CELLC_DEVICE void identity() {
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        shift[i] = 0;
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j) matrix[i * kN + j] = i == j ? Real(1) : Real(0);
      }
    }
    CELLC_DEVICE void then(const Boundary& at) {
      Map later;
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        later.shift[i] = at.end[i] - at.began[i];
        if (!is_finite(later.shift[i])) later.shift[i] = 0;
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j) later.matrix[i * kN + j] = is_finite(at.carrier[i * kN + j]) ? at.carrier[i * kN + j] : Real(0);
      }
      later.after(*this);
      *this = later;
    }
    /// This map after an earlier one.
    CELLC_DEVICE void after(const Map& before) {
      Map both;
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        both.shift[i] = shift[i];
        CELLC_UNROLL()
        for (int k = 0; k < kN; ++k) both.shift[i] += matrix[i * kN + k] * before.shift[k];
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j) {
          Real sum = 0;
          CELLC_UNROLL()
          for (int k = 0; k < kN; ++k) sum += matrix[i * kN + k] * before.matrix[k * kN + j];
          both.matrix[i * kN + j] = sum;
        }
      }
      *this = both;
    }
    CELLC_DEVICE void shuffle_up(int by) {
      CELLC_UNROLL()
      for (int i = 0; i < kN * kN; ++i) matrix[i] = __shfl_up_sync(0xffffffffu, matrix[i], by);
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) shift[i] = __shfl_up_sync(0xffffffffu, shift[i], by);
    }
    CELLC_DEVICE void apply(Change& change) const {
      Real to[kN];
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        to[i] = shift[i];
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j) to[i] += matrix[i * kN + j] * change.by[j];
        if (!is_finite(to[i])) to[i] = 0;
      }
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) change.by[i] = to[i];
    }
  };
};

using Carriers = AffineCarriers<CarrierRule, Step::kStates>;

}  // namespace cellc
