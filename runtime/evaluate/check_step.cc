#include "runtime/evaluate/check_step.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace cellc {
namespace {

/// What rounding makes of a slope by differences over `step`: values of at most `largest` are some ten roundings off,
/// or as much as roundings on the way there were seen to do, and the weights of Richardson's rule come to six of them
/// over the step.
double rounding_of_slope(double largest, double noise, double step) {
  return 6 * (10 * 1.2e-16 * (1 + largest) + 4 * noise) / step;
}

double largest_of(const std::array<double, 7>& f) {
  double largest = 0;
  for (const double v : f) largest = std::max(largest, std::abs(v));
  return largest;
}

/// The slope of f at 0 by central differences, or NaN at a kink. `at` gives f at a multiple of
/// the step. Where f is smooth the two one-sided slopes differ by O(step), so that their
/// difference halves with the step; a kink inside the window breaks that at one of three sizes.
/// NaN also where the differences do not converge. `seen`: what rounding does to f.
double slope_or_kink(const std::array<double, 7>& f, double seen, double step) {
  // f[0] is the value, f[1..2] at ±step, f[3..4] at ±step/2, f[5..6] at ±step/4.
  std::array<double, 3> gap{};
  for (int level = 0; level < 3; ++level) {
    const double h = step / (1 << level);
    gap[level] = (f[1 + 2 * level] - f[0]) / h - (f[0] - f[2 + 2 * level]) / h;
  }
  const double central = (f[3] - f[4]) / step;
  const double largest = largest_of(f);
  const double noise = (4e-15 * (1 + largest) + 4 * seen) / step * 4 + 1e-9 * (1 + std::abs(central));
  for (int level = 0; level < 2; ++level)
    if (!(std::abs(gap[level + 1] - gap[level] / 2) <= 0.1 * std::abs(gap[level]) + noise)) return NAN;
  // Richardson: the error of a central difference is O(h^2) with known weights. Two such values that
  // do not settle tell of a pole nearby, where differences say nothing of the derivative.
  const double wide = (f[1] - f[2]) / (2 * step), fine = 2 * (f[5] - f[6]) / step;
  const double coarse_value = (4 * central - wide) / 3, value = (4 * fine - central) / 3;
  // Nor is anything said where rounding is a thousandth of the slope: what agrees with that would be no proof.
  const double rounding = rounding_of_slope(largest, seen, step);
  if (!(rounding <= 1e-3 * (1 + std::abs(value)))) return NAN;
  return std::abs(coarse_value - value) <= 2e-7 * (1 + std::abs(value)) + rounding ? value : NAN;
}

}  // namespace

void differentiate_at(Step& step, Point& point) {
  step.at(point.row);
  const States& base = point.states;
  const States value = step(base), noise = step.noise(base);
  const std::size_t count = base.size();
  point.slopes.assign(count, std::vector<Values>(count));
  for (std::size_t r = 0; r < count; ++r)
    for (std::size_t c = 0; c < count; ++c) point.slopes[r][c].resize(base[r].size() * base[c].size());
  point.rounding = point.slopes;
  States moved = base;
  for (std::size_t c = 0; c < count; ++c)
    for (std::size_t j = 0; j < base[c].size(); ++j) {
      const double h = 1e-4 * (1 + std::abs(base[c][j]));
      std::array<States, 6> around;
      for (int k = 0; k < 6; ++k) {
        moved[c][j] = base[c][j] + (k % 2 == 0 ? h : -h) / (1 << (k / 2));
        around[k] = step(moved);
      }
      moved[c][j] = base[c][j];
      for (std::size_t r = 0; r < count; ++r)
        for (std::size_t i = 0; i < base[r].size(); ++i) {
          const std::array<double, 7> f{value[r][i],     around[0][r][i], around[1][r][i], around[2][r][i],
                                        around[3][r][i], around[4][r][i], around[5][r][i]};
          const std::size_t entry = i * base[c].size() + j;
          point.slopes[r][c][entry] = slope_or_kink(f, noise[r][i], h);
          point.rounding[r][c][entry] = rounding_of_slope(largest_of(f), noise[r][i], h);
        }
    }
}

}  // namespace cellc
