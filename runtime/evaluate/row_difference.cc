#include "runtime/evaluate/row_difference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/data/threads.h"

namespace cellc {

namespace {

template <typename Number>
Furthest furthest_of(const Array& a, const Array& b, std::int64_t begin, std::int64_t end, double tolerance,
                     bool reverse) {
  const std::int64_t rows = a.shape()[0], entries = rows ? a.count() / rows : 0;
  const Number *x = static_cast<const Number*>(a.data()), *y = static_cast<const Number*>(b.data());
  Furthest result;
  for (std::int64_t r = begin; r < end; ++r) {
    double far = 0;
    for (std::int64_t e = r * entries; e < (r + 1) * entries; ++e) {
      // A product instead of a quotient: few entries are the furthest so far. What is not a number goes on.
      const double size = 1 + std::fabs(static_cast<double>(y[e]));
      const double apart = std::fabs(static_cast<double>(x[e]) - static_cast<double>(y[e]));
      if (!(apart <= far * size) || !(size < 1e300)) far = std::max(far, relative_difference(x[e], y[e]));
    }
    if (!(far <= tolerance) && (reverse || result.row < 0)) result.row = r;
    result.far = std::max(result.far, far);
  }
  return result;
}

}  // namespace

Furthest furthest(const Array& a, const Array& b, std::int64_t begin, std::int64_t end, double tolerance,
                  bool reverse) {
  return a.dtype() == Dtype::F64 ? furthest_of<double>(a, b, begin, end, tolerance, reverse)
                                 : furthest_of<float>(a, b, begin, end, tolerance, reverse);
}

void merge(std::vector<Unconverged>& all, const Unconverged& one) {
  const auto it = std::lower_bound(all.begin(), all.end(), one,
                                   [](const Unconverged& a, const Unconverged& b) { return a.sequence < b.sequence; });
  if (it == all.end() || it->sequence != one.sequence) {
    all.insert(it, one);
    return;
  }
  it->first_bad_step = std::min(it->first_bad_step, one.first_bad_step);
  it->residual = std::max(it->residual, one.residual);
}

double check_steps(const Array& written, const Array& made, const std::vector<std::int64_t>& offsets, double tolerance,
                   bool reverse, std::vector<Unconverged>& unconverged) {
  double most = 0;
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
    const Furthest r = furthest(made, written, offsets[s], offsets[s + 1], tolerance, reverse);
    most = std::max(most, r.far);
    if (r.row >= 0)
      merge(unconverged,
            {static_cast<std::int64_t>(s), reverse ? offsets[s + 1] - 1 - r.row : r.row - offsets[s], r.far});
  }
  return most;
}

double largest_change(const Array& a, const Array& b, int threads) {
  const std::int64_t rows = a.shape()[0];
  std::vector<double> each(static_cast<std::size_t>(threads), 0);
  run_on_threads(threads, [&](int t) {
    each[static_cast<std::size_t>(t)] = furthest(a, b, rows * t / threads, rows * (t + 1) / threads, 0, false).far;
  });
  return *std::max_element(each.begin(), each.end());
}

}  // namespace cellc
