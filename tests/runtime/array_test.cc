#include "runtime/data/array.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace cellc {
namespace {

std::uint16_t raw_of(Dtype dtype, double value) {
  Array a(dtype, {1});
  a.set(0, value);
  std::uint16_t raw;
  std::memcpy(&raw, a.data(), 2);
  return raw;
}

double value_of(Dtype dtype, std::uint16_t raw) {
  Array a(dtype, {1});
  std::memcpy(a.data(), &raw, 2);
  return a.get(0);
}

TEST(Array, StartsZeroAndAligned) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16, Dtype::I64, Dtype::U16}) {
    Array a(dtype, {3, 5});
    EXPECT_EQ(a.count(), 15);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 64, 0u);
    for (int i = 0; i < 15; ++i) EXPECT_EQ(a.get(i), 0);
  }
}

TEST(Array, CountsScalarsAndEmptyArrays) {
  EXPECT_EQ(Array().count(), 0);
  EXPECT_EQ(Array(Dtype::F32, {}).count(), 1);
  EXPECT_EQ(Array(Dtype::F32, {4, 0, 2}).count(), 0);
  EXPECT_NE(Array(Dtype::F32, {0}).data(), nullptr);
}

TEST(Array, RefusesWhatCannotBeAddressed) {
  EXPECT_THROW(Array(Dtype::F64, {std::int64_t{1} << 40, std::int64_t{1} << 40}), std::length_error);
  EXPECT_THROW(Array(Dtype::F32, {-1}), std::length_error);
}

TEST(Array, EveryHalfSurvivesARoundTrip) {
  for (const Dtype dtype : {Dtype::F16, Dtype::BF16}) {
    for (int raw = 0; raw < 0x10000; ++raw) {
      const double value = value_of(dtype, static_cast<std::uint16_t>(raw));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(value_of(dtype, raw_of(dtype, value))));
      } else {
        ASSERT_EQ(raw_of(dtype, value), raw) << to_string(dtype) << ' ' << value;
      }
    }
  }
}

TEST(Array, HalvesRoundOnceAndTiesToEven) {
  EXPECT_EQ(value_of(Dtype::F16, raw_of(Dtype::F16, 1 + std::ldexp(1, -11))), 1);  // tie, down
  EXPECT_EQ(value_of(Dtype::F16, raw_of(Dtype::F16, 1 + 3 * std::ldexp(1, -11))), 1 + std::ldexp(1, -9));
  // Through f32 this would first become the tie above and then round down.
  EXPECT_EQ(value_of(Dtype::F16, raw_of(Dtype::F16, 1 + std::ldexp(1, -11) + std::ldexp(1, -40))),
            1 + std::ldexp(1, -10));
  EXPECT_EQ(value_of(Dtype::BF16, raw_of(Dtype::BF16, 1 + std::ldexp(1, -8))), 1);
  EXPECT_EQ(raw_of(Dtype::F16, 65519.0), 0x7bff);
  EXPECT_EQ(raw_of(Dtype::F16, 65520.0), 0x7c00);
  EXPECT_EQ(raw_of(Dtype::F16, -std::numeric_limits<double>::infinity()), 0xfc00);
  EXPECT_EQ(raw_of(Dtype::F16, std::ldexp(1, -25)), 0);  // half of the smallest subnormal: to even
  EXPECT_EQ(raw_of(Dtype::F16, std::ldexp(1.5, -25)), 1);
  EXPECT_EQ(raw_of(Dtype::F16, -0.0), 0x8000);
}

TEST(Array, CopiesShareMemory) {
  Array a(Dtype::F64, {2});
  Array b = a;
  b.set(1, 7);
  EXPECT_EQ(a.get(1), 7);
}

}  // namespace
}  // namespace cellc
