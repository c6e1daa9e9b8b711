// What maps over a segment have in common: their numbers pass between the threads of a warp; those by a matrix and an
// offset say which of these there are; those that are known exactly lead along a chain of boundaries by themselves.
//
// Needs lanes.cuh.
#pragma once

namespace cellc {

/// All numbers of a Map, which its each() visits, from another thread of the warp.
template <class Map>
struct ShuffledMap {
  CELLC_DEVICE void shuffle_up(int by) {
    self().each([&](Real& value) { value = __shfl_up_sync(0xffffffffu, value, by); });
  }
  CELLC_DEVICE void shuffle_down(int by) {
    self().each([&](Real& value) { value = __shfl_down_sync(0xffffffffu, value, by); });
  }
  CELLC_DEVICE void shuffle_xor(int by) {
    self().each([&](Real& value) { value = __shfl_xor_sync(0xffffffffu, value, by); });
  }
  CELLC_DEVICE void shuffle(int from) {
    self().each([&](Real& value) { value = __shfl_sync(0xffffffffu, value, from); });
  }

 private:
  CELLC_DEVICE Map& self() { return static_cast<Map&>(*this); }
};

/// x -> matrix x + offset, whatever the Map takes for sums and products. Rule::transition(i * kN + j) is the state of
/// StepWithTransition that holds an entry of the matrix, below 0 where the entry is proved to be none: a zero of the
/// sum.
template <class Rule, int kN, class Map>
struct MatrixMap : ShuffledMap<Map> {
  Real matrix[kN * kN], offset[kN];

  /// Whether an entry may be other than that, over no step as well.
  static CELLC_DEVICE constexpr bool holds(int i, int j) { return i == j || Rule::transition(i * kN + j) >= 0; }
  /// All numbers that tell the map, in a fixed order.
  static CELLC_DEVICE constexpr int count() {
    int sum = kN;
    for (int i = 0; i < kN; ++i)
      for (int j = 0; j < kN; ++j) sum += holds(i, j);
    return sum;
  }
  template <class Function>
  CELLC_DEVICE void each(Function&& function) {
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i) {
      function(offset[i]);
      CELLC_UNROLL()
      for (int j = 0; j < kN; ++j)
        if (holds(i, j)) function(matrix[i * kN + j]);
    }
  }
  /// offset_of(i), entry_of(i, j).
  template <class Offset, class Entry>
  CELLC_DEVICE void set(Offset&& offset_of, Entry&& entry_of) {
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i) {
      offset[i] = offset_of(i);
      CELLC_UNROLL()
      for (int j = 0; j < kN; ++j) matrix[i * kN + j] = entry_of(i, j);
    }
  }
  /// The entry at (i, j) of what a segment's transition is: value(c) is the c-th of its numbers.
  template <class Value>
  static CELLC_DEVICE Real entry(int i, int j, Real zero, Value&& value) {
    const int c = Rule::transition(i * kN + j);
    return c >= 0 ? value(c >= 0 ? c - kN : 0) : zero;
  }
};

/// Goes along a chain of boundaries whose maps are known exactly. kInfinite: infinities are numbers; else a state that
/// comes out infinite is replaced, too.
template <int kN, bool kInfinite>
struct ExactChange {
  Real at[kN];
  template <class Work>
  CELLC_DEVICE void begin(Work& work, long long lane) {
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i) at[i] = work.at(work.run.began, i, lane);
  }
  template <class Work, class Boundary>
  CELLC_DEVICE void step(Work& work, long long lane, const Boundary& boundary, bool writes) {
    boundary.map.apply(*this);
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i) {
      if (kInfinite ? at[i] != at[i] : !is_finite(at[i])) at[i] = boundary.end[i];
      if (writes) work.at(work.run.starts, i, lane) = at[i];
    }
  }
  template <class Work, class Boundary>
  CELLC_DEVICE void settle(const Work&, const Boundary&) {}
};

}  // namespace cellc
