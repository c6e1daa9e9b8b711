// Steps against what f makes of them: rows in vectors, by several threads and window by window, against numbers one by
// one.
#include "runtime/evaluate/row_difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace cellc {
namespace {

struct Rows {
  Array written, made;
  std::vector<std::int64_t> offsets;
};

void set(Array& array, std::int64_t at, double value) {
  if (array.dtype() == Dtype::F64)
    static_cast<double*>(array.data())[at] = value;
  else
    static_cast<float*>(array.data())[at] = static_cast<float>(value);
}

/// Lanes of very different sizes, some of which begin small; what is made is off by `off` of a value, here and there by
/// much more, and some of both is no number.
Rows random_rows(Dtype dtype, std::vector<std::int64_t> offsets, std::int64_t entries, double off, unsigned seed) {
  Rows r{Array(dtype, {offsets.back(), entries}), Array(dtype, {offsets.back(), entries}), offsets};
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> number(-1, 1);
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  const double none = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < r.written.count(); ++i) {
    const std::int64_t row = i / entries, entry = i % entries;
    double value = number(random) * std::pow(10.0, static_cast<double>(entry % 7) - 3);
    if (row % 300 < 100 && entry % 2) value *= 1e-3;
    if (one_in(4000)) value = one_in(2) ? none : infinite;
    double from = value * (1 + off * number(random)) + (one_in(97) ? value * 20 * off * number(random) : 0);
    if (one_in(8000)) from = one_in(2) ? none : -infinite;
    set(r.written, i, value);
    set(r.made, i, from);
  }
  return r;
}

double naive(const Rows& r, const Allowed& allowed, bool reverse, std::vector<Unconverged>& unconverged) {
  const std::int64_t entries = r.written.count() / r.written.shape()[0];
  double most = 0;
  for (std::size_t s = 0; s + 1 < r.offsets.size(); ++s)
    for (std::int64_t e = 0; e < entries; ++e) {
      const std::int64_t begin = r.offsets[s], end = r.offsets[s + 1], steps = end - begin;
      const auto at = [&](std::int64_t step) { return (reverse ? end - 1 - step : begin + step) * entries + e; };
      double size = 0, soon = 0;
      const auto grow = [&](double& of, std::int64_t step) {
        if (const double here = std::fabs(r.written.get(at(step))); std::isfinite(here)) of = std::max(of, here);
      };
      for (std::int64_t t = 0; t < std::min(steps, kBeginning); ++t) grow(soon, t);
      for (std::int64_t t = 0; t < steps; ++t) {
        grow(size, t);
        const auto far = [&] {
          return relative_difference(r.made.get(at(t)), r.written.get(at(t)), size, allowed.absolute);
        };
        if (far() > allowed.tolerance && t < kBeginning) size = std::max(size, soon);
        most = std::max(most, far());
        if (far() > allowed.tolerance) merge(unconverged, {static_cast<std::int64_t>(s), t, far()});
      }
    }
  return most;
}

void expect_equal(const std::vector<Unconverged>& a, const std::vector<Unconverged>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].sequence, b[i].sequence);
    EXPECT_EQ(a[i].first_bad_step, b[i].first_bad_step);
    EXPECT_EQ(a[i].residual, b[i].residual);
  }
}

TEST(CheckSteps, FindsWhatIsFoundNumberByNumber) {
  unsigned seed = 0;
  for (const Dtype dtype : {Dtype::F32, Dtype::F64})
    for (const std::int64_t entries : {1, 7, 600})
      for (const bool reverse : {false, true})
        for (const double off : {1e-5, 3e-8, 0.0}) {
          const Rows r = random_rows(dtype, {0, 300, 300, 301, 900}, entries, off, ++seed);
          for (const Allowed& allowed : {Allowed{1e-5, 0}, Allowed{1e-7, 1e-6}}) {
            SCOPED_TRACE(testing::Message() << entries << " entries, off by " << off << (reverse ? ", reversed" : ""));
            std::vector<Unconverged> expected;
            const double most = naive(r, allowed, reverse, expected);
            for (const int threads : {1, 2, 5}) {
              std::vector<Unconverged> found;
              EXPECT_EQ(check_steps(r.written, r.made, r.offsets, allowed, reverse, found, threads), most);
              expect_equal(found, expected);
            }
          }
        }
}

// Where products of small numbers vanish, and sums of large ones are beyond the largest.
TEST(CheckSteps, IsTheSameForAnyUnit) {
  const Allowed allowed{3e-5, 0};
  Rows r = random_rows(Dtype::F64, {0, 400}, 40, 1e-5, 1);
  for (std::int64_t i = 0; i < r.written.count(); ++i)
    if (!std::isfinite(r.written.get(i)) || !std::isfinite(r.made.get(i))) set(r.written, i, 1), set(r.made, i, 1);
  std::vector<Unconverged> expected;
  const double most = check_steps(r.written, r.made, r.offsets, allowed, false, expected);
  EXPECT_FALSE(expected.empty());
  for (const int exponent : {-960, 1013}) {
    Rows scaled{Array(Dtype::F64, r.written.shape()), Array(Dtype::F64, r.written.shape()), r.offsets};
    for (std::int64_t i = 0; i < r.written.count(); ++i) {
      set(scaled.written, i, std::ldexp(r.written.get(i), exponent));
      set(scaled.made, i, std::ldexp(r.made.get(i), exponent));
    }
    std::vector<Unconverged> found;
    EXPECT_EQ(check_steps(scaled.written, scaled.made, r.offsets, allowed, false, found), most) << exponent;
    expect_equal(found, expected);
  }
}

TEST(CheckSteps, CarriesSizesFromWindowToWindow) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    const std::vector<std::int64_t> offsets{0, 3, 6};
    Array large(dtype, {6, 2}), small(dtype, {6, 2}), made(dtype, {6, 2});
    for (std::int64_t i = 0; i < 12; ++i) {
      set(large, i, i < 6 ? -8 : 1);  // the first sequence is the larger one
      set(small, i, 1e-3);
      set(made, i, 1e-3 + 4e-6);
    }
    std::vector<double> sizes(4, 0);
    std::vector<Unconverged> found;
    EXPECT_EQ(check_steps(large, large, offsets, {1e-6, 0}, false, found, 1, &sizes), 0);
    EXPECT_EQ(sizes, (std::vector<double>{8, 8, 1, 1}));
    check_steps(small, made, offsets, {1e-6, 0}, false, found, 1, &sizes);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].sequence, 1);
    EXPECT_NEAR(found[0].residual, 4e-6 / 1.001, 1e-9);
    EXPECT_EQ(sizes, (std::vector<double>{8, 8, 1, 1}));
  }
}

TEST(LargestChange, IsOverWhatItChangesTo) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    Array from(dtype, {3000, 5}), to(dtype, {3000, 5});
    EXPECT_EQ(largest_change(from, to, 2), 0);
    set(to, 5 * 2900 + 1, 3);
    EXPECT_EQ(largest_change(from, to, 2), 0.5) << "over 3 and the largest of the rows beside it";
    EXPECT_EQ(largest_change(to, from, 2), std::numeric_limits<double>::infinity());
    set(to, 5 * 2800 + 1, 9);
    set(from, 5 * 2800 + 1, 9);
    for (const int threads : {1, 2, 7}) EXPECT_EQ(largest_change(from, to, threads), 0.25);
  }
}

}  // namespace
}  // namespace cellc
