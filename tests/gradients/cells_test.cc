// Gradients of every cell of dsl-examples/ and tests/cells against differences of the oracle, which shares no code with
// the compiler but the parser: by every strategy that the adjoint admits, of lengths around those of segments, of
// packed sequences, in reversed time, in f64 and f32.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/gradients/compare_gradients.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// Compiling the adjoints of all of them takes minutes.
CELLC_ONE_IN(12, "Cells/Gradients");

struct OneCell {
  const oracle::Example* file;
  const Cell* tree;
  std::string name;
};
void PrintTo(const OneCell& cell, std::ostream* to) { *to << cell.name; }

/// Whose gradients are no derivatives: declared slopes and stopped gradients (known_slopes_test.cc has them).
bool differs_on_purpose(const oracle::Example& file, const Cell& cell) {
  const std::string text(file.source.text());
  if (cell.name == "stopped" || cell.name == "stopped_lin") return true;
  return text.find("derivative 1/") != std::string::npos;
}

const std::vector<OneCell>& cells() {
  static const std::vector<OneCell> all = [] {
    std::vector<OneCell> list;
    for (const oracle::Example& file : oracle::all_cells())
      for (const Cell& tree : file.tree.cells)
        if (!differs_on_purpose(file, tree)) list.push_back({&file, &tree, file.name + "_" + tree.name});
    return list;
  }();
  return all;
}

const std::vector<GradientShape> kShapes = {
    {{7, 7}, false, false, 6, {3, 2, 3, 2}},  {{11, 0, 1, 2}, true, false, 3, {3, 2, 4, 2}},
    {{7, 0, 5}, true, true, 3, {1, 3, 2, 2}}, {{6, 6, 6}, false, true, 3, {5, 2, 2, 3}},
    {{2}, false, false, 6, {2, 3, 2, 3}},     {{1, 1}, false, false, 6, {3, 1, 3, 2}},
    {{0, 0}, false, false, 3, {3, 2, 2, 2}},  {{0, 0}, true, false, 3, {3, 2, 2, 2}},
    {{}, false, false, 0, {3, 2, 2, 2}},      {{63, 64, 65}, true, false, 0, {3, 2, 2, 2}}};

class Gradients : public testing::TestWithParam<OneCell> {};

TEST_P(Gradients, AreDifferencesOfTheOracle) {
  const OneCell& of = GetParam();
  const LoweredCell cell(of.file->source, of.file->tree, *of.tree);
  turns::Turn turn;
  const std::vector<GradientShape> shapes = turn.of(kShapes);
  for (GradientShape shape : shapes) {
    // Over many steps differences of what amplifies tell nothing.
    if (of.file->amplifies.contains(of.tree->name) && shape.packed)
      for (std::int64_t& n : shape.lengths) n = std::min<std::int64_t>(n, 8);
    EXPECT_EQ(wrong_gradients(cell, of.file->ranges, shape, 17 + shape.lengths.size()), "") << of.name << shape.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Gradients, testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cellc
