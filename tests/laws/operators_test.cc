// Every row of ops.def keeps what its columns and rules say: slopes against finite differences, ranges against sampled
// values, and the columns of one word. A new row is tested without being named here.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/analysis/derivative_rules.h"
#include "compiler/analysis/range_rules.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/operator_value.h"
#include "compiler/graph/verify.h"
#include "tests/oracle/random.h"

namespace cellc {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

using Point = std::array<double, 3>;

const std::vector<Op>& all_operators() {
  static const std::vector<Op> list = {
#define CELLC_OP(Name, ...) Op::Name,
#include "compiler/graph/ops.def"
  };
  return list;
}

std::string at(const Point& x, Op op) {
  std::string text = std::string(op_name(op)) + " at";
  for (int i = 0; i < op_info(op).arity; ++i) text += " " + std::to_string(x[static_cast<std::size_t>(i)]);
  return text;
}

double value_of(Op op, const Point& x) { return operator_value(op, x.data()); }

/// One operator of operands that nothing is known of, with its slopes.
class Sample {
 public:
  Sample(Op op, SlopeRule rule) {
    std::vector<NodeId> args;
    for (int i = 0; i < op_info(op).arity; ++i) {
      cell_.symbols.emplace_back().name = "x" + std::to_string(i);
      args.push_back(cell_.graph.read(i, {}));
    }
    const NodeId node = cell_.graph.op(op, args);
    for (int i = 0; i < op_info(op).arity; ++i) slopes_.push_back(slope_of(cell_.graph, node, i, rule));
    verify(cell_);
  }

  double slope(int i, const Point& x) const {
    Environment environment;
    environment.read = [&](int symbol, const std::vector<std::int64_t>&, int) {
      return x[static_cast<std::size_t>(symbol)];
    };
    return Evaluator(cell_, environment).value(slopes_[static_cast<std::size_t>(i)]).data[0];
  }
  bool is_zero(int i) const { return cell_.graph.is_constant(slopes_[static_cast<std::size_t>(i)], 0); }

 private:
  CellGraph cell_;
  std::vector<NodeId> slopes_;
};

class Operators : public testing::TestWithParam<Op> {
 protected:
  const Op op_ = GetParam();
  const OpInfo& info_ = op_info(op_);
  oracle::Random random_{static_cast<std::uint64_t>(op_) + 1};

  Point point(double low, double high) {
    Point x{};
    for (double& v : x) v = random_.uniform(low, high);
    return x;
  }
};

// Central differences of two widths must agree with each other and with those of one side: else a kink or a jump is
// near, or the end of a domain.
TEST_P(Operators, SlopesEqualFiniteDifferences) {
  const Sample sample(op_, SlopeRule::True);
  for (int i = 0; i < info_.arity; ++i) {
    int compared = 0;
    for (int k = 0; k < 4000; ++k) {
      const Point x = point(-3, 3);
      const auto moved = [&](double by) {
        Point other = x;
        other[static_cast<std::size_t>(i)] += by;
        return value_of(op_, other);
      };
      constexpr double kStep = 1e-4;
      const double right = (moved(kStep) - moved(0)) / kStep, left = (moved(0) - moved(-kStep)) / kStep;
      const double near = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      const double wide = (moved(2 * kStep) - moved(-2 * kStep)) / (4 * kStep);
      const double difference = (4 * near - wide) / 3, size = 1 + std::fabs(difference);
      if (!(std::fabs(right - left) < 1e-2 * size && std::fabs(near - wide) < 1e-4 * size)) continue;
      ++compared;
      ASSERT_NEAR(sample.slope(i, x), difference, 1e-6 * size) << at(x, op_) << ", by operand " << i;
    }
    EXPECT_GE(compared, 500) << op_name(op_) << ", operand " << i;
  }
}

TEST_P(Operators, NoDependenceIsLost) {
  const Sample proof(op_, SlopeRule::Structural), truth(op_, SlopeRule::True);
  for (int i = 0; i < info_.arity; ++i) {
    EXPECT_FALSE(proof.is_zero(i)) << op_name(op_) << ", operand " << i;
    EXPECT_EQ(truth.is_zero(i), slope_formula(op_, i).jumps()) << op_name(op_) << ", operand " << i;
  }
  const bool steps = info_.slope == Slope::Step || info_.slope == Slope::Select;
  EXPECT_EQ(slope_formula(op_, 0).jumps(), steps) << op_name(op_);
}

TEST_P(Operators, WhatChoosesIsZeroOrOne) {
  const Sample sample(op_, SlopeRule::True);
  for (int i = 0; i < info_.arity; ++i) {
    if (!slope_formula(op_, i).chooses()) continue;
    EXPECT_EQ(info_.slope, Slope::Kink) << op_name(op_);
    for (int k = 0; k < 200; ++k) {
      const Point x = point(-3, 3);
      const double slope = sample.slope(i, x);
      EXPECT_TRUE(slope == 0 || slope == 1) << at(x, op_) << ": " << slope;
    }
  }
}

// Bounds are rounded as values are, so a value may pass one by its rounding.
TEST_P(Operators, RangesContainValues) {
  int met = 0;
  for (int k = 0; k < 3000; ++k) {
    Interval x[3];
    const double scale = std::exp2(random_.uniform(-3, 8));
    for (Interval& v : x) {
      v.low = random_.uniform(-scale, scale);
      v.high = v.low + random_.uniform(0, scale);
      // Also whole numbers (powers), one number alone, and no end.
      if (random_.chance(0.2)) v.low = v.high = std::round(v.low);
      if (random_.chance(0.2)) v.low = -kInf;
      if (random_.chance(0.2)) v.high = kInf;
    }
    const Interval range = range_of(op_, x);
    if (std::isnan(range.low) || std::isnan(range.high)) continue;
    for (int p = 0; p < 20; ++p) {
      Point at_point{};
      for (std::size_t i = 0; i < 3; ++i) {
        const double low = std::max(x[i].low, std::min(x[i].high, 0.0) - 2 * scale);
        const double high = std::min(x[i].high, std::max(x[i].low, 0.0) + 2 * scale);
        at_point[i] = p % 4 == 0 ? low : p % 4 == 1 ? high : random_.uniform(low, high);
      }
      const double value = value_of(op_, at_point);
      if (!std::isfinite(value)) continue;
      ++met;
      const double slack = 4 * std::numeric_limits<double>::epsilon() * std::fabs(value);
      ASSERT_GE(value, range.low - slack) << at(at_point, op_);
      ASSERT_LE(value, range.high + slack) << at(at_point, op_);
    }
  }
  EXPECT_GE(met, 1000) << op_name(op_);
}

TEST_P(Operators, FiniteValuesAreNumbers) {
  if (info_.values != ValueKind::Finite) return;
  for (int k = 0; k < 2000; ++k) {
    Point x = point(-1000, 1000);
    for (double& v : x)
      if (random_.chance(0.2)) v = random_.chance(0.5) ? 0.0 : -0.0;
    EXPECT_TRUE(std::isfinite(value_of(op_, x))) << at(x, op_);
  }
}

TEST_P(Operators, APlusZeroIsOne) {
  if (info_.zero != Zero::Plus) return;
  const double corners[] = {0.0,    -0.0,    1,     -1,     0.5,    -0.5,    kInf,   -kInf,
                            5e-324, -5e-324, 1e300, -1e300, 800.25, -800.25, 1e-200, -1e-200};
  for (const double a : corners)
    for (const double b : corners)
      for (const double c : corners) {
        const Point x{a, b, c};
        const double value = value_of(op_, x);
        EXPECT_FALSE(value == 0 && std::signbit(value)) << at(x, op_);
      }
}

INSTANTIATE_TEST_SUITE_P(All, Operators, testing::ValuesIn(all_operators()),
                         [](const auto& info) { return std::string(op_name(info.param)); });

}  // namespace
}  // namespace cellc
