// The bound on a block's norm is a promise: where one is given it must hold for every value in the
// stated ranges and every length of an axis.
#include <gtest/gtest.h>

#include "compiler/front_end.h"

namespace cellc {
namespace {

std::optional<double> bound(const std::string& value) {
  const SourceText source(
      "bound",
      "cell c[d, k, n=3] {\n  state h[d]\n  input x[k] in (0.5, 1), z[n] in (0.5, 1)\n" +
          ("  input y, w[d] in (-1, 1)\n  param a in (0.2, 0.9), big in (800, 900)\n  h' = " + value + "\n}\n"));
  return analyse_text(source).structure.stages.at(0).norm_bound;
}

TEST(NormBound, FollowsFromRanges) {
  EXPECT_DOUBLE_EQ(*bound("a*h"), 0.9);
  EXPECT_DOUBLE_EQ(*bound("h/(1 + a)"), 1 / 1.2);
  EXPECT_DOUBLE_EQ(*bound("h*sum[n](z)"), 3);
  EXPECT_DOUBLE_EQ(*bound("h/sum[n](z)"), 1 / 1.5);
}

TEST(NormBound, AnAxisMayHaveOneEntry) {
  EXPECT_FALSE(bound("h*sum[k](x)"));
  EXPECT_DOUBLE_EQ(*bound("h/sum[k](x)"), 2);
  EXPECT_DOUBLE_EQ(*bound("h/size[k]"), 1);
}

TEST(NormBound, NothingFollowsFromOverflowOrNan) {
  EXPECT_FALSE(bound("h*(exp(big) - exp(big*a))"));
  EXPECT_FALSE(bound("h*log(-1)"));
  EXPECT_FALSE(bound("h*(exp(900) - exp(901))"));
}

// A step takes one branch: the largest of them counts, not their sum.
TEST(NormBound, IsThatOfTheLargestBranch) {
  const char* const cells[][2] = {
      {"where(y > h, 0.9*h + 0.1*y, 0.99*h + 0.01*y)", "0.99"},
      {"where(y > h, 0.9*h, 0) + where(y <= h, 0.5*h, 0)", "0.9"},
      {"where(y > h, 0.9*h, where(y < h, 0.8*h, 0.3*h))", "0.9"},
      {"where(y, 0.9*h, where(z[0] > 0.7, -0.95*h, 0.8*h))", "0.95"},
      {"where(y, 0.9*h, 0.1*h) + where(y, 0, 0.7*h)", "0.9"},
      {"max(0.9*h, 0.5*h + y)", "0.9"},
      {"min(0.3*h + y, -0.8*h)", "0.8"},
      {"max(max(0.9*h, 0.5*h + y), 0.2*h)", "0.9"},
      {"max(0.9*h, y) + min(0.3*h + y, 0.1*h)", "1.2"},
      {"clip(0.7*h, y - 1, y)", "0.7"},
      {"0.5*h + relu(0.4*h + y) - 0.1*relu(-h)", "1"},
      {"(y > 0)*0.9*h + (1 - (y > 0))*0.8*h", "0.9"},
      {"max[n](0.9*z*h)", "0.9"},
      {"0*y + max[d](0.9*h)*w", "0.9"},
      {"sum[n](softmax[n](z)*(0.4 + 0.5*z)*h)", "0.9"},
  };
  for (const auto& [value, expected] : cells) {
    const std::optional<double> b = bound(value);
    ASSERT_TRUE(b) << value;
    EXPECT_NEAR(*b, std::stod(expected), 1e-12) << value;
  }
}

}  // namespace
}  // namespace cellc
