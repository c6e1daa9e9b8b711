// Forward runs whose lanes make outs of their channels (compiler/derive/fused_outs.h): by every strategy beside the
// oracle, in how many passes and with which rows, and where a scan's start was off.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/data/bind.h"
#include "tests/gpu/call_setting.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// A pool, whose only out is its lanes'; one that is not linear, with an out of the step before; and two stages with an
// out each, beside one that mixes channels.
constexpr const char* kCells[] = {
    "cell pool[d] {\n  state c[d]\n  input z[d], f[d], o[d]\n  g = sigmoid(f)\n  c' = g*c + (1 - g)*z\n"
    "  out h = o*c'\n}\n",
    "cell gated[d] {\n  state c[d]\n  input x[d], u[d]\n  param v[d]\n  f = sigmoid(v*c + u)\n"
    "  c' = 0.9*f*c + (1 - f)*x\n  out h = f*c' + u*c\n}\n",
    "cell two[d] {\n  state a[d], b[d]\n  input x[d], g[d]\n  param W[d,d]\n  a' = 0.9*sigmoid(g)*a + x\n"
    "  b' = 0.5*b + tanh(a')\n  out p = a'*g\n  out q = b + b'*x\n  out r = W@b'\n}\n",
};

std::int64_t launches_of(Device& device, CudaSolver& solver) {
  const std::int64_t before = device.emulator->counts().launches;
  solver.launch(0);
  device.gpu->synchronize(0);
  return device.emulator->counts().launches - before;
}

class OutsInLanes : public testing::TestWithParam<std::tuple<std::size_t, Dtype>> {};

TEST_P(OutsInLanes, AgreeWithOracle) {
  const auto [number, dtype] = GetParam();
  Device device = open_device(2);
  std::uint64_t seed = 0;
  const std::string wrong =
      try_cell(kCells[number], [&](const SourceText& source, const LoweredCell& cell) -> std::string {
        CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
        oracle::Random random(31);
        for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{32}, {7}}) {
          Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, axes), .steps = 131};
          with.starts_given = true;
          with.f64_tolerance = 1e-11;
          with.reverse = axes[0] == 7;
          const Trial trial(cell.graph, cell.oracle, {}, random, with);
          for (const Forced& by : forced(solver, cell, sizes_of(cell, axes)))
            for (const RunShape& shape : {RunShape{{131, 131}}, RunShape{{0, 1, 67}, true}}) {
              device.reorder(seed++);
              const Binding binding = trial.bound(shape.lengths, shape.packed, 1);
              SolveReport report;
              SolveOptions options = by.options;
              options.tolerance = dtype == Dtype::F64 ? 1e-12 : 1e-6;
              const RunOutput output = solver.run(binding.run, options, report);
              std::string what = trial.verify(binding.run, output, shape.lengths);
              if (!report.converged) what = "reported as not converged";
              const Strategy ran = report.stages[0].plan.strategy;
              // A walk makes all in one pass; behind a scan stands the walk of what was off.
              const bool once = ran == Strategy::Sequential || ran == Strategy::Scan;
              if (what.empty() && device.emulator && number == 0 && once) {
                if (const auto passes = launches_of(device, solver); passes != (ran == Strategy::Scan ? 2 : 1))
                  what = fmt::format("{} passes", passes);
                if (solver.storage() != dtype) what = "rows do not keep the caller's type";
              }
              if (what.empty() && number == 1 && solver.storage() != arithmetic_of(dtype))
                what = "rows of a cell that may be cut are rounded where its outs read them";
              if (!what.empty())
                return fmt::format("{} channels{} by {}: {}", axes[0], shape.packed ? ", packed" : "",
                                   to_string(by.strategy), what);
            }
        }
        return {};
      });
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(CudaLanes, OutsInLanes,
                         testing::Combine(testing::Values(0, 1, 2),
                                          testing::Values(Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), to_string(std::get<1>(info.param)));
                         });
CELLC_ONE_IN(3, "CudaLanes/OutsInLanes");

// A large factor that meets what is left of it: what composed maps round is a large number where the state is none.
// Rows and outs of those chains, and of no others, are made again.
TEST(OutsInLanesAfterAScan, AreMadeAgainWhereAStartWasOff) {
  constexpr std::int64_t kChannels = 32, kSteps = 1200;
  const SourceText source("test.cell",
                          "cell grows[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = a*h + x\n  out y = 2*h' - h\n}\n");
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  Device device = open_device(1);  // on which a scan of so many entries makes outs
  CudaSolver solver(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source);
  BoundRun run;
  run.offsets = {0, kSteps};
  run.sizes[cell.graph.header[0]] = kChannels;
  Array factors(Dtype::F32, {kSteps, kChannels}), terms(Dtype::F32, {kSteps, kChannels});
  oracle::Random random(7);
  for (std::int64_t c = 0; c < kChannels; ++c) {
    float h = 0;  // products by powers of two are exact, so that this is every kernel's
    for (std::int64_t t = 0; t < kSteps; ++t) {
      const bool meets = c % 8 == 3 && t % 600 == 150,
                 stays = c % 8 == 3 && t % 600 > 150 && t % 600 < 400;  // over several tiles
      const float factor = meets   ? 0x1p50f
                           : stays ? 1.0f
                                   : 0.5f,
                  term = meets ? -factor * h : static_cast<float>(random.uniform(stays ? -1 : 1, stays ? 1 : 2));
      factors.set(t * kChannels + c, factor);
      terms.set(t * kChannels + c, term);
      h = factor * h + term;
    }
  }
  for (const Symbol& symbol : cell.graph.symbols) {
    run.symbols.push_back(symbol.name == "a"   ? factors
                          : symbol.name == "x" ? terms
                                               : Array(Dtype::F32, {1, kChannels}));
    run.histories.emplace_back();
  }
  for (std::int64_t c = 0; c < kChannels; ++c) run.symbols[0].set(c, 0);
  SolveOptions options;
  options.solver = Strategy::Scan;
  SolveReport report;
  const RunOutput output = solver.run(run, options, report);
  EXPECT_TRUE(report.converged);
  ASSERT_EQ(report.stages[0].plan.strategy, Strategy::Scan) << report.stages[0].plan.reason;
  EXPECT_GT(report.repaired, 0);
  for (std::int64_t c = 0; c < kChannels; ++c) {
    float h = 0;
    for (std::int64_t t = 0; t < kSteps; ++t) {
      const float next =
          static_cast<float>(factors.get(t * kChannels + c)) * h + static_cast<float>(terms.get(t * kChannels + c));
      ASSERT_NEAR(output.states[0].get(t * kChannels + c), next, 1e-5) << "channel " << c << ", step " << t;
      ASSERT_NEAR(output.outs[0].get(t * kChannels + c), 2 * next - h, 2e-5) << "channel " << c << ", step " << t;
      h = next;
    }
  }
}

}  // namespace
}  // namespace cellc
