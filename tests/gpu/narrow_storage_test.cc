// 16-bit storage beside the matrix: a repair that must not end where rows only seem to agree; the forms
// of the kernels that only large runs choose: two channels a thread, blocks whose warps stay together; and rows that
// pass between passes in 16 bits, where products are of such numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/front_end.h"
#include "runtime/data/bind.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

// A state that never forgets: it starts at 1 + e, and the first step takes e away, less than the storage
// shows. So every later segment, which starts early from 1 + e, writes the rows of the true state, 1, and
// ends e beside it. The first repair finds rows that agree from its first step on; only at their ends does it
// show that all are off.
class RoundedRows : public testing::TestWithParam<std::tuple<Dtype, Strategy>> {};

TEST_P(RoundedRows, DoNotEndARepair) {
  const auto [dtype, strategy] = GetParam();
  constexpr std::int64_t kChannels = 64, kSteps = 320;
  const double e = std::ldexp(1.0, dtype == Dtype::BF16 ? -9 : -12);  // a quarter of the spacing above 1
  const AnalysedCell cell =
      analyse_text(SourceText("drift.cell", "cell drift[d] {\n  state h[d]\n  input x[d]\n  h' = h + x\n}\n"));
  Array x(dtype, {1, kSteps, kChannels}), start(Dtype::F32, {1, kChannels});
  for (std::int64_t c = 0; c < kChannels; ++c) {
    x.set(c, -e);
    start.set(c, 1 + e);
  }
  BindRequest request;
  request.dtype = dtype;
  request.inputs["x"] = {"test", x};
  request.states["h"] = {"test", start};
  const Binding binding = bind(cell.cell, request);
  Device device = open_device();
  CudaSolver solver(*device.gpu, cell.cell, cell.structure, dtype, &cell.source);
  SolveOptions options;
  options.tolerance = 1e-6;
  options.plan = {{strategy, 16, 8, "test"}};
  SolveReport report;
  const RunOutput output = solver.run(binding.run, options, report);
  EXPECT_GT(report.stages[0].misses, 0) << "nothing was off, so nothing was tested";
  EXPECT_GE(report.stages[0].repaired, kChannels * (kSteps / 16 - 1)) << "every later segment of every channel is off";
  EXPECT_TRUE(report.converged);
  for (std::int64_t c = 0; c < kChannels; ++c) ASSERT_EQ(output.finals[0].get(c), 1.0) << "channel " << c;
  for (std::int64_t i = 0; i < kSteps * kChannels; ++i) ASSERT_EQ(output.states[0].get(i), 1.0) << "entry " << i;
}

INSTANTIATE_TEST_SUITE_P(CudaNarrow, RoundedRows,
                         testing::Combine(testing::Values(Dtype::F16, Dtype::BF16),
                                          testing::Values(Strategy::Segmented, Strategy::Shooting)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", to_string(std::get<0>(info.param)),
                                              to_string(std::get<1>(info.param)));
                         });

// Two channels a thread are chosen where a multiprocessor has 461 chains at least, and stay-together blocks
// where 128 channels, or 256 of two a thread, are neighbours.
class LargeForms : public testing::TestWithParam<std::tuple<std::string, Dtype>> {};

TEST_P(LargeForms, AgreeWithOracle) {
  const auto& [name, dtype] = GetParam();
  Device device = open_device(1);
  const oracle::Example& file = oracle::example_named(name);
  const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
  CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &file.source);
  oracle::Random random(23);
  constexpr std::int64_t kSteps = 35;
  const std::int64_t sequences = 2 * device.gpu->facts().multiprocessors;
  Trial::Options with{.dtype = dtype,
                      .sizes = oracle::axis_lengths(cell.oracle, {256, 2, 2, 2}),
                      .steps = kSteps,
                      .sequences = static_cast<int>(sequences)};
  with.starts_given = true;
  with.f64_tolerance = 1e-11;
  if (on_card()) with.narrow_tolerance = 1e-4;  // as in the matrix
  const Trial trial(cell.graph, cell.oracle, file.ranges, random, with);
  std::uint64_t seed = 0;
  for (const auto& [strategy, options] : forced(solver, cell, sizes_of(cell, {256, 2, 2, 2}))) {
    // The others run the kernel of segmented.
    if (strategy == Strategy::Auto || strategy == Strategy::Shooting || strategy == Strategy::Newton) continue;
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(sequences), kSteps);
    for (const bool packed : {false, true}) {
      if (packed) lengths[0] = 17;
      device.reorder(seed++);
      const Binding binding = trial.bound(lengths, packed, 1);
      SolveOptions solve = options;
      solve.tolerance = dtype == Dtype::F64 ? 1e-13 : 1e-7;
      SolveReport report;
      const RunOutput output = solver.run(binding.run, solve, report);
      ASSERT_EQ(trial.verify(binding.run, output, lengths), "") << to_string(strategy) << (packed ? ", packed" : "");
      ASSERT_TRUE(report.converged);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(CudaNarrow, LargeForms,
                         testing::Values(std::tuple("01_para_gru", Dtype::F32), std::tuple("01_para_gru", Dtype::F16),
                                         std::tuple("02_para_lstm", Dtype::BF16), std::tuple("08_gilr", Dtype::F32),
                                         std::tuple("08_gilr", Dtype::BF16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), to_string(std::get<1>(info.param)));
                         });

// Stages before stages, sums over earlier rows and their starts, outs of several stages, products that are an out, and
// one whose operand another has left. Wherever a row is read, it was rounded once: errors are some units of storage,
// and a start read as if it were a row of 16 bits would be off by all.
constexpr const char* kPasses[] = {
    R"(cell gates[d] {
  state g[d], c[d]
  input ua[d], ub[d], uf[d], uo[d]
  param Vf[d,d], Vo[d,d]
  a  = sigmoid(ua)
  g' = a*g + (1 - a)*tanh(ub)
  c' = sigmoid(0.2*(Vf@g) + uf)*c + tanh(lag(g, 2) + g')
  out h = sigmoid(0.2*(Vo@g) + uo)*tanh(c')
  out p = Vo@g
}
)",
    R"(cell sums[d, n, r, m] {
  state h[d,n]
  input x[d], gate[d]
  param W1[r,d], W2[d,r], WB[n,d], WC[n,d], P[m,d]
  u  = silu(x)
  dt = softplus(0.1*(W2@W1@u))
  h' = exp(-dt)*h + dt*u*(WB@u)
  out y = (0.2*(h'@(WC@u)) + u)*silu(gate)
  out z = P@u
}
)",
    R"(cell mixer[d, n, r, w=4] {
  state h[d,n]
  input x[d], gate[d]
  param conv[d,w], W1[r,d], W2[d,r], WB[n,d], WC[n,d], D[d]
  u  = silu(sum[w](conv*lag[w](x)))
  dt = softplus(0.1*(W2@W1@u))
  h' = exp(-dt)*h + dt*u*(WB@u)
  out y = (0.2*(h'@(WC@u)) + D*u)*silu(gate)
}
)"};

class RoundedPasses : public testing::TestWithParam<std::tuple<std::size_t, Dtype>> {};

TEST_P(RoundedPasses, AgreeWithOracle) {
  const auto [number, dtype] = GetParam();
  const double unit = dtype == Dtype::BF16 ? 0x1p-8 : 0x1p-11;
  Device device = open_device();
  const std::string wrong =
      try_cell(kPasses[number], [&](const SourceText& source, const LoweredCell& cell) -> std::string {
        CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
        oracle::Random random(31);
        const std::vector<std::int64_t> axes = number == 0   ? std::vector<std::int64_t>{19}
                                               : number == 1 ? std::vector<std::int64_t>{21, 8, 5, 3}
                                                             : std::vector<std::int64_t>{40, 16, 8, 4};
        Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, axes), .steps = 37};
        with.starts_given = true;
        with.narrow_tolerance = 16 * unit;
        const Trial trial(cell.graph, cell.oracle, {}, random, with);
        for (const Strategy strategy : {Strategy::Sequential, Strategy::Scan, Strategy::Segmented})
          for (const RunShape& shape : {RunShape{{37, 37}}, RunShape{{20, 0, 1}, true}}) {
            SolveOptions options;
            options.solver = strategy;
            options.products = Products::Storage;
            const Binding binding = trial.bound(shape.lengths, shape.packed, 1);
            SolveReport report;
            spoil(device, solver, cell.graph, binding.run, options);
            const RunOutput output = solver.run(binding.run, options, report);
            EXPECT_EQ(solver.storage(), dtype);
            EXPECT_TRUE(report.converged);
            const std::string what = trial.verify(binding.run, output, shape.lengths);
            if (!what.empty())
              return fmt::format("{}{}: {}", to_string(strategy), shape.packed ? ", packed" : "", what);
          }
        return {};
      });
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(CudaNarrow, RoundedPasses,
                         testing::Combine(testing::Values(0, 1, 2), testing::Values(Dtype::F16, Dtype::BF16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), to_string(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace cellc
