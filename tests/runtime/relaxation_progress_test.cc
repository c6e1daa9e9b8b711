// When a relaxation ends: what its changes say, and what they do not.
#include "runtime/strategy/relaxation_progress.h"

#include <gtest/gtest.h>

#include <limits>

namespace cellc {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// After which of these changes it settles; 0: after none.
int settles_after(const std::vector<double>& changes, double tolerance) {
  StageReport report;
  RelaxationProgress progress(SolveOptions{}, tolerance, report);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    progress.moved(changes[i], 1);
    if (progress.settled()) return static_cast<int>(i) + 1;
  }
  return 0;
}

// A change by c that shrinks by q leaves a residual of about q*c: the iteration that would remove it is spared.
TEST(RelaxationProgress, SettlesByTheContraction) {
  EXPECT_EQ(settles_after({0.5, 0.05, 5e-3, 5e-4, 5e-5, 5e-6}, 1e-5), 5);
  EXPECT_EQ(settles_after({0.5, 0.3, 0.18, 0.108, 0.0648}, 0.09), 5) << "a slow one may be off by more than it moves";
  EXPECT_EQ(settles_after({0, 0}, 1e-6), 1);
}

// 0.4 after an infinite change is no contraction by 0.
TEST(RelaxationProgress, KnowsNoContractionAfterAnInfiniteChange) {
  EXPECT_EQ(settles_after({kInfinite, 0.4, 0.08, 0.016}, 0.01), 4);
  EXPECT_EQ(settles_after({0.5, 0.05, kInfinite, 0.4, 0.3}, 0.01), 0);
  StageReport report;
  RelaxationProgress progress(SolveOptions{}, 1e-6, report);
  for (const double change : {0.5, 0.05, kInfinite, 0.4}) progress.moved(change, 1);
  EXPECT_FALSE(report.contraction);
}

TEST(RelaxationProgress, IsLeftToChangesAloneOnceSomethingWasOff) {
  StageReport report;
  RelaxationProgress progress(SolveOptions{}, 1e-3, report);
  for (const double change : {0.5, 0.05, 5e-3}) progress.moved(change, 1);
  EXPECT_TRUE(progress.settled());
  progress.be_careful();
  progress.moved(2e-3, 1);
  EXPECT_FALSE(progress.settled());
  progress.moved(5e-4, 1);
  EXPECT_TRUE(progress.settled());
}

}  // namespace
}  // namespace cellc
