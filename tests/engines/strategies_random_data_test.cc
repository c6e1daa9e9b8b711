// Recurrences on random data of every nature, by solvers and plans of any kind: every row is held against a step in f64 from
// the row before it. A failure prints how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_engines --gtest_filter='RandomData.*'
//
// CELLC_CELLS=10000 tries that many, from CELLC_SEED on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/solve.h"
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
    if (wrong.empty() && !(report.max_residual <= asked)) wrong = fmt::format("reported a residual of {:.2e}", report.max_residual);
    if (!wrong.empty())
      return fmt::format("{}, {}, {} ({}), {} threads, call {}, {}: {}", recurrence.name, to_string(dtype), shape.text(), nature,
                         threads, call, text(options), wrong);
  }
  return {};
}

TEST(RandomData, EveryRowFollowsFromTheOneBefore) {
  const generate::Seeds seeds(10);
  std::map<Strategy, int> runs;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const std::string why = failure(seed, runs);
    if (!why.empty()) ADD_FAILURE() << why << "\n  CELLC_SEED=" << seed << " CELLC_CELLS=1 test_engines --gtest_filter='RandomData.*'";
  }
  for (const auto& [strategy, count] : runs) fmt::print("{}: {} calls\n", to_string(strategy), count);
  if (seeds.count_given || seeds.first_given) return;
  for (const Strategy strategy : {Strategy::Segmented, Strategy::Shooting, Strategy::Scan}) EXPECT_GE(runs[strategy], 1);
}

}  // namespace
}  // namespace cellc
