// Scans over (max, +), (min, +) and (logsumexp, +): the rows of a plain loop, at awkward lengths, from starts that are
// partly -infinity and past weights that are.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/engines/strategies.h"

namespace cellc {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct Case {
  const char* name;
  const char* sum;  ///< what stands for ⊕ in the cell
  double (*fold)(const std::vector<double>&);
};

double greatest(const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }
double least(const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }
double log_sum(const std::vector<double>& v) {
  const double most = greatest(v);
  if (std::isinf(most)) return most;
  double sum = 0;
  for (const double x : v) sum += std::exp(x - most);
  return most + std::log(sum);
}

const Case kCases[] = {
    {"viterbi", "max[i](h[i] + A[i,j])", greatest},
    {"shortest", "-max[i](-h[i] - A[i,j])", least},
    {"forward", "logsumexp[i](h[i] + A[i,j])", log_sum},
};

/// A path from left to right: whoever has left a state does not come back, and the first is where it starts.
class Path {
 public:
  Path(const Case& test, Dtype dtype)
      : test_(test),
        dtype_(dtype),
        source_("c.cell",
                fmt::format("cell c[s] {{\n  state h[s]\n  input x[s]\n  param A[s,s]\n  h'[j] = {} + x[j]\n}}\n",
                            test.sum)),
        file_(oracle::parse_or_throw(source_)),
        cell_(source_, file_, file_.cells[0]),
        solver_(cell_.graph, cell_.structure, {.dtype = dtype}) {}

  /// `n`: coupled states.
  void expect_rows_of_a_loop(std::int64_t steps, Strategy strategy, std::int64_t segment, int n = 3) {
    const std::string what =
        fmt::format("{} {} steps {} segment {} of {}", test_.name, to_string(dtype_), steps, segment, n);
    BoundRun run = filled_run(cell_, steps, n, dtype_);
    const double zero = test_.fold == least ? kInfinite : -kInfinite;
    run.symbols[0].set(0, 0);
    for (int i = 1; i < n; ++i) run.symbols[0].set(i, zero);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < i; ++j) run.symbols[2].set(i * n + j, zero);
    std::optional<SolveOptions> options = planned(solver_, cell_, strategy, run, segment, 0);
    ASSERT_TRUE(options) << what;
    SolveReport report;
    const RunOutput output = solver_.run(run, *options, report);
    EXPECT_TRUE(report.converged) << what;
    std::vector<double> h(n), next(n), size(n);
    for (int i = 0; i < n; ++i) h[i] = run.symbols[0].get(i);
    const double within = dtype_ == Dtype::F64 ? 1e-11 : dtype_ == Dtype::F32 ? 4e-6 : 2e-2;
    for (std::int64_t t = 0; t < steps; ++t) {
      for (int j = 0; j < n; ++j) {
        std::vector<double> terms;
        for (int i = 0; i < n; ++i) terms.push_back(h[i] + run.symbols[2].get(i * n + j));
        next[j] = test_.fold(terms) + run.symbols[1].get(t * n + j);
      }
      h = next;
      for (int j = 0; j < n; ++j) {
        const double got = output.states[0].get(t * n + j);
        if (std::isinf(h[j])) {
          ASSERT_EQ(got, h[j]) << what << ", step " << t << ", entry " << j;
          continue;
        }
        size[j] = std::max(size[j], std::fabs(h[j]));
        // Every step may round once more, and nothing is forgotten.
        const double rounded = dtype_ == Dtype::F64 ? 0 : 6e-8 * static_cast<double>(t);
        ASSERT_NEAR(got, h[j], (within + rounded) * (1 + size[j])) << what << ", step " << t << ", entry " << j;
      }
    }
  }

 private:
  const Case& test_;
  const Dtype dtype_;
  const SourceText source_;
  const File file_;
  const LoweredCell cell_;
  Solver solver_;
};

TEST(SemiringScans, AreTheRowsOfALoop) {
  for (const Case& test : kCases)
    for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16}) {
      Path path(test, dtype);
      for (const std::int64_t steps : {1, 2, 63, 64, 65, 257, 1009, 3001})
        for (const std::int64_t segment : {1, 7, 64, 256}) {
          if (segment == 1 && steps > 300) continue;
          path.expect_rows_of_a_loop(steps, Strategy::Scan, segment);
          if (testing::Test::HasFailure()) return;
        }
    }
}

// What stands in a sum of exponentials twice counts twice: every start that a composed map gives is right.
TEST(SemiringScans, ASumHasWhatStandsInItTwice) {
  const SourceText source("c.cell", "cell c[d] {\n  state h[d]\n  input x[d]\n  h' = softplus(softplus(h + x))\n}\n");
  const File file = oracle::parse_or_throw(source);
  const LoweredCell cell(source, file, file.cells[0]);
  Solver solver(cell.graph, cell.structure, {.dtype = Dtype::F64});
  const BoundRun run = filled_run(cell, 1000, 3, Dtype::F64);
  const std::optional<SolveOptions> options = planned(solver, cell, Strategy::Scan, run, 64, 0);
  ASSERT_TRUE(options);
  SolveReport report;
  solver.run(run, *options, report);
  EXPECT_TRUE(report.converged);
  EXPECT_EQ(report.stages.at(0).misses, 0);
}

// As many as a linear stage may couple; a GPU's scans compose four (device-scan.md).
TEST(SemiringScans, OfManyCoupledStates) {
  for (const Case& test : kCases)
    for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
      Path path(test, dtype);
      for (const int n : {5, 8, 17}) path.expect_rows_of_a_loop(257, Strategy::Scan, 64, n);
    }
}

TEST(SemiringScans, ShootingNeedsOneSweep) {
  for (const Case& test : kCases) Path(test, Dtype::F32).expect_rows_of_a_loop(1009, Strategy::Shooting, 100);
}

}  // namespace
}  // namespace cellc
