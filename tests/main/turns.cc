#include "tests/main/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace cellc::turns {
namespace {

std::vector<Suite>& registered() {
  static std::vector<Suite> suites;
  return suites;
}

std::uint64_t parts_of(std::string_view suite) {
  for (const Suite& one : registered())
    if (one.name == suite) return one.parts;
  return 1;
}

/// Where a test stands in its suite.
std::uint64_t place_of(const testing::TestInfo& test) {
  const testing::UnitTest& unit = *testing::UnitTest::GetInstance();
  for (int s = 0; s < unit.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *unit.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t)
      if (suite.GetTestInfo(t) == &test) return static_cast<std::uint64_t>(t);
  }
  throw std::logic_error("a test that no suite has");
}

std::optional<std::uint64_t> position_of_this_test() {
  const std::optional<std::uint64_t> seed = seed_of_run();
  if (!seed) return std::nullopt;
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  if (!test) throw std::logic_error("a turn is that of a test");
  // Of the seeds under which the test runs at all each is followed by the next alternative.
  return (*seed + place_of(*test)) / parts_of(test->test_suite_name());
}

}  // namespace

std::optional<std::uint64_t> seed_from(const char* text) {
  if (!text || !*text) return std::nullopt;
  std::uint64_t seed = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, seed);
  if (error != std::errc() || stop != end)
    throw std::invalid_argument("CELLC_TEST_SEED is a number, not '" + std::string(text) + "'");
  return seed;
}

std::optional<std::uint64_t> seed_of_run() {
  static const std::optional<std::uint64_t> seed = seed_from(std::getenv("CELLC_TEST_SEED"));
  return seed;
}

OneIn::OneIn(std::uint64_t parts, std::string_view suite) { registered().push_back({std::string(suite), parts}); }

const std::vector<Suite>& suites_in_turns() { return registered(); }

Turn::Turn() : position_(position_of_this_test()) {}

std::vector<std::string> tests_without_turn(std::uint64_t seed) {
  std::vector<std::string> names;
  const testing::UnitTest& unit = *testing::UnitTest::GetInstance();
  for (int s = 0; s < unit.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *unit.GetTestSuite(s);
    const std::uint64_t parts = parts_of(suite.name());
    for (int t = 0; t < suite.total_test_count(); ++t)
      if (!has_turn(seed, static_cast<std::uint64_t>(t), parts))
        names.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(t)->name());
  }
  return names;
}

}  // namespace cellc::turns
