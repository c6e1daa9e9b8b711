// Special values: signed zeros, infinities, NaN, subnormals, saturation, and equal bits in every lane
// count.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/math/harness.h"

namespace cellc::math_test {
namespace {

template <typename T>
class Specials : public testing::Test {};
using Formats = testing::Types<float, double>;
TYPED_TEST_SUITE(Specials, Formats);

template <typename T>
T at(Op op, T x, T y = 0) {
  return all_loops().at(op, x, y);
}

template <typename T>
void expect_same(T got, T expected, const char* what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << what << " gave " << got;
  } else {
    EXPECT_EQ(bits(got), bits(expected)) << what << " gave " << got << " instead of " << expected;
  }
}

#define SAME(got, expected) expect_same<TypeParam>(got, expected, #got)

TYPED_TEST(Specials, UnaryFunctions) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (const Tested& entry : tested()) {
    if (!entry.binary) expect_same(at<T>(entry.op, nan), nan, entry.name);
    if (!entry.binary) expect_same(at<T>(entry.op, -nan), nan, entry.name);
  }
  SAME(at<T>(Op::Exp, 0), T(1));
  SAME(at<T>(Op::Exp, -T(0)), T(1));
  SAME(at<T>(Op::Exp, inf), inf);
  SAME(at<T>(Op::Exp, -inf), T(0));
  SAME(at<T>(Op::Log, 1), T(0));
  SAME(at<T>(Op::Log, 0), -inf);
  SAME(at<T>(Op::Log, -T(0)), -inf);
  SAME(at<T>(Op::Log, inf), inf);
  SAME(at<T>(Op::Log, -1), nan);
  SAME(at<T>(Op::Log, -inf), nan);
  SAME(at<T>(Op::Log, -std::numeric_limits<T>::denorm_min()), nan);
  SAME(at<T>(Op::Sin, inf), nan);
  SAME(at<T>(Op::Sin, -inf), nan);
  SAME(at<T>(Op::Cos, inf), nan);
  SAME(at<T>(Op::Cos, 0), T(1));
  SAME(at<T>(Op::Cos, -T(0)), T(1));
  SAME(at<T>(Op::Tanh, inf), T(1));
  SAME(at<T>(Op::Tanh, -inf), -T(1));
  SAME(at<T>(Op::Sigmoid, 0), T(0.5));
  SAME(at<T>(Op::Sigmoid, -T(0)), T(0.5));
  SAME(at<T>(Op::Sigmoid, inf), T(1));
  SAME(at<T>(Op::Sigmoid, -inf), T(0));
  SAME(at<T>(Op::Silu, inf), inf);
  SAME(at<T>(Op::Silu, -inf), -T(0));
  SAME(at<T>(Op::Silu, std::numeric_limits<T>::max()), std::numeric_limits<T>::max());
  SAME(at<T>(Op::Silu, std::numeric_limits<T>::lowest()), -T(0));
  SAME(at<T>(Op::Gelu, inf), inf);
  SAME(at<T>(Op::Gelu, -inf), -T(0));
  SAME(at<T>(Op::Gelu, std::numeric_limits<T>::max()), std::numeric_limits<T>::max());
  SAME(at<T>(Op::Gelu, std::numeric_limits<T>::lowest()), -T(0));
  SAME(at<T>(Op::Softplus, inf), inf);
  SAME(at<T>(Op::Softplus, -inf), T(0));
  SAME(at<T>(Op::Softplus, std::numeric_limits<T>::max()), std::numeric_limits<T>::max());
  SAME(at<T>(Op::Erf, inf), T(1));
  SAME(at<T>(Op::Erf, -inf), -T(1));
  SAME(at<T>(Op::Rsqrt, inf), T(0));
  SAME(at<T>(Op::Rsqrt, 0), inf);
  SAME(at<T>(Op::Rsqrt, 4), T(0.5));
  SAME(at<T>(Op::Rsqrt, -1), nan);
}

TYPED_TEST(Specials, OddFunctionsKeepSignedZerosAndSubnormals) {
  using T = TypeParam;
  const T tiny = std::numeric_limits<T>::denorm_min();
  for (const Op op : {Op::Sin, Op::Tanh, Op::Erf, Op::Silu, Op::Gelu}) {
    expect_same<T>(at<T>(op, 0), T(0), tested(op).name);
    expect_same<T>(at<T>(op, -T(0)), -T(0), tested(op).name);
  }
  for (int k = 1; k < 2000; k += 37) {
    SAME(at<T>(Op::Sin, k * tiny), k * tiny);
    SAME(at<T>(Op::Tanh, -k * tiny), -k * tiny);
  }
}

TYPED_TEST(Specials, BoundedFunctionsStayWithinTheirBounds) {
  using T = TypeParam;
  std::vector<T> x;
  for (T v = 0; v < T(60); v += T(0.0007)) {
    x.push_back(v);
    x.push_back(-v);
  }
  for (const Op op : {Op::Tanh, Op::Erf, Op::Sigmoid, Op::Sin, Op::Cos}) {
    for (const T value : all_loops().run(op, 8, x)) {
      ASSERT_LE(value, T(1)) << tested(op).name;
      ASSERT_GE(value, op == Op::Sigmoid ? T(0) : -T(1)) << tested(op).name;
    }
  }
}

TYPED_TEST(Specials, PowFollowsTheStandard) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T tiny = std::numeric_limits<T>::denorm_min();
  const T large = std::numeric_limits<T>::max();
  const T odd_end = std::ldexp(T(1), std::numeric_limits<T>::digits) - 1;  // the largest odd number
  const std::vector<T> bases = {0,   -T(0), 1,   -1,   2,     -2,    T(0.5), T(-0.5), T(1.5), T(-1.5),  3,  -3,
                                inf, -inf,  nan, tiny, -tiny, large, -large, 10,      -10,    T(0.999), 16, T(1e-5)};
  const std::vector<T> powers = {0,       -T(0),  1,       -1,      2,        -2,          3,    -3,  T(0.5),
                                 T(-0.5), T(1.5), T(-2.5), 7,       -7,       inf,         -inf, nan, tiny,
                                 -tiny,   large,  -large,  odd_end, -odd_end, odd_end + 1, 100,  -101};
  for (const T x : bases) {
    for (const T y : powers) {
      const T expected = std::pow(x, y);
      const T got = at<T>(Op::Pow, x, y);
      SCOPED_TRACE(std::to_string(x) + " to the power " + std::to_string(y));
      if (std::isfinite(expected) && expected != 0) {
        // libm rounds correctly or nearly so; ours may be one place off.
        EXPECT_LE(std::abs(static_cast<double>(got) - static_cast<double>(expected)),
                  std::max(std::abs(static_cast<double>(expected)) * 2 * std::numeric_limits<T>::epsilon(),
                           static_cast<double>(tiny)));
        EXPECT_EQ(std::signbit(got), std::signbit(expected));
      } else {
        expect_same(got, expected, "pow");
      }
    }
  }
}

TYPED_TEST(Specials, EveryLaneCountGivesTheSameBits) {
  using T = TypeParam;
  std::vector<T> x, y;
  std::mt19937_64 random(5);
  std::uniform_real_distribution<T> wide(-120, 120), narrow(-3, 3);
  for (int k = 0; k < 30000; ++k) {
    if constexpr (sizeof(T) == 4)
      x.push_back(from_bits(static_cast<std::uint32_t>(random())));
    else
      x.push_back(from_bits(static_cast<std::uint64_t>(random())));
    x.push_back(wide(random));
    x.push_back(narrow(random));
  }
  for (std::size_t k = 0; k < x.size(); ++k) y.push_back(narrow(random));
  for (const Tested& entry : tested()) {
    const std::vector<T> scalar = all_loops().run(entry.op, 1, x, y);
    for (const int lanes : {4, 8, 16}) {
      const std::vector<T> vector = all_loops().run(entry.op, lanes, x, y);
      for (std::size_t k = 0; k < x.size(); ++k) {
        if (std::isnan(scalar[k]) && std::isnan(vector[k])) continue;
        ASSERT_EQ(bits(scalar[k]), bits(vector[k])) << entry.name << " of " << x[k] << " in " << lanes << " lanes";
      }
    }
  }
}

// AVX2 lowers the same text to other instructions; the bits must not change.
TYPED_TEST(Specials, AnotherProcessorGivesTheSameBits) {
  using T = TypeParam;
  if (host_vector_bits("native") < 512) GTEST_SKIP() << "this machine has one vector width only";
  std::set<llvm_math::Request> requests;
  for (const Tested& entry : tested()) requests.insert({entry.op, sizeof(T) == 8, 8});
  const Loops narrow(requests, "x86-64-v3");
  std::vector<T> x, y;
  std::mt19937_64 random(6);
  std::uniform_real_distribution<T> range(-120, 120), power(-9, 9);
  for (int k = 0; k < 20000; ++k) {
    if constexpr (sizeof(T) == 4)
      x.push_back(from_bits(static_cast<std::uint32_t>(random())));
    else
      x.push_back(from_bits(static_cast<std::uint64_t>(random())));
    x.push_back(range(random));
  }
  for (std::size_t k = 0; k < x.size(); ++k) y.push_back(power(random));
  for (const Tested& entry : tested()) {
    const std::vector<T> a = all_loops().run(entry.op, 8, x, y);
    const std::vector<T> b = narrow.run(entry.op, 8, x, y);
    for (std::size_t k = 0; k < x.size(); ++k) {
      if (std::isnan(a[k]) && std::isnan(b[k])) continue;
      ASSERT_EQ(bits(a[k]), bits(b[k])) << entry.name << " of " << x[k];
    }
  }
}

}  // namespace
}  // namespace cellc::math_test
