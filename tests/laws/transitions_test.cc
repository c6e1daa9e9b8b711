// Transitions of derived cells are ordinary states: no coefficient brings in an axis of its own.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/analysis/jacobian.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/lower.h"
#include "tests/oracle/examples.h"

namespace cellc {
namespace {

void check(const SourceText& source, const File& file, const Cell& tree) {
  Diagnostics diagnostics;
  std::optional<CellGraph> cell = lower(file, tree, diagnostics);
  ASSERT_TRUE(cell) << diagnostics.format(source);
  const Structure structure = analyse(*cell, differentiate(*cell));
  const StagedCell staged = split_stages(*cell, structure);
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const TransitionCell transitions =
        with_transition(staged.stages[k].lanes, staged.stages[k].lane, structure.stages[k].scannable);
    for (const StateUpdate& u : transitions.cell.updates) {
      const Symbol& s = transitions.cell.symbols[u.symbol];
      for (AxisId a : transitions.cell.graph[u.value].axes)
        EXPECT_NE(std::find(s.index.begin(), s.index.end(), a), s.index.end())
            << source.path() << ", " << tree.name << ": " << s.name << "' has axis "
            << transitions.cell.graph.axis(a).name;
    }
  }
}

TEST(Transitions, HaveTheAxesOfTheirStates) {
  for (const oracle::Example& example : oracle::all_cells())
    for (const Cell& tree : example.tree.cells) check(example.source, example.tree, tree);
}

// min(y*g, 0) is what min(y*g, p*0) comes to, without the axis of p: a slope that asks for the first may
// not be given the second.
TEST(Transitions, HaveTheAxesOfTheirStatesWhereAFormLosesOne) {
  const SourceText source("test.cell", R"(cell c[d, k] {
  state h[d,k], g[k]
  input x[d,k], y[k]
  param V[k,d], p[d,k]
  g' = 0.7*g + tanh(V@max(min(y*g, p*0), h))
  h' = clip(g + x, -2, 2)
}
)");
  const File file = oracle::parse_or_throw(source);
  check(source, file, file.cells.at(0));
}

}  // namespace
}  // namespace cellc
