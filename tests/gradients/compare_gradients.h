#pragma once
// One cell, one shape: gradients by every strategy against differences of the oracle.
#include <string>
#include <vector>

#include "tests/engines/lowered_cell.h"
#include "tests/gradients/gradient_trial.h"

namespace cellc {

struct GradientShape {
  std::vector<std::int64_t> lengths;
  bool packed = false, reverse = false;
  std::size_t entries = 0;         ///< single entries that are compared, beside one direction an array
  std::vector<std::int64_t> axes;  ///< in the order of the header; the first is a channel axis as a rule
  std::string text() const;
};

/// What the evaluator makes of the adjoint is compared with differences, each strategy in f64 with both, in f32 with
/// the evaluator. What is wrong with the first that fails, or an empty text. `kinks` counts slopes that were left out.
struct GradientCounts {
  std::int64_t slopes = 0, kinks = 0, runs = 0;
};
std::string wrong_gradients(const LoweredCell& cell, const oracle::Ranges& ranges, const GradientShape& shape,
                            std::uint64_t seed, GradientCounts* counts = nullptr);

}  // namespace cellc
