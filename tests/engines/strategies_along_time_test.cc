// The scan along time (runtime/cpu/scan_along_time.h): one channel whose steps are neighbours in memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/cpu/scan_along_time.h"
#include "tests/engines/strategies.h"

namespace cellc {
namespace {

constexpr const char* kCell = R"(cell leaky[d] {
  state h[d]
  input a[d], x[d]
  param gain[d]
  h' = a*h + gain*x
}
)";

struct AlongTimeCase {
  Dtype dtype;
  double low, high;  ///< of a
};

class ScanAlongTime : public testing::TestWithParam<AlongTimeCase> {
 protected:
  void SetUp() override {
    if (!has_step_composer(GetParam().dtype)) GTEST_SKIP() << "this processor has no vectors for it";
  }

  BoundRun made_up(const std::vector<std::int64_t>& lengths) {
    BoundRun run;
    run.sizes[cell.graph.header[0]] = 1;
    run.offsets = {0};
    for (const std::int64_t n : lengths) run.offsets.push_back(run.offsets.back() + n);
    oracle::Random random(5);
    for (const Symbol& symbol : cell.graph.symbols) {
      const std::int64_t rows = symbol.kind == SymbolKind::Input   ? run.offsets.back()
                                : symbol.kind == SymbolKind::State ? run.offsets.size() - 1
                                                                   : 1;
      Array array(GetParam().dtype, {rows, 1});
      for (std::int64_t i = 0; i < rows; ++i)
        array.set(i, symbol.name == "a" ? random.uniform(GetParam().low, GetParam().high) : random.uniform(-1, 1));
      run.symbols.push_back(symbol.kind == SymbolKind::Param ? array.with_shape({1}) : array);
    }
    return run;
  }

  /// The largest |s_t − f(s_{t−1})| over 1 + |s_t|, from the written array.
  double residual(const BoundRun& run, const Array& h) {
    const auto at = [&](const char* name, std::int64_t i) { return run.symbols[cell.graph.find_symbol(name)].get(i); };
    double most = 0;
    for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s) {
      double before = at("h", static_cast<std::int64_t>(s)), size = 0;
      for (std::int64_t t = run.offsets[s]; t < run.offsets[s + 1]; ++t) size = std::max(size, std::fabs(h.get(t)));
      for (std::int64_t t = run.offsets[s]; t < run.offsets[s + 1]; ++t) {
        most = std::max(most, std::fabs(at("a", t) * before + at("gain", 0) * at("x", t) - h.get(t)) /
                                  (size + std::fabs(h.get(t))));
        before = h.get(t);
      }
    }
    return most;
  }

  SourceText source{"test.cell", kCell};
  File tree = oracle::parse_or_throw(source);
  LoweredCell cell{source, tree, tree.cells[0]};
};

TEST_P(ScanAlongTime, EveryStepIsRight) {
  const double tolerance = default_tolerance(GetParam().dtype);
  Solver solver(cell.graph, cell.structure, {.dtype = GetParam().dtype});
  for (const std::vector<std::int64_t>& lengths :
       {std::vector<std::int64_t>{40000}, {16384}, {16385}, {16383, 0, 1, 20011}, {513, 100, 2, 511}})
    for (const std::int64_t segment : {std::int64_t{16384}, std::int64_t{2000}}) {
      SCOPED_TRACE(testing::Message() << lengths[0] << " steps, segments of " << segment);
      const BoundRun run = made_up(lengths);
      SolveOptions options;
      options.plan = {{Strategy::Scan, segment, 0, "test"}};
      SolveReport report;
      const RunOutput output = solver.run(run, options, report);
      EXPECT_TRUE(report.converged);
      EXPECT_EQ(report.stages[0].plan.reason, "test") << "given up";
      // The solver steps in the storage's precision, this residual in double: half a tolerance of f32 lies between.
      EXPECT_LE(residual(run, output.states[0]), 1.5 * tolerance);
      EXPECT_LE(report.max_residual, tolerance);
      EXPECT_GT(report.max_residual, 0);
      EXPECT_GE(report.error_estimate, report.max_residual);
      for (std::size_t s = 0; s < lengths.size(); ++s)
        if (lengths[s]) {
          EXPECT_EQ(output.finals[0].get(static_cast<std::int64_t>(s)), output.states[0].get(run.offsets[s + 1] - 1));
        }
    }
}

TEST_P(ScanAlongTime, SameBitsByAnyNumberOfThreads) {
  Solver solver(cell.graph, cell.structure, {.dtype = GetParam().dtype});
  BoundRun run = made_up({50000, 7, 30000});
  SolveOptions options;
  options.plan = {{Strategy::Scan, 4096, 0, "test"}};
  SolveReport report;
  run.threads = 1;
  const RunOutput one = solver.run(run, options, report);
  const double estimate = report.error_estimate;
  for (const int threads : {2, 3, 8}) {
    run.threads = threads;
    const RunOutput many = solver.run(run, options, report);
    EXPECT_EQ(std::memcmp(one.states[0].data(), many.states[0].data(),
                          static_cast<std::size_t>(one.states[0].count()) * size_of(GetParam().dtype)),
              0)
        << threads;
    EXPECT_EQ(report.error_estimate, estimate);
  }
}

TEST_P(ScanAlongTime, IsWhatAutoTakes) {
  Solver solver(cell.graph, cell.structure, {.dtype = GetParam().dtype});
  BoundRun run = made_up({40000});
  for (const Strategy strategy : {Strategy::Auto, Strategy::Scan})
    for (const bool reverse : {false, true}) {
      SCOPED_TRACE(testing::Message() << to_string(strategy) << (reverse ? ", reversed" : ""));
      run.reverse = reverse;
      SolveOptions options;
      options.solver = strategy;
      SolveReport report;
      solver.run(run, options, report);
      EXPECT_EQ(report.stages[0].plan.strategy, Strategy::Scan);
      // From the last step to the first the steps are neighbours the wrong way round: by lanes.
      EXPECT_EQ(report.stages[0].plan.segment,
                reverse ? std::min<std::int64_t>(1008, report.stages[0].plan.segment) : 16384);
    }
}

// What is no number goes through the step code, and comes out as it does there.
TEST_P(ScanAlongTime, OddNumbersAreLeftToTheStepCode) {
  Solver solver(cell.graph, cell.structure, {.dtype = GetParam().dtype});
  for (const double odd : {std::nan(""), static_cast<double>(INFINITY)}) {
    BoundRun run = made_up({40000});
    run.symbols[cell.graph.find_symbol("x")].set(20000, odd);
    SolveOptions options;
    options.plan = {{Strategy::Scan, 16384, 0, "test"}};
    SolveReport report, ignored;
    const RunOutput found = solver.run(run, options, report);
    options = {};
    options.solver = Strategy::Sequential;
    const RunOutput expected = solver.run(run, options, ignored);
    EXPECT_TRUE(report.converged);
    EXPECT_NE(report.stages[0].plan.reason, "test");
    for (std::int64_t t = 0; t < 40000; ++t) {
      const double a = found.states[0].get(t), b = expected.states[0].get(t);
      if (std::isfinite(b))
        ASSERT_NEAR(a, b, 1e-3 * (1 + std::fabs(b))) << t;
      else
        ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << t << ": " << a << " for " << b;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, ScanAlongTime,
                         testing::Values(AlongTimeCase{Dtype::F32, 0.5, 1}, AlongTimeCase{Dtype::F32, -1, 1},
                                         AlongTimeCase{Dtype::F32, 0.999, 1}, AlongTimeCase{Dtype::F64, 0.5, 1},
                                         AlongTimeCase{Dtype::F64, 1, 1}),
                         [](const auto& info) {
                           return fmt::format("{}_{}", to_string(info.param.dtype), info.index);
                         });

}  // namespace
}  // namespace cellc
