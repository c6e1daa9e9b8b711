// Plans that cut far too finely, and iterations that stop far too early: repair must still end right,
// and without repair the report must say what a look from outside finds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/front_end.h"
#include "tests/engines/recheck.h"
#include "tests/engines/strategies.h"

namespace cellc {
namespace {

/// The report against the steps made anew; empty where both agree. `rounding`: of one step. What is said of a residual
/// that is small enough may be over fewer rows than there are: over 2|s| at the least.
std::string disagreement(const SolveReport& report, const Recheck::Found& found, double tolerance, double rounding) {
  // A residual may be over any of the lane's rows, or over its own alone. Rows that a repair moves, by some tolerances,
  // have been another's size before.
  const double moved = report.repaired > 0 ? 100 * tolerance : 1e-9, least = (1 - moved) * found.promised - rounding,
               most = std::max(found.most * (1 + 1e-9), report.repaired > 0 && report.converged ? tolerance : 0) +
                      rounding;
  if (!(least <= report.max_residual && report.max_residual <= most))
    return fmt::format("max_residual {:.17g}, the steps made anew say {:.17g} to {:.17g}", report.max_residual, least,
                       most);
  if (report.converged != report.unconverged.empty()) return "converged, and a list of what is not";
  const auto of = [](const std::vector<Unconverged>& all, std::int64_t sequence) {
    const auto it = std::find_if(all.begin(), all.end(), [&](const Unconverged& u) { return u.sequence == sequence; });
    return it == all.end() ? nullptr : &*it;
  };
  for (const Unconverged& u : found.broken)
    if (!of(report.unconverged, u.sequence)) return fmt::format("sequence {} is missing", u.sequence);
  for (const Unconverged& said : report.unconverged) {
    const Unconverged *first = of(found.beyond, said.sequence), *last = of(found.broken, said.sequence);
    if (!first) return fmt::format("sequence {} has no bad step", said.sequence);
    if (said.first_bad_step < first->first_bad_step || (last && said.first_bad_step > last->first_bad_step))
      return fmt::format("sequence {}: first bad step {}, truly {} at least", said.sequence, said.first_bad_step,
                         first->first_bad_step);
    if (last && !(said.residual >= (1 - moved) * last->residual - rounding))
      return fmt::format("sequence {}: residual {:.17g}, truly {:.17g}", said.sequence, said.residual, last->residual);
  }
  return {};
}

class TinySegments : public testing::TestWithParam<std::string> {
 protected:
  /// Every cell of the file: `body(cell, solver, recheck, trial, binding, lengths)`.
  template <typename Body>
  void for_each(Body&& body) {
    const oracle::Example& file = oracle::example_named(GetParam());
    for (const Cell& tree : file.tree.cells) {
      SCOPED_TRACE(tree.name);
      const LoweredCell cell(file.source, file.tree, tree);
      Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F64});
      const Recheck recheck(cell.graph, cell.structure, Dtype::F64);
      oracle::Random random(93);
      Trial::Options options{
          .dtype = Dtype::F64, .sizes = oracle::axis_lengths(cell.oracle, {3, 2, 3, 2}), .steps = 150};
      options.starts_given = true;
      options.step_by_step = file.amplifies.count(tree.name) > 0;
      options.f64_tolerance = 1e-11;
      const Trial trial(cell.graph, cell.oracle, file.ranges, random, options);
      const std::vector<std::int64_t> lengths{150, 0, 67};
      body(cell, solver, recheck, trial, trial.bound(lengths, true, 1).run, lengths);
    }
  }

  /// Returns the number of runs.
  static int end_right(const LoweredCell& cell, Solver& solver, const Recheck& recheck, const Trial& trial,
                       const BoundRun& run, const std::vector<std::int64_t>& lengths) {
    int runs = 0;
    for (const Strategy strategy : {Strategy::Segmented, Strategy::Shooting, Strategy::Newton, Strategy::Scan})
      for (const std::int64_t segment : {1, 2, 7})
        for (const std::int64_t burn_in : {0, 1, 64}) {
          // Newton and the scan start no segment early.
          if (burn_in && (strategy == Strategy::Newton || strategy == Strategy::Scan)) continue;
          std::optional<SolveOptions> options = planned(solver, cell, strategy, run, segment, burn_in);
          if (!options) continue;
          options->tolerance = 1e-13;
          options->max_iterations = 3;
          SolveReport report;
          const RunOutput output = solver.run(run, *options, report);
          ++runs;
          EXPECT_TRUE(report.converged) << to_string(strategy) << ", segment " << segment << ", burn-in " << burn_in;
          const Recheck::Found found = recheck(run, output, 1e-11);
          EXPECT_EQ(found.wrong, "");
          EXPECT_TRUE(found.beyond.empty())
              << to_string(strategy) << ", segment " << segment << ", burn-in " << burn_in << ": " << found.largest;
          if (segment == 2 && burn_in > 0) continue;  // the oracle is slow
          EXPECT_EQ(trial.verify(run, output, lengths), "")
              << to_string(strategy) << ", segment " << segment << ", burn-in " << burn_in;
        }
    return runs;
  }

  /// Stages of one cell check themselves against what the stages before them wrote, so only a cell of
  /// one stage can be looked at through its whole step.
  static void report_what_is_left(const LoweredCell& cell, Solver& solver, const Recheck& recheck,
                                  const BoundRun& run) {
    for (const Strategy strategy : {Strategy::Segmented, Strategy::Shooting, Strategy::Newton, Strategy::Scan})
      for (const std::int64_t segment : {1, 7, 64})
        for (const std::int64_t burn_in : {0, 1, 20})
          for (const int iterations : {0, 1, 2})
            for (const bool repair : {false, true}) {
              if (burn_in && (strategy == Strategy::Newton || strategy == Strategy::Scan)) continue;
              if (iterations && (strategy == Strategy::Segmented || strategy == Strategy::Scan)) continue;
              std::optional<SolveOptions> options = planned(solver, cell, strategy, run, segment, burn_in);
              if (!options) continue;
              // Loose enough for rounding not to decide, and for something to be left after repair.
              options->tolerance = 1e-5;
              options->max_iterations = iterations;
              options->repair = repair;
              SolveReport report;
              const RunOutput output = solver.run(run, *options, report);
              const Recheck::Found found = recheck(run, output, *options->tolerance);
              EXPECT_EQ(found.wrong, "");
              EXPECT_EQ(disagreement(report, found, *options->tolerance, 1e-11), "")
                  << to_string(strategy) << ", segment " << segment << ", burn-in " << burn_in << ", iterations "
                  << iterations << (repair ? ", repaired" : "");
              EXPECT_TRUE(report.converged || !repair);
            }
  }
};

// Both on the same kernels, which take longest.
TEST_P(TinySegments, EndRightOrSayWhatIsLeft) {
  int runs = 0;
  for_each([&](const LoweredCell& cell, Solver& solver, const Recheck& recheck, const Trial& trial, const BoundRun& run,
               const std::vector<std::int64_t>& lengths) {
    runs += end_right(cell, solver, recheck, trial, run, lengths);
    if (cell.stages() == 1) report_what_is_left(cell, solver, recheck, run);
  });
  EXPECT_GE(runs, 9 + 9 + 3);
}

// Segments longer than a repair's first piece: trajectories merge inside them, and Newton's may go wrong
// again behind the place where they do.
TEST(LongSegments, AreRepairedToTheirLastBadStep) {
  int runs = 0;
  std::int64_t repaired = 0;
  for (const char* name : {"03_gru", "05_elman", "13_s6", "26_ind_rnn", "31_fast_grnn", "34_narx3", "40_logistic",
                           "x17_lif", "43_peak_hold"}) {
    const oracle::Example& file = oracle::example_named(name);
    for (const Cell& tree : file.tree.cells) {
      SCOPED_TRACE(tree.name);
      const LoweredCell cell(file.source, file.tree, tree);
      if (cell.stages() != 1) continue;
      Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F64});
      const Recheck recheck(cell.graph, cell.structure, Dtype::F64);
      oracle::Random random(97);
      // One step at a time, so that the oracle makes no trajectory that is not looked at.
      const Trial trial(cell.graph, cell.oracle, file.ranges, random,
                        {.dtype = Dtype::F64,
                         .sizes = oracle::axis_lengths(cell.oracle, {3, 2, 3, 2}),
                         .steps = 3000,
                         .sequences = 2,
                         .starts_given = true,
                         .step_by_step = true});
      const BoundRun run = trial.bound({3000, 1700}, true, 1).run;
      for (const Strategy strategy : {Strategy::Segmented, Strategy::Shooting, Strategy::Newton})
        for (const std::int64_t segment : {0, 600, 1500})
          for (const int iterations : {1, 2, 4})
            for (const double tolerance : {1e-3, 1e-7, 1e-12}) {
              if (strategy == Strategy::Segmented && iterations > 1) continue;
              std::optional<SolveOptions> options =
                  planned(solver, cell, strategy, run, segment, strategy == Strategy::Segmented ? 1 : 0);
              ASSERT_TRUE(options);
              options->tolerance = tolerance;
              options->max_iterations = iterations;
              SolveReport report;
              const RunOutput output = solver.run(run, *options, report);
              const Recheck::Found found = recheck(run, output, tolerance + 1e-13);
              EXPECT_EQ(found.wrong, "");
              EXPECT_EQ(disagreement(report, found, tolerance, 1e-11), "")
                  << to_string(strategy) << ", segment " << segment << ", iterations " << iterations << ", tolerance "
                  << tolerance;
              ++runs;
              repaired += report.repaired;
            }
    }
  }
  EXPECT_GE(runs, 300);
  EXPECT_GE(repaired, 1000);
}

// 1/h tells zeros apart: a segment that starts from the other one does not continue its left neighbour.
TEST(SignedZeros, AreNotOneAndTheSameStart) {
  const AnalysedCell cell = analyse_text(SourceText("zeros.cell", R"(cell zeros[d] {
  state h[d] = 0.3
  input x[d], y[d]
  h' = where(x > 0.5, y*h, where(x < -0.5, x, tanh(1/h)))
}
)"));
  constexpr std::int64_t kLength = 10, kSteps = 200, kChannels = 3;
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    BoundRun run;
    run.sizes[cell.cell.header[0]] = kChannels;
    run.offsets = {0, kSteps};
    Array start(dtype, {1, kChannels}), x(dtype, {kSteps, kChannels}), y(dtype, {kSteps, kChannels});
    for (std::int64_t i = 0; i < start.count(); ++i) start.set(i, 0.3);
    // Just before each segment −1 and then −0; a run-up of one step, from the start, has +0 there.
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const std::int64_t at = i / kChannels % kLength;
      x.set(i, at == kLength - 1 ? 1 : at == kLength - 2 ? -1 : 0);
    }
    run.symbols = {start, x, y};
    run.histories.resize(3);
    Solver solver(cell.cell, cell.structure, {.dtype = dtype});
    SolveReport report;
    SolveOptions step_by_step;
    step_by_step.solver = Strategy::Sequential;
    const RunOutput expected = solver.run(run, step_by_step, report);
    EXPECT_EQ(expected.states[0].get(kLength * kChannels), -1);
    for (const Strategy strategy : {Strategy::Segmented, Strategy::Shooting}) {
      SolveOptions options;
      options.plan = {{strategy, kLength, 1, "test"}};
      const RunOutput output = solver.run(run, options, report);
      EXPECT_TRUE(report.converged);
      for (std::int64_t i = 0; i < x.count(); ++i)
        ASSERT_EQ(output.states[0].get(i), expected.states[0].get(i))
            << to_string(strategy) << ", step " << i / kChannels;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, TinySegments, testing::ValuesIn(oracle::names_of(oracle::dsl_examples())),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cellc
