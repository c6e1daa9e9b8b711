// Part of every test program: consecutive seeds run all of its tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>

#include "tests/main/turns.h"

namespace cellc {
namespace {

TEST(Turns, EveryTestOfTheProgramHasOne) {
  std::uint64_t parts = 1;
  for (const turns::Suite& suite : turns::suites_in_turns()) parts = std::lcm(parts, suite.parts);
  const std::uint64_t first = 0x5eed;
  std::set<std::string> never;
  std::size_t turns_of_others = 0;
  for (std::uint64_t seed = first; seed < first + parts; ++seed) {
    const std::vector<std::string> without = turns::tests_without_turn(seed);
    EXPECT_EQ(without, turns::tests_without_turn(seed)) << "the same seed takes the same part";
    const std::set<std::string> names(without.begin(), without.end());
    EXPECT_FALSE(names.contains("Turns.EveryTestOfTheProgramHasOne"));
    turns_of_others += names.size();
    if (seed == first) {
      never = names;
      continue;
    }
    std::set<std::string> still;
    std::set_intersection(never.begin(), never.end(), names.begin(), names.end(), std::inserter(still, still.end()));
    never = still;
  }
  EXPECT_TRUE(never.empty()) << never.size() << " tests, such as " << *never.begin();
  if (!turns::suites_in_turns().empty()) {
    EXPECT_GT(turns_of_others, 0u) << "suites that come in turns leave something to other seeds";
  }
}

}  // namespace
}  // namespace cellc
