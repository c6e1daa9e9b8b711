#pragma once
// Arrays of a call spread over memory with any stride on every axis, for tests of the C API.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "capi/cellc.h"
#include "tests/oracle/random.h"

namespace cellc::strided {

using oracle::Random;
using Lengths = std::vector<std::int64_t>;
using Bytes = std::vector<unsigned char>;

inline std::size_t bytes_of(cellc_dtype dtype) { return dtype == CELLC_F64 ? 8 : dtype == CELLC_F32 ? 4 : 2; }

/// The bits of the nearest number of f16, of one that f16 reaches.
inline std::uint16_t half_bits(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = value == 0 ? -24 : std::max(exponent - 11, -24);  // of the last place
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), -unit)));
  // The first of a normal number's bits is not kept: it counts as one exponent more.
  return static_cast<std::uint16_t>((std::signbit(value) ? 0x8000 : 0) + ((unit + 24) << 10) + units);
}

inline void store(unsigned char* to, cellc_dtype dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == CELLC_F64) std::memcpy(to, &value, 8);
  if (dtype == CELLC_F32) std::memcpy(to, &single, 4);
  const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(single) >> 16);
  const std::uint16_t half = dtype == CELLC_F16 ? half_bits(value) : upper;
  if (dtype == CELLC_F16 || dtype == CELLC_BF16) std::memcpy(to, &half, 2);
}
inline bool is_nan(const unsigned char* at, cellc_dtype dtype) {
  double wide = 0;
  float single = 0;
  std::uint16_t half = 0;
  if (dtype == CELLC_F64) return std::memcpy(&wide, at, 8), std::isnan(wide);
  if (dtype == CELLC_F32) return std::memcpy(&single, at, 4), std::isnan(single);
  std::memcpy(&half, at, 2);
  return (half & 0x7fff) > (dtype == CELLC_F16 ? 0x7c00 : 0x7f80);
}

inline std::int64_t product(const Lengths& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{1}, std::multiplies<>());
}
/// Visits all indices, row-major.
template <typename Visit>
void each_index(const Lengths& lengths, Visit visit) {
  Lengths index(lengths.size(), 0);
  for (std::int64_t i = 0, count = product(lengths); i < count; ++i) {
    visit(index, i);
    for (std::size_t a = lengths.size(); a-- > 0 && ++index[a] == lengths[a];) index[a] = 0;
  }
}

/// One array of a call: its values without gaps, and the same spread over memory.
struct OneArray {
  cellc_call_array_info info;
  Lengths lengths, strides;
  bool given = false;
  std::vector<bool> repeated;  ///< by axis: read, and the same all along it
  Bytes dense, spread, before;
  std::int64_t origin = 0;  ///< of index 0, in bytes from the beginning of `spread`

  std::size_t size() const { return bytes_of(info.dtype); }
  std::int64_t place(const Lengths& index) const {
    std::int64_t at = 0;
    for (std::size_t a = 0; a < index.size(); ++a) at += index[a] * strides[a];
    return origin + at * static_cast<std::int64_t>(size());
  }

  void draw(Random& random, double low, double high) {
    repeated.assign(lengths.size(), false);
    for (std::size_t a = 0; a < lengths.size(); ++a) repeated[a] = !info.written && random.chance(0.25);
    dense.assign(static_cast<std::size_t>(product(lengths)) * size(), 0x33);
    if (info.written) return;
    each_index(lengths, [&](const Lengths& index, std::int64_t i) {
      std::int64_t same = 0, step = 1;  // the first of those that are the same
      for (std::size_t a = lengths.size(); a-- > 0; step *= lengths[a]) same += repeated[a] ? 0 : index[a] * step;
      unsigned char* to = dense.data() + static_cast<std::size_t>(i) * size();
      if (same == i)
        store(to, info.dtype, random.uniform(low, high));
      else
        std::memcpy(to, dense.data() + static_cast<std::size_t>(same) * size(), size());
    });
  }

  /// Lays the values out anew; where a call is to write, there is something else. `any_place`: also where entries are
  /// not aligned to their size.
  void spread_out(Random& random, bool any_place = true) {
    const std::size_t rank = lengths.size();
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = rank; i-- > 1;)
      std::swap(order[i], order[static_cast<std::size_t>(random.below(static_cast<int>(i) + 1))]);
    strides.assign(rank, 0);
    std::int64_t step = 1 + random.below(2), low = 0, high = 0;
    for (const std::size_t a : order) {
      if (repeated[a]) continue;
      strides[a] = random.chance(0.5) ? step : -step;
      (strides[a] > 0 ? high : low) += strides[a] * std::max<std::int64_t>(lengths[a] - 1, 0);
      step = step * std::max<std::int64_t>(lengths[a], 1) + random.below(3);
    }
    const std::int64_t odd = random.chance(0.2) && any_place ? 1 : 0;
    origin = (2 - low) * static_cast<std::int64_t>(size()) + odd;
    spread.assign(static_cast<std::size_t>(high - low + 5) * size() + 8, 0x55);
    if (!info.written)
      each_index(lengths, [&](const Lengths& index, std::int64_t i) {
        std::memcpy(spread.data() + place(index), dense.data() + static_cast<std::size_t>(i) * size(), size());
      });
    before = spread;
  }
  cellc_array as_array() { return {given ? dense.data() : nullptr, product(lengths), info.dtype, 0, 0}; }
  cellc_view as_view() {
    return {given ? spread.data() + origin : nullptr, info.dtype, static_cast<int>(lengths.size()), lengths.data(),
            strides.data()};
  }
  /// Empty where what was written is what `dense` has now, and nothing else changed.
  std::string difference() const {
    Bytes after = spread;
    std::string found;
    each_index(lengths, [&](const Lengths& index, std::int64_t i) {
      unsigned char* at = after.data() + place(index);
      const unsigned char* want = dense.data() + static_cast<std::size_t>(i) * size();
      if (std::memcmp(at, want, size()) != 0 && !(is_nan(at, info.dtype) && is_nan(want, info.dtype)))
        found = std::string(info.name) + " differs at " + std::to_string(i);
      std::memcpy(at, before.data() + place(index), size());
    });
    return after == before ? found : std::string(info.name) + ": memory beside it was written";
  }
};

/// The arrays of a call in one direction.
struct CallArrays {
  CallArrays(cellc_kernel* kernel, cellc_direction direction, const cellc_shape& shape)
      : kernel(kernel), direction(direction), shape(shape) {
    all.resize(static_cast<std::size_t>(cellc_call_array_count(kernel, direction)));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int number = static_cast<int>(i);
      cellc_call_array_info_init(&all[i].info);
      EXPECT_EQ(cellc_call_array_describe(kernel, direction, number, &all[i].info), CELLC_OK);
      int rank = 0;
      all[i].lengths.resize(16);
      EXPECT_EQ(cellc_call_array_shape(kernel, direction, &shape, number, all[i].lengths.data(), 16, &rank), CELLC_OK)
          << cellc_last_error();
      all[i].lengths.resize(static_cast<std::size_t>(rank));
    }
  }
  /// Null: there is none.
  OneArray* find(const std::string& name) {
    for (OneArray& a : all)
      if (name == a.info.name) return &a;
    return nullptr;
  }
  void expect_same() const {
    for (const OneArray& a : all)
      if (a.given) {
        EXPECT_EQ(a.difference(), "");
      }
  }

  cellc_kernel* kernel;
  cellc_direction direction;
  cellc_shape shape;
  std::vector<OneArray> all;
};

}  // namespace cellc::strided
