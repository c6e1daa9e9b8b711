// Maps composed in vectors along time against the loop.
#include "runtime/cpu/compose_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace cellc {
namespace {

template <typename Number>
class ComposeSteps : public testing::Test {};
using Numbers = testing::Types<float, double>;
TYPED_TEST_SUITE(ComposeSteps, Numbers);

TYPED_TEST(ComposeSteps, AsTheLoop) {
  using Number = TypeParam;
  const StepComposer<Number>* const composer = step_composer<Number>();
  if (!composer) GTEST_SKIP() << "this processor has no vectors for it";
  std::mt19937 random(7);
  for (const double largest : {0.0, 0.5, 1.0, 1.5})
    for (const std::int64_t vectors : {1, 2, 7}) {
      const std::int64_t steps = vectors * composer->width;
      std::vector<Number> a, b, s(static_cast<std::size_t>(steps) + 1, -1);
      for (std::int64_t t = 0; t < steps; ++t) {
        a.push_back(static_cast<Number>(std::uniform_real_distribution<double>(-largest, largest)(random)));
        b.push_back(static_cast<Number>(std::uniform_real_distribution<double>(-1, 1)(random)));
      }
      const double got = composer->compose(a.data(), b.data(), steps, Number(0.75), s.data(), {nullptr, 0});
      double state = 0.75, product = 1, most = 1;
      for (std::int64_t t = 0; t < steps; ++t) {
        state = a[t] * state + b[t];
        product *= a[t];
        most = std::max(most, std::fabs(state));
        ASSERT_NEAR(s[t], state, 64 * most * std::numeric_limits<Number>::epsilon()) << "step " << t << " of " << steps;
      }
      EXPECT_NEAR(got, product, 1e-4 * std::fabs(product));
      EXPECT_EQ(s[static_cast<std::size_t>(steps)], -1) << "written past the end";
    }
}

TYPED_TEST(ComposeSteps, ChecksEveryStep) {
  using Number = TypeParam;
  const StepComposer<Number>* const composer = step_composer<Number>();
  if (!composer) GTEST_SKIP() << "this processor has no vectors for it";
  const std::int64_t steps = 4 * composer->width;
  std::vector<Number> s(static_cast<std::size_t>(steps)), f, memory(static_cast<std::size_t>(steps) + 64);
  for (std::int64_t t = 0; t < steps; ++t) s[t] = static_cast<Number>(t - 20);
  Number* aligned = memory.data();
  while (reinterpret_cast<std::uintptr_t>(aligned) % 64) ++aligned;
  for (Number* const to : {aligned, aligned + 1})
    for (const bool past_caches : {false, true}) {
      EXPECT_EQ(composer->check_and_copy(s.data(), s.data(), steps, Number(1), to, past_caches), 0);
      for (std::int64_t t = 0; t < steps; ++t) ASSERT_EQ(to[t], s[t]);
      for (std::int64_t t = 0; t < steps; ++t) {
        f = s;
        f[t] += Number(0.125);
        const double want = 0.125 / (1 + std::fabs(static_cast<double>(s[t])));
        const double got = composer->check_and_copy(f.data(), s.data(), steps, Number(1), to, past_caches);
        EXPECT_GE(got, want) << t;
        EXPECT_LE(got, want * (1 + 2.0 / 4096)) << t;
        for (const Number odd : {std::numeric_limits<Number>::quiet_NaN(), std::numeric_limits<Number>::infinity()}) {
          f[t] = odd;
          EXPECT_EQ(composer->check_and_copy(f.data(), s.data(), steps, Number(1), to, past_caches),
                    std::numeric_limits<double>::infinity())
              << t;
        }
      }
    }
}

}  // namespace
}  // namespace cellc
