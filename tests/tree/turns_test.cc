// The rules by which tests come in turns (tests/main/turns.h).
#include "tests/main/turns.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace cellc {
namespace {

TEST(Turns, SeedsAreNumbers) {
  EXPECT_EQ(turns::seed_from(nullptr), std::nullopt);
  EXPECT_EQ(turns::seed_from(""), std::nullopt);
  EXPECT_EQ(turns::seed_from("0"), 0u);
  EXPECT_EQ(turns::seed_from("268435455"), 268435455u);
  for (const char* text : {"abc", "1x", "-1", " 1"})
    EXPECT_THROW(turns::seed_from(text), std::invalid_argument) << text;
}

TEST(Turns, OneOfConsecutiveSeedsTakesATest) {
  for (const std::uint64_t parts : {1, 2, 3, 5})
    for (std::uint64_t place = 0; place < 7; ++place)
      for (std::uint64_t first : {0, 1, 1000003}) {
        int taken = 0;
        for (std::uint64_t seed = first; seed < first + parts; ++seed) taken += turns::has_turn(seed, place, parts);
        EXPECT_EQ(taken, 1) << parts << " parts, place " << place << ", seeds from " << first;
      }
}

TEST(Turns, OneSeedTakesItsShareOfASuite) {
  int taken = 0;
  for (std::uint64_t place = 0; place < 75; ++place) taken += turns::has_turn(41, place, 3);
  EXPECT_EQ(taken, 25);
}

TEST(Turns, EveryCombinationOfAlternativesHasOne) {
  std::map<std::tuple<int, char, bool>, int> seen;
  for (std::uint64_t position = 17; position < 17 + 3 * 2 * 2; ++position) {
    turns::Turn turn(position), again(position);
    const std::vector<int> a = turn.of(std::vector<int>{1, 2, 3});
    const std::vector<char> b = turn.of(std::vector<char>{'x', 'y'});
    const std::vector<bool> c = turn.of(std::vector<bool>{false, true});
    ASSERT_EQ(a.size(), 1u);
    ASSERT_EQ(b.size(), 1u);
    ASSERT_EQ(c.size(), 1u);
    EXPECT_EQ(again.of(std::vector<int>{1, 2, 3}), a);
    EXPECT_EQ(again.of(std::vector<char>{'x', 'y'}), b);
    ++seen[{a[0], b[0], c[0]}];
  }
  EXPECT_EQ(seen.size(), 12u);
}

TEST(Turns, EveryPartHasOne) {
  std::set<std::pair<std::uint64_t, int>> seen;
  for (std::uint64_t position = 5; position < 5 + 4 * 2; ++position) {
    turns::Turn turn(position);
    const turns::Part part = turn.part(4);
    EXPECT_EQ(part.of, 4u);
    seen.emplace(part.number, turn.of(std::vector<int>{1, 2}).at(0));
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(Turns, WithoutASeedEveryAlternativeIsMade) {
  turns::Turn turn(std::nullopt);
  EXPECT_EQ(turn.of(std::vector<int>{1, 2, 3}), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(turn.part(4).of, 1u);
}

}  // namespace
}  // namespace cellc
