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

/// A double that becomes a float may become less than it was.
CELLC_DEVICE unsigned int bits_of(Real far) {
  return __float_as_uint(static_cast<float>(far) * (sizeof(Real) == 8 ? 1.0000002f : 1.0f));
}

/// Calls visit(row_of, entry, begin, end, steps) for each part: `row_of(t)` is the place of step t of its sequence.
template <class Visit>
CELLC_DEVICE void each_part(const RowDifference& d, Visit&& visit) {
  const long long parts = (d.steps + kPartSteps - 1) / kPartSteps, count = d.sequences * parts * d.entries,
                  all = static_cast<long long>(gridDim.x) * blockDim.x;
  unsigned int most = 0;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += all) {
    const long long p = i / d.entries, entry = i - p * d.entries, sequence = p / parts,
                    begin = (p - sequence * parts) * kPartSteps;
    const long long first = d.offsets[sequence], steps = d.offsets[sequence + 1] - first,
                    end = begin + kPartSteps < steps ? begin + kPartSteps : steps;
    if (begin >= end) continue;
    const auto place = [&](long long t) { return (first + (d.reverse ? steps - 1 - t : t)) * d.entries + entry; };
    const unsigned int here = bits_of(visit(place, begin, end, steps));
    most = here > most ? here : most;
  }
  // Most threads have nothing to add: whoever reads an old number writes once more than needed.
  if (most > *static_cast<volatile unsigned int*>(d.most)) atomicMax(d.most, most);
}

/// The largest change of an entry, over the largest of its part: what is small beside its neighbours may change more.
CELLC_DEVICE void row_change(const RowDifference& d) {
  const Real *const from = static_cast<const Real*>(d.from), *const to = static_cast<const Real*>(d.to);
  each_part(d, [&](auto place, long long begin, long long end, long long) -> Real {
    LaneSize size;
    Real apart = 0;
    for (long long t = begin; t < end; ++t) {
      const Real value = to[place(t)], by = apart_by(from[place(t)], value);
      size.add(value);
      apart = by <= apart ? apart : by;
    }
    return apart == Real(0) ? Real(0) : or_infinite(apart / size.most / Real(2));
  });
}

/// Over |entry| and the largest of its lane in the steps before, as far as they are looked at: never less than the
/// residual over all of them (docs/notes/strategies.md).
CELLC_DEVICE void row_residual(const RowDifference& d) {
  const Real *const from = static_cast<const Real*>(d.from), *const to = static_cast<const Real*>(d.to);
  const Real absolute = static_cast<Real>(d.absolute);
  each_part(d, [&](auto place, long long begin, long long end, long long steps) -> Real {
    LaneSize size;
    const bool early = begin < kBeginning;
    const long long until = !early ? begin : kBeginning < steps ? kBeginning : steps;
    for (long long t = early ? 0 : begin - kPartSteps; t < until; ++t) size.add(to[place(t)]);
    Real most = 0;
    for (long long t = begin; t < end; ++t) {
      const Real value = to[place(t)], apart = apart_by(from[place(t)], value);
      size.add(value);
      if (apart <= absolute) continue;
      // Of halves: of the largest numbers no sum is infinite.
      const Real far =
          or_infinite((apart - absolute) * Real(0.5) / (magnitude(value) * Real(0.5) + size.most * Real(0.5)));
      most = far <= most ? most : far;
    }
    return most;
  });
}

}  // namespace cellc

extern "C" __global__ void cellc_row_change(const __grid_constant__ cellc::RowDifference d) {
  cellc::await_stream();
  cellc::row_change(d);
}
extern "C" __global__ void cellc_row_residual(const __grid_constant__ cellc::RowDifference d) {
  cellc::await_stream();
  cellc::row_residual(d);
}
