// Walks from inputs to outs (compiler/derive/fused_sum_outs.h): which stages have one, how a run takes it, and what
// comes of it beside the oracle, in each storage.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "compiler/derive/pipeline.h"
#include "compiler/front_end.h"
#include "runtime/data/bind.h"
#include "tests/gpu/call_setting.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// What lanes share, and an out that is its sum and a term; one that is minus its sum, gated, and over axes in another
// order, where only what lacks the innermost channels is made by lanes; two outs, one of them the sum alone; and an out
// that reads what is made before the stage.
constexpr const char* kWhole[] = {
    R"(cell selective[d, n] {
  state h[d,n]
  input u[d], dt[d], B[n], C[n]
  param A_log[d,n], D[d]
  delta = softplus(dt)
  h' = exp(-delta*exp(A_log))*h + delta*u*B
  out y = h'@C + D*u
}
)",
    R"(cell gated[g, d, n] {
  state h[g,d,n]
  input u[g,d], a[g], gate[g,d], C[n]
  h' = 0.8*sigmoid(a)*tanh(u)*h + u*C
  out y[d,g] = -(sum[n](C*h'[g,d,n]) - 2*u)*silu(gate) + a
}
)",
    R"(cell pair[d, n] {
  state p[d,n], q[d,n]
  input u[d], B[n]
  p' = 0.5*p + u*B
  q' = 0.5*q + tanh(u)*p'
  out y = 0.5*(sum[n](B*q') + u)
  out z = sum[n](p')
}
)",
    R"(cell mixer[d, n, w=2] {
  state h[d,n]
  input x[d], gate[d]
  param conv[d,w], WB[n,d], WC[n,d], A_log[d,n], D[d]
  u = silu(sum[w](conv*lag[w](x)))
  h' = exp(-softplus(x)*exp(A_log))*h + x*(WB@u)
  out y = (h'@(WC@u) + D*x)*silu(gate)
}
)",
};

/// Counts the passes of a run by their launches.
std::int64_t launches_of(Device& device, CudaSolver& solver) {
  const std::int64_t before = device.emulator ? device.emulator->counts().launches : 0;
  solver.launch(0);
  device.gpu->synchronize(0);
  return (device.emulator ? device.emulator->counts().launches : 0) - before;
}

class FusedSumOuts : public testing::TestWithParam<std::tuple<std::size_t, Dtype>> {};

TEST_P(FusedSumOuts, AgreeWithOracle) {
  const auto [number, dtype] = GetParam();
  Device device = open_device(1);
  std::uint64_t seed = 0;
  const std::string wrong =
      try_cell(kWhole[number], [&](const SourceText& source, const LoweredCell& cell) -> std::string {
        CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
        oracle::Random random(29);
        // Warps that are full, and such as are not; as many lanes as this needs, and one channel less.
        const std::vector<std::vector<std::int64_t>> lengths =
            number == 1 ? std::vector<std::vector<std::int64_t>>{{3, 9, 16}, {2, 13, 8}}
                        : std::vector<std::vector<std::int64_t>>{{27, 8}, {13, 16}, {14, 32}, {101, 2}, {12, 16}};
        for (const std::vector<std::int64_t>& axes : lengths) {
          Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, axes), .steps = 37};
          with.starts_given = true;
          with.f64_tolerance = 1e-11;
          with.reverse = axes.back() == 16;
          const Trial trial(cell.graph, cell.oracle, {}, random, with);
          SolveOptions options;
          options.solver = Strategy::Sequential;
          for (const RunShape& shape : {RunShape{{37, 37}}, RunShape{{1, 20}, true}}) {
            device.reorder(seed++);
            const Binding binding = trial.bound(shape.lengths, shape.packed, 1);
            SolveReport report;
            spoil(device, solver, cell.graph, binding.run, options);
            const RunOutput output = solver.run(binding.run, options, report);
            const std::string what = trial.verify(binding.run, output, shape.lengths);
            if (!what.empty()) return fmt::format("lengths {}{}: {}", axes, shape.packed ? ", packed" : "", what);
            // Nothing stands before and after a walk of inputs alone, and rows keep 16 bits.
            std::int64_t lanes = static_cast<std::int64_t>(shape.lengths.size());
            for (const std::int64_t n : axes) lanes *= n;
            if (!device.emulator || number > 0) continue;
            EXPECT_EQ(launches_of(device, solver) == 1, lanes >= 400) << fmt::format("{}", axes);
            EXPECT_EQ(solver.storage(), lanes >= 400 ? dtype : arithmetic_of(dtype));
          }
        }
        return {};
      });
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(CudaLanes, FusedSumOuts,
                         testing::Combine(testing::Values(0, 1, 2, 3),
                                          testing::Values(Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), to_string(std::get<1>(info.param)));
                         });
CELLC_ONE_IN(4, "CudaLanes/FusedSumOuts");

// A caller's arrays of 16 bits are read and written as they lie; whoever leaves the out or the states out has the rest.
TEST(FusedSumOutsOfACall, TakeArraysAsTheyLie) {
  for (const Dtype dtype : {Dtype::BF16, Dtype::F16, Dtype::F32})
    for (const CallLook& look : {CallLook{}, CallLook{.strided = true}}) {
      EmulatorOptions small;
      small.optimisation = 0;
      small.multiprocessors = 1;
      const std::unique_ptr<Emulator> gpu = open_emulator(small);
      SolveOptions solve;
      solve.solver = Strategy::Sequential;
      CallSetting s(*gpu, "13_s6", dtype, std::vector<std::int64_t>(8, 67), 5, look, solve);
      s.calls->pool.run(s.arrays->arrays(), 0, s.arrays->status(), nullptr);
      EXPECT_EQ(s.wrong(), "") << to_string(dtype) << look.strided;
      const std::int64_t before = gpu->counts().launches;
      s.calls->pool.run(s.arrays->arrays(), 0, 0, nullptr);
      if (!look.strided) {
        EXPECT_EQ(gpu->counts().launches - before, 1) << to_string(dtype);
      }
      const RunOutput whole = s.arrays->read(s.binding);
      const CallLayout layout = call_layout(s.cell.graph);
      for (const FieldKind left : {FieldKind::Out, FieldKind::State}) {
        std::vector<CallArray> arrays = s.arrays->arrays();
        for (std::size_t i = 0; i < arrays.size(); ++i)
          if (layout.fields[i].kind == left) arrays[i].data = 0;
        s.arrays->fill(s.binding);
        s.calls->pool.run(arrays, 0, 0, nullptr);
        const RunOutput some = s.arrays->read(s.binding);
        const Array &found = left == FieldKind::Out ? some.states.at(0) : some.outs.at(0),
                    &expected = left == FieldKind::Out ? whole.states.at(0) : whole.outs.at(0);
        for (std::int64_t i = 0; i < expected.count(); ++i) ASSERT_EQ(found.get(i), expected.get(i)) << i;
      }
    }
}

std::optional<StageCells> of_text(const std::string& text) {
  const AnalysedCell cell = analyse_text(SourceText("test.cell", text));
  return fuse_sum_outs(cell.cell, cell.structure, 0);
}

TEST(FusedSumOutsOfACell, AreTheseOuts) {
  for (const char* text : kWhole) EXPECT_TRUE(of_text(text).has_value()) << text;
  const auto with_outs = [](const std::string& outs) {
    return "cell c[d, n] {\n  state h[d,n]\n  input u[d], B[n]\n  h' = 0.5*h + u*B\n" + outs + "}\n";
  };
  EXPECT_EQ(of_text(with_outs("  out y = u - sum[n](h')*u\n"))->sum_outs, std::vector<int>{0});
  // Not affine in its sum, one sum of two outs, two sums of one, the other states of the stage, sums along outer
  // channels, and outs that are no sums beside one that is.
  for (const char* outs : {"  out y = tanh(sum[n](h'))\n", "  s = sum[n](h')\n  out y = s + u\n  out z = s - u\n",
                           "  out y = sum[n](h') + sum[n](B*h')\n", "  out y = sum[n](h')/u\n",
                           "  out y = sum[d](u*h')\n", "  out y = sum[n](h')*sum[n](h')\n"})
    EXPECT_FALSE(of_text(with_outs(outs)).has_value()) << outs;
  const std::optional<StageCells> beside = of_text(with_outs("  out y = sum[n](h')\n  out z = u\n"));
  ASSERT_TRUE(beside.has_value());
  EXPECT_EQ(beside->sum_outs, std::vector<int>{0});
}

}  // namespace
}  // namespace cellc
