// How the map over a segment acts on what it starts from, and how such maps compose: affine maps (the
// product of a segment's Jacobians, exact where the stage is linear), clip(a x + b, low, high) and
// (a x + b)/(c x + d), maps over semirings (compiler/derive/transition_cell.h). TransitionRule says which state of
// StepWithTransition holds what.
//
// A Boundary is what stands between a segment and its left neighbour. A Change goes along a chain from
// boundary to boundary and writes where segments should start; a Map is what some boundaries do to it.
//
// Needs lanes.cuh, maps.cuh and semirings.cuh.
#pragma once

namespace cellc {

// What follows is made for batches of boundaries: neither branches nor calls, which would keep the members of a
// batch apart. So conditions are joined by | and &, and a float is divided by the hardware's own reciprocal.
CELLC_DEVICE float inverse(float x) { return reciprocal(x); }
CELLC_DEVICE double inverse(double x) { return 1 / x; }

/// How large a number is, where sizes are compared: what is none says nothing.
CELLC_DEVICE Real finite_size(Real value) { return is_finite(value) ? magnitude(value) : Real(0); }
CELLC_DEVICE Real larger(Real a, Real b) { return a > b ? a : b; }

/// Over |b| and the size that the state has besides, so that nothing depends on units. Less, and not as much: of a
/// number and infinity both sides are infinite. Of a size that is none nothing follows.
CELLC_DEVICE bool are_near(Real a, Real b, Real tolerance, Real size) {
  const Real allowed = tolerance * size + tolerance * magnitude(b);  // the sum of both may be beyond the largest number
  return (a == b) | ((a != a) & (b != b)) | ((magnitude(a - b) < allowed) & is_finite(allowed));
}

/// start(s) - began(s) = ended(s-1) - began(s) + P(s-1) (start(s-1) - began(s-1)).
template <class Rule, int kN>
struct AffineTransitions {
  static CELLC_DEVICE void identity(Real* transition) {
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i) {
      CELLC_UNROLL()
      for (int j = 0; j < kN; ++j)
        if (Rule::transition(i * kN + j) >= 0)
          transition[Rule::transition(i * kN + j) - kN] = i == j ? Real(1) : Real(0);
    }
  }
  /// The map of a segment over which nothing was carried: its start is taken to be forgotten.
  static CELLC_DEVICE void forget(Real* transition, const Real*) {
    CELLC_UNROLL()
    for (int i = 0; i < kN * kN; ++i)
      if (Rule::transition(i) >= 0) transition[Rule::transition(i) - kN] = 0;
  }
  /// By how much a difference at the start has grown or shrunk: the largest sum of a row of P.
  template <class Entry>
  static CELLC_DEVICE Real growth_of(const Entry& entry) {
    Real most = 0;
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i) {
      Real sum = 0;
      CELLC_UNROLL()
      for (int j = 0; j < kN; ++j)
        if (Rule::transition(i * kN + j) >= 0) sum += magnitude(entry(i * kN + j));
      most = sum > most ? sum : most;
    }
    return most;
  }
  static CELLC_DEVICE Real growth(const Real* transition) {
    return growth_of([&](int place) { return transition[Rule::transition(place) - kN]; });
  }

  /// What stands at the boundary on the left of a lane.
  struct Boundary {
    Real end[kN], began[kN], transition[kN * kN];
    Real size[kN];  ///< of the segment that ends here (keep_size of segment_work.cuh)
    template <class Work>
    CELLC_DEVICE void read(Work& work, long long lane) {
      const long long left = lane - work.lanes.channels;
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        end[i] = work.at(work.run.ended, i, left);
        began[i] = work.at(work.run.began, i, lane);
        size[i] = work.at(work.run.sizes, i, left);
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j) {
          const int c = Rule::transition(i * kN + j);
          transition[i * kN + j] = c >= 0 ? work.at(work.run.transitions, c >= 0 ? c - kN : 0, left) : Real(0);
        }
      }
    }
    /// Of the segment that ends here.
    CELLC_DEVICE Real growth() const {
      return growth_of([&](int place) { return transition[place]; });
    }
  };

  /// How far from a segment's end, over that and the segment's size, a line may lead.
  static constexpr Real kBelieved = 2;

  struct Change {
    Real by[kN];
    /// At the start of the chain whose first lane this is.
    template <class Work>
    CELLC_DEVICE void begin(Work&, long long) {
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) by[i] = 0;
    }
    /// Comes to the boundary on the left of `lane`, and writes, if asked to, where the lane should start.
    template <class Work>
    CELLC_DEVICE void step(Work& work, long long lane, const Boundary& at, bool writes) {
      const Real left = work.slack.at(at.growth());
      Real next[kN];
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        Real to = at.end[i];
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j)
          // An overflowed transition times no change is no change.
          if (Rule::transition(i * kN + j) >= 0) to += by[j] == Real(0) ? Real(0) : at.transition[i * kN + j] * by[j];
        // What is as good as the neighbour's end is that end: rounding must not tip a comparison.
        to = !is_finite(to) | are_near(to, at.end[i], work.slack.tolerance * Real(0.0625), at.size[i]) ? at.end[i] : to;
        // A line that leads further than states are large is not believed.
        if (work.hermite) to = are_near(to, at.end[i], kBelieved, at.size[i]) ? to : at.end[i];
        if (writes) work.at(work.run.starts, i, lane) = to;
        // A segment that is not run again ends where it did.
        next[i] = to - at.began[i];
        next[i] = !is_finite(next[i]) | are_near(to, at.began[i], left, at.size[i]) ? Real(0) : next[i];
      }
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) by[i] = next[i];
    }
    /// Where this came from a composition of maps, which knows nothing of what is near enough: as step() would have
    /// left it at the boundary before.
    template <class Work>
    CELLC_DEVICE void settle(const Work& work, const Boundary& before) {
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        const Real to = before.began[i] + by[i];
        const bool stays = are_near(to, before.began[i], work.slack.at(before.growth()), before.size[i]) |
                           (work.hermite & !are_near(to, before.began[i], kBelieved, before.size[i]));
        by[i] = stays ? Real(0) : by[i];
      }
    }
  };

  struct Map : MatrixMap<Rule, kN, Map> {
    using MatrixMap<Rule, kN, Map>::matrix, MatrixMap<Rule, kN, Map>::offset;
    using MatrixMap<Rule, kN, Map>::holds, MatrixMap<Rule, kN, Map>::entry, MatrixMap<Rule, kN, Map>::set;

    CELLC_DEVICE void identity() {
      set([](int) { return Real(0); }, [](int i, int j) { return i == j ? Real(1) : Real(0); });
    }
    /// Of steps that were run from zero with transitions.
    CELLC_DEVICE void from(const Real* end, const Real* transition) {
      set([&](int i) { return end[i]; },
          [&](int i, int j) { return entry(i, j, Real(0), [&](int c) { return transition[c]; }); });
    }
    /// To one state from everywhere.
    CELLC_DEVICE void constant(const Real* state) {
      set([&](int i) { return state[i]; }, [](int, int) { return Real(0); });
    }
    template <class Work>
    CELLC_DEVICE void then(const Work& work, const Boundary& at) {
      const Real left = work.slack.at(at.growth());
      Map later;
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        // What may stay is no change, also if there is much of it.
        later.offset[i] = at.end[i] - at.began[i];
        if (!is_finite(later.offset[i]) | are_near(at.end[i], at.began[i], left, at.size[i])) later.offset[i] = 0;
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j)
          later.matrix[i * kN + j] = is_finite(at.transition[i * kN + j]) ? at.transition[i * kN + j] : Real(0);
      }
      later.after(*this);
      *this = later;
    }
    /// This map after an earlier one.
    CELLC_DEVICE void after(const Map& before) {
      Map both;
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        both.offset[i] = offset[i];
        CELLC_UNROLL()
        for (int k = 0; k < kN; ++k)
          if (holds(i, k)) both.offset[i] += grown(matrix[i * kN + k], before.offset[k]);
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j) {
          Real sum = 0;
          CELLC_UNROLL()
          for (int k = 0; k < kN; ++k)
            if (holds(i, k) && holds(k, j))
              sum += matrix[i * kN + k] == Real(0) ? Real(0) : grown(matrix[i * kN + k], before.matrix[k * kN + j]);
          both.matrix[i * kN + j] = sum;
        }
      }
      *this = both;
    }
    /// An overflowed transition of nothing is nothing.
    static CELLC_DEVICE Real grown(Real transition, Real by) { return by == Real(0) ? Real(0) : transition * by; }
    CELLC_DEVICE void move(Real* state) const {
      Real to[kN];
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        to[i] = offset[i];
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j)
          if (holds(i, j)) to[i] += grown(matrix[i * kN + j], state[j]);
      }
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) state[i] = to[i];
    }
    CELLC_DEVICE void apply(Change& change) const {
      Real to[kN];
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        to[i] = offset[i];
        CELLC_UNROLL()
        for (int j = 0; j < kN; ++j) to[i] += matrix[i * kN + j] * change.by[j];
        if (!is_finite(to[i])) to[i] = 0;
      }
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) change.by[i] = to[i];
    }
  };
};

/// Factors above `kSteep` leave room for a product of two; `kTiny` is so small that products of the largest numbers fit
/// after it. Each type has its own: NVRTC 13.5 refuses a constant that no float holds even where it is not taken.
template <class Number>
struct Extremes {
  static constexpr Number kSteep = 1e18f, kTiny = 1e-20f;
};
template <>
struct Extremes<double> {
  static constexpr double kSteep = 1e150, kTiny = 1e-155;
};

/// start(s) = map(s-1) applied to start(s-1), entry by entry: Rule::transition(4 i + m) is the m-th number of
/// entry i's map. kMoebius: (a x + b)/(c x + d), otherwise clip(a x + b, c, d).
template <class Rule, int kN, bool kMoebius>
struct MapTransitions {
  static CELLC_DEVICE Real infinite() { return static_cast<Real>(__int_as_float(0x7f800000)); }
  static constexpr Real kSteep = Extremes<Real>::kSteep;
  /// Bounds beyond this are none.
  static constexpr Real kVectorised = Real(1e9);

  /// clip(a x + b, c, d) with a factor or a shift beyond measure is a step from c to d at x = -b/a, and stays
  /// that where both are made smaller. Between open bounds what is large may be meant, until it overflows.
  static CELLC_DEVICE void shrink(Real& a, Real& b, Real c, Real d) {
    const Real larger = magnitude(a) > magnitude(b) ? magnitude(a) : magnitude(b);
    if (larger > kSteep && is_finite(larger) && magnitude(c) < kVectorised && magnitude(d) < kVectorised) {
      a = a / larger * kSteep;
      b = b / larger * kSteep;
    }
  }
  /// a_later * a and a_later * b + b_later, made smaller together where one overflows.
  static CELLC_DEVICE void compose(Real& a, Real& b, Real a_later, Real b_later) {
    const Real slope = a_later * a, shift = a_later * b + b_later;
    if (is_finite(slope) && is_finite(shift)) {
      a = slope;
      b = shift;
      return;
    }
    constexpr Real kTiny = Extremes<Real>::kTiny;
    const Real p = (a_later * kTiny) * (a * kTiny), q = (a_later * kTiny) * (b * kTiny) + (b_later * kTiny) * kTiny;
    const Real larger = magnitude(p) > magnitude(q) ? magnitude(p) : magnitude(q);
    const bool given = !is_finite(larger);  // inputs that were not finite stay what they are
    a = given ? slope : p / larger * (kSteep * kSteep);
    b = given ? shift : q / larger * (kSteep * kSteep);
  }

  static CELLC_DEVICE void set(Real* transition, int i, Real a, Real b, Real c, Real d) {
    transition[Rule::transition(4 * i) - kN] = a;
    transition[Rule::transition(4 * i + 1) - kN] = b;
    transition[Rule::transition(4 * i + 2) - kN] = c;
    transition[Rule::transition(4 * i + 3) - kN] = d;
  }
  static CELLC_DEVICE void identity(Real* transition) {
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i)
      set(transition, i, 1, 0, kMoebius ? Real(0) : -infinite(), kMoebius ? Real(1) : infinite());
  }
  static CELLC_DEVICE void forget(Real* transition, const Real* end) {
    CELLC_UNROLL()
    for (int i = 0; i < kN; ++i)
      set(transition, i, 0, end[i], kMoebius ? Real(0) : -infinite(), kMoebius ? Real(1) : infinite());
  }
  static CELLC_DEVICE Real growth(const Real*) { return 1; }

  struct Map : ShuffledMap<Map> {
    Real a[kN], b[kN], c[kN], d[kN];
    static CELLC_DEVICE constexpr int count() { return 4 * kN; }
    template <class Function>
    CELLC_DEVICE void each(Function&& function) {
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        function(a[i]);
        function(b[i]);
        function(c[i]);
        function(d[i]);
      }
    }
    CELLC_DEVICE void from(const Real*, const Real* transition) {
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        a[i] = transition[Rule::transition(4 * i) - kN];
        b[i] = transition[Rule::transition(4 * i + 1) - kN];
        c[i] = transition[Rule::transition(4 * i + 2) - kN];
        d[i] = transition[Rule::transition(4 * i + 3) - kN];
      }
    }
    CELLC_DEVICE void constant(const Real* state) {
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        a[i] = 0;
        b[i] = state[i];
        c[i] = kMoebius ? Real(0) : -infinite();
        d[i] = kMoebius ? Real(1) : infinite();
      }
    }
    CELLC_DEVICE void identity() {
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        a[i] = 1;
        b[i] = 0;
        c[i] = kMoebius ? Real(0) : -infinite();
        d[i] = kMoebius ? Real(1) : infinite();
      }
    }
    template <class Work, class Boundary>
    CELLC_DEVICE void then(const Work&, const Boundary& at) {
      Map later = at.map;
      later.after(*this);
      *this = later;
    }
    /// This map after an earlier one.
    CELLC_DEVICE void after(const Map& before) {
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        if constexpr (kMoebius) {
          const Real p = a[i] * before.a[i] + b[i] * before.c[i], q = a[i] * before.b[i] + b[i] * before.d[i];
          const Real r = c[i] * before.a[i] + d[i] * before.c[i], s = c[i] * before.b[i] + d[i] * before.d[i];
          Real norm = magnitude(p);
          norm = magnitude(q) > norm ? magnitude(q) : norm;
          norm = magnitude(r) > norm ? magnitude(r) : norm;
          norm = magnitude(s) > norm ? magnitude(s) : norm;
          a[i] = p / norm;
          b[i] = q / norm;
          c[i] = r / norm;
          d[i] = s / norm;
        } else {
          // clip(a clip(x, low, high) + b, …): zero times an open bound is no bound, and a negative factor
          // turns the interval round.
          const Real low = a[i] == Real(0) ? b[i] : a[i] * (a[i] < Real(0) ? before.d[i] : before.c[i]) + b[i];
          const Real high = a[i] == Real(0) ? b[i] : a[i] * (a[i] < Real(0) ? before.c[i] : before.d[i]) + b[i];
          Real slope = before.a[i], shift = before.b[i];
          compose(slope, shift, a[i], b[i]);
          a[i] = slope;
          b[i] = shift;
          const Real l = c[i], h = d[i];
          c[i] = low < l ? l : low > h ? h : low;
          d[i] = high < l ? l : high > h ? h : high;
          shrink(a[i], b[i], c[i], d[i]);
        }
      }
    }
    CELLC_DEVICE void move(Real* state) const {
      CELLC_UNROLL()
      for (int i = 0; i < kN; ++i) {
        const Real x = state[i];
        if constexpr (kMoebius) {
          state[i] = (a[i] * x + b[i]) / (c[i] * x + d[i]);
        } else {
          const Real y = (x == Real(0) ? Real(0) : a[i] * x) + b[i], above = y < c[i] ? c[i] : y;
          state[i] = above > d[i] ? d[i] : above;
        }
      }
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
      for (int i = 0; i < kN; ++i) {
        end[i] = work.at(work.run.ended, i, left);
        map.a[i] = work.at(work.run.transitions, Rule::transition(4 * i) - kN, left);
        map.b[i] = work.at(work.run.transitions, Rule::transition(4 * i + 1) - kN, left);
        map.c[i] = work.at(work.run.transitions, Rule::transition(4 * i + 2) - kN, left);
        map.d[i] = work.at(work.run.transitions, Rule::transition(4 * i + 3) - kN, left);
      }
    }
  };

  using Change = ExactChange<kN, false>;
};

template <int kKind, class Rule, int kN>
struct TransitionsOf {
  using Type = SemiringTransitions<Rule, kN, kKind>;
};
template <class Rule, int kN>
struct TransitionsOf<1, Rule, kN> {
  using Type = MapTransitions<Rule, kN, false>;
};
template <class Rule, int kN>
struct TransitionsOf<2, Rule, kN> {
  using Type = MapTransitions<Rule, kN, true>;
};
template <class Rule, int kN>
struct TransitionsOf<0, Rule, kN> {
  using Type = AffineTransitions<Rule, kN>;
};
using Transitions = typename TransitionsOf<static_cast<int>(TransitionRule::kKind), TransitionRule, kCarried>::Type;

}  // namespace cellc
