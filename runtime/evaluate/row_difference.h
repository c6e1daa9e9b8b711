#pragma once
// How far two trajectories are from each other, over |value| and the size that it has in its lane.
#include <cmath>
#include <cstdint>
#include <functional>
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

struct Furthest {
  double far = 0;
  std::int64_t row = -1;  ///< of the first entry beyond the tolerance, in the order of the run; -1: none
};

/// What is left of a step: over |s| + the largest |s| of its lane so far, and what a caller tolerates besides.
struct Allowed {
  double tolerance = 0;
  double absolute = 0;
  /// The size of an entry of a sequence in the rows before these, or a smaller one that is `enough`; asked where these
  /// rows do not suffice.
  std::function<double(std::int64_t sequence, std::int64_t entry, double enough)> before{};
};

/// Rows [begin, end) of arrays of one shape, f32 or f64, in the order of the run; a from b, over |b| and the largest
/// |b| of these rows so far. The first rows of a sequence may be over the largest of them.
Furthest furthest(const Array& a, const Array& b, std::int64_t begin, std::int64_t end, const Allowed& allowed,
                  bool reverse, std::int64_t sequence = 0);

/// Notes one more that is not converged: of each sequence the first bad step and the largest residual. `all` is in the
/// order of sequences.
void merge(std::vector<Unconverged>& all, const Unconverged& one);

/// Rows of a state, as they were written, and what f makes of the row before each, for packed sequences: notes those
/// beyond the tolerance and returns the largest residual of all.
double check_steps(const Array& written, const Array& made, const std::vector<std::int64_t>& offsets,
                   const Allowed& allowed, bool reverse, std::vector<Unconverged>& unconverged);

/// The largest finite |entry| of a sequence's first steps, rows [begin, end) of an array, or a smaller one that is
/// `enough`: the last of those steps is read first.
double size_before(const Array& rows, std::int64_t begin, std::int64_t end, std::int64_t steps, bool reverse,
                   std::int64_t entry, double enough);

/// The largest finite |value| of each lane, an entry over a sequence of rows: by sequence, then entry.
std::vector<double> lane_sizes(const Array& rows, const std::vector<std::int64_t>& offsets);

/// The largest difference of all rows, over |b| and the largest |b| of the rows beside it.
double largest_change(const Array& a, const Array& b, int threads);

}  // namespace cellc
