// The table of strategies, and what is made of it.
#include "runtime/strategy/strategy.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

namespace cellc {
namespace {

TEST(StrategyTable, RowsAreTheEnumerators) {
  std::set<std::string> names;
  int position = 1;  // Auto is 0
  for (const StrategyFacts& f : strategies()) {
    EXPECT_EQ(static_cast<int>(f.strategy), position++) << f.name;
    EXPECT_EQ(&facts_of(f.strategy), &f);
    EXPECT_STREQ(to_string(f.strategy), f.name);
    EXPECT_EQ(strategy_named(f.name), f.strategy);
    EXPECT_TRUE(names.insert(f.name).second) << f.name << " stands there twice";
    EXPECT_TRUE(f.on_cpu || f.on_gpu) << f.name;
    EXPECT_LE(f.ships, f.on_gpu) << f.name;
    // Only what has a length can be tried at several.
    if (f.tries == StrategyFacts::Tries::Lengths) {
      EXPECT_NE(f.pins, StrategyFacts::Pins::Nothing) << f.name;
    }
  }
  EXPECT_EQ(strategy_named("auto"), Strategy::Auto);
  EXPECT_FALSE(strategy_named("magic"));
  EXPECT_FALSE(strategy_named(""));
  EXPECT_THROW(facts_of(Strategy::Auto), std::logic_error);
  EXPECT_TRUE(is_on_gpu(Strategy::Auto));
  EXPECT_TRUE(is_on_gpu(Strategy::Relaxation));
  EXPECT_TRUE(is_on_gpu(Strategy::Persistent));
  EXPECT_TRUE(is_on_gpu(Strategy::Stepped));
}

TEST(StrategyTable, ListsNameAllOfThem) {
  EXPECT_EQ(strategy_names().substr(0, 30), "auto, sequential, segmented, s");
  EXPECT_EQ(strategy_names({"all", "auto"}).substr(0, 22), "all, auto, sequential,");
  EXPECT_EQ(shipped_strategy_names().substr(0, 20), "segmented, shooting,");
  for (const StrategyFacts& f : strategies()) {
    EXPECT_NE(strategy_names().find(f.name), std::string::npos) << f.name;
    EXPECT_EQ(shipped_strategy_names().find(f.name) != std::string::npos, f.ships && f.strategy != Strategy::Sequential)
        << f.name;
    EXPECT_NE(strategy_meanings().find(std::string("  ") + f.name + " "), std::string::npos) << f.name;
  }
  const std::string last = std::string(" or ") + strategies().back().name;
  EXPECT_EQ(strategy_names().substr(strategy_names().size() - last.size()), last);
}

/// What stands in the note is what there is.
TEST(StrategyTable, TheNoteTellsOfEach) {
  std::ifstream in(CELLC_SOURCE_DIR "/docs/notes/strategies.md");
  std::stringstream text;
  text << in.rdbuf();
  for (const StrategyFacts& f : strategies()) EXPECT_NE(text.str().find(f.name), std::string::npos) << f.name;
}

}  // namespace
}  // namespace cellc
