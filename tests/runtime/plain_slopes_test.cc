// The slopes that the reference's gradients stand on, of every row of ops.def: a new one is tested without being named.
#include "runtime/evaluate/plain_slopes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "compiler/graph/operator_value.h"
#include "tests/oracle/random.h"

namespace cellc {
namespace {

TEST(PlainSlopes, AreThoseOfTheDefinitions) {
  oracle::Random random(1);
  for (const Op op : {
#define CELLC_OP(Name, ...) Op::Name,
#include "compiler/graph/ops.def"
       }) {
    const OpInfo& info = op_info(op);
    for (int i = 0; i < info.arity; ++i) {
      int compared = 0;
      for (int k = 0; k < 300; ++k) {
        std::array<double, 3> x{};
        for (double& v : x) v = random.uniform(-3, 3);
        const double y = operator_value(op, x.data());
        if (!std::isfinite(y)) continue;  // outside of its domain
        const auto slope = plain_slope(op, i, x.data(), y);
        if (info.slope == Slope::Step || info.slope == Slope::Identity) {
          EXPECT_FALSE(slope) << info.name;
          continue;
        }
        // Beside a kink, and the end of a domain, all differences are those of one side.
        std::array<double, 3> near = x, far = x;
        near[static_cast<std::size_t>(i)] -= 0.3;
        far[static_cast<std::size_t>(i)] += 0.3;
        const auto below = plain_slope(op, i, near.data(), operator_value(op, near.data())),
                   above = plain_slope(op, i, far.data(), operator_value(op, far.data()));
        if (below.has_value() != slope.has_value() || above.has_value() != slope.has_value()) continue;
        if (slope && !(std::isfinite(*slope) && std::isfinite(*below) && std::isfinite(*above))) continue;
        if (op == Op::Abs && std::fabs(x[0]) < 0.5) continue;
        ++compared;
        const double expected = slope_by_differences(op, i, x.data()), size = std::fabs(expected) + std::fabs(y);
        ASSERT_NEAR(slope.value_or(0), expected, 1e-7 * size + 1e-9)
            << info.name << " at " << x[0] << " " << x[1] << " " << x[2] << ", by operand " << i;
      }
      EXPECT_TRUE(compared >= 20 || info.slope == Slope::Step || info.slope == Slope::Identity)
          << info.name << ", operand " << i << ": " << compared;
    }
  }
}

TEST(PlainSlopes, ByDifferencesOfAFunctionOnly) {
  for (const double at : {-20.0, -3.0, -0.5, 0.0, 1e-9, 0.7, 2.0, 30.0}) {
    const double x[] = {at, 0, 0};
    const double e = std::exp(-std::fabs(at));
    EXPECT_NEAR(slope_by_differences(Op::Softplus, 0, x), (at < 0 ? e : 1) / (1 + e), 1e-10) << at;
    EXPECT_NEAR(slope_by_differences(Op::Tanh, 0, x), 1 / (std::cosh(at) * std::cosh(at)), 1e-10) << at;
  }
  const double beside[] = {0.05, 0, 0};  // wider steps leave the domain
  EXPECT_NEAR(slope_by_differences(Op::Log, 0, beside), 20, 1e-7);
  const double infinite[] = {INFINITY, 0, 0};
  EXPECT_TRUE(std::isnan(slope_by_differences(Op::Tanh, 0, infinite)));
}

}  // namespace
}  // namespace cellc
