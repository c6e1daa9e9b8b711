// Every example by every strategy that it admits, against the oracle and against its own steps: odd
// numbers of channels, lengths around segments, batches, packed sequences, reversed time, resumed runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/engines/recheck.h"
#include "tests/engines/strategies.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

constexpr std::int64_t kLengths[] = {0, 1, 2, 63, 64, 65, 257};
/// Lengths of axes, in the order of the header: 3, 1 and 5 channels where the first is a channel axis.
const std::vector<std::vector<std::int64_t>> kAxes = {{3, 2, 3, 2}, {1, 3, 2, 2}, {5, 1, 2, 3}};

struct Precision {
  Dtype dtype;
  double solver;   ///< tolerance asked for
  double recheck;  ///< residual of a step that is made anew
};
constexpr Precision kPrecisions[] = {{Dtype::F64, 1e-13, 1e-11}, {Dtype::F32, 1e-6, 1e-5}};

class StrategyMatrix : public testing::TestWithParam<std::string> {
 protected:
  /// Runs, and says what is wrong with what was written or reported.
  std::string once(Solver& solver, const Trial& trial, const Recheck& recheck, const std::vector<std::int64_t>& lengths,
                   bool packed, const SolveOptions& options, double within) {
    const Binding binding = trial.bound(lengths, packed, packed ? 2 : 1);
    SolveReport report;
    const RunOutput output = solver.run(binding.run, options, report);
    ++runs_;
    return judge(trial, recheck, binding.run, output, report, lengths, *options.tolerance, within);
  }

  static std::string judge(const Trial& trial, const Recheck& recheck, const BoundRun& run, const RunOutput& output,
                           const SolveReport& report, const std::vector<std::int64_t>& lengths, double tolerance,
                           double within) {
    if (!report.converged || !report.unconverged.empty()) return "reported as not converged";
    if (!(report.max_residual <= tolerance)) return fmt::format("a reported residual of {}", report.max_residual);
    const Recheck::Found found = recheck(run, output, within);
    if (!found.wrong.empty()) return found.wrong;
    if (!found.broken.empty())
      return fmt::format("sequence {}, step {} is {} away from the step before it", found.broken[0].sequence,
                         found.broken[0].first_bad_step, found.promised);
    return trial.verify(run, output, lengths);
  }

  /// 40 steps, the rest from where they ended, put together.
  std::string resumed(Solver& solver, const Trial& trial, const Recheck& recheck, const LoweredCell& cell,
                      const SolveOptions& options, double within) {
    const std::vector<std::int64_t> lengths{65, 30, 41};
    const Binding binding = trial.bound(lengths, true, 1);
    SolveReport report;
    RunOutput all;
    const BoundRun head = steps_of(cell.graph, binding.run, 0, 40, nullptr);
    const RunOutput first = solver.run(head, options, report);
    put_steps(binding.run, 0, head, first, all);
    const BoundRun tail = steps_of(cell.graph, binding.run, 40, 65, &first.finals);
    put_steps(binding.run, 40, tail, solver.run(tail, options, report), all);
    ++runs_;
    return judge(trial, recheck, binding.run, all, report, lengths, *options.tolerance, within);
  }

  std::map<Strategy, int> cells_;
  std::int64_t runs_ = 0;
};

TEST_P(StrategyMatrix, AgreesWithOracle) {
  const oracle::Example& file = oracle::example_named(GetParam());
  for (const Cell& tree : file.tree.cells) {
    const LoweredCell cell(file.source, file.tree, tree);
    for (const Precision& p : kPrecisions) {
      Solver solver(cell.graph, cell.structure, {.dtype = p.dtype});
      const Recheck recheck(cell.graph, cell.structure, p.dtype);
      oracle::Random random(91);
      for (std::size_t choice = 0; choice < kAxes.size(); ++choice)
        for (const bool reverse : {false, true}) {
          if (reverse && choice != 0) continue;
          Trial::Options options{
              .dtype = p.dtype, .sizes = oracle::axis_lengths(cell.oracle, kAxes[choice]), .steps = 257};
          options.starts_given = choice != 1;
          options.reverse = reverse;
          options.step_by_step = file.amplifies.count(tree.name) > 0;
          options.f64_tolerance = 1e-11;
          const Trial trial(cell.graph, cell.oracle, file.ranges, random, options);
          const BoundRun shape = trial.bound({257, 257, 257}, false, 1).run;
          for (const Strategy strategy : kStrategies) {
            std::optional<SolveOptions> solve = forced(solver, cell, strategy, shape, true);
            if (!solve) continue;
            solve->tolerance = p.solver;
            SCOPED_TRACE(fmt::format("{} by {}, {}, axes choice {}{}", tree.name, to_string(strategy),
                                     to_string(p.dtype), choice, reverse ? ", reversed" : ""));
            const std::int64_t before = runs_;
            const auto run = [&](const std::vector<std::int64_t>& lengths, bool packed) {
              return once(solver, trial, recheck, lengths, packed, *solve, p.recheck);
            };
            const bool all_lengths = choice == 0 && !reverse;
            for (const std::int64_t length : all_lengths
                                                 ? std::vector<std::int64_t>(std::begin(kLengths), std::end(kLengths))
                                                 : std::vector<std::int64_t>{})
              for (const int batch : {1, 3})
                EXPECT_EQ(run(std::vector<std::int64_t>(batch, length), false), "") << "B=" << batch << " T=" << length;
            EXPECT_EQ(run({}, false), "") << "an empty batch";
            EXPECT_EQ(run({65, 65, 65}, false), "") << "B=3 T=65";
            EXPECT_EQ(run({64, 0, 257}, true), "") << "packed 64, 0, 257";
            EXPECT_EQ(run({65, 1, 130}, true), "") << "packed 65, 1, 130";
            EXPECT_EQ(run({0, 0}, true), "") << "packed, empty";
            EXPECT_EQ(resumed(solver, trial, recheck, cell, *solve, p.recheck), "") << "resumed";
            EXPECT_GE(runs_ - before, all_lengths ? 20 : 6);
            if (choice == 0 && !reverse && p.dtype == Dtype::F64) ++cells_[strategy];
          }
        }
    }
  }
  const int cells = static_cast<int>(file.tree.cells.size());
  for (const Strategy s :
       {Strategy::Sequential, Strategy::Segmented, Strategy::Shooting, Strategy::Newton, Strategy::Auto})
    EXPECT_EQ(cells_[s], cells) << "cells run by " << to_string(s);
}

INSTANTIATE_TEST_SUITE_P(Examples, StrategyMatrix, testing::ValuesIn(oracle::names_of(oracle::dsl_examples())),
                         [](const auto& info) { return info.param; });
CELLC_ONE_IN(4, "Examples/StrategyMatrix");

// How many cells admit each strategy, alone and (for a cell of several stages) for some of them. What
// is counted here is run above: a cell that comes to refuse a strategy shows.
TEST(StrategyCoverage, IsWhatItWas) {
  std::map<Strategy, int> whole, partly;
  int cells = 0;
  for (const oracle::Example& file : oracle::dsl_examples())
    for (const Cell& tree : file.tree.cells) {
      const LoweredCell cell(file.source, file.tree, tree);
      Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F64});
      oracle::Random random(92);
      const Trial trial(cell.graph, cell.oracle, file.ranges, random,
                        {.dtype = Dtype::F64,
                         .sizes = oracle::axis_lengths(cell.oracle, kAxes[0]),
                         .steps = 2,
                         .sequences = 1,
                         .step_by_step = true});
      const BoundRun run = trial.bound({2}, false, 1).run;
      ++cells;
      for (const Strategy s : kStrategies) {
        whole[s] += forced(solver, cell, s, run, false).has_value();
        partly[s] += forced(solver, cell, s, run, true).has_value();
      }
    }
  EXPECT_GE(cells, 70);
  for (const Strategy s : kStrategies) {
    // 33 cells hold a stage that is neither linear nor a clip or Möbius map.
    EXPECT_GE(whole[s], s == Strategy::Scan ? 35 : 70) << to_string(s);
    EXPECT_GE(partly[s], s == Strategy::Scan ? 37 : 70) << to_string(s);
  }
}

}  // namespace
}  // namespace cellc
