// What one stage would gain by leaving the fused kernel against what the others would lose.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/strategy/choose_strategy.h"
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
    EXPECT_FALSE(keeps_fused({{Strategy::Scan, 256, 0, ""}, {other, 64, 0, ""}}, {shape_of(1, 512), shape_of(16, 512)}))
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
  const SolveReport report = chosen("17_mlstm", 8192, 64, 2);
  ASSERT_EQ(report.stages.size(), 3u);
  for (const StageReport& s : report.stages) EXPECT_EQ(s.plan.strategy, Strategy::Sequential) << s.plan.reason;
  EXPECT_NE(report.stages[0].plan.reason.find("fused kernel"), std::string::npos) << report.stages[0].plan.reason;
}

TEST(Fused, StagesThatAllGainAreCut) {
  const SolveReport report = chosen("09_gilr_lstm", 16384, 2, 2);
  for (const StageReport& s : report.stages) EXPECT_EQ(s.plan.strategy, Strategy::Scan) << s.plan.reason;
}

// Step by step, what mixes lies side by side in vectors; lane by lane it does not, and the transitions of 64
// coupled entries alone took a hundred times as long as the run.
TEST(Fused, WhatMixesIsNotCut) {
  for (const char* name : {"05_elman", "18_delta_net", "23_rwkv7", "33_m2rnn", "x12_slstm_heads", "x14_s5"}) {
    const SolveReport report = chosen(name, 8192, 16, 2);
    EXPECT_EQ(report.stages[0].plan.strategy, Strategy::Sequential) << name << ": " << report.stages[0].plan.reason;
    EXPECT_NE(report.stages[0].plan.reason.find("mix"), std::string::npos)
        << name << ": " << report.stages[0].plan.reason;
  }
}

TEST(Fused, FewRowsAreNotCut) {
  const SolveReport report = chosen("01_para_gru", 4096, 2, 2);
  EXPECT_EQ(report.stages[0].plan.strategy, Strategy::Sequential) << report.stages[0].plan.reason;
}

// What the data decide to run step by step is run by the fused kernel, as `sequential` and a pinned plan are:
// equal plans, equal bits.
TEST(Fused, DataAgainstCuttingGiveTheBitsOfSequential) {
  const char* const kOscillator =
      "  state p[d] = 0.5, v[d]\n  input f[d]\n  v' = v + 0.02*(0.01*f - p - p^3)\n  p' = p + 0.02*v'\n";
  for (const bool more : {false, true}) {
    const SourceText source("test.cell", fmt::format("cell c[d] {{\n{}{}  out y = p'*v\n}}\n", kOscillator,
                                                     more ? "  state g[d]\n  g' = tanh(0.9999*g + p')\n" : ""));
    const File tree = oracle::parse_or_throw(source);
    const LoweredCell cell(source, tree, tree.cells[0]);
    ASSERT_EQ(cell.stages(), more ? 2 : 1);
    Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F32});
    BoundRun run = filled_run(cell, 20000, 16, Dtype::F32);
    run.threads = 2;
    SolveReport report;
    const RunOutput chosen = solver.run(run, {}, report);
    for (const StageReport& s : report.stages) ASSERT_EQ(s.plan.strategy, Strategy::Sequential) << s.plan.reason;
    EXPECT_NE(report.stages[0].plan.reason.find("remember"), std::string::npos) << report.stages[0].plan.reason;
    SolveOptions options;
    options.solver = Strategy::Sequential;
    const RunOutput sequential = solver.run(run, options, report);
    const auto same = [](const Array& a, const Array& b) {
      return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.count()) * size_of(a.dtype())) == 0;
    };
    for (std::size_t u = 0; u < chosen.states.size(); ++u) {
      EXPECT_TRUE(same(chosen.states[u], sequential.states[u])) << "state " << u;
      EXPECT_TRUE(same(chosen.finals[u], sequential.finals[u])) << "final " << u;
    }
    EXPECT_TRUE(same(chosen.outs[0], sequential.outs[0]));
  }
}

}  // namespace
}  // namespace cellc
