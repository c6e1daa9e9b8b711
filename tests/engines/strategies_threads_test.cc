// Threads share the work and nothing else: the same plan gives the same bits by any number of them. Which
// plan `auto` takes may depend on how many there are.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/engines/strategies.h"

namespace cellc {
namespace {

bool same_bits(const std::vector<Array>& a, const std::vector<Array>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].shape() != b[i].shape() ||
        std::memcmp(a[i].data(), b[i].data(), static_cast<std::size_t>(a[i].count()) * size_of(a[i].dtype())) != 0)
      return false;
  return true;
}

class Threads : public testing::TestWithParam<const char*> {};

TEST_P(Threads, SamePlanSameBits) {
  const oracle::Example& example = oracle::example_named(GetParam());
  const LoweredCell cell(example.source, example.tree, example.tree.cells[0]);
  int plans = 0;
  for (const std::int64_t length : {1, 7}) {
    BoundRun run = filled_run(cell, 3001, length, Dtype::F32);
    std::vector<std::vector<StagePlan>> wanted;
    Solver solver(cell.graph, cell.structure, {});
    for (const int threads : {1, 2, 8}) {
      run.threads = threads;
      SolveReport report;
      solver.run(run, {}, report);
      wanted.emplace_back();
      for (const StageReport& s : report.stages) wanted.back().push_back(s.plan);
    }
    for (const Strategy strategy :
         {Strategy::Segmented, Strategy::Shooting, Strategy::Newton, Strategy::Scan, Strategy::Relaxation})
      if (const auto options = planned(solver, cell, strategy, run, 100, 30)) wanted.push_back(options->plan);
    for (const std::vector<StagePlan>& plan : wanted) {
      SCOPED_TRACE(testing::Message() << to_string(plan[0].strategy) << ", segments of " << plan[0].segment
                                      << ", length " << length);
      SolveOptions options;
      options.plan = plan;
      std::optional<RunOutput> first;
      SolveReport said;
      for (const int threads : {1, 2, 3, 8}) {
        run.threads = threads;
        SolveReport report;
        RunOutput output = solver.run(run, options, report);
        if (!first) {
          first = std::move(output);
          said = report;
          continue;
        }
        EXPECT_TRUE(same_bits(first->states, output.states)) << threads << " threads";
        EXPECT_TRUE(same_bits(first->outs, output.outs)) << threads << " threads";
        EXPECT_TRUE(same_bits(first->finals, output.finals)) << threads << " threads";
        EXPECT_EQ(report.max_residual, said.max_residual);
        EXPECT_EQ(report.error_estimate, said.error_estimate);
        EXPECT_EQ(report.repaired, said.repaired);
      }
      ++plans;
    }
  }
  EXPECT_GE(plans, 6);
}

INSTANTIATE_TEST_SUITE_P(Cells, Threads,
                         testing::Values("01_para_gru", "02_para_lstm", "04_lstm", "09_gilr_lstm", "16_slstm_diag",
                                         "17_mlstm", "43_peak_hold"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cellc
