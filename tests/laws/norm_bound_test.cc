// The bound on a block's norm is a promise: where one is given it must hold for every value in the
// stated ranges and every length of an axis.
#include <gtest/gtest.h>

#include "compiler/front_end.h"

namespace cellc {
namespace {

std::optional<double> bound(const std::string& value) {
  const SourceText source("bound", "cell c[d, k, n=3] {\n  state h[d]\n  input x[k] in (0.5, 1), z[n] in (0.5, 1)\n" +
                                       ("  param a in (0.2, 0.9), big in (800, 900)\n  h' = " + value + "\n}\n"));
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

}  // namespace
}  // namespace cellc
