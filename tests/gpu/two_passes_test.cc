// Lanes that make sums and walk segments in two passes (kernels-templates/segments/two_passes.cuh): beside the oracle,
// in how many launches, what is done where a composed start was off, and which runs are cut.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels-templates/host/host_passes.h"
#include "runtime/data/bind.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// A walk from inputs to outs; one whose sums a kernel reads that stands behind the stage; and one that is gated.
constexpr const char* kCells[] = {
    R"(cell selective[d, n] {
  state h[d,n]
  input u[d], dt[d], B[n], C[n]
  param A_log[d,n], D[d]
  delta = softplus(dt)
  h' = exp(-delta*exp(A_log))*h + delta*u*B
  out y = h'@C + D*u
}
)",
    R"(cell bounded[d, n] {
  state h[d,n]
  input u[d], f[n], C[n]
  h' = sigmoid(f)*h + u*C
  out y = tanh(sum[n](C*h')) + u
}
)",
    R"(cell gated[d, n] {
  state h[d,n]
  input u[d], a[d], C[n]
  h' = 0.9*sigmoid(a)*h + u*C
  out y = -(sum[n](C*h') - 2*u)*silu(a) + a
}
)",
};

SolveOptions in_segments_of(std::int64_t steps) {
  SolveOptions options;
  StagePlan plan;
  plan.strategy = Strategy::Scan;
  plan.segment = steps;
  options.plan = {plan};
  return options;
}

std::int64_t launches_of(Device& device, CudaSolver& solver) {
  const std::int64_t before = device.emulator ? device.emulator->counts().launches : 0;
  solver.launch(0);
  device.gpu->synchronize(0);
  return (device.emulator ? device.emulator->counts().launches : 0) - before;
}

class TwoPasses : public testing::TestWithParam<std::tuple<std::size_t, Dtype>> {};

TEST_P(TwoPasses, AgreeWithOracle) {
  const auto [number, dtype] = GetParam();
  Device device = open_device(1);
  std::uint64_t seed = 0;
  const std::string wrong =
      try_cell(kCells[number], [&](const SourceText& source, const LoweredCell& cell) -> std::string {
        CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
        oracle::Random random(41);
        // Warps that are full and such as are not, of one segment and of several; sums of a few lanes, of a warp's and
        // of two's; one, two and four lanes a thread.
        for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{5, 8}, {13, 16}, {3, 64}}) {
          Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, axes), .steps = 71};
          with.starts_given = true;
          with.f64_tolerance = 1e-11;
          with.reverse = axes[1] == 16;
          const Trial trial(cell.graph, cell.oracle, {}, random, with);
          for (const std::int64_t segment : {8, 64})
            for (const RunShape& shape : {RunShape{{71, 71}}, RunShape{{0, 1, 48}, true}}) {
              device.reorder(seed++);
              const Binding binding = trial.bound(shape.lengths, shape.packed, 1);
              SolveReport report;
              const SolveOptions options = in_segments_of(segment);
              spoil(device, solver, cell.graph, binding.run, options);
              const RunOutput output = solver.run(binding.run, options, report);
              std::string what = trial.verify(binding.run, output, shape.lengths);
              if (!report.converged) what = "reported as not converged";
              // Two passes, and the walk of what was off; a kernel may stand before them, and one behind.
              const std::int64_t launches = launches_of(device, solver);
              const bool cut = segment < *std::max_element(shape.lengths.begin(), shape.lengths.end());
              if (what.empty() && device.emulator && cut && launches < 3)
                what = fmt::format("{} launches: {}", launches, report.stages[0].plan.reason);
              if (!what.empty())
                return fmt::format("lengths {}{}, segments of {}: {}", axes, shape.packed ? ", packed" : "", segment,
                                   what);
            }
        }
        return {};
      });
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(CudaLanes, TwoPasses,
                         testing::Combine(testing::Values(0, 1, 2),
                                          testing::Values(Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), to_string(std::get<1>(info.param)));
                         });
CELLC_ONE_IN(3, "CudaLanes/TwoPasses");

// A large factor that meets what is left of it: maps pass 2^50 where the state is none. Products are by powers of two,
// so that a walk has the same bits everywhere.
TEST(TwoPassesOfSegments, WalkAgainWhereAStartWasOff) {
  Device device = open_device(1);
  constexpr std::int64_t kSteps = 96, kChannels = 6, kSummed = 8, kOff = 4;
  const SourceText source("test.cell",
                          "cell kept[d, n] {\n  state h[d,n]\n  input a[d], x[d], B[n]\n  h' = a*h + x*B\n"
                          "  out y = sum[n](h')\n}\n");
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  BoundRun run;
  run.offsets = {0, kSteps};
  run.sizes = sizes_of(cell, {kChannels, kSummed});
  for (const Symbol& symbol : cell.graph.symbols) {
    std::vector<std::int64_t> shape{symbol.kind == SymbolKind::State ? 1 : kSteps};
    for (const AxisId axis : symbol.axes) shape.push_back(run.sizes.at(axis));
    run.symbols.emplace_back(Dtype::F32, shape);
    run.histories.emplace_back();
    for (std::int64_t i = 0; i < run.symbols.back().count(); ++i) run.symbols.back().set(i, symbol.name == "B" ? 1 : 0);
  }
  const auto array = [&](const std::string& name) -> Array& {
    const auto is_named = [&](const Symbol& s) { return s.name == name; };
    const auto& all = cell.graph.symbols;
    return run.symbols[static_cast<std::size_t>(std::find_if(all.begin(), all.end(), is_named) - all.begin())];
  };
  oracle::Random random(3);
  std::vector<float> rows, h(kChannels);
  for (std::int64_t t = 0; t < kSteps; ++t)
    for (std::int64_t c = 0; c < kChannels; ++c) {
      float& now = h[static_cast<std::size_t>(c)];
      const bool meets = c == kOff && t == 20, stays = c == kOff && t > 20 && t < 60;
      const float factor = meets ? 0x1p50f : stays ? 1.0f : 0.5f;
      const float term = meets ? -factor * now : static_cast<float>(random.uniform(stays ? -1 : 1, stays ? 1 : 2));
      array("a").set(t * kChannels + c, factor);
      array("x").set(t * kChannels + c, term);
      now = factor * now + term;
      rows.push_back(now);
    }
  CudaSolver solver(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source);
  SolveReport report;
  const RunOutput output = solver.run(run, in_segments_of(16), report);
  EXPECT_TRUE(report.converged);
  EXPECT_EQ(report.stages.at(0).plan.strategy, Strategy::Scan) << report.stages.at(0).plan.reason;
  EXPECT_EQ(report.stages.at(0).repaired, kSummed);  // the states of that channel, and no other
  for (std::int64_t t = 0; t < kSteps; ++t)
    for (std::int64_t c = 0; c < kChannels; ++c) {
      const double found = output.outs.at(0).get(t * kChannels + c),
                   expected = kSummed * rows[static_cast<std::size_t>(t * kChannels + c)];
      if (c == kOff)
        ASSERT_EQ(found, expected) << t;
      else
        ASSERT_NEAR(found, expected, 1e-6 * (1 + std::abs(expected))) << t << ", channel " << c;
    }
}

TEST(TwoPassesOfSegments, AreForFewLanesAndManySteps) {
  cellc_facts card{};
  card.multiprocessors = 132;
  const auto steps = [&](std::int64_t sequences, std::int64_t channels, std::int64_t longest) {
    return cellc_two_pass_segment(&card, sequences, channels, longest);
  };
  EXPECT_EQ(steps(8, 1024 * 16, 2048), 0);  // one walk fills the card
  EXPECT_EQ(steps(3, 1024 * 16, 2048), 416);
  EXPECT_EQ(steps(2, 1024 * 16, 2048), 256);
  EXPECT_EQ(steps(1, 2048 * 16, 16384), 2048);
  EXPECT_EQ(steps(1, 64 * 16, 65536), 344);  // no more maps than are soon composed
  EXPECT_EQ(steps(1, 64 * 16, 4096), 0);     // a scan is sooner done
  EXPECT_EQ(steps(2, 1024 * 16, 64), 0);
  EXPECT_EQ(steps(0, 16, 2048), 0);
  EXPECT_EQ(steps(4, 0, 2048), 0);
}

// What auto takes: a scan of such a stage is one over segments, and its lanes make the sums.
TEST(TwoPassesOfSegments, AreWhatAutoTakes) {
  Device device = open_device(4);
  const std::string wrong = try_cell(kCells[0], [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    oracle::Random random(5);
    Trial::Options with{.dtype = Dtype::F32, .sizes = oracle::axis_lengths(cell.oracle, {16, 8}), .steps = 520};
    const Trial trial(cell.graph, cell.oracle, {}, random, with);
    const Binding binding = trial.bound({520, 520}, false, 1);
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source);
    SolveReport report;
    const RunOutput output = solver.run(binding.run, {}, report);
    EXPECT_EQ(report.stages.at(0).plan.strategy, Strategy::Scan);
    EXPECT_EQ(report.stages.at(0).plan.segment, 64);
    EXPECT_NE(report.stages.at(0).plan.reason.find("segments of 64 steps, whose maps come first"), std::string::npos)
        << report.stages.at(0).plan.reason;
    // Nobody asks for the states, and nobody looks at whole steps: there are no rows of them.
    BoundRun outs = binding.run;
    outs.wanted.states = {false};
    const auto live = [&] { return device.emulator ? device.emulator->counts().live_bytes : 0; };
    const std::int64_t before = live(), rows = 2 * 520 * 16 * 8 * 4;
    CudaSolver without(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source);
    const RunOutput alone = without.run(outs, {}, report);
    EXPECT_LT(live() - before, rows);
    for (std::int64_t i = 0; i < output.outs.at(0).count(); ++i)
      if (alone.outs.at(0).get(i) != output.outs.at(0).get(i)) return fmt::format("without states, y[{}]", i);
    return trial.verify(binding.run, output, {520, 520});
  });
  EXPECT_EQ(wrong, "");
}

}  // namespace
}  // namespace cellc
