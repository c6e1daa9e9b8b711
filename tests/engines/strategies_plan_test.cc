// Plans and cells at the edge: stages that read in vain, plans that say more than a strategy needs.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engines/recheck.h"
#include "tests/engines/strategies.h"

namespace cellc {
namespace {

struct Prepared {
  explicit Prepared(const std::string& text)
      : source("test.cell", text),
        tree(oracle::parse_or_throw(source)),
        cell(source, tree, tree.cells[0]),
        solver(cell.graph, cell.structure, {.dtype = Dtype::F64}),
        recheck(cell.graph, cell.structure, Dtype::F64),
        random(98),
        trial(cell.graph, cell.oracle, {}, random,
              {.dtype = Dtype::F64,
               .sizes = oracle::axis_lengths(cell.oracle, {3, 2}),
               .steps = 130,
               .starts_given = true,
               .f64_tolerance = 1e-11}),
        run(trial.bound(lengths, true, 1).run) {}

  /// Runs and returns what is wrong.
  std::string once(const SolveOptions& options, SolveReport& report) {
    const RunOutput output = solver.run(run, options, report);
    if (!report.converged) return "not converged";
    return trial.verify(run, output, lengths);
  }

  const std::vector<std::int64_t> lengths{130, 0, 65};
  SourceText source;
  File tree;
  LoweredCell cell;
  Solver solver;
  Recheck recheck;
  oracle::Random random;
  Trial trial;
  BoundRun run;
};

// a reads b in what is proved zero: the stages' order, and what is one stage, follow what is written.
class ReadsInVain : public testing::TestWithParam<const char*> {};

TEST_P(ReadsInVain, ByEveryStrategy) {
  Prepared p(GetParam());
  int runs = 0;
  for (const Strategy strategy : kStrategies) {
    SolveOptions options;
    options.solver = strategy;
    options.tolerance = 1e-13;
    SolveReport report;
    if (strategy == Strategy::Scan && !forced(p.solver, p.cell, strategy, p.run, false)) continue;
    EXPECT_EQ(p.once(options, report), "") << to_string(strategy);
    std::optional<SolveOptions> finely = planned(p.solver, p.cell, strategy, p.run, 7, 3);
    if (strategy == Strategy::Auto || !finely) continue;
    finely->tolerance = 1e-13;
    EXPECT_EQ(p.once(*finely, report), "") << to_string(strategy) << ", segments of 7";
    ++runs;
  }
  EXPECT_GE(runs, 4);
}

INSTANTIATE_TEST_SUITE_P(
    Cells, ReadsInVain,
    testing::Values(
        "cell one {\n  state a, b\n  input x\n  a' = 0.5*a + x + 0*b\n  b' = 0.5*b + a\n}\n",
        "cell two[d] {\n  state a[d], b[d]\n  input x[d]\n  a' = tanh(a + x*(b - b))\n  b' = 0.5*b + a'\n}\n",
        "cell three[d] {\n  state a[d], b[d]\n  input x[d]\n  a' = tanh(a + x + sum[d](0*b))\n  b' = 0.5*b + a'\n}\n",
        "cell four[d] {\n  state a[d], b[d]\n  input x[d]\n  a' = tanh(a + x + 0*b)\n  b' = 0.5*b + x\n}\n",
        "cell five[d, k=3] {\n  state a[k], b[k]\n  param R[d,k,k]\n  a' = b - b\n  b' = mean[d](R@a)\n}\n",
        "cell six {\n  state h\n  input x\n  h' = where(abs(h), x + 1, 1 + x)\n}\n",
        "cell seven[d] {\n  state h[d]\n  input x[d]\n  h' = where(h > 0, x, x)\n}\n"));

// What a sequential stage runs is one piece, whatever a plan says of segments.
TEST(Plans, SequentialStagesHaveNoSegments) {
  Prepared p("cell two[d] {\n  state a[d], b[d]\n  input x[d]\n  a' = tanh(0.9*a + x)\n  b' = tanh(0.9*b + a')\n}\n");
  ASSERT_EQ(p.cell.stages(), 2);
  for (const int sequential : {0, 1}) {
    SolveOptions options;
    options.tolerance = 1e-13;
    options.plan = {{Strategy::Segmented, 16, 8, "test"}, {Strategy::Segmented, 16, 8, "test"}};
    options.plan[sequential].strategy = Strategy::Sequential;
    SolveReport report;
    EXPECT_EQ(p.once(options, report), "") << "stage " << sequential;
  }
}

// b turns what a leaves within the tolerance into five hundred times as much: each stage is right by
// what it read, the step is not.
TEST(Plans, TheWholeStepIsWhatConverges) {
  Prepared p("cell gain[d] {\n  state a[d], b[d]\n  input x[d]\n  a' = 0.5*a + x\n  b' = 0.5*b + sin(1000*a')\n}\n");
  SolveOptions options;
  options.tolerance = 1e-6;
  options.plan = {{Strategy::Segmented, 16, 18, "test"}, {Strategy::Segmented, 16, 40, "test"}};
  options.repair = false;
  SolveReport report;
  p.solver.run(p.run, options, report);
  EXPECT_FALSE(report.converged);
  EXPECT_GT(report.max_residual, 1e-6);
  EXPECT_GE(report.error_estimate, report.max_residual);
  ASSERT_FALSE(report.unconverged.empty());
  EXPECT_EQ(report.unconverged[0].first_bad_step % 16, 0);

  options.repair = true;
  const RunOutput repaired = p.solver.run(p.run, options, report);
  EXPECT_TRUE(report.converged);
  EXPECT_EQ(p.trial.verify(p.run, repaired, p.lengths), "");
}

// In one sequence a itself is off. In the other only the step is, which has to be told all the same.
TEST(Plans, OneSequenceThatIsOffHidesNoOther) {
  Prepared p(
      "cell gain[d] {\n  state a[d], b[d]\n  input x[d], k[d]\n  a' = k*a + x\n  b' = 0.5*b + sin(1000*a')\n}\n");
  Array& k = p.run.symbols[3];
  const std::int64_t first = p.lengths[0] * (k.count() / p.run.offsets.back());
  for (std::int64_t i = 0; i < k.count(); ++i) k.set(i, i < first ? 0.99 : 0.5);
  SolveOptions options;
  options.tolerance = 1e-6;
  options.plan = {{Strategy::Segmented, 16, 22, "test"}, {Strategy::Segmented, 16, 40, "test"}};
  options.repair = false;
  SolveReport report;
  p.solver.run(p.run, options, report);
  ASSERT_EQ(report.unconverged.size(), 2u);
  EXPECT_EQ(report.unconverged[0].sequence, 0);
  EXPECT_EQ(report.unconverged[1].sequence, 2);
}

/// `run` by the plan and by the sequential kernel: how far they are apart.
struct Compared {
  SolveReport report;
  double apart = 0;
};
Compared compared(const std::string& text, StagePlan plan, const std::vector<std::int64_t>& offsets,
                  std::int64_t channels) {
  const SourceText source("test.cell", text);
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F64});
  BoundRun run;
  run.sizes[cell.graph.header[0]] = channels;
  run.offsets = offsets;
  oracle::Random random(5);
  for (const Symbol& symbol : cell.graph.symbols) {
    Array array(
        Dtype::F64,
        {symbol.kind == SymbolKind::Input ? offsets.back() : static_cast<std::int64_t>(offsets.size()) - 1, channels});
    for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, random.uniform(0.1, 0.9));
    run.symbols.push_back(array);
  }
  Compared result;
  SolveOptions options;
  options.solver = Strategy::Sequential;
  const RunOutput expected = solver.run(run, options, result.report);
  options = {};
  options.plan = {plan};
  const RunOutput found = solver.run(run, options, result.report);
  for (std::int64_t i = 0; i < found.states[0].count(); ++i)
    result.apart = std::max(result.apart, std::fabs(found.states[0].get(i) - expected.states[0].get(i)));
  return result;
}

// A run-up that is far too short for what the cell remembers: nearly every boundary misses, and what is
// repaired does not come back to what was there.
TEST(ChangingOver, WhereManyBoundariesMiss) {
  const Compared c =
      compared("cell slow[d] {\n  state h[d]\n  input x[d]\n  h' = 0.9998*h + 0.001*tanh(h) + 0.1*x\n}\n",
               {Strategy::Segmented, 64, 2, "test"}, {0, 20000, 20000, 35000}, 2);
  const StageReport& s = c.report.stages[0];
  EXPECT_TRUE(c.report.converged);
  ASSERT_TRUE(s.changed_over);
  EXPECT_EQ(*s.changed_over, 1);
  EXPECT_EQ(s.boundaries, 2 * (312 + 234));
  EXPECT_EQ(s.misses, s.boundaries);
  EXPECT_GE(s.iterations, 2);
  EXPECT_LT(s.repair_rounds, 20);  // not one for each of 312 segments
  ASSERT_TRUE(s.predicted_iterations);
  EXPECT_NEAR(*s.predicted_iterations, s.iterations, 3);
  EXPECT_NE(s.plan.reason.find("shooting after 1 round"), std::string::npos) << s.plan.reason;
  EXPECT_LT(c.apart, 1e-6);  // residuals of 1e-12, summed over a memory of 5,000 steps
}

TEST(ChangingOver, NotWhereRepairMerges) {
  const Compared c = compared("cell quick[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(0.5*h + x)\n}\n",
                              {Strategy::Segmented, 64, 2, "test"}, {0, 20000}, 2);
  const StageReport& s = c.report.stages[0];
  EXPECT_TRUE(c.report.converged);
  EXPECT_FALSE(s.changed_over);
  EXPECT_EQ(s.misses, s.boundaries);
  EXPECT_EQ(s.iterations, 0);
  EXPECT_LE(s.repair_rounds, 2);
  EXPECT_LT(c.apart, 1e-10);
}

// Chaos: shooting is tried, told off by its transitions after one sweep, and repair ends where it must.
TEST(ChangingOver, EndsRightWhereDifferencesGrow) {
  const Compared c = compared("cell logistic[d] {\n  state h[d]\n  input x[d]\n  h' = (3.8 + 0.01*x)*h*(1 - h)\n}\n",
                              {Strategy::Segmented, 64, 2, "test"}, {0, 12800}, 1);
  const StageReport& s = c.report.stages[0];
  EXPECT_TRUE(c.report.converged);
  ASSERT_TRUE(s.changed_over);
  EXPECT_EQ(s.iterations, 1);
  EXPECT_GT(s.lyapunov.value_or(0), 0);
  EXPECT_EQ(c.apart, 0);
}

// A plan that a stage does not admit is an error, never another strategy.
TEST(Plans, AreRefusedWhereAStageDoesNotAdmitThem) {
  Prepared p("cell plain[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(h + x)\n}\n");
  SolveReport report;
  for (const Strategy strategy : {Strategy::Relaxation, Strategy::Scan}) {
    SolveOptions options;
    options.plan = {{strategy, 16, 0, "test"}};
    EXPECT_THROW(p.solver.run(p.run, options, report), SolverError) << to_string(strategy);
  }
  SolveOptions options;
  options.plan = {{Strategy::Segmented, 16, 0, "test"}, {Strategy::Segmented, 16, 0, "test"}};
  EXPECT_THROW(p.solver.run(p.run, options, report), SolverError);
}

// One channel: lanes are gathered in whole blocks, forwards and backwards, and what is left over singly. The
// transitions of a contraction come down to nothing within a segment.
TEST(Plans, LongScansOfOneChannel) {
  const SourceText source("test.cell", "cell one[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = a*h + x\n}\n");
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    Solver solver(cell.graph, cell.structure, {.dtype = dtype});
    for (const bool reverse : {false, true})
      for (const int threads : {1, 2}) {
        SCOPED_TRACE(testing::Message() << to_string(dtype) << (reverse ? ", reverse" : "") << ", threads " << threads);
        BoundRun run;
        run.sizes[cell.graph.header[0]] = 1;
        run.offsets = {0, 70003, 70003, 70500, 110000};
        run.reverse = reverse;
        run.threads = threads;
        oracle::Random random(5);
        for (const Symbol& symbol : cell.graph.symbols) {
          Array array(dtype, {symbol.kind == SymbolKind::Input ? run.offsets.back() : 4, 1});
          for (std::int64_t i = 0; i < array.count(); ++i)
            array.set(i, symbol.name == "a" ? random.uniform(0.3, 0.99) : random.uniform(-1, 1));
          run.symbols.push_back(array);
        }
        SolveOptions options;
        options.solver = Strategy::Sequential;
        SolveReport report;
        const RunOutput expected = solver.run(run, options, report);
        options.solver = Strategy::Scan;
        const RunOutput found = solver.run(run, options, report);
        EXPECT_TRUE(report.converged);
        EXPECT_EQ(report.stages[0].plan.strategy, Strategy::Scan);
        const double tolerance = dtype == Dtype::F64 ? 1e-13 : 1e-5;
        for (std::int64_t t = 0; t < run.offsets.back(); ++t)
          ASSERT_NEAR(found.states[0].get(t), expected.states[0].get(t), tolerance) << "row " << t;
        for (std::int64_t s = 0; s < 4; ++s)
          ASSERT_NEAR(found.finals[0].get(s), expected.finals[0].get(s), tolerance) << "sequence " << s;
      }
  }
}

}  // namespace
}  // namespace cellc
