// Random cells: the engine against the oracle, the Jacobian against finite differences, claims
// against finite moves. The seeds are fixed; a failure prints the smallest cell that still fails
// and how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_engines --gtest_filter='RandomCells.*'
//
// CELLC_CELLS=100000 tries that many, from CELLC_SEED on.
#include <gtest/gtest.h>

#include <cstdlib>

#include "compiler/jacobian.h"
#include "compiler/lower.h"
#include "compiler/parse.h"
#include "compiler/structure.h"
#include "tests/engines/against_oracle.h"
#include "tests/generate/claims.h"
#include "tests/generate/random_cell.h"
#include "tests/generate/shrink.h"

namespace cellc {
namespace {

struct Counts {
  int cells = 0, with_jacobian = 0, linear_stages = 0, lanes = 0;
  std::int64_t compared = 0, skipped = 0;
};

/// Why the cell fails ("engine: …", "jacobian: …"), or empty. A text that is no valid cell gives
/// "invalid: …".
std::string failure(const std::string& text, std::uint64_t seed, Counts* counts) {
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
      Trial::Options options{.dtype = Dtype::F64, .sizes = oracle::axis_lengths(cell, lengths), .steps = 18, .sequences = 2};
      options.starts_given = lengths[0] == 3;
      options.step_by_step = options.skip_jumps = true;
      const Trial trial(*graph, cell, {}, random, options);
      if (std::string wrong = trial.run(program, {18, 18}, false, 1); !wrong.empty()) return "engine: " + wrong;
      if (std::string wrong = trial.run(program, {3, 18}, true, 2); !wrong.empty()) return "engine: " + wrong;
      if (counts) counts->compared += trial.compared(), counts->skipped += trial.skipped();
    }
  } catch (const oracle::OracleError& e) {
    return std::string("oracle: ") + e.what();
  } catch (const std::exception& e) {
    return std::string("exception: ") + e.what();
  }
  return {};
}

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(RandomCells, AgreeWithOracle) {
  const std::uint64_t first = number_from("CELLC_SEED", 1), cells = number_from("CELLC_CELLS", 200);
  Counts counts;
  for (std::uint64_t seed = first; seed < first + cells; ++seed) {
    const std::string text = generate::random_cell(seed);
    const std::string why = failure(text, seed, &counts);
    if (why.empty()) continue;
    const std::string small = generate::shrink(text, [&](const std::string& t) {
      const std::string reason = failure(t, seed, nullptr);
      return reason.starts_with("invalid") && !why.starts_with("invalid") ? std::string() : reason;
    });
    ADD_FAILURE() << "seed " << seed << ": " << why << "\nsmallest cell, " << failure(small, seed, nullptr) << "\n"
                  << small << "again: CELLC_SEED=" << seed << " CELLC_CELLS=1 test_engines --gtest_filter='RandomCells.*'";
  }
  // The generator must not degenerate: most cells have a Jacobian that could be compared, and many
  // have something to claim.
  if (cells < 100) return;
  EXPECT_LE(counts.skipped, counts.compared / 1000) << "numbers left out at jumps";
  EXPECT_GE(counts.cells, static_cast<int>(cells * 9 / 10));
  EXPECT_GE(counts.with_jacobian, static_cast<int>(cells / 3));
  EXPECT_GE(counts.linear_stages, static_cast<int>(cells / 8));
  EXPECT_GE(counts.lanes, static_cast<int>(cells / 8));
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
