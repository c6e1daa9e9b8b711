// What one stage would gain by leaving the fused kernel against what the others would lose.
#include <gtest/gtest.h>

#include "runtime/choose_strategy.h"
#include "tests/engines/strategies.h"

namespace cellc {
namespace {

StageShape shape_of(std::int64_t channels, std::int64_t steps) {
  StageShape s;
  s.sequences = 1;
  s.longest = s.rows = steps;
  s.channels = channels;
  s.threads = 2;
  return s;
}

TEST(Fused, AScanBesideAHeavyStageDoesNotPay) {
  const std::vector<StagePlan> plans{{Strategy::Scan, 256, 0, ""}, {Strategy::Sequential, 0, 0, ""}};
  EXPECT_TRUE(keeps_fused(plans, {shape_of(1, 512), shape_of(4096, 512)}));
  EXPECT_FALSE(keeps_fused(plans, {shape_of(1, 512), shape_of(4, 512)}));
}

TEST(Fused, NothingIsLostWhereNoStageStaysBehind) {
  for (const Strategy other : {Strategy::Scan, Strategy::Segmented, Strategy::Auto})
    EXPECT_FALSE(keeps_fused({{Strategy::Scan, 256, 0, ""}, {other, 64, 0, ""}},
                             {shape_of(1, 512), shape_of(16, 512)}))
        << to_string(other);
}

/// What `auto` makes of an example.
SolveReport chosen(const std::string& name, std::int64_t steps, std::int64_t length, int threads) {
  const oracle::Example& example = oracle::example_named(name);
  const LoweredCell cell(example.source, example.tree, example.tree.cells[0]);
  Solver solver(cell.graph, cell.structure, {});
  BoundRun run = filled_run(cell, steps, length, Dtype::F32);
  run.threads = threads;
  SolveReport report;
  solver.run(run, {}, report);
  return report;
}

TEST(Fused, TheStabiliserOfAnMlstmStaysWithItsMatrix) {
  const SolveReport report = chosen("17_mlstm", 512, 64, 2);
  ASSERT_EQ(report.stages.size(), 3u);
  for (const StageReport& s : report.stages)
    EXPECT_EQ(s.plan.strategy, Strategy::Sequential) << s.plan.reason;
  EXPECT_NE(report.stages[0].plan.reason.find("fused kernel"), std::string::npos)
      << report.stages[0].plan.reason;
}

TEST(Fused, StagesThatAllGainAreCut) {
  const SolveReport report = chosen("09_gilr_lstm", 4096, 2, 2);
  for (const StageReport& s : report.stages) EXPECT_EQ(s.plan.strategy, Strategy::Scan) << s.plan.reason;
}

}  // namespace
}  // namespace cellc
