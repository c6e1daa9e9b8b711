// Random cells: the engine against the oracle, the Jacobian against finite differences, claims
// against finite moves, and one parallel strategy a cell. The seeds are fixed; a failure prints the smallest cell that
// still fails and how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_engines --gtest_filter='RandomCells.*'
//
// CELLC_CELLS=100000 tries that many, from CELLC_SEED on. The strategy and its plan follow from the seed;
// the failure names them. A strategy's kernels take long to compile: without CELLC_CELLS, every second
// cell has one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/graph/lower.h"
#include "compiler/plan/plan.h"
#include "compiler/syntax/parse.h"
#include "tests/engines/against_oracle.h"
#include "tests/engines/strategies.h"
#include "tests/generate/claims.h"
#include "tests/generate/contractions.h"
#include "tests/generate/random_cell.h"
#include "tests/generate/shrink.h"
#include "tests/generate/try_cells.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

struct Counts {
  int cells = 0, with_jacobian = 0, linear_stages = 0, lanes = 0, solved = 0;
  std::int64_t compared = 0, skipped = 0;
};

/// One strategy, drawn from the seed among those that a stage admits, cut finely, against the oracle.
std::string strategy_failure(const LoweredCell& cell, std::uint64_t seed, Counts* counts) {
  oracle::Random random(seed ^ 0x5012);
  Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F64});
  Trial::Options options{
      .dtype = Dtype::F64, .sizes = oracle::axis_lengths(cell.oracle, {3, 4, 2}), .steps = 30, .sequences = 3};
  options.starts_given = options.step_by_step = options.skip_jumps = true;
  options.reverse = random.chance(0.3);
  options.f64_tolerance = 1e-11;
  const Trial trial(cell.graph, cell.oracle, {}, random, options);
  const std::vector<std::int64_t> lengths{30, static_cast<std::int64_t>(random.below(30)), 13};
  const BoundRun run = trial.bound(lengths, true, 1 + random.below(2)).run;
  const std::int64_t segment = 1 + random.below(20), burn_in = random.below(10);
  const int first = random.below(4);
  constexpr Strategy kParallel[] = {Strategy::Segmented, Strategy::Shooting, Strategy::Newton, Strategy::Scan};
  for (int i = 0; i < 4; ++i) {
    const Strategy strategy = kParallel[(first + i) % 4];
    std::optional<SolveOptions> solve = planned(solver, cell, strategy, run, segment, burn_in);
    if (!solve) continue;
    solve->tolerance = 1e-13;
    solve->max_iterations = 1 + random.below(8);
    SolveReport report;
    std::string wrong = trial.verify(run, solver.run(run, *solve, report), lengths);
    if (wrong.empty() && !report.converged) wrong = "reported as not converged";
    if (counts) counts->compared += trial.compared(), counts->skipped += trial.skipped(), ++counts->solved;
    if (wrong.empty()) return {};
    return fmt::format("{}: segments of {}, burn-in {}, {} iterations{}: {}", to_string(strategy), segment, burn_in,
                       solve->max_iterations, options.reverse ? ", reversed" : "", wrong);
  }
  return {};
}

/// Why the cell fails ("engine: …", "jacobian: …"), or empty. A text that is no valid cell gives
/// "invalid: …".
std::string failure(const std::string& text, std::uint64_t seed, Counts* counts, bool with_strategy = true) {
  const SourceText source("random.cell", text);
  Diagnostics diagnostics;
  const File tree = parse(source, diagnostics);
  if (!diagnostics.empty() || tree.cells.empty()) return "invalid: " + diagnostics.format(source);
  std::optional<CellGraph> graph = lower(tree, tree.cells[0], diagnostics);
  if (!graph || !diagnostics.empty()) return "invalid: " + diagnostics.format(source);
  if (graph->updates.empty()) return {};
  try {
    const oracle::Cell cell(tree, tree.cells[0].name);
    oracle::Random random(seed);
    CellGraph claimed = *graph;
    const generate::ClaimReport report = generate::check_claims(claimed, source, tree, {}, random, 2);
    if (!report.wrong.empty()) return report.wrong;

    const Structure structure = analyse(*graph, differentiate(*graph));
    if (counts) {
      ++counts->cells;
      counts->with_jacobian += report.jacobian_points > 0;
      for (const Stage& s : structure.stages) {
        counts->linear_stages += s.linear;
        counts->lanes += !s.channel_axes.empty();
      }
    }
    const Program program = Program::compile(*graph, structure, {.dtype = Dtype::F64});
    for (const auto& lengths : {std::vector<std::int64_t>{3, 4, 2}, {19, 2, 5}}) {
      Trial::Options options{
          .dtype = Dtype::F64, .sizes = oracle::axis_lengths(cell, lengths), .steps = 18, .sequences = 2};
      options.starts_given = lengths[0] == 3;
      options.step_by_step = options.skip_jumps = true;
      const Trial trial(*graph, cell, {}, random, options);
      if (std::string wrong = trial.run(program, {18, 18}, false, 1); !wrong.empty()) return "engine: " + wrong;
      if (std::string wrong = trial.run(program, {3, 18}, true, 2); !wrong.empty()) return "engine: " + wrong;
      if (counts) counts->compared += trial.compared(), counts->skipped += trial.skipped();
    }
    if (std::string wrong =
            with_strategy ? strategy_failure({source, tree, tree.cells[0]}, seed, counts) : std::string();
        !wrong.empty())
      return wrong;
  } catch (const oracle::OracleError& e) {
    return std::string("oracle: ") + e.what();
  } catch (const std::exception& e) {
    return std::string("exception: ") + e.what();
  }
  return {};
}

TEST(RandomCells, AgreeWithOracle) {
  const generate::Seeds seeds(200, turns::Turn().part(2));
  Counts counts;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const std::string text = generate::random_cell(seed);
    const std::string why = failure(text, seed, &counts, seeds.count_given || seed % 2 == 0);
    if (why.empty()) continue;
    ADD_FAILURE() << generate::describe_failure(
        seed, text, why, [&](const std::string& t) { return failure(t, seed, nullptr); },
        "test_engines --gtest_filter='RandomCells.*'");
  }
  // The generator must not degenerate: most cells have a Jacobian that could be compared, and many
  // have something to claim.
  if (seeds.count < 100) return;
  EXPECT_LE(counts.skipped, counts.compared / 1000) << "numbers left out at jumps";
  EXPECT_GE(counts.cells, static_cast<int>(seeds.count * 9 / 10));
  EXPECT_GE(counts.with_jacobian, static_cast<int>(seeds.count / 3));
  EXPECT_GE(counts.linear_stages, static_cast<int>(seeds.count / 8));
  EXPECT_GE(counts.solved, static_cast<int>(seeds.count * 4 / 10)) << "runs by a parallel strategy";
  EXPECT_GE(counts.lanes, static_cast<int>(seeds.count / 8));
}

/// Sums over several axes, most of which are matrix products over all rows.
TEST(RandomCells, SumsOverSeveralAxesAgreeWithOracle) {
  const generate::Seeds seeds(60);
  int of_several = 0, shared = 0, inside = 0, in_the_step = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const std::string text = generate::contraction_cell(seed);
    const std::string why = failure(text, seed, nullptr, false);
    if (!why.empty())
      ADD_FAILURE() << generate::describe_failure(
          seed, text, why, [&](const std::string& t) { return failure(t, seed, nullptr, false); },
          "test_engines --gtest_filter='RandomCells.*'");
    const SourceText source("random.cell", text);
    Diagnostics diagnostics;
    const File tree = parse(source, diagnostics);
    std::optional<CellGraph> graph = lower(tree, tree.cells[0], diagnostics);
    const Plan plan = make_plan(*graph, analyse(*graph, differentiate(*graph)));
    in_the_step += static_cast<int>(graph->outs.size() - plan.products.size());
    for (const Product& p : plan.products) {
      of_several += p.sums.size() > 1;
      shared += !p.shared.empty();
      inside += p.batch_inside && !p.batch.empty();
    }
  }
  if (seeds.count < 60) return;
  EXPECT_GE(of_several, 20);
  EXPECT_GE(shared, 5);
  EXPECT_GE(inside, 3);
  EXPECT_GE(in_the_step, 3) << "matrices whose axes do not lie in groups";
}

TEST(RandomCells, ShrinkToTheSmallest) {
  // A predicate that any cell with a tanh fails: what is left is one line with a tanh.
  const std::string small = generate::shrink(generate::random_cell(1), [](const std::string& text) {
    const SourceText source("shrinking", text);
    Diagnostics diagnostics;
    const File tree = parse(source, diagnostics);
    if (!diagnostics.empty() || tree.cells.empty()) return std::string();
    if (!lower(tree, tree.cells[0], diagnostics) || !diagnostics.empty()) return std::string();
    return text.find("tanh(") == std::string::npos ? std::string() : std::string("tanh: found");
  });
  EXPECT_NE(small.find("tanh(1)"), std::string::npos) << small;
  EXPECT_EQ(std::count(small.begin(), small.end(), '\n'), 4) << small;
}

TEST(RandomCells, AreTheSameForTheSameSeed) {
  EXPECT_EQ(generate::random_cell(5), generate::random_cell(5));
  EXPECT_NE(generate::random_cell(5), generate::random_cell(6));
}

}  // namespace
}  // namespace cellc
