// Maps over a segment that are linear over a semiring (compiler/analysis/structure_semiring.cc): as matrices, with the
// greatest, the least or the log of a sum of exponentials for sums, and sums for products. Infinities are numbers here.
// The offset is carried beside the matrix, since nothing can be taken off a maximum.
//
// Needs lanes.cuh and maps.cuh.
#pragma once

namespace cellc {

/// start(s)_i = offset_i ⊕ (P_ij + start(s-1)_j), ⊕ the greatest (kKind 3), the least (4) or the log of the sum of
/// exponentials (5). Rule::transition(i * kN + j) is P_ij, Rule::transition(kN * kN + i) is offset_i. What is proved to
/// be no term is the neutral element, an infinity.
template <class Rule, int kN, int kKind>
struct SemiringTransitions {
  static CELLC_DEVICE Real zero() {
    const Real infinite = static_cast<Real>(__int_as_float(0x7f800000));
    return kKind == 4 ? infinite : -infinite;
  }
  /// first ⊕ term(j) of all j that it holds.
  template <class Holds, class Term>
  static CELLC_DEVICE Real sum(Real first, Holds&& held, Term&& term) {
    Real most = first;
    CELLC_UNROLL()
    for (int j = 0; j < kN; ++j)
      if (held(j)) most = (kKind == 4) == (term(j) < most) ? term(j) : most;
    if constexpr (kKind != 5) return most;
    // Taken off, infinity would make no number of itself.
    const Real off = is_finite(most) ? most : Real(0);
    Real total = exp(first - off);
    CELLC_UNROLL()
    for (int j = 0; j < kN; ++j)
      if (held(j)) total += exp(term(j) - off);
    return off + log(total);
  }
  static CELLC_DEVICE constexpr int place(int i, int j) { return Rule::transition(i * kN + j); }
  static CELLC_DEVICE constexpr int place(int i) { return Rule::transition(kN * kN + i) - kN; }

  static CELLC_DEVICE void identity(Real* transition) {
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i) {
      transition[place(i)] = zero();
      CELLC_UNROLL()
      for (int j = 0; j < kN; ++j)
        if (place(i, j) >= 0) transition[place(i, j) - kN] = i == j ? Real(0) : zero();
    }
  }
  static CELLC_DEVICE void forget(Real* transition, const Real* end) {
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i) {
      transition[place(i)] = end[i];
      CELLC_UNROLL()
      for (int j = 0; j < kN; ++j)
        if (place(i, j) >= 0) transition[place(i, j) - kN] = zero();
    }
  }
  static CELLC_DEVICE Real growth(const Real*) { return 1; }

  struct Map : MatrixMap<Rule, kN, Map> {
    using MatrixMap<Rule, kN, Map>::matrix, MatrixMap<Rule, kN, Map>::offset;
    using MatrixMap<Rule, kN, Map>::holds, MatrixMap<Rule, kN, Map>::entry, MatrixMap<Rule, kN, Map>::set;

    CELLC_DEVICE void from(const Real*, const Real* transition) {
      set([&](int i) { return transition[place(i)]; },
          [&](int i, int j) { return entry(i, j, zero(), [&](int c) { return transition[c]; }); });
    }
    CELLC_DEVICE void constant(const Real* state) {
      set([&](int i) { return state[i]; }, [](int, int) { return zero(); });
    }
    CELLC_DEVICE void identity() {
      set([](int) { return zero(); }, [](int i, int j) { return i == j ? Real(0) : zero(); });
    }
    template <class Work, class Boundary>
    CELLC_DEVICE void then(const Work&, const Boundary& at) {
      Map later = at.map;
      later.after(*this);
      *this = later;
    }
    /// This map after an earlier one.
    CELLC_DEVICE void after(const Map& before) {
      Map both;
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        both.offset[i] = reached(i, before.offset);
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j) {
          both.matrix[i * kN + j] = sum(
              zero(), [&](int k) { return holds(i, k) && holds(k, j); },
              [&](int k) { return matrix[i * kN + k] + before.matrix[k * kN + j]; });
        }
      }
      *this = both;
    }
    CELLC_DEVICE Real reached(int i, const Real* state) const {
      return sum(
          offset[i], [&](int j) { return holds(i, j); }, [&](int j) { return matrix[i * kN + j] + state[j]; });
    }
    CELLC_DEVICE void move(Real* state) const {
      Real to[kN];
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) to[i] = reached(i, state);
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) state[i] = to[i];
    }
    template <class Change>
    CELLC_DEVICE void apply(Change& change) const {
      move(change.at);
    }
  };

  struct Boundary {
    Real end[kN];
    Map map;
    template <class Work>
    CELLC_DEVICE void read(Work& work, long long lane) {
      const long long left = lane - work.lanes.channels;
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) end[i] = work.at(work.run.ended, i, left);
      const auto left_of = [&](int c) { return work.at(work.run.transitions, c, left); };
      map.set([&](int i) { return left_of(place(i)); },
              [&](int i, int j) { return Map::entry(i, j, zero(), left_of); });
    }
  };

  using Change = ExactChange<kN, true>;
};

}  // namespace cellc
