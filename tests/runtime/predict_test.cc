// Predictions of iterations, and what a choice between strategies is made from.
#include <gtest/gtest.h>

#include <limits>

#include "runtime/strategy/choose_strategy.h"
#include "runtime/strategy/predict_iterations.h"

namespace cellc {
namespace {

std::vector<IterationTrace> trace(const std::vector<double>& changes) {
  std::vector<IterationTrace> result;
  for (const double c : changes) result.push_back({c, 1});
  return result;
}

TEST(PredictIterations, OfRelaxation) {
  EXPECT_EQ(predict_iterations(trace({1}), 1e-6, 1), std::nullopt);
  EXPECT_EQ(predict_iterations(trace({1, 0.1}), 1e-6, 1), 7);
  EXPECT_EQ(predict_iterations(trace({5, 3.6, 1.11, 0.193}), 1e-6, 1), 11);
  EXPECT_EQ(predict_iterations(trace({1, 1e-7}), 1e-6, 1), 2);
  EXPECT_EQ(predict_iterations(trace({1, 1.5}), 1e-6, 1), std::nullopt);
  EXPECT_EQ(predict_iterations(trace({1, 1}), 1e-6, 1), std::nullopt);
  EXPECT_EQ(predict_iterations(trace({1, 0.9999999}), 1e-6, 1), std::nullopt);
  EXPECT_EQ(predict_iterations(trace({std::numeric_limits<double>::infinity(), 0.1}), 1e-6, 1), std::nullopt);
}

TEST(PredictIterations, OfNewtonsMethod) {
  EXPECT_EQ(predict_iterations(trace({1, 0.1}), 1e-6, 2), 4);        // 1e-3, 1e-7
  EXPECT_EQ(predict_iterations(trace({0.01, 0.001}), 1e-12, 2), 5);  // 1e-5, 1e-9, 1e-17
  EXPECT_EQ(predict_iterations(trace({0.1, 0.2}), 1e-6, 2), std::nullopt);
}

TEST(IterationsWorth, CountsTheCheckAsAnIteration) {
  EXPECT_DOUBLE_EQ(iterations_worth({110, 10}), 10);
  EXPECT_DOUBLE_EQ(iterations_worth({10, 10}), 0);
  EXPECT_DOUBLE_EQ(iterations_worth({10, 0}), 0);
}

TEST(IterationsWorth, CountsTheLookAtAllSteps) {
  EXPECT_DOUBLE_EQ(iterations_worth({110, 10, 50}), 5);
  EXPECT_LT(iterations_worth({110, 10, 110}), 0);
}

}  // namespace
}  // namespace cellc
