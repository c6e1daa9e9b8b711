// 16-bit storage: every strategy of every cell that does not amplify, against the oracle on the same
// rounded data. The states are carried in f32 and rounded when written.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/engines/strategies.h"

namespace cellc {
namespace {

class NarrowStrategies : public testing::TestWithParam<std::string> {};

TEST_P(NarrowStrategies, AgreeWithOracle) {
  const oracle::Example& file = oracle::example_named(GetParam());
  const std::string cache = testing::TempDir() + "cellc_narrow_" + GetParam();
  int runs = 0, cells = 0;
  for (const Cell& tree : file.tree.cells) {
    if (file.amplifies.count(tree.name)) continue;
    ++cells;
    const LoweredCell cell(file.source, file.tree, tree);
    for (const Dtype dtype : {Dtype::F16, Dtype::BF16}) {
      // Both are solved by the same f32 kernels: what the first compiled the second finds.
      Solver solver(cell.graph, cell.structure, {.dtype = dtype, .cache_directory = cache});
      oracle::Random random(96);
      const Trial trial(cell.graph, cell.oracle, file.ranges, random,
                        {.dtype = dtype,
                         .sizes = oracle::axis_lengths(cell.oracle, {3, 2, 3, 2}),
                         .steps = 65,
                         .starts_given = true});
      const std::vector<std::int64_t> lengths{65, 0, 40};
      const BoundRun run = trial.bound(lengths, true, 2).run;
      for (const Strategy strategy : kStrategies) {
        std::optional<SolveOptions> solve = forced(solver, cell, strategy, run, true);
        if (!solve) continue;
        // Well below the storage's own: what is compared is the storage, not the strategy's tolerance.
        solve->tolerance = 1e-6;
        SolveReport report;
        const RunOutput output = solver.run(run, *solve, report);
        EXPECT_TRUE(report.converged);
        EXPECT_EQ(trial.verify(run, output, lengths), "")
            << tree.name << " by " << to_string(strategy) << ", " << to_string(dtype);
        ++runs;
      }
    }
  }
  EXPECT_GE(runs, cells * 2 * 5);
  std::filesystem::remove_all(cache);
}

INSTANTIATE_TEST_SUITE_P(Examples, NarrowStrategies, testing::ValuesIn(oracle::names_of(oracle::dsl_examples())),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cellc
