// The printed Jacobian of every example against finite differences of the oracle, at random
// points at least 1e-3 away from kinks; a pair of states without a block must not depend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/graph/delay_lines.h"
#include "compiler/graph/lower.h"
#include "tests/oracle/difference.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/printed_jacobian.h"

namespace cellc {
namespace {

/// A point with random states, and random histories of what is lagged.
oracle::Data point(const oracle::Cell& cell, const CellGraph& graph, const oracle::Ranges& ranges,
                   oracle::Random& random, const std::vector<std::int64_t>& lengths) {
  oracle::Data data = oracle::draw_data(cell, oracle::axis_lengths(cell, lengths), 1, ranges, random, true);
  for (const auto& [name, depth] : oracle::history_depths(graph)) {
    const Declaration& d = *cell.find(name);
    data.histories[name] = oracle::draw_values(d, depth * cell.count(d, data), 1, ranges, random);
  }
  return data;
}

class JacobianOf : public testing::TestWithParam<std::string> {};

TEST_P(JacobianOf, EqualsFiniteDifferences) {
  const oracle::Example& example = oracle::example_named(GetParam());
  constexpr int kPoints = 3, kTries = 60;
  for (const Cell& tree : example.tree.cells) {
    SCOPED_TRACE(tree.name);
    Diagnostics diagnostics;
    std::optional<CellGraph> graph = lower(example.tree, tree, diagnostics);
    ASSERT_TRUE(graph.has_value()) << diagnostics.format(example.source);
    const oracle::PrintedJacobian printed(*graph, example.source);
    {  // What is printed must also be right for the compiler itself.
      const SourceText again("printed", printed.text());
      const File file = oracle::parse_or_throw(again);
      Diagnostics errors;
      (void)lower_all(file, errors);
      ASSERT_TRUE(errors.empty()) << errors.format(again) << printed.text();
    }
    const oracle::Cell cell(example.tree, tree.name);
    oracle::Random random(20240607);
    int points = 0, tries = 0;
    for (; points < kPoints && tries < kTries; ++tries) {
      const oracle::Data data =
          point(cell, *graph, example.ranges, random,
                points == 2 ? std::vector<std::int64_t>{2, 3, 2, 1} : std::vector<std::int64_t>{3, 2, 4, 2});
      // What a delay line brings is no state of the step, so there are no slopes by it.
      std::map<std::string, int> depths = oracle::history_depths(*graph);
      for (const DelayLine& line : delay_lines(*graph))
        depths[graph->symbols[static_cast<std::size_t>(line.state)].name] = static_cast<int>(std::count_if(
            graph->symbols.begin(), graph->symbols.end(), [&](const Symbol& s) { return s.lag_of == line.state; }));
      const auto expected = oracle::difference_jacobian(cell, data, depths);
      if (!expected) continue;
      ++points;
      const auto got = printed.evaluate(data);
      for (int r = 0; r < static_cast<int>(graph->updates.size()); ++r) {
        for (int c = 0; c < static_cast<int>(graph->updates.size()); ++c) {
          const oracle::Source row = oracle::source_of(*graph, r), column = oracle::source_of(*graph, c);
          oracle::Difference truth;
          if (row.second == 0) {
            truth = expected->at({row.first, column});
          } else {  // a lagged copy takes the value of the copy before it
            truth.rows = cell.count(*cell.find(row.first), data);
            truth.columns = cell.count(*cell.find(column.first), data);
            truth.values.assign(truth.rows * truth.columns, 0);
            if (column.first == row.first && column.second == row.second - 1)
              for (std::int64_t i = 0; i < truth.rows; ++i) truth.values[i * truth.columns + i] = 1;
          }
          const auto block = got.find({row, column});
          for (std::size_t i = 0; i < truth.values.size(); ++i) {
            const double want = truth.values[i], have = block == got.end() ? 0 : block->second.values[i];
            ASSERT_LE(std::fabs(have - want), block == got.end() ? 1e-9 : 1e-6 * (1 + std::fabs(want)))
                << "d " << row.first << "' (lag " << row.second << ") / d " << column.first << " (lag " << column.second
                << "), entry " << i << ": printed " << have << ", differences " << want << "\n"
                << printed.text();
          }
        }
      }
    }
    EXPECT_EQ(points, kPoints) << "after " << tries << " tries to keep away from kinks";
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, JacobianOf, testing::ValuesIn(oracle::names_of(oracle::all_cells())),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cellc
