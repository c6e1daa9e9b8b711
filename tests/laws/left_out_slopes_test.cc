// What was not taken has no part in a derivative, also where the slope of what reads it is infinite: sqrt(max(h, 0))
// has slope 0 below 0, though sqrt has none there. In both orders, and behind sums: choosing inside of what is
// singular, and what is singular inside of a choice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/graph/lower.h"
#include "compiler/syntax/parse.h"
#include "tests/generate/claims.h"
#include "tests/oracle/examples.h"

namespace cellc {
namespace {

void expect_slopes(const std::string& value) {
  SCOPED_TRACE(value);
  const SourceText source(
      "slopes.cell", fmt::format("cell c[d] {{\n  state h[d]\n  input u[d]\n  h' = 0.5*h + 0.1*({}) + u\n}}\n", value));
  Diagnostics diagnostics;
  const File tree = parse(source, diagnostics);
  ASSERT_TRUE(diagnostics.empty()) << diagnostics.format(source);
  std::optional<CellGraph> graph = lower(tree, tree.cells[0], diagnostics);
  ASSERT_TRUE(graph && diagnostics.empty()) << diagnostics.format(source);
  oracle::Random random(7);
  const generate::ClaimReport report = generate::check_claims(*graph, source, tree, {}, random, 12);
  EXPECT_EQ(report.wrong, "");
  EXPECT_GE(report.jacobian_points, 8);
}

TEST(LeftOutSlopes, BehindWhatIsSingular) {
  const std::vector<const char*> chosen = {"max(h - 1, 0)",
                                           "max(0, h - 1)",
                                           "min(1 - h, 0)*(-1)",
                                           "relu(h - 1)",
                                           "clip(h - 1, 0, 2)",
                                           "0*max(h, 0)",
                                           "where(h > 1, h - 1, 0)",
                                           "relu(h)^2",
                                           "relu(h) + relu(-h)",
                                           "max(h - 1, 0)*u^2",
                                           "abs(relu(h))",
                                           "2*relu(h) - relu(h)",
                                           "sum[d](relu(h - 3))",
                                           "where(h > 1, 0, 1 - h)",
                                           "where(h > 1, 0, where(h > 0, h, 0))"};
  const std::vector<const char*> singular = {"sqrt({})", "pow({}, 0.5)", "sqrt(sqrt({}))", "sqrt(3*({}))",
                                             "sqrt({})*h"};
  for (const char* outer : singular)
    for (const char* inner : chosen) expect_slopes(fmt::format(fmt::runtime(outer), inner));
}

TEST(LeftOutSlopes, OfWhatIsSingular) {
  for (const char* value :
       {"where(h > 1, sqrt(h - 1), 0)", "max(log(relu(h)), -3)", "clip(1/relu(h), -1, 1)", "min(rsqrt(relu(h)), 2)",
        "where(h > 0.5, log(h), h)", "where(h > 0, sqrt(relu(h)), sqrt(relu(-h)))", "max(sqrt(relu(h)), 0.3)",
        "where(h > 0, h*log(relu(h)), 0)", "relu(log(relu(h)))"})
    expect_slopes(value);
}

}  // namespace
}  // namespace cellc
