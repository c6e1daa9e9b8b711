// The plain sweep behind `run --verify` and the adjoint cell, both evaluated in f64: they share the values of a step
// and no rule of derivatives. Of every cell, those with declared slopes and stopped gradients too.
#include <gtest/gtest.h>

#include "tests/engines/lowered_cell.h"
#include "tests/gradients/gradient_trial.h"

namespace cellc {
namespace {

struct OneCell {
  const oracle::Example* file;
  const Cell* tree;
};

class ReferenceGradients : public testing::TestWithParam<OneCell> {};

std::vector<OneCell> cells() {
  std::vector<OneCell> list;
  for (const oracle::Example& file : oracle::all_cells())
    for (const Cell& tree : file.tree.cells) list.push_back({&file, &tree});
  return list;
}

TEST_P(ReferenceGradients, AreTheAdjoints) {
  const auto [file, tree] = GetParam();
  const LoweredCell cell(file->source, file->tree, *tree);
  struct Shape {
    std::vector<std::int64_t> lengths, axes;
    bool packed, reverse;
    double without;
  };
  for (const Shape& shape :
       {Shape{{7, 7}, {3, 2, 3, 2}, false, false, 0}, Shape{{5, 0, 1, 2}, {2, 3, 4, 2}, true, true, 0.4},
        Shape{{0, 0}, {3, 2, 2, 2}, false, false, 0}}) {
    oracle::Random random(41 + shape.lengths.size());
    GradientTrial::Options options;
    options.sizes = oracle::axis_lengths(cell.oracle, shape.axes);
    options.lengths = shape.lengths;
    if (cell.graph.has_lines())  // beyond the lags
      for (std::int64_t& n : options.lengths) n *= 5;
    options.packed = shape.packed;
    options.reverse = shape.reverse;
    options.starts_given = options.defaults_given = shape.packed;
    options.without = shape.without;
    GradientTrial trial(cell.graph, cell.oracle, file->ranges, random, options);
    const AdjointRun adjoint(cell.graph, results_with(trial.cotangents(trial.bound(Dtype::F64))));
    const NamedArrays plain = trial.reference(adjoint);
    EXPECT_LE(times_allowed(plain, trial.swept(), 1e-12, trial.spread(adjoint, plain, Dtype::F64)), 1) << tree->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, ReferenceGradients, testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.file->name + "_" + info.param.tree->name; });

}  // namespace
}  // namespace cellc
