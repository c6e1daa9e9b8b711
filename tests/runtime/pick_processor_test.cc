// What code for several processors makes of machines: as CPUID of real ones and of damaged ones has it.
#include "kernels-templates/cpu/pick_processor.h"

#include <gtest/gtest.h>

#include <array>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace cellc {
namespace {

using Leaves = std::map<std::pair<std::uint32_t, std::uint32_t>, std::array<std::uint32_t, 4>>;
Leaves leaves;
std::uint64_t state;
bool asked_for_state;

std::uint64_t features() {
  asked_for_state = false;
  const cellc_machine machine = {[](std::uint32_t leaf, std::uint32_t subleaf, std::uint32_t registers[4]) {
                                   const auto found = leaves.find({leaf, subleaf});
                                   // Beyond the last leaf Intel's answer with that leaf: never with zeros.
                                   for (int r = 0; r < 4; ++r)
                                     registers[r] =
                                         found == leaves.end() ? ~0u : found->second[static_cast<std::size_t>(r)];
                                 },
                                 [] {
                                   asked_for_state = true;
                                   return state;
                                 }};
  return cellc_features(&machine);
}

bool has(const std::string& name) {
  static const char* const names[] = {
#define CELLC_FEATURE(name, leaf, subleaf, place, bit, state) name,
      CELLC_CPU_FEATURES(CELLC_FEATURE)
#undef CELLC_FEATURE
  };
  for (std::size_t f = 0; f < std::size(names); ++f)
    if (names[f] == name) return features() >> f & 1;
  ADD_FAILURE() << name;
  return false;
}

/// Haswell: AVX2 and FMA; no AVX-512.
void be_haswell() {
  leaves = {{{0, 0}, {13, 0, 0, 0}},
            {{1, 0}, {0, 0, 0x7ffafbff, 0xbfebfbff}},
            {{7, 0}, {0, 0x000027ab, 0, 0}},
            {{0x80000000u, 0}, {0x80000008u, 0, 0, 0}},
            {{0x80000001u, 0}, {0, 0, 0x21, 0}}};
  state = 7;
}

TEST(PickProcessor, ReadsFeatures) {
  be_haswell();
  for (const char* name :
       {"sse3", "sse4.2", "popcnt", "fma", "avx", "f16c", "movbe", "bmi", "bmi2", "avx2", "lzcnt", "sahf"})
    EXPECT_TRUE(has(name)) << name;
  for (const char* name : {"avx512f", "avx512vl", "avx512fp16", "avxvnni", "xop", "fma4", "tbm", "sse4a"})
    EXPECT_FALSE(has(name)) << name;
}

TEST(PickProcessor, ASystemThatKeepsNoWideRegisters) {
  be_haswell();
  state = 3;
  for (const char* name : {"avx", "avx2", "fma", "f16c"}) EXPECT_FALSE(has(name)) << name;
  EXPECT_TRUE(has("sse4.2"));
  EXPECT_TRUE(has("bmi2"));
  leaves[{7, 0}][1] |= 0xd0030000u;  // AVX-512, of which the system keeps the low halves
  state = 7;
  EXPECT_TRUE(has("avx2"));
  EXPECT_FALSE(has("avx512f"));
  state = 0xe7;
  EXPECT_TRUE(has("avx512f"));
  // Where XGETBV is no instruction it is not asked.
  leaves[{1, 0}][2] &= ~(1u << 27);
  EXPECT_FALSE(has("avx2"));
  EXPECT_FALSE(asked_for_state);
}

TEST(PickProcessor, LeavesThatThereAreNot) {
  be_haswell();
  leaves[{0, 0}][0] = 4;
  leaves.erase({7, 0});
  EXPECT_FALSE(has("avx2"));
  EXPECT_FALSE(has("avxvnni"));
  EXPECT_TRUE(has("fma"));
  leaves[{0x80000000u, 0}][0] = 0x80000000u;
  leaves.erase({0x80000001u, 0});
  EXPECT_FALSE(has("xop"));
  EXPECT_FALSE(has("lzcnt"));
}

TEST(PickProcessor, TheLastThatNeedsNothingElse) {
  be_haswell();
  const cellc_machine none = {[](std::uint32_t, std::uint32_t, std::uint32_t registers[4]) {
                                for (int r = 0; r < 4; ++r) registers[r] = 0;
                              },
                              [] { return std::uint64_t{0}; }};
  const std::uint64_t needs[] = {1, 0, 2};
  EXPECT_EQ(cellc_best(&none, needs, 3), 2);
  EXPECT_EQ(cellc_best(&none, needs, 1), 0);
  EXPECT_EQ(cellc_best(&none, needs, 0), 0);
}

}  // namespace
}  // namespace cellc
