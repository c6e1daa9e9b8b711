#pragma once
// How far two trajectories are from each other, over 1 + |value|.
#include <cstdint>

#include "runtime/array.h"

namespace cellc {

struct Furthest {
  double far = 0;
  std::int64_t row = -1;  ///< of the first entry beyond the tolerance, in the order of the run; -1: none
};

/// Rows [begin, end) of arrays of one shape, f32 or f64.
Furthest furthest(const Array& a, const Array& b, std::int64_t begin, std::int64_t end, double tolerance, bool reverse);

/// The largest difference of all rows.
double largest_change(const Array& a, const Array& b, int threads);

}  // namespace cellc
