// What every run promises, of every strategy: each step is within the tolerance of what the sequential kernel makes of
// the rows before it, as they were written. Cells follow from seeds; a failure prints how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_engines --gtest_filter='Promise.*'
//
// CELLC_CELLS=10000 tries that many, from CELLC_SEED on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <map>
#include <ostream>

#include "tests/engines/promises.h"
#include "tests/engines/strategies.h"
#include "tests/generate/random_cell.h"
#include "tests/generate/try_cells.h"

namespace cellc {
namespace {

constexpr Strategy kParallel[] = {Strategy::Auto,   Strategy::Segmented, Strategy::Shooting,
                                  Strategy::Newton, Strategy::Scan,      Strategy::Relaxation};
constexpr int kCount = static_cast<int>(std::size(kParallel));

/// Of three axes: about the third, then about the first.
Array rotation(double first, double second) {
  const double c = std::cos(first), s = std::sin(first), d = std::cos(second), t = std::sin(second);
  const double entries[] = {c, -s, 0, d * s, d * c, -t, t * s, t * c, d};
  Array matrix(Dtype::F32, {3, 3});
  for (std::int64_t i = 0; i < 9; ++i) matrix.set(i, entries[i]);
  return matrix;
}

struct Counts {
  std::map<Strategy, int> runs;
  int several_stages = 0, lags = 0, sums = 0;
};

void count(const LoweredCell& cell, Counts& counts) {
  counts.several_stages += cell.stages() > 1;
  counts.sums += !cell.graph.outs.empty();
  bool lags = false;
  for (const Symbol& symbol : cell.graph.symbols) lags |= symbol.max_lag != 0;
  counts.lags += lags;
}

/// By so many of the strategies that the cell admits, drawn from the seed; cut as it says or as they choose.
std::string failure(const LoweredCell& cell, std::uint64_t seed, const oracle::Ranges& ranges, int strategies,
                    Counts* counts) {
  if (cell.graph.updates.empty()) return {};
  oracle::Random random(seed ^ 0x51c3);
  const Dtype dtype = random.chance(0.7) ? Dtype::F32 : Dtype::F64;
  PromiseShape shape{{300, static_cast<std::int64_t>(random.below(40)), 130}, 1 + random.below(9)};
  shape.reverse = random.chance(0.3);
  shape.ranges = ranges;
  const BoundRun run = promise_run(cell.graph, dtype, shape, random);
  Solver solver(cell.graph, cell.structure, {.dtype = dtype});
  const Recheck recheck(cell.graph, cell.structure, dtype);
  if (counts) count(cell, *counts);
  const std::int64_t segment = 1 + random.below(60), burn_in = random.below(30);
  const bool cut = random.chance(0.5);
  const int first = random.below(kCount);
  for (int i = 0, tried = 0; i < kCount && tried < strategies; ++i) {
    const Strategy strategy = kParallel[(first + i) % kCount];
    // Relaxation is asked for as a whole: its plan names the stages that it is for.
    const bool planned_here = cut && strategy != Strategy::Auto && strategy != Strategy::Relaxation;
    std::optional<SolveOptions> solve = planned_here ? planned(solver, cell, strategy, run, segment, burn_in)
                                                     : forced(solver, cell, strategy, run, true);
    if (!solve) continue;
    SolveReport report;
    const RunOutput output = solver.run(run, *solve, report);
    const std::string wrong = broken_promise(recheck, run, output, report, default_tolerance(dtype));
    ++tried;
    if (counts) ++counts->runs[strategy];
    if (!wrong.empty())
      return fmt::format("{}: {}{}{}: {}", to_string(strategy), to_string(dtype), shape.reverse ? ", reversed" : "",
                         cut ? fmt::format(", segments of {}, burn-in {}", segment, burn_in) : "", wrong);
  }
  return {};
}

void try_cells(const char* test, std::uint64_t how_many, const std::function<std::string(std::uint64_t)>& text_of,
               Counts& counts) {
  generate::try_seeds(
      generate::Seeds(how_many), text_of,
      [&](const std::string& text, std::uint64_t seed, bool again) {
        return try_cell(text, [&](const SourceText&, const LoweredCell& cell) {
          return failure(cell, seed, {}, 2, again ? nullptr : &counts);
        });
      },
      fmt::format("test_engines --gtest_filter='Promise.{}'", test),
      [](const std::string& why) { ADD_FAILURE() << why; });
}

// One strategy a cell, and every second cell: CELLC_SEED says which; CELLC_CELLS=100 goes through them a hundred times.
TEST(Promise, HoldsForExamples) {
  const generate::Seeds seeds(1);
  Counts counts;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    std::uint64_t number = 0;
    for (const oracle::Example& file : oracle::all_cells())
      for (const Cell& tree : file.tree.cells) {
        if ((++number + seed) % 2 != 0) continue;
        const LoweredCell cell(file.source, file.tree, tree);
        EXPECT_EQ(failure(cell, seed + 1000 * number, file.ranges, 1, &counts), "")
            << file.name << ", " << tree.name << "; again: CELLC_SEED=" << seed
            << " CELLC_CELLS=1 test_engines --gtest_filter='Promise.HoldsForExamples'";
      }
  }
  for (const Strategy strategy : kParallel) EXPECT_GE(counts.runs[strategy], 4) << to_string(strategy);
}

TEST(Promise, HoldsForCellsOfItsOwn) {
  const generate::Seeds seeds(40);
  Counts counts;
  try_cells("HoldsForCellsOfItsOwn", 40, promise_cell, counts);
  if (seeds.count_given || seeds.first_given) return;
  for (const Strategy strategy : kParallel) {
    if (strategy == Strategy::Relaxation) continue;  // channels do not mix here
    EXPECT_GE(counts.runs[strategy], 3) << to_string(strategy);
  }
  EXPECT_GE(counts.several_stages, 10);
  EXPECT_GE(counts.lags, 10);
  EXPECT_GE(counts.sums, 10);
}

TEST(Promise, HoldsForRandomCells) {
  Counts counts;
  try_cells("HoldsForRandomCells", 12, generate::random_cell, counts);
}

TEST(Promise, HoldsWhereLastBitsCount) {
  Counts counts;
  try_cells("HoldsWhereLastBitsCount", 12, amplifying_cell, counts);
}

/// An out that makes anything of a last bit, of a trajectory that newton leaves within the tolerance: it belongs to the
/// rows that were written, old and new, and to no others.
std::string out_beside_its_rows(const LoweredCell& cell, std::int64_t rows_off) {
  oracle::Random random(3);
  const BoundRun run = promise_run(cell.graph, Dtype::F32, {{300, 40}, 5}, random);
  Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F32});
  SolveOptions options;
  options.solver = Strategy::Newton;
  SolveReport report;
  RunOutput output = solver.run(run, options, report);
  const Recheck recheck(cell.graph, cell.structure, Dtype::F32);
  EXPECT_GT(recheck(run, output, 1e-6).outs, 0.1) << "steps made anew have the same outs: nothing is tried here";
  const Array made = output.outs[0];
  output.outs[0] = Array(Dtype::F32, made.shape());
  for (std::int64_t i = 0; i < made.count(); ++i)
    output.outs[0].set(i, made.get((i + rows_off * made.shape()[1]) % made.count()));
  return broken_promise(recheck, run, output, report, 1e-6);
}

TEST(Promise, HoldsOutsToTheRowsAsTheyWereWritten) {
  for (const char* out : {"h'", "lag(h, 2) + h'"}) {
    const std::string text = fmt::format(
        "cell sharp[d] {{\n  state h[d]\n  input x[d]\n  h' = tanh(0.9*h + x)\n"
        "  out y = where(sin(1000000*({})) > 0, 1, 0)\n}}\n",
        out);
    const auto broken = [&](std::int64_t rows_off) {
      return try_cell(text,
                      [&](const SourceText&, const LoweredCell& cell) { return out_beside_its_rows(cell, rows_off); });
    };
    EXPECT_EQ(broken(0), "") << text;
    EXPECT_TRUE(broken(1).starts_with("an out is off")) << text;
  }
}

/// What steps from rows make of the rows of the sequential kernel: these rows, to the bit.
std::string not_made_again(const LoweredCell& cell, std::uint64_t seed) {
  if (cell.graph.updates.empty() || cell.graph.has_lines()) return {};
  oracle::Random random(seed ^ 0x7be1);
  const Dtype dtype = random.chance(0.6) ? Dtype::F32 : Dtype::F64;
  PromiseShape shape{{700, static_cast<std::int64_t>(random.below(40)), 33}, 1 + random.below(9)};
  shape.reverse = random.chance(0.4);
  const BoundRun run = promise_run(cell.graph, dtype, shape, random);
  const RunOutput rows = Program::compile(cell.graph, cell.structure, {.dtype = dtype}).run(run);
  const std::vector<Array> made =
      StepsFromRows::compile(cell.graph, cell.structure, {.dtype = dtype})(run, rows.states);
  for (std::size_t u = 0; u < made.size(); ++u)
    for (std::int64_t i = 0; i < made[u].count(); ++i)
      if (const double a = made[u].get(i), b = rows.states[u].get(i); !(a == b || (std::isnan(a) && std::isnan(b))))
        return fmt::format("{}, {}[{}] is {:.17g}, made again {:.17g}", to_string(dtype),
                           cell.graph.symbol_of(cell.graph.updates[u]).name, i, b, a);
  return {};
}

TEST(Promise, IsMeasuredByStepsOfTheSequentialKernel) {
  generate::try_seeds(
      generate::Seeds(5), generate::random_cell,
      [](const std::string& text, std::uint64_t seed, bool) {
        return try_cell(text, [&](const SourceText&, const LoweredCell& cell) { return not_made_again(cell, seed); });
      },
      "test_engines --gtest_filter='Promise.IsMeasuredByStepsOfTheSequentialKernel'",
      [](const std::string& why) { ADD_FAILURE() << why; });
}

struct Known {
  const BrokenPromise* promise;
  Strategy strategy;
  friend void PrintTo(const Known& known, std::ostream* out) {
    *out << known.promise->name << ", " << to_string(known.strategy);
  }
};

class MendedPromises : public testing::TestWithParam<Known> {};

// What was found broken once, by every strategy that broke it.
TEST_P(MendedPromises, Hold) {
  const BrokenPromise& known = *GetParam().promise;
  const std::string attempt = try_cell(known.text, [&](const SourceText&, const LoweredCell& cell) {
    oracle::Random random(5);
    BoundRun run = promise_run(cell.graph, Dtype::F32, known.shape, random);
    if (&known == &kSumInAnotherOrder) run.symbols[2] = rotation(0.7, 0.4);
    Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F32});
    SolveOptions options;
    options.solver = GetParam().strategy;
    SolveReport report;
    const RunOutput output = solver.run(run, options, report);
    return broken_promise(Recheck(cell.graph, cell.structure, Dtype::F32), run, output, report, 1e-6);
  });
  EXPECT_EQ(attempt, "") << known.name << " was broken because " << known.why;
}

INSTANTIATE_TEST_SUITE_P(
    List, MendedPromises,
    testing::Values(Known{&kLagOfAGuess, Strategy::Segmented}, Known{&kLagOfAGuess, Strategy::Scan},
                    Known{&kSumInAnotherOrder, Strategy::Shooting}, Known{&kSumInAnotherOrder, Strategy::Newton},
                    Known{&kSumInAnotherOrder, Strategy::Scan}, Known{&kStateIsRounding, Strategy::Segmented},
                    Known{&kStateIsRounding, Strategy::Shooting}, Known{&kStateIsRounding, Strategy::Newton},
                    Known{&kStateIsRounding, Strategy::Scan}, Known{&kProductReadTwice, Strategy::Segmented},
                    Known{&kProductReadTwice, Strategy::Shooting}, Known{&kProductReadTwice, Strategy::Scan},
                    Known{&kProductOfFewerAxes, Strategy::Segmented}, Known{&kProductOfFewerAxes, Strategy::Shooting},
                    Known{&kProductOfFewerAxes, Strategy::Scan}, Known{&kSumByBlas, Strategy::Relaxation}),
    [](const auto& info) { return std::string(info.param.promise->name) + "_" + to_string(info.param.strategy); });

}  // namespace
}  // namespace cellc
