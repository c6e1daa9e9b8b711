// Index variables that are moved past bound ones of the same name: the printed Jacobian and all that is claimed of
// random cells with renamed sums inside of renamed sums, against the oracle's differences.
//
// CELLC_CELLS=20000 test_laws --gtest_filter='RenamedSums.*' goes through many more.
#include "tests/generate/renamed_sums.h"

#include <gtest/gtest.h>

#include "compiler/graph/lower.h"
#include "compiler/syntax/parse.h"
#include "tests/generate/claims.h"
#include "tests/generate/try_cells.h"
#include "tests/oracle/examples.h"

namespace cellc {
namespace {

std::string failure(const std::string& text, std::uint64_t seed, int* compared) {
  const SourceText source("renamed.cell", text);
  Diagnostics diagnostics;
  const File tree = parse(source, diagnostics);
  if (!diagnostics.empty() || tree.cells.empty()) return "invalid: " + diagnostics.format(source);
  std::optional<CellGraph> graph = lower(tree, tree.cells[0], diagnostics);
  if (!graph || !diagnostics.empty()) return "invalid: " + diagnostics.format(source);
  try {
    oracle::Random random(seed);
    const generate::ClaimReport report = generate::check_claims(*graph, source, tree, {}, random, 2);
    if (compared) *compared += report.jacobian_points;
    return report.wrong;
  } catch (const oracle::OracleError& e) {
    return std::string("oracle: ") + e.what();
  } catch (const std::exception& e) {
    return std::string("exception: ") + e.what();
  }
}

TEST(RenamedSums, ClaimsHold) {
  const generate::Seeds seeds(400);
  int compared = 0;
  std::uint64_t valid = 0;
  generate::try_seeds(
      seeds, generate::renamed_sums_cell,
      [&](const std::string& text, std::uint64_t seed, bool again) {
        const std::string why = failure(text, seed, again ? nullptr : &compared);
        valid += !again && !why.starts_with("invalid");
        EXPECT_FALSE(!again && why.starts_with("invalid")) << why << text;
        return why;
      },
      "test_laws --gtest_filter='RenamedSums.*'", [](const std::string& why) { ADD_FAILURE() << why; });
  EXPECT_EQ(valid, seeds.count);
  EXPECT_GE(compared, static_cast<int>(seeds.count));
}

}  // namespace
}  // namespace cellc
