// Gradients of random cells against differences of the oracle. A failure prints the smallest cell that still fails and
// how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_gradients --gtest_filter='RandomGradients.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/generate/contractions.h"
#include "tests/generate/random_cell.h"
#include "tests/generate/renamed_sums.h"
#include "tests/generate/try_cells.h"
#include "tests/gradients/compare_gradients.h"

namespace cellc {
namespace {

const char* const kTests = "test_gradients --gtest_filter='RandomGradients.*'";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// Differences know no declared slopes, and of what is stopped they see all.
std::string with_true_slopes(const std::string& text) {
  return replaced(replaced(text, " derivative 1/(1 + 10*abs(v))^2", ""), "stop_gradient(", "(");
}

/// What is declared as a slope, written as a value that has it: equal up to rounding, in the true slope too.
std::string with_slopes_written(const std::string& text) {
  return replaced(text, "fn spike(v) = where(v > 0, 1, 0) derivative 1/(1 + 10*abs(v))^2",
                  "fn spike(v) = where(v > 0, 1, 0) + (v - stop_gradient(v))/(1 + 10*abs(stop_gradient(v)))^2");
}

GradientShape shape_of(std::uint64_t seed) {
  GradientShape shape;
  oracle::Random random(seed ^ 0x6ad1);
  shape.packed = random.chance(0.5);
  shape.reverse = random.chance(0.3);
  for (int b = 1 + random.below(3); b > 0; --b)
    shape.lengths.push_back(shape.packed || shape.lengths.empty() ? random.below(8) : shape.lengths[0]);
  shape.entries = 2 + static_cast<std::size_t>(random.below(2));
  shape.axes = {random.chance(0.3) ? 1 : 3, 2, 4};
  return shape;
}

void try_random(const generate::Seeds& seeds, const std::function<std::string(std::uint64_t)>& text_of) {
  GradientCounts counts;
  generate::try_seeds(
      seeds, text_of,
      [&](const std::string& text, std::uint64_t seed, bool again) {
        GradientCounts some;
        const std::string wrong = try_cell(text, [&](const SourceText&, const LoweredCell& cell) {
          return cell.graph.updates.empty() ? std::string() : wrong_gradients(cell, {}, shape_of(seed), seed, &some);
        });
        if (!again) counts.slopes += some.slopes, counts.kinks += some.kinks, counts.runs += some.runs;
        return wrong;
      },
      kTests, [](const std::string& what) { ADD_FAILURE() << what; });
  std::printf("%lld slopes compared, %lld left out, %lld runs\n", static_cast<long long>(counts.slopes),
              static_cast<long long>(counts.kinks), static_cast<long long>(counts.runs));
  if (seeds.count >= 4) {
    EXPECT_LE(counts.kinks, counts.slopes / 4);
  }
}

TEST(RandomGradients, AreDifferencesOfTheOracle) {
  turns::Turn turn;
  try_random(generate::Seeds(64, turn.part(16)),
             [](std::uint64_t seed) { return with_true_slopes(generate::random_cell(seed)); });
}

TEST(RandomGradients, FlowThroughDefaults) {
  turns::Turn turn;
  try_random(generate::Seeds(64, turn.part(32)),
             [](std::uint64_t seed) { return with_true_slopes(generate::random_cell_with_defaults(seed)); });
}

TEST(RandomGradients, OfSumsOverRenamedAxes) {
  turns::Turn turn;
  try_random(generate::Seeds(64, turn.part(32)), generate::renamed_sums_cell);
}

TEST(RandomGradients, OfSumsOverSeveralAxes) {
  turns::Turn turn;
  try_random(generate::Seeds(32, turn.part(16)), generate::contraction_cell);
}

TEST(RandomGradients, TakeDeclaredSlopes) {
  turns::Turn turn;
  generate::try_seeds(
      generate::Seeds(200, turn.part(20)), generate::random_cell,
      [](const std::string& text, std::uint64_t seed, bool) {
        const auto gradients = [&](const std::string& of, NamedArrays& found) {
          return try_cell(of, [&](const SourceText&, const LoweredCell& cell) {
            if (cell.graph.updates.empty()) return std::string();
            oracle::Random random(seed);
            GradientTrial::Options options;
            options.sizes = oracle::axis_lengths(cell.oracle, {3, 2, 4});
            options.lengths = {5, 5};
            GradientTrial trial(cell.graph, cell.oracle, {}, random, options);
            const AdjointRun adjoint(cell.graph, {});
            found = trial.reference(adjoint);
            return std::string();
          });
        };
        NamedArrays declared, written;
        if (std::string wrong = gradients(text, declared); !wrong.empty()) return wrong;
        if (std::string wrong = gradients(with_slopes_written(text), written); !wrong.empty()) return wrong;
        const double error = declared.empty() ? 0 : largest_error(declared, written);
        return error <= 1e-9 ? std::string() : fmt::format("slopes: {} off those that are written", error);
      },
      kTests, [](const std::string& what) { ADD_FAILURE() << what; });
}

}  // namespace
}  // namespace cellc
