// Results that are wanted have the bits that they have where all are: whatever else is left out, wherever time is cut,
// by every strategy.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/engines/strategies.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

std::string difference(const char* what, std::size_t number, bool wanted, const Array& part, const Array& all) {
  if (!wanted) return part.shape().empty() ? "" : fmt::format("{} {} is written, and not wanted", what, number);
  if (part.shape() != all.shape() || part.dtype() != all.dtype())
    return fmt::format("{} {} has another shape or dtype", what, number);
  const auto bytes = static_cast<std::size_t>(all.count()) * size_of(all.dtype());
  return bytes == 0 || std::memcmp(part.data(), all.data(), bytes) == 0
             ? ""
             : fmt::format("{} {} has other bits", what, number);
}

std::string difference(const Wanted& wanted, const RunOutput& part, const RunOutput& all) {
  const auto of = [&](const char* what, const std::vector<bool>& list, const std::vector<Array>& some,
                      const std::vector<Array>& whole) -> std::string {
    if (some.size() != whole.size())
      return fmt::format("{}: {} of them where there are {}", what, some.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i)
      if (std::string wrong = difference(what, i, Wanted::has(list, i), some[i], whole[i]); !wrong.empty())
        return wrong;
    return "";
  };
  std::string wrong = of("state", wanted.states, part.states, all.states);
  if (wrong.empty()) wrong = of("final", wanted.finals, part.finals, all.finals);
  return wrong.empty() ? of("out", wanted.outs, part.outs, all.outs) : wrong;
}

/// What a caller may leave out: states; states and finals; all but the finals; all but the first state; everything.
std::vector<Wanted> choices(const CellGraph& cell) {
  const std::vector<bool> no_state(cell.updates.size(), false), no_out(cell.outs.size(), false);
  std::vector<bool> one_state = no_state;
  one_state.front() = true;
  return {{no_state, {}, {}, {}},
          {no_state, no_state, {}, {}},
          {no_state, {}, no_out, {}},
          {one_state, no_state, no_out, {}},
          {no_state, no_state, no_out, {}}};
}

/// Sequences of 700, no, 3 and 597 steps: parts of time end within them and with them.
BoundRun ragged_run(const LoweredCell& cell, Dtype dtype) {
  BoundRun run = filled_run(cell, 1300, 3, dtype);
  run.offsets = {0, 700, 700, 703, 1300};
  oracle::Random random(4);
  for (std::size_t s = 0; s < run.symbols.size(); ++s) {
    if (cell.graph.symbols[s].kind != SymbolKind::State) continue;
    std::vector<std::int64_t> shape = run.symbols[s].shape();
    shape[0] = 4;
    run.symbols[s] = Array(arithmetic_of(dtype), shape);
    for (std::int64_t i = 0; i < run.symbols[s].count(); ++i) run.symbols[s].set(i, random.uniform(-1, 1));
  }
  return run;
}

class WantedResults : public testing::TestWithParam<std::string> {
 protected:
  /// By one strategy, all of the choices.
  void compare(Solver& solver, const LoweredCell& cell, BoundRun run, Strategy strategy) {
    const auto options = forced(solver, cell, strategy, run, true);
    if (!options) return;
    SolveReport report;
    run.wanted = {};
    const RunOutput all = solver.run(run, *options, report);
    for (const Wanted& wanted : choices(cell.graph)) {
      run.wanted = wanted;
      EXPECT_EQ(difference(wanted, solver.run(run, *options, report), all), "")
          << cell.graph.name << " by " << to_string(strategy) << ", " << run.threads << " threads"
          << (run.reverse ? ", reversed" : "");
    }
  }
};

TEST_P(WantedResults, HaveTheBitsOfAFullRun) {
  const oracle::Example& file = oracle::example_named(GetParam());
  for (const Cell& tree : file.tree.cells) {
    const LoweredCell cell(file.source, file.tree, tree);
    for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
      SCOPED_TRACE(to_string(dtype));
      Solver solver(cell.graph, cell.structure, {.dtype = dtype});
      BoundRun run = ragged_run(cell, dtype);
      run.threads = 3;
      for (const Strategy strategy : kStrategies)
        if (dtype == Dtype::F32 && strategy != Strategy::Auto) compare(solver, cell, run, strategy);
      for (const bool reverse : {false, true}) {
        run.reverse = reverse;
        run.threads = 1;
        compare(solver, cell, run, Strategy::Sequential);
        // Few sequences of many channels: threads share them.
        BoundRun wide = filled_run(cell, 600, 17, dtype);
        wide.reverse = reverse;
        wide.threads = 3;
        if (cell.structure.stages.size() == 1) compare(solver, cell, wide, Strategy::Sequential);
      }
    }
  }
}

CELLC_ONE_IN(4, "Examples/WantedResults");
INSTANTIATE_TEST_SUITE_P(Examples, WantedResults, testing::ValuesIn(oracle::names_of(oracle::dsl_examples())),
                         [](const auto& info) { return info.param; });

/// Segments of 64 steps, started early, of one cell of a text: once whole, once for the outs and finals alone. Whether
/// rows of the states were in memory then.
bool keeps_rows(const char* text, std::int64_t burn_in, Dtype dtype = Dtype::F32) {
  const SourceText source("test.cell", text);
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  Solver solver(cell.graph, cell.structure, {.dtype = dtype});
  BoundRun run = ragged_run(cell, dtype);
  const auto options = planned(solver, cell, Strategy::Segmented, run, 64, burn_in);
  SolveReport whole, report;
  const RunOutput all = solver.run(run, *options, whole);
  run.wanted.states.assign(cell.graph.updates.size(), false);
  EXPECT_EQ(difference(run.wanted, solver.run(run, *options, report), all), "");
  EXPECT_EQ(report.max_residual, whole.max_residual);
  EXPECT_EQ(report.stages[0].misses, whole.stages[0].misses);
  EXPECT_EQ(report.error_estimate > 0, whole.error_estimate > 0);
  return report.stages[0].plan.reason.find(kStaysInMemory) != std::string::npos;
}

// Lanes make the outs, and every boundary is within the tolerance: nothing else is written.
TEST(WantedOfSegments, TakesNoRows) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16}) {
    EXPECT_FALSE(
        keeps_rows("cell a[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + tanh(x)\n  out y = h'*x\n}\n", 60, dtype));
    EXPECT_FALSE(
        keeps_rows("cell b[d] {\n  state h[d], c[d]\n  input x[d]\n  h' = 0.4*h + tanh(x + 0.1*c)\n"
                   "  c' = 0.3*c + 0.2*h\n  out y = h'*c\n  out z = sigmoid(c')\n}\n",
                   60, dtype));
    EXPECT_FALSE(keeps_rows("cell n[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + tanh(x)\n}\n", 60, dtype));
  }
}

// The first step of a segment forgets, so it follows from any start; the out beside it is made of that start.
TEST(WantedOfSegments, OutsReadStatesThatAStepForgets) {
  const SourceText source("test.cell",
                          "cell a[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = a*h + x\n  out y = 2*h' - h\n}\n");
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  constexpr std::int64_t kSteps = 200, kChannels = 5, kSegment = 50;
  BoundRun run = filled_run(cell, kSteps, kChannels, Dtype::F64);
  std::vector<double> outs(kSteps * kChannels);
  for (std::int64_t c = 0; c < kChannels; ++c) {
    double h = run.symbols[0].get(c);
    for (std::int64_t t = 0; t < kSteps; ++t) {
      const std::int64_t at = t * kChannels + c;
      run.symbols[1].set(at, t % kSegment == 0 ? 0 : 1);
      const double next = run.symbols[1].get(at) * h + run.symbols[2].get(at);
      outs[static_cast<std::size_t>(at)] = 2 * next - h;
      h = next;
    }
  }
  run.wanted.states = {false};
  SolveOptions options;
  options.plan = {{Strategy::Segmented, kSegment, 4}};
  SolveReport report;
  const RunOutput found = Solver(cell.graph, cell.structure, {.dtype = Dtype::F64}).run(run, options, report);
  for (std::int64_t i = 0; i < kSteps * kChannels; ++i)
    ASSERT_NEAR(found.outs[0].get(i), outs[static_cast<std::size_t>(i)], 1e-9) << "entry " << i;
}

// A boundary that misses is repaired among rows, and outs that mix channels are made of them.
TEST(WantedOfSegments, KeepsRowsWhereTheyAreRead) {
  EXPECT_TRUE(keeps_rows("cell a[d] {\n  state h[d]\n  input x[d]\n  h' = 0.99*h + tanh(x)\n  out y = h'*x\n}\n", 4));
  EXPECT_TRUE(
      keeps_rows("cell b[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + tanh(x)\n  out y = sum[d](h'*x)\n}\n", 40));
}

}  // namespace
}  // namespace cellc
