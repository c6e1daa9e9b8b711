// The structure that the head of every example claims, against what is proved of the cell.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/graph/lower.h"
#include "tests/oracle/examples.h"

namespace cellc {
namespace {

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

std::string axes_text(const CellGraph& cell, const std::vector<AxisId>& axes) {
  std::vector<std::string> names;
  for (AxisId a : axes) names.push_back(cell.graph.axis(cell.graph.axis(a).extent_of).name);
  return names.empty() ? "none" : join(names, ",");
}

/// {g*},{c*}: declared states; a lagged copy goes with its state and is not named.
std::string stage_text(const CellGraph& cell, const Stage& stage) {
  std::vector<std::string> names;
  for (int u : stage.states)
    if (const Symbol& s = cell.symbol_of(cell.updates[u]); s.lag_of < 0)
      names.push_back(s.name + (stage.linear ? "*" : ""));
  return names.empty() ? "" : "{" + join(names, ",") + "}";
}

class Expectation : public testing::TestWithParam<std::string> {};

TEST_P(Expectation, IsWhatIsProved) {
  const oracle::Example& found = oracle::example_named(GetParam());
  ASSERT_EQ(found.expectations.size(), found.tree.cells.size()) << "one '# expect:' line a cell";
  for (const auto& expected : found.expectations) {
    const std::string name = expected.at("cell");
    SCOPED_TRACE(name);
    const auto tree =
        std::find_if(found.tree.cells.begin(), found.tree.cells.end(), [&](const Cell& c) { return c.name == name; });
    ASSERT_NE(tree, found.tree.cells.end());
    Diagnostics diagnostics;
    std::optional<CellGraph> cell = lower(found.tree, *tree, diagnostics);
    ASSERT_TRUE(cell.has_value()) << diagnostics.format(found.source);
    const Structure structure = analyse(*cell, differentiate(*cell));
    const Stage& widest = structure.stages.at(structure.widest);

    std::set<std::string> known{"cell"};
    auto wanted = [&](const char* key) {
      known.insert(key);
      const auto value = expected.find(key);
      return value == expected.end() || value->second == "-" ? std::string() : value->second;
    };
    EXPECT_EQ(to_string(widest.kind), wanted("class"));
    std::string block = widest.block.text;  // the heads' words are parted by spaces, so a sum has none: k+1
    std::erase(block, ' ');
    EXPECT_EQ(block, wanted("block"));
    EXPECT_EQ(structure.linear ? "true" : "false", wanted("linear"));
    std::vector<std::string> stages;
    for (const Stage& s : structure.stages)
      if (const std::string text = stage_text(*cell, s); !text.empty()) stages.push_back(text);
    EXPECT_EQ(join(stages, ","), wanted("stages"));
    EXPECT_EQ(axes_text(*cell, widest.channel_axes), wanted("lanes"));
    if (const std::string mask = wanted("mask"); !mask.empty()) {
      EXPECT_EQ("[" + join(mask_text(widest.mask), ";") + "]", mask);
    }
    EXPECT_EQ(widest.rank ? widest.rank->text : "", wanted("rank"));
    if (const std::string invariant = wanted("time_invariant"); !invariant.empty()) {
      for (const Stage& s : structure.stages) {
        if (invariant == "true") {
          EXPECT_TRUE(s.time_invariant) << stage_text(*cell, s);
        }
      }
      EXPECT_EQ(widest.time_invariant ? "true" : "false", invariant);
    }
    if (const std::string axes = wanted("coefficients"); !axes.empty()) {
      EXPECT_EQ(axes_text(*cell, widest.coefficient_axes), axes);
    }
    EXPECT_EQ(widest.rotation, wanted("rotation") == "true");

    // A linear stage is an affine scan; of the others, exactly those are scannable that are named.
    std::map<std::string, std::string> scans;
    std::istringstream list(wanted("scannable"));
    for (std::string entry; std::getline(list, entry, ',');) {
      const std::size_t colon = entry.find(':');
      scans[entry.substr(0, colon)] = entry.substr(colon + 1);
    }
    for (const Stage& s : structure.stages) {
      std::string scan = s.linear ? "affine" : "no";
      for (int u : s.states)
        if (const auto named = scans.find(cell->symbol_of(cell->updates[u]).name); named != scans.end())
          scan = named->second;
      EXPECT_EQ(to_string(s.scannable), scan) << stage_text(*cell, s);
    }
    for (const auto& [key, value] : expected) EXPECT_TRUE(known.count(key)) << "unknown key '" << key << "'";
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, Expectation, testing::ValuesIn(oracle::names_of(oracle::all_cells())),
                         [](const auto& info) { return info.param; });

TEST(Examples, AreAllThere) {
  // 44 numbered files, 19 others, four hard ones.
  EXPECT_EQ(oracle::dsl_examples().size(), 67u);
}

}  // namespace
}  // namespace cellc
