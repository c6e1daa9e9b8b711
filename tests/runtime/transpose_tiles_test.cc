// Blocks turned in registers against their definition, by every way that this processor has.
#include "runtime/cpu/transpose_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/cpu/flush_to_zero.h"
#include "runtime/cpu/gather_rows.h"

namespace cellc {
namespace {

template <typename Number>
class TurnBlocks : public testing::Test {};
using Numbers = testing::Types<float, double>;
TYPED_TEST_SUITE(TurnBlocks, Numbers);

/// Lanes at uneven places of one array: aligned to a cache line (offset 0) or not.
template <typename Number>
struct Lanes {
  Lanes(std::int64_t steps, std::int64_t offset) : memory(static_cast<std::size_t>(kBlock * (steps + 112) + 64)) {
    Number* base = memory.data();
    while (reinterpret_cast<std::uintptr_t>(base) % 64) ++base;
    for (std::int64_t l = 0; l < kBlock; ++l)
      at.push_back(base + l * (steps + 112 - steps % 16) + (l % 2 ? offset : 0));
  }
  std::vector<Number> memory;
  std::vector<Number*> at;
};

template <typename Number>
Number value(std::int64_t lane, std::int64_t step) {
  return static_cast<Number>(lane * 1000 + step + 1);
}

TYPED_TEST(TurnBlocks, BothWays) {
  using Number = TypeParam;
  const TileTransposer<Number>* turners[3];
  const int count = block_turners(turners);
  ASSERT_GE(count, 1);
  for (int k = 0; k < count; ++k)
    for (const std::int64_t blocks : {1, 2, 5})
      for (const std::int64_t step : {16, 17, 64, -16, -64})
        for (const std::int64_t offset : {0, 3})
          for (const bool past_caches : {false, true}) {
            SCOPED_TRACE(testing::Message()
                         << "turner " << k << ", " << blocks << " blocks, row step " << step << ", offset " << offset);
            const std::int64_t steps = blocks * kBlock;
            Lanes<Number> from(steps, offset), to(steps, offset);
            for (std::int64_t l = 0; l < kBlock; ++l)
              for (std::int64_t t = 0; t < steps; ++t) from.at[l][t] = value<Number>(l, t);
            // One row more on either side, to see what is written beyond.
            const std::int64_t distance = std::abs(step);
            std::vector<Number> rows(static_cast<std::size_t>((steps + 2) * distance), Number{-1});
            Number* const first = rows.data() + (step > 0 ? distance : steps * distance);
            turners[k]->to_rows(from.at.data(), {blocks, step}, first);
            for (std::int64_t t = 0; t < steps; ++t)
              for (std::int64_t l = 0; l < kBlock; ++l)
                ASSERT_EQ(first[t * step + l], value<Number>(l, t)) << "step " << t << ", lane " << l;
            std::int64_t untouched = 0;
            for (const Number v : rows) untouched += v == -1;
            ASSERT_EQ(untouched, static_cast<std::int64_t>(rows.size()) - steps * kBlock);
            turners[k]->to_lanes(first, {blocks, step}, to.at.data(), past_caches);
            for (std::int64_t l = 0; l < kBlock; ++l)
              for (std::int64_t t = 0; t < steps; ++t)
                ASSERT_EQ(to.at[l][t], value<Number>(l, t)) << "step " << t << ", lane " << l;
            std::int64_t written = 0;
            for (const Number v : to.memory) written += v != 0;
            ASSERT_EQ(written, steps * kBlock);
          }
}

// Time may run either way through a lane, and its steps need not be neighbours.
TYPED_TEST(TurnBlocks, AnyDistanceOfSteps) {
  using Number = TypeParam;
  for (const std::int64_t step : {1, -1, 3, -3})
    for (const std::int64_t rows : {0, 1, 15, 16, 17, 37}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, step " << step);
      const std::int64_t extent = 40 * 3;
      std::vector<Number> from(static_cast<std::size_t>(kBlock * extent)), to(from.size()),
          tile(static_cast<std::size_t>(40 * 20));
      const Number* in[kBlock];
      Number* out[kBlock];
      for (std::int64_t l = 0; l < kBlock; ++l) {
        const std::int64_t start = l * extent + (step < 0 ? extent - 1 : 0);
        in[l] = from.data() + start;
        out[l] = to.data() + start;
        for (std::int64_t t = 0; t < rows; ++t) from[static_cast<std::size_t>(start + t * step)] = value<Number>(l, t);
      }
      lanes_to_rows(in, step, rows, tile.data(), 20);
      for (std::int64_t t = 0; t < rows; ++t)
        for (std::int64_t l = 0; l < kBlock; ++l)
          ASSERT_EQ(tile[static_cast<std::size_t>(t * 20 + l)], value<Number>(l, t));
      rows_to_lanes(tile.data(), 20, rows, out, step, false);
      EXPECT_EQ(from, to);
    }
}

TEST(FlushToZero, EndsWithItsScope) {
  volatile float small = std::numeric_limits<float>::min(), half = 0.5f;
  ASSERT_GT(small * half, 0.0f);
#ifdef __SSE__
  {
    const FlushToZero flushed(true);
    EXPECT_EQ(small * half, 0.0f);
    volatile float denormal = 1e-40f, one = 3e7f;
    EXPECT_GT(denormal * one, 0.0f);  // what is given is read as it is
  }
#endif
  {
    const FlushToZero flushed(false);
    EXPECT_GT(small * half, 0.0f);
  }
  EXPECT_GT(small * half, 0.0f);
}

}  // namespace
}  // namespace cellc
