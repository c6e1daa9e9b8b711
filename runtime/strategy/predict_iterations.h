#pragma once
// Predicts how many iterations a solver will need from its first few.
#include <cmath>
#include <optional>
#include <vector>

#include "runtime/strategy/solve_options.h"

namespace cellc {

/// Iterations in all until the change is `target`, from the last two of `trace`. Order 1: every iteration
/// shrinks it by the same factor (relaxation). Order 2: by a multiple of itself (Newton's method).
/// nullopt: nothing shrinks, or there is not enough to go by.
inline std::optional<int> predict_iterations(const std::vector<IterationTrace>& trace, double target, int order) {
  constexpr int kMost = 1000;
  if (trace.size() < 2) return std::nullopt;
  const int seen = static_cast<int>(trace.size());
  double change = trace.back().change;
  const double before = trace[trace.size() - 2].change;
  if (change <= target) return seen;
  if (!(change < before) || !std::isfinite(before)) return std::nullopt;
  if (order == 1) {
    const double more = std::ceil(std::log(target / change) / std::log(change / before) - 1e-9);
    return more < kMost ? std::optional<int>(seen + static_cast<int>(more)) : std::nullopt;
  }
  const double scale = change / (before * before);
  for (int more = 1; more < kMost; ++more) {
    const double next = scale * change * change;
    if (!(next < change)) return std::nullopt;
    change = next;
    if (change <= target) return seen + more;
  }
  return std::nullopt;
}

}  // namespace cellc
