// What a run says of its error: not less than it is, and not out of all proportion.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engines/strategies.h"

namespace cellc {
namespace {

struct Remembering {
  const char* name;
  const char* text;
  double low, high;  ///< of a
  double tolerance;  ///< of segments that start too late to be exact
  std::int64_t segment, early;
};

constexpr const char* kLinear = "cell leaky[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = a*h + x\n}\n";
constexpr const char* kGated =
    "cell gated[d] {\n  state h[d]\n  input a[d], x[d]\n  z = sigmoid(a + 0.5*h)\n  h' = (1 - z)*h + "
    "z*tanh(x + h)\n}\n";

class ErrorEstimate : public testing::TestWithParam<Remembering> {
 protected:
  static constexpr std::int64_t kSteps = 30000, kChannels = 3;

  /// The estimate of a run, and how far it is from the sequential kernel's.
  struct Found {
    double estimate, error, residual;
  };
  Found run(const StagePlan& plan, double tolerance, std::optional<int> iterations = {}) {
    const SourceText source("test.cell", GetParam().text);
    const File tree = oracle::parse_or_throw(source);
    const LoweredCell cell(source, tree, tree.cells[0]);
    Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F64});
    BoundRun run;
    run.sizes[cell.graph.header[0]] = kChannels;
    run.offsets = {0, kSteps};
    oracle::Random random(5);
    for (const Symbol& symbol : cell.graph.symbols) {
      Array array(Dtype::F64, {symbol.kind == SymbolKind::Input ? kSteps : 1, kChannels});
      for (std::int64_t i = 0; i < array.count(); ++i)
        array.set(i, symbol.name == "a" ? random.uniform(GetParam().low, GetParam().high) : random.uniform(-1, 1));
      run.symbols.push_back(array);
    }
    SolveOptions options;
    options.tolerance = tolerance;
    options.plan = {plan};
    options.repair = !iterations;
    options.fixed_iterations = iterations;
    SolveReport report, ignored;
    const RunOutput found = solver.run(run, options, report);
    options = {};
    options.solver = Strategy::Sequential;
    const RunOutput expected = solver.run(run, options, ignored);
    double error = 0, size[kChannels] = {};
    for (std::int64_t i = 0; i < kSteps * kChannels; ++i)
      size[i % kChannels] = std::max(size[i % kChannels], std::fabs(expected.states[0].get(i)));
    for (std::int64_t i = 0; i < kSteps * kChannels; ++i)
      error = std::max(error, std::fabs(found.states[0].get(i) - expected.states[0].get(i)) /
                                  (size[i % kChannels] + std::fabs(expected.states[0].get(i))));
    return {report.error_estimate, error, report.max_residual};
  }
};

// Residuals far above rounding, so that the error is theirs.
TEST_P(ErrorEstimate, CoversWhatTheResidualsCause) {
  int left = 0;
  for (const StagePlan& plan : {StagePlan{Strategy::Segmented, GetParam().segment, GetParam().early, "test"},
                                {Strategy::Segmented, 2 * GetParam().segment, GetParam().early, "test"},
                                {Strategy::Shooting, 300, 0, "test"}}) {
    SCOPED_TRACE(testing::Message() << to_string(plan.strategy) << ", segments of " << plan.segment);
    const Found found = run(plan, GetParam().tolerance);
    if (found.residual < 1e-9) continue;
    ++left;
    EXPECT_GE(found.estimate, found.error);
    EXPECT_LE(found.estimate, 300 * found.error + 1e-3);
  }
  EXPECT_GE(left, 1);
}

// At the level of rounding, in a cell that forgets nothing within a segment: some hundred segments of growth
// one make a hundred residuals, not 2 to the power of a hundred.
TEST_P(ErrorEstimate, StaysSmallWhereOnlyRoundingIsLeft) {
  for (const StagePlan& plan : {StagePlan{Strategy::Shooting, 100, 0, "test"},
                                {Strategy::Newton, 100, 0, "test"},
                                {Strategy::Newton, 1000, 0, "test"},
                                {Strategy::Segmented, 100, 50, "test"}}) {
    SCOPED_TRACE(testing::Message() << to_string(plan.strategy) << ", segments of " << plan.segment);
    const Found found = run(plan, 1e-13);
    EXPECT_LE(found.residual, 1e-13);
    EXPECT_GE(found.estimate, found.residual);
    EXPECT_GE(found.estimate, found.error / 10);
    EXPECT_LE(found.estimate, 1e-8);
  }
}

// One that amplifies is told so.
TEST(ErrorEstimateOfChaos, IsLarge) {
  const SourceText source("test.cell",
                          "cell logistic[d] {\n  state h[d] = 0.3\n  input x[d]\n  h' = 3.9*h*(1 - h) + 1e-9*x\n}\n");
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F64});
  BoundRun run;
  run.sizes[cell.graph.header[0]] = 1;
  run.offsets = {0, 2000};
  for (const Symbol& symbol : cell.graph.symbols) {
    Array array(Dtype::F64, {symbol.kind == SymbolKind::Input ? 2000 : 1, 1});
    for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, symbol.kind == SymbolKind::State ? 0.3 : 0.5);
    run.symbols.push_back(array);
  }
  SolveOptions options;
  options.plan = {{Strategy::Segmented, 100, 10, "test"}};
  options.repair = false;
  SolveReport report;
  solver.run(run, options, report);
  EXPECT_GT(report.error_estimate, 1);
}

INSTANTIATE_TEST_SUITE_P(Cells, ErrorEstimate,
                         testing::Values(Remembering{"linear", kLinear, 0.999, 1, 2, 2000, 1500},
                                         Remembering{"leaky", kLinear, 0.97, 0.99, 1e-4, 500, 400},
                                         Remembering{"gated", kGated, -7, -6, 0.1, 7000, 6000}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cellc
