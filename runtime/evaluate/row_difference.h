#pragma once
// How far two trajectories are from each other, over 1 + |value|.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/data/array.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

/// |a − b| over 1 + |b|; equal infinities and two NaN agree, a number is infinitely far from either.
template <typename Number>
double relative_difference(Number a, Number b) {
  if (a == b || (a != a && b != b)) return 0;
  const double far =
      std::fabs(static_cast<double>(a) - static_cast<double>(b)) / (1 + std::fabs(static_cast<double>(b)));
  return far < std::numeric_limits<double>::infinity() ? far : std::numeric_limits<double>::infinity();
}

struct Furthest {
  double far = 0;
  std::int64_t row = -1;  ///< of the first entry beyond the tolerance, in the order of the run; -1: none
};

/// Rows [begin, end) of arrays of one shape, f32 or f64; a from b, over 1 + |b|.
Furthest furthest(const Array& a, const Array& b, std::int64_t begin, std::int64_t end, double tolerance, bool reverse);

/// Notes one more that is not converged: of each sequence the first bad step and the largest residual. `all` is in the
/// order of sequences.
void merge(std::vector<Unconverged>& all, const Unconverged& one);

/// Rows of a state, as they were written, and what f makes of the row before each, for packed sequences: notes those
/// beyond the tolerance and returns the largest residual of all.
double check_steps(const Array& written, const Array& made, const std::vector<std::int64_t>& offsets, double tolerance,
                   bool reverse, std::vector<Unconverged>& unconverged);

/// The largest difference of all rows.
double largest_change(const Array& a, const Array& b, int threads);

}  // namespace cellc
