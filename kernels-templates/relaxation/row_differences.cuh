// How far rows are apart, as one number: what an iteration of relaxation has changed, and how far a trajectory is from
// its own steps. A thread takes an entry of some rows of a sequence. Numbers are positive, so their bits order as they
// do, and the largest is the same in whatever order threads arrive. Needs preamble.cuh.
#pragma once

namespace cellc {

/// The host has the same struct (relaxation_on_gpu.cc).
struct RowDifference {
  const void* from;          ///< [rows, entries], Real
  const void* to;            ///< the same; sizes are those of these
  const long long* offsets;  ///< of sequences, one more than there are
  long long sequences, steps, entries, reverse;
  double absolute;     ///< what is tolerated besides
  unsigned int* most;  ///< bits of a float; grows
  void* sizes;         ///< [sequences, parts of the longest, entries], Real: the largest of a lane before a part
};

/// Steps of a thread.
constexpr long long kPartSteps = 64;
/// Steps of a sequence that may be over the largest of them: it may begin with terms that nearly cancel.
constexpr long long kBeginning = 256;

/// The largest finite |entry| so far.
struct LaneSize {
  Real most = 0;
  CELLC_DEVICE void add(Real value) {
    const Real size = magnitude(value);
    most = size > most && is_finite(value) ? size : most;
  }
};

CELLC_DEVICE Real or_infinite(Real value) {
  return is_finite(value) ? value : static_cast<Real>(__uint_as_float(0x7f800000u));
}

/// Zero where both agree; a number is infinitely far from what is none.
CELLC_DEVICE Real apart_by(Real from, Real to) {
  return (from == to) | ((from != from) & (to != to)) ? Real(0) : or_infinite(magnitude(from - to));
}

/// `far` over two sizes, whose sum may be beyond the largest number.
CELLC_DEVICE Real over_both(Real far, Real one, Real other) {
  return or_infinite(far * Real(0.25) / (one * Real(0.25) + other * Real(0.25)));
}

/// A double that becomes a float may become less than it was.
CELLC_DEVICE unsigned int bits_of(Real far) {
  return __float_as_uint(static_cast<float>(far) * (sizeof(Real) == 8 ? 1.0000002f : 1.0f));
}

/// Some steps of an entry of a sequence.
struct Part {
  long long index;  ///< in `sizes`
  long long begin, end, steps;
  long long first, entries, entry, reverse;
  /// Where step t of the sequence is.
  CELLC_DEVICE long long place(long long t) const { return (first + (reverse ? steps - 1 - t : t)) * entries + entry; }
};

CELLC_DEVICE long long parts_of(const RowDifference& d) { return (d.steps + kPartSteps - 1) / kPartSteps; }

template <class Visit>
CELLC_DEVICE void each_part(const RowDifference& d, Visit&& visit) {
  const long long parts = parts_of(d);
  each_of(d.sequences * parts * d.entries, [&](long long i) {
    const long long p = i / d.entries, sequence = p / parts, begin = (p - sequence * parts) * kPartSteps;
    const long long first = d.offsets[sequence], steps = d.offsets[sequence + 1] - first,
                    end = begin + kPartSteps < steps ? begin + kPartSteps : steps;
    if (begin < end) visit(Part{i, begin, end, steps, first, d.entries, i - p * d.entries, d.reverse});
  });
}

/// Adds the largest of what is measured to `most`.
template <class Measure>
CELLC_DEVICE void largest_of_parts(const RowDifference& d, Measure&& measure) {
  unsigned int most = 0;
  each_part(d, [&](const Part& part) {
    const unsigned int here = bits_of(measure(part));
    most = here > most ? here : most;
  });
  // Most threads have nothing to add: whoever reads an old number writes once more than needed.
  if (most > *static_cast<volatile unsigned int*>(d.most)) atomicMax(d.most, most);
}

/// The largest of each part.
CELLC_DEVICE void sizes_of_parts(const RowDifference& d) {
  const Real* const to = static_cast<const Real*>(d.to);
  each_part(d, [&](const Part& part) {
    LaneSize size;
    for (long long t = part.begin; t < part.end; ++t) size.add(to[part.place(t)]);
    static_cast<Real*>(d.sizes)[part.index] = size.most;
  });
}

/// And of all before it in its place. A thread takes a lane, and asks for some parts at once: each takes as long as the
/// memory does.
CELLC_DEVICE void sizes_before_parts(const RowDifference& d) {
  constexpr int kAtOnce = 16;
  const long long parts = parts_of(d);
  each_of(d.sequences * d.entries, [&](long long i) {
    const long long sequence = i / d.entries;
    const long long steps = d.offsets[sequence + 1] - d.offsets[sequence], own = (steps + kPartSteps - 1) / kPartSteps;
    Real* const sizes = static_cast<Real*>(d.sizes) + sequence * parts * d.entries + (i - sequence * d.entries);
    Real before = 0;
    for (long long part = 0; part < own; part += kAtOnce) {
      Real size[kAtOnce];
      CELLC_UNROLL()
      for (int k = 0; k < kAtOnce; ++k) size[k] = part + k < own ? sizes[(part + k) * d.entries] : Real(0);
      CELLC_UNROLL()
      for (int k = 0; k < kAtOnce; ++k) {
        if (part + k < own) sizes[(part + k) * d.entries] = before;
        before = size[k] > before ? size[k] : before;
      }
    }
  });
}

CELLC_DEVICE LaneSize size_before(const RowDifference& d, const Part& part) {
  return LaneSize{static_cast<const Real*>(d.sizes)[part.index]};
}

/// The largest change of an entry, over the largest of its lane up to the end of its part.
CELLC_DEVICE void row_change(const RowDifference& d) {
  const Real *const from = static_cast<const Real*>(d.from), *const to = static_cast<const Real*>(d.to);
  largest_of_parts(d, [&](const Part& part) -> Real {
    LaneSize size = size_before(d, part);
    Real apart = 0;
    for (long long t = part.begin; t < part.end; ++t) {
      const Real value = to[part.place(t)], by = apart_by(from[part.place(t)], value);
      size.add(value);
      apart = by <= apart ? apart : by;
    }
    return apart == Real(0) ? Real(0) : over_both(apart, size.most, size.most);
  });
}

/// Over |entry| and the largest of its lane so far (docs/notes/strategies.md).
CELLC_DEVICE void row_residual(const RowDifference& d) {
  const Real *const from = static_cast<const Real*>(d.from), *const to = static_cast<const Real*>(d.to);
  const Real absolute = static_cast<Real>(d.absolute);
  largest_of_parts(d, [&](const Part& part) -> Real {
    LaneSize size = size_before(d, part);
    const long long until = part.begin < kBeginning ? (kBeginning < part.steps ? kBeginning : part.steps) : 0;
    for (long long t = part.begin; t < until; ++t) size.add(to[part.place(t)]);
    Real most = 0;
    for (long long t = part.begin; t < part.end; ++t) {
      const Real value = to[part.place(t)], apart = apart_by(from[part.place(t)], value);
      size.add(value);
      if (apart <= absolute) continue;
      const Real far = over_both(apart - absolute, magnitude(value), size.most);
      most = far <= most ? most : far;
    }
    return most;
  });
}

}  // namespace cellc

// One after the other: sizes of parts, sizes before them, and a measure.
extern "C" __global__ void cellc_row_sizes(const __grid_constant__ cellc::RowDifference d) {
  cellc::await_stream();
  cellc::sizes_of_parts(d);
}
extern "C" __global__ void cellc_row_sizes_before(const __grid_constant__ cellc::RowDifference d) {
  cellc::await_stream();
  cellc::sizes_before_parts(d);
}
extern "C" __global__ void cellc_row_change(const __grid_constant__ cellc::RowDifference d) {
  cellc::await_stream();
  cellc::row_change(d);
}
extern "C" __global__ void cellc_row_residual(const __grid_constant__ cellc::RowDifference d) {
  cellc::await_stream();
  cellc::row_residual(d);
}
