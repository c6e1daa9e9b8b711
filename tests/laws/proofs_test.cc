// Claims that algebra must not make: what seems to cancel and does not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/front_end.h"

namespace cellc {
namespace {

Structure proved(const std::string& header, const std::string& lines) {
  return analyse_text(SourceText("proofs", fmt::format("cell c[{}] {{\n{}}}\n", header, lines))).structure;
}

bool linear(const std::string& value) {
  return proved("d", "  state h[d]\n  input u[d]\n  param W[d,d]\n  h' = " + value + " + u\n").linear;
}

// The slope of a step is zero almost everywhere, and the value moves all the same.
TEST(Proofs, StepsCancelAgainstNothing) {
  EXPECT_TRUE(linear("0.5*h"));
  EXPECT_TRUE(linear("0.5*h + sign(h) - sign(h)"));
  for (const char* value :
       {"sign(h)", "0.5*h + where(h > 0, 2, 3)/where(h > 0, 5, 7)", "0.5*h + sign(h)/sign(h - 1)",
        "0.5*h + sign(W@h)/sign(W@h - 1)", "0.5*h + 1/exp(sign(h)) - 1/exp(sign(h - 1))",
        "0.5*h + log(where(h > 0, 2, 3))", "0.5*h + 1/exp(h > 0)", "0.5*h + 1/exp(where(h > 0, 2, 3))"})
    EXPECT_FALSE(linear(value)) << value;
}

// Powers of powers pass what an int holds, and must not come back as 1.
TEST(Proofs, HugePowersStayWhatTheyAre) {
  const std::string power = "((((h^64)^64)^64)^64)^64";
  for (int times = 1; times <= 8; times *= 2) {
    std::string product = "p";
    for (int i = 1; i < times; ++i) product += "*p";
    const std::string lines =
        fmt::format("  state h[d]\n  input u[d]\n  p = {}\n  q = {}\n  h' = q*q*h + u\n", power, product);
    EXPECT_FALSE(proved("d", lines).linear) << product;
  }
  EXPECT_TRUE(linear("h*(u^64)^64/(u^64)^64"));
}

// What is not taken is left out of a slope by a `where` (tests/cells/branches.cell), which is no outer product.
TEST(Proofs, AnOuterProductWithinABranchIsOne) {
  for (const char* value : {"relu(a*sqrt(mean[d](h^2) + 1))", "max(0.1, a*sum[d](h/(1 + h^2)))",
                            "where(u > 0, a*log(1 + sum[d](h^2)), 0)", "clip(a*mean[d](exp(h)), -1, 1)"}) {
    const Structure structure =
        proved("d", fmt::format("  state h[d]\n  input u[d]\n  param a[d]\n  h' = 0.5*h + {}\n", value));
    EXPECT_EQ(structure.stages.at(0).rank->text, "1") << value;
  }
}

TEST(Proofs, ABlockTooLargeToCountIsText) {
  const std::string axes = "a=2147483647, b=2147483647, e=2147483647";
  const Structure structure = proved(axes, "  state h[a,b,e]\n  h' = 0.1*sum[a,b,e](h)/3 + 0.1*h\n");
  EXPECT_FALSE(structure.stages.at(0).block.number);
  EXPECT_EQ(structure.stages.at(0).block.text, "2147483647*b*e");
}

}  // namespace
}  // namespace cellc
