#pragma once
// How far two trajectories are from each other, over |value| and the size that it has in its lane.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/data/array.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

/// |a − b| over |b| + `size`, after `absolute` was taken off; equal infinities and two NaN agree, a number is
/// infinitely far from either.
template <typename Number>
double relative_difference(Number a, Number b, double size, double absolute = 0) {
  if (a == b || (a != a && b != b)) return 0;
  const double apart = std::fabs(static_cast<double>(a) - static_cast<double>(b));
  if (apart <= absolute) return 0;
  const double far = (apart - absolute) / (std::fabs(static_cast<double>(b)) + size);
  return far < std::numeric_limits<double>::infinity() ? far : std::numeric_limits<double>::infinity();
}

/// The first rows of a sequence that may be over the largest of them: it may begin with terms that nearly cancel, and
/// nothing before it says how large they are.
constexpr std::int64_t kBeginning = 256;

/// What is left of a step: over |s| + the largest |s| of its lane so far, and what a caller tolerates besides.
struct Allowed {
  double tolerance = 0;
  double absolute = 0;
};

/// Notes one more that is not converged: of each sequence the first bad step and the largest residual. `all` is in the
/// order of sequences.
void merge(std::vector<Unconverged>& all, const Unconverged& one);

/// Rows of a state, as they were written, and what f makes of the row before each, for packed sequences: notes those
/// beyond the tolerance and returns the largest residual of all. `sizes`: the largest |entry| of each lane, by
/// sequence, then entry; in the rows before these, and afterwards in these as well. nullptr: no rows are before these.
double check_steps(const Array& written, const Array& made, const std::vector<std::int64_t>& offsets,
                   const Allowed& allowed, bool reverse, std::vector<Unconverged>& unconverged, int threads = 1,
                   std::vector<double>* sizes = nullptr);

/// The largest finite |value| of each lane, an entry over a sequence of rows: by sequence, then entry.
std::vector<double> lane_sizes(const Array& rows, const std::vector<std::int64_t>& offsets);

/// The largest difference of all rows, over |b| and the largest |b| of the rows beside it.
double largest_change(const Array& a, const Array& b, int threads);

}  // namespace cellc
