// Recurrences on random data of every nature, by solvers and plans of any kind: every row is held against a step in f64
// from the row before it. A failure prints how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_engines --gtest_filter='RandomData.*'
//
// CELLC_CELLS=10000 tries that many, from CELLC_SEED on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "runtime/cpu/solve.h"
#include "tests/engines/known_recurrences.h"
#include "tests/generate/try_cells.h"

namespace cellc {
namespace {

/// One recurrence, one shape, five calls of random data. What went wrong, or empty.
std::string failure(std::uint64_t seed, std::map<Strategy, int>& runs) {
  oracle::Random random(seed ^ 0x7a7a);
  const auto& all = known_recurrences();
  const KnownRecurrence& recurrence = all[static_cast<std::size_t>(random.below(static_cast<int>(all.size())))];
  const Dtype dtype = random.chance(0.7) ? Dtype::F32 : Dtype::F64;
  const KnownShape shape = random_shape(random, 400000);
  const int threads = 1 + random.below(4);

  KnownRun known(recurrence, dtype, shape);
  Solver solver(known.cell().cell, known.cell().structure, {.dtype = dtype});
  const double asked = dtype == Dtype::F64 ? 1e-12 : 1e-6;
  // A step in f64 sees what the step code rounds as well.
  const double tolerance = dtype == Dtype::F64 ? 1.1e-12 : 1e-6 + 5e-7;
  std::string nature = known.draw(random);
  for (int call = 0; call < 5; ++call) {
    if (call > 0 && random.chance(0.4)) nature = known.draw(random);
    SolveOptions options = random_options(random, recurrence);
    options.tolerance = asked;
    BoundRun run = known.run();
    run.threads = threads;
    SolveReport report;
    const RunOutput output = solver.run(run, options, report);
    ++runs[report.stages.empty() ? options.solver : report.stages[0].plan.strategy];
    std::string wrong = known.wrong(output, tolerance);
    if (wrong.empty() && !report.converged) wrong = "reported as not converged";
    if (wrong.empty() && !(report.max_residual <= asked))
      wrong = fmt::format("reported a residual of {:.2e}", report.max_residual);
    if (!wrong.empty())
      return fmt::format("{}, {}, {} ({}), {} threads, call {}, {}: {}", recurrence.name, to_string(dtype),
                         shape.text(), nature, threads, call, text(options), wrong);
  }
  return {};
}

TEST(RandomData, EveryRowFollowsFromTheOneBefore) {
  const generate::Seeds seeds(10);
  std::map<Strategy, int> runs;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const std::string why = failure(seed, runs);
    if (!why.empty())
      ADD_FAILURE() << why << "\n  CELLC_SEED=" << seed << " CELLC_CELLS=1 test_engines --gtest_filter='RandomData.*'";
  }
  for (const auto& [strategy, count] : runs) fmt::print("{}: {} calls\n", to_string(strategy), count);
  if (seeds.count_given || seeds.first_given) return;
  for (const Strategy strategy : {Strategy::Segmented, Strategy::Shooting, Strategy::Scan})
    EXPECT_GE(runs[strategy], 1);
}

void held(const double* h, const double* x, const double* p, double* to) {
  to[0] = std::tanh(h[0]) / (1 + std::exp(-p[0])) + x[0];
}

// Channels that fill no whole vector are gathered, the others run where they lie, and one thread does both by turns:
// what is computed of params once for either must be there when its turn comes again.
TEST(RandomData, ValuesOfParamsHoldInTilesOfEitherKind) {
  const KnownRecurrence recurrence = {"held", R"(cell held[d] {
  state h0[d]
  input x0[d]
  param p0[d]
  h0' = sigmoid(p0)*tanh(h0) + x0
}
)", 1, 1, 1, held, false};
  for (const Dtype dtype : {Dtype::F32, Dtype::F64})
    for (const std::int64_t channels : {79, 100, 150}) {
      KnownRun known(recurrence, dtype, {channels, {4000, 1000}});
      Solver solver(known.cell().cell, known.cell().structure, {.dtype = dtype});
      oracle::Random random(static_cast<std::uint64_t>(channels));
      known.draw(random);
      BoundRun run = known.run();
      for (const Strategy strategy : {Strategy::Segmented, Strategy::Shooting})
        for (const int threads : {1, 3}) {
          run.threads = threads;
          SolveOptions options;
          options.plan = {{strategy, 100, strategy == Strategy::Segmented ? 40 : 0, "test"}};
          SolveReport report;
          EXPECT_EQ(known.wrong(solver.run(run, options, report), dtype == Dtype::F64 ? 1.1e-12 : 1.5e-6), "")
              << to_string(dtype) << ", " << channels << " channels, " << to_string(strategy) << ", " << threads
              << " threads";
          EXPECT_TRUE(report.converged);
        }
    }
}

}  // namespace
}  // namespace cellc
