// Chaotic cells over many steps: no iteration gets there, repair does, and without repair the run says
// so. And tolerance 0, which asks for the sequential kernel's bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ostream>

#include "tests/engines/recheck.h"
#include "tests/engines/strategies.h"

namespace cellc {
namespace {

constexpr std::int64_t kSteps = 2000;

struct Chaos {
  std::string name;
  std::string cell;
  oracle::Ranges ranges;
  friend void PrintTo(const Chaos& c, std::ostream* out) { *out << c.cell; }
};

class Chaotic : public testing::TestWithParam<Chaos> {};

TEST_P(Chaotic, IsRepairedOrReported) {
  const oracle::Example& file = oracle::example_named(GetParam().name);
  for (const Cell& tree : file.tree.cells) {
    if (tree.name != GetParam().cell) continue;
    const LoweredCell cell(file.source, file.tree, tree);
    for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
      Solver solver(cell.graph, cell.structure, {.dtype = dtype});
      const Recheck recheck(cell.graph, cell.structure, dtype);
      oracle::Random random(94);
      oracle::Ranges ranges = file.ranges;
      for (const auto& [name, range] : GetParam().ranges) ranges[name] = range;
      const Trial::Options options{
          .dtype = dtype, .sizes = {}, .steps = kSteps, .sequences = 2, .starts_given = true, .step_by_step = true};
      const Trial trial(cell.graph, cell.oracle, ranges, random, options);
      const BoundRun run = trial.bound({kSteps, kSteps}, false, 1).run;
      const double tolerance = default_tolerance(dtype), rounding = dtype == Dtype::F64 ? 1e-14 : 1e-6;
      for (const Strategy strategy : {Strategy::Newton, Strategy::Shooting, Strategy::Segmented}) {
        SCOPED_TRACE(std::string(to_string(strategy)) + ", " + to_string(dtype));
        SolveOptions solve;
        solve.solver = strategy;
        solve.max_iterations = 10;
        SolveReport report;
        Recheck::Found found = recheck(run, solver.run(run, solve, report), tolerance + rounding);
        EXPECT_EQ(found.wrong, "");
        EXPECT_TRUE(report.converged);
        EXPECT_TRUE(found.beyond.empty()) << found.largest;
        EXPECT_GT(report.repaired, 0);
        // Far from rounding, so that the first bad step is the same to everybody.
        solve.tolerance = 1e3 * tolerance;
        solve.repair = false;
        found = recheck(run, solver.run(run, solve, report), *solve.tolerance);
        EXPECT_FALSE(report.converged);
        ASSERT_EQ(report.unconverged.size(), 2u);
        ASSERT_EQ(found.beyond.size(), 2u);
        ASSERT_EQ(found.broken.size(), 2u);
        for (int s = 0; s < 2; ++s) {
          EXPECT_GE(report.unconverged[s].first_bad_step, found.beyond[s].first_bad_step);
          EXPECT_LE(report.unconverged[s].first_bad_step, found.broken[s].first_bad_step);
        }
        EXPECT_GE(report.max_residual, found.promised * (1 - 1e-6) - rounding);
        EXPECT_LE(report.max_residual, found.most * (1 + 1e-6) + rounding);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Chaotic,
                         testing::Values(Chaos{"40_logistic", "logistic", {{"r", {4, 4}}}},
                                         Chaos{"35_lorenz", "lorenz_euler", {}}, Chaos{"35_lorenz", "lorenz_rk4", {}}),
                         [](const auto& info) { return info.param.cell; });

bool same_bits(const std::vector<Array>& a, const std::vector<Array>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].shape() != b[i].shape() || a[i].dtype() != b[i].dtype() ||
        std::memcmp(a[i].data(), b[i].data(), static_cast<std::size_t>(a[i].count()) * size_of(a[i].dtype())) != 0)
      return false;
  return true;
}

// Also what repair of every step gives is the step code's, bit for bit, where lanes and the whole cell
// round alike; that is not promised, so it is not asked here.
TEST(ToleranceZero, GivesTheSequentialBits) {
  int runs = 0;
  for (const char* name :
       {"03_gru", "13_s6", "18_delta_net", "35_lorenz", "40_logistic", "34_narx3", "e_mamba_mixer", "17_mlstm"}) {
    const oracle::Example& file = oracle::example_named(name);
    for (const Cell& tree : file.tree.cells) {
      const LoweredCell cell(file.source, file.tree, tree);
      for (const Dtype dtype : {Dtype::F64, Dtype::F32, Dtype::BF16}) {
        Solver solver(cell.graph, cell.structure, {.dtype = dtype});
        const Program program = Program::compile(cell.graph, cell.structure, {.dtype = dtype});
        oracle::Random random(95);
        const Trial trial(cell.graph, cell.oracle, file.ranges, random,
                          {.dtype = dtype,
                           .sizes = oracle::axis_lengths(cell.oracle, {5, 3, 2, 2}),
                           .steps = 130,
                           .starts_given = true,
                           .step_by_step = true});
        const BoundRun run = trial.bound({130, 17, 0}, true, 1).run;
        const RunOutput plain = program.run(run);
        for (const Strategy strategy : kStrategies) {
          std::optional<SolveOptions> solve = forced(solver, cell, strategy, run, true);
          if (!solve) continue;
          solve->tolerance = strategy == Strategy::Sequential ? std::nullopt : std::optional<double>(0.0);
          SolveReport report;
          const RunOutput output = solver.run(run, *solve, report);
          EXPECT_TRUE(same_bits(plain.states, output.states) && same_bits(plain.finals, output.finals) &&
                      same_bits(plain.outs, output.outs))
              << tree.name << " by " << to_string(strategy) << ", " << to_string(dtype);
          EXPECT_TRUE(report.converged);
          EXPECT_EQ(report.max_residual, 0);
          ++runs;
        }
      }
    }
  }
  EXPECT_GE(runs, 9 * 3 * 5);
}

}  // namespace
}  // namespace cellc
