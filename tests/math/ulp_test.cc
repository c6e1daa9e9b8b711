// Accuracy of our functions against references in higher precision, in units of the last place.
// Run with --gtest_filter='*Ulp*' to see the table of docs/notes/math-functions.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <set>

#include "tests/math/harness.h"

namespace cellc::math_test {
namespace {

struct Worst {
  double ulp = 0;
  double x = 0;
  double y = 0;
  double got = 0;
  double exact = 0;
  double absolute = 0;
  std::size_t count = 0;
};

template <typename T, typename Reference>
Worst measure(Op op, Reference reference, int lanes) {
  std::vector<T> x, y;
  if (tested(op).binary) {
    pow_arguments<T>(x, y);
  } else {
    if constexpr (sizeof(T) == 4)
      x = arguments32(op);
    else
      x = arguments64(op);
    y = x;
  }
  const std::vector<T> got = all_loops().run(op, lanes, x, y);
  Worst worst;
  worst.count = x.size();
  for (std::size_t k = 0; k < x.size(); ++k) {
    const auto exact = reference(op, x[k], y[k]);
    const double ulp = ulp_error(got[k], exact);
    if (!(ulp <= worst.ulp)) {
      worst.ulp = ulp;
      worst.x = x[k];
      worst.y = y[k];
      worst.got = got[k];
      worst.exact = static_cast<double>(exact);
    }
    const double absolute = std::abs(static_cast<double>(got[k] - exact));
    if (std::isfinite(absolute)) worst.absolute = std::max(worst.absolute, absolute);
  }
  return worst;
}

TEST(Tested, AreAllFunctionsOfTheTable) {
  std::set<Op> met;
  for (const Tested& entry : tested()) met.insert(entry.op);
#define CELLC_OP(Name, ...) EXPECT_EQ(met.contains(Op::Name), llvm_math::has_function(Op::Name)) << #Name;
#include "compiler/graph/ops.def"
}

class Ulp : public testing::TestWithParam<Tested> {};

TEST_P(Ulp, F32) {
  const Tested& entry = GetParam();
  const Worst worst = measure<float>(entry.op, reference32, 16);
  std::printf("| %-8s | f32 | %.2f | %g | %zu | x = %a%s |\n", entry.name, worst.ulp, entry.ulp_f32, worst.count,
              worst.x, entry.binary ? (", y = " + std::to_string(worst.y)).c_str() : "");
  EXPECT_LE(worst.ulp, entry.ulp_f32) << "at x = " << worst.x << ", y = " << worst.y << ": " << worst.got
                                      << " instead of " << worst.exact;
  if (entry.bounded) {
    EXPECT_LE(worst.absolute, 4e-7);
  }
}

TEST_P(Ulp, F64) {
  const Tested& entry = GetParam();
  const Worst worst = measure<double>(entry.op, reference64, 8);
  std::printf("| %-8s | f64 | %.2f | %g | %zu | x = %a%s |\n", entry.name, worst.ulp, entry.ulp_f64, worst.count,
              worst.x, entry.binary ? (", y = " + std::to_string(worst.y)).c_str() : "");
  EXPECT_LE(worst.ulp, entry.ulp_f64) << "at x = " << worst.x << ", y = " << worst.y << ": " << worst.got
                                      << " instead of " << worst.exact;
}

// The bound of tanh in f32 is reached just below 1, where an ulp is half as large as the error of
// the quotient; elsewhere it is tighter.
TEST(TanhNearZero, IsRelativelyAccurate) {
  std::vector<float> x;
  for (float v = 1e-30f; v < 0.9f; v *= 1.00001f) x.push_back(v);
  const std::vector<float> got = all_loops().run(Op::Tanh, 16, x);
  double worst = 0;
  for (std::size_t k = 0; k < x.size(); ++k) worst = std::max(worst, ulp_error(got[k], std::tanh(double{x[k]})));
  std::printf("tanh f32 below 0.9: %.2f ulp\n", worst);
  EXPECT_LE(worst, 3.5);
}

INSTANTIATE_TEST_SUITE_P(All, Ulp, testing::ValuesIn(tested()),
                         [](const testing::TestParamInfo<Tested>& entry) { return std::string(entry.param.name); });

}  // namespace
}  // namespace cellc::math_test
