#include "runtime/evaluate/row_difference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/data/threads.h"

namespace cellc {

namespace {

/// The largest change of an entry over the largest of its rows.
template <typename Number>
double change_of(const Array& a, const Array& b, std::int64_t begin, std::int64_t end) {
  const std::int64_t entries = a.count() / a.shape()[0];
  const Number *x = static_cast<const Number*>(a.data()), *y = static_cast<const Number*>(b.data());
  constexpr Number infinite = std::numeric_limits<Number>::infinity();
  std::vector<Number> sizes(static_cast<std::size_t>(entries), Number{0});
  for (std::int64_t r = begin; r < end; ++r)
    for (std::int64_t e = 0; e < entries; ++e) {
      const Number here = std::fabs(y[r * entries + e]);
      Number& size = sizes[static_cast<std::size_t>(e)];
      size = here > size && here < infinite ? here : size;
    }
  double most = 0;
  for (std::int64_t r = begin; r < end; ++r)
    for (std::int64_t e = 0; e < entries; ++e) {
      const Number from = x[r * entries + e], to = y[r * entries + e];
      const double size = static_cast<double>(sizes[static_cast<std::size_t>(e)]);
      const double apart = std::fabs(static_cast<double>(from) - static_cast<double>(to));
      if (!(apart <= most * (std::fabs(static_cast<double>(to)) + size)) || !(apart < infinite))
        most = std::max(most, relative_difference(from, to, size));
    }
  return most;
}

template <typename Number>
Furthest furthest_of(const Array& a, const Array& b, std::int64_t begin, std::int64_t end, const Allowed& allowed,
                     bool reverse, std::int64_t sequence) {
  const std::int64_t rows = a.shape()[0], entries = rows ? a.count() / rows : 0;
  const Number *x = static_cast<const Number*>(a.data()), *y = static_cast<const Number*>(b.data());
  constexpr Number infinite = std::numeric_limits<Number>::infinity();
  std::vector<Number> sizes(static_cast<std::size_t>(entries), Number{0});
  Furthest result;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t r = reverse ? begin + end - 1 - i : i;
    const Number *const from = x + r * entries, *const to = y + r * entries;
    double far = 0;
    for (std::int64_t e = 0; e < entries; ++e) {
      const Number here = std::fabs(to[e]);
      Number& size = sizes[static_cast<std::size_t>(e)];
      size = here > size && here < infinite ? here : size;
      // A product instead of a quotient: few entries are the furthest so far. What is not a number goes on.
      const double apart = std::fabs(static_cast<double>(from[e]) - static_cast<double>(to[e]));
      if (apart <= far * (static_cast<double>(here) + static_cast<double>(size)) && here < infinite) continue;
      double d = relative_difference(from[e], to[e], static_cast<double>(size), allowed.absolute);
      if (d > allowed.tolerance && allowed.tolerance > 0 && apart < infinite) {
        const double enough = (apart - allowed.absolute) / allowed.tolerance - static_cast<double>(here);
        if (allowed.before) size = std::max(size, static_cast<Number>(allowed.before(sequence, e, enough)));
        // A sequence that begins with numbers that nearly cancel has rows of its size soon.
        for (std::int64_t k = i + 1; k < std::min(end, begin + kBeginning) && static_cast<double>(size) < enough; ++k) {
          const Number ahead = std::fabs(y[(reverse ? begin + end - 1 - k : k) * entries + e]);
          if (ahead < infinite) size = std::max(size, ahead);
        }
        d = relative_difference(from[e], to[e], static_cast<double>(size), allowed.absolute);
      }
      far = std::max(far, d);
    }
    if (!(far <= allowed.tolerance) && result.row < 0) result.row = r;
    result.far = std::max(result.far, far);
  }
  return result;
}

}  // namespace

Furthest furthest(const Array& a, const Array& b, std::int64_t begin, std::int64_t end, const Allowed& allowed,
                  bool reverse, std::int64_t sequence) {
  return a.dtype() == Dtype::F64 ? furthest_of<double>(a, b, begin, end, allowed, reverse, sequence)
                                 : furthest_of<float>(a, b, begin, end, allowed, reverse, sequence);
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

double check_steps(const Array& written, const Array& made, const std::vector<std::int64_t>& offsets,
                   const Allowed& allowed, bool reverse, std::vector<Unconverged>& unconverged) {
  double most = 0;
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
    const Furthest r =
        furthest(made, written, offsets[s], offsets[s + 1], allowed, reverse, static_cast<std::int64_t>(s));
    most = std::max(most, r.far);
    if (r.row >= 0)
      merge(unconverged,
            {static_cast<std::int64_t>(s), reverse ? offsets[s + 1] - 1 - r.row : r.row - offsets[s], r.far});
  }
  return most;
}

double size_before(const Array& rows, std::int64_t begin, std::int64_t end, std::int64_t steps, bool reverse,
                   std::int64_t entry, double enough) {
  const std::int64_t entries = rows.count() / rows.shape()[0];
  double size = 0;
  for (std::int64_t t = std::min(steps, end - begin) - 1; t >= 0 && size < enough; --t) {
    const double value = std::fabs(rows.get((reverse ? end - 1 - t : begin + t) * entries + entry));
    if (value < std::numeric_limits<double>::infinity()) size = std::max(size, value);
  }
  return size;
}

std::vector<double> lane_sizes(const Array& rows, const std::vector<std::int64_t>& offsets) {
  const std::int64_t count = rows.shape()[0] > 0 ? rows.count() / rows.shape()[0] : 0;
  std::vector<double> sizes((offsets.size() - 1) * static_cast<std::size_t>(count), 0);
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
    for (std::int64_t i = offsets[s] * count; i < offsets[s + 1] * count; ++i) {
      double& size = sizes[s * static_cast<std::size_t>(count) + static_cast<std::size_t>(i % count)];
      if (const double value = std::abs(rows.get(i)); std::isfinite(value)) size = std::max(size, value);
    }
  return sizes;
}

double largest_change(const Array& a, const Array& b, int threads) {
  // Of parts that do not depend on the number of threads, and so is what follows from it.
  constexpr std::int64_t kRows = 1024;
  const std::int64_t rows = a.shape()[0], parts = (rows + kRows - 1) / kRows;
  std::vector<double> each(static_cast<std::size_t>(threads), 0);
  run_on_threads(threads, [&](int t) {
    double& most = each[static_cast<std::size_t>(t)];
    for (std::int64_t p = parts * t / threads; p < parts * (t + 1) / threads; ++p)
      most =
          std::max(most, a.dtype() == Dtype::F64 ? change_of<double>(a, b, p * kRows, std::min(rows, (p + 1) * kRows))
                                                 : change_of<float>(a, b, p * kRows, std::min(rows, (p + 1) * kRows)));
  });
  return *std::max_element(each.begin(), each.end());
}

}  // namespace cellc
