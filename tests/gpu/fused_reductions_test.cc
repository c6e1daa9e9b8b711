// Sums of new states that lanes make as they walk (compiler/derive/fused_reductions.h, sums.cuh): which they are, and
// what comes of them, beside the oracle. Sums along 2 to 32 lanes of a warp, along several warps, and along numbers
// that lanes cannot sum.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "compiler/derive/pipeline.h"
#include "compiler/front_end.h"
#include "runtime/data/bind.h"
#include "tests/gpu/call_setting.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// Terms of inputs and params that the step reads, of such as only the sum reads, of a second state; a sum that the out
// goes on with, one that is an out as it is, and two outs that share one; terms that need what is made before the
// stage.
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
    R"(cell rotating[d, n] {
  state re[d,n], im[d,n]
  input u[d]
  param dt[d], a[d,n], Cr[d,n], Ci[d,n], S[n]
  lr = 0.9*exp(-abs(dt))*cos(a)
  li = 0.9*exp(-abs(dt))*sin(a)
  re' = lr*re - li*im + dt*u
  im' = lr*im + li*re
  out y = 2*sum[n](Cr*re' - Ci*im')
  out z = sum[n](S*re')
  out w = tanh(sum[n](S*re')) + u
}
)",
    R"(cell heads[g, v, k] {
  state C[g,v,k], n[g,k], m[g]
  input q[g,k], key[g,k], val[g,v], i[g], f[g]
  m' = tanh(0.5*m + i)
  C' = sigmoid(f)*C + m'*val*key
  n' = sigmoid(f)*n + m'*key
  out y[g,v] = (C'@q)/max(abs(n'@q), 1)
}
)",
    R"(cell mixer[d, n, w=2] {
  state h[d,n]
  input x[d], gate[d]
  param conv[d,w], WB[n,d], WC[n,d], A_log[d,n], s[n]
  u = silu(sum[w](conv*lag[w](x)))
  h' = exp(-exp(A_log))*h + u*(WB@u)
  out y = (h'@(softmax[n](s)*(WC@u)) + u)*silu(gate)
}
)",
};

// The last ones are many enough for a small card that threads take two lanes.
std::vector<std::vector<std::int64_t>> lengths_of(std::size_t cell) {
  if (cell != 2)
    return {{5, 2}, {3, 4}, {9, 8}, {7, 16}, {3, 32}, {2, 64}, {1, 96}, {3, 3}, {40, 1}, {200, 2}, {27, 16}, {7, 64}};
  return {{1, 3, 8}, {2, 2, 32}, {3, 1, 64}, {2, 3, 5}, {3, 17, 8}, {1, 4, 96}};
}

class FusedReductions : public testing::TestWithParam<std::tuple<std::size_t, Dtype>> {};

TEST_P(FusedReductions, AgreeWithOracle) {
  const auto [number, dtype] = GetParam();
  Device device = open_device(1);
  std::uint64_t seed = 0;
  const std::string wrong =
      try_cell(kCells[number], [&](const SourceText& source, const LoweredCell& cell) -> std::string {
        CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
        oracle::Random random(17);
        for (const std::vector<std::int64_t>& axes : lengths_of(number)) {
          Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, axes), .steps = 67};
          with.starts_given = true;
          with.f64_tolerance = 1e-11;
          with.reverse = axes.back() % 16 == 0;
          const Trial trial(cell.graph, cell.oracle, {}, random, with);
          SolveOptions options;
          options.solver = Strategy::Sequential;
          for (const RunShape& shape : {RunShape{{67, 67}}, RunShape{{16}}, RunShape{{1, 17, 67}, true}}) {
            device.reorder(seed++);
            const Binding binding = trial.bound(shape.lengths, shape.packed, 1);
            SolveReport report;
            spoil(device, solver, cell.graph, binding.run, options);
            const RunOutput output = solver.run(binding.run, options, report);
            const std::string what = trial.verify(binding.run, output, shape.lengths);
            if (!what.empty()) return fmt::format("lengths {}{}: {}", axes, shape.packed ? ", packed" : "", what);
          }
        }
        return {};
      });
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(CudaLanes, FusedReductions,
                         testing::Combine(testing::Values(0, 1, 2, 3),
                                          testing::Values(Dtype::F32, Dtype::F64, Dtype::BF16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), to_string(std::get<1>(info.param)));
                         });
CELLC_ONE_IN(3, "CudaLanes/FusedReductions");

// What nobody reads is not written: no memory is taken for the states, and the outs are the same.
TEST(FusedReductionsOfACall, LeaveStatesWhereTheyAre) {
  EmulatorOptions quick;
  quick.optimisation = 0;
  const std::unique_ptr<Emulator> gpu = open_emulator(quick);
  SolveOptions solve;
  solve.solver = Strategy::Sequential;
  CallSetting s(*gpu, "13_s6", Dtype::F32, {67, 67}, 5, CallLook{}, solve);
  s.calls->pool.run(s.arrays->arrays(), 0, s.arrays->status(), nullptr);
  EXPECT_EQ(s.wrong(), "");
  const Array expected = s.arrays->read(s.binding).outs.at(0);

  std::vector<CallArray> arrays = s.arrays->arrays();
  const CallLayout layout = call_layout(s.cell.graph);
  std::int64_t outs = 0, states = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (layout.fields[i].kind == FieldKind::State) arrays[i].data = 0, ++states;
    if (layout.fields[i].kind == FieldKind::Out)
      gpu->zero(arrays[i].data, static_cast<std::size_t>(expected.count()) * 4, 0), ++outs;
  }
  ASSERT_EQ(outs, 1);
  ASSERT_EQ(states, 1);
  const std::int64_t before = gpu->counts().live_bytes;
  s.calls->pool.run(arrays, 0, s.arrays->status(), nullptr);
  EXPECT_LT(gpu->counts().live_bytes - before, 2 * 67 * 32 * 2 * 4);
  const Array made = s.arrays->read(s.binding).outs.at(0);
  for (std::int64_t i = 0; i < expected.count(); ++i) ASSERT_EQ(made.get(i), expected.get(i)) << i;
}

// What the step takes from before the stage, too, is made once.
TEST(FusedReductions, ShareWithStepsWhatIsMadeBefore) {
  const AnalysedCell cell =
      analyse_text(SourceText("c.cell",
                              "cell c[d, n] {\n  state h[d,n]\n  input x[d], B[n]\n  param W[n,d]\n  p = W@x\n  h' = "
                              "0.5*h + p*B\n  out y = sum[n](h'*p)\n}\n"));
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  EXPECT_EQ(fuse_reductions(staged, 0)->stage.before.cell.outs.size(), staged.stages[0].before.cell.outs.size());
}

// A run of another shape that finds no memory must not leave its plan to the runs after it: the parts of its sums are
// others.
TEST(FusedReductionsOfASolver, OutliveARunWithoutMemory) {
  const AnalysedCell cell = analyse_text(SourceText(
      "c.cell", "cell c[d, n] {\n  state h[d,n]\n  input u[d], B[n]\n  h' = 0.5*h + u*B\n  out y = h'@B\n}\n"));
  SolveOptions options;
  options.solver = Strategy::Sequential;
  const auto run = [&](CudaSolver& solver, std::int64_t d, std::int64_t n, std::int64_t steps) {
    BindRequest request;
    request.random_seed = 1;
    request.batch = 1;
    request.length = steps;
    request.dims = {{"d", d}, {"n", n}};
    const Binding binding = bind(cell.cell, request);
    SolveReport report;
    const RunOutput output = solver.run(binding.run, options, report);
    double worst = 0;
    for (std::int64_t r = 0; r < steps; ++r)
      for (std::int64_t i = 0; i < d; ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < n; ++k)
          sum += output.states[0].get((r * d + i) * n + k) * binding.run.symbols[2].get(r * n + k);
        worst = std::max(worst, std::abs(sum - output.outs[0].get(r * d + i)) / (1 + std::abs(sum)));
      }
    return worst;
  };
  // 1.2 MB of states, and what else there is not enough for.
  std::map<int, int> ways;
  for (std::int64_t memory = 1'200'000; memory < 1'700'000; memory += 12'500) {
    EmulatorOptions small;
    small.memory_bytes = memory;
    const std::unique_ptr<Emulator> gpu = open_emulator(small);
    CudaSolver solver(*gpu, cell.cell, cell.structure, Dtype::F32, &cell.source);
    EXPECT_LT(run(solver, 2, 32, 9), 1e-5);
    int ended = 0;
    for (const auto& [d, steps] : {std::pair<std::int64_t, std::int64_t>{8, 600}, {2, 9}}) {
      try {
        EXPECT_LT(run(solver, d, 64, steps), 1e-5) << memory;
        ++ended;
      } catch (const MemoryError&) {
        ended += 10;  // the second, too, may find what the first has kept in its way
      }
    }
    ++ways[ended];
  }
  EXPECT_GT(ways[2], 5);
  EXPECT_GT(ways[11], 1);
}

/// Sums of a cell's stages, and along how many channels.
std::string sums_of(const std::string& text) {
  std::string all;
  const AnalysedCell cell = analyse_text(SourceText("c.cell", text));
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const auto summed = fuse_reductions(staged, static_cast<int>(k));
    if (summed) {
      std::vector<PartialSum> made;
      for (const NodeId sum : summed->sums) made.push_back({sum, 3});
      const DerivedCell after = with_reduced_outs(staged.after, made);
      EXPECT_EQ(std::count_if(after.sources.begin(), after.sources.end(),
                              [](const ArraySource& s) { return s.kind == ArraySource::Kind::Sum; }),
                static_cast<std::ptrdiff_t>(3 * made.size()));
      EXPECT_NE(print_staged(staged).find(fmt::format("stage {}, lanes with sums\n", k + 1)), std::string::npos);
    }
    all += fmt::format("{}{}", k ? " " : "",
                       summed ? fmt::format("{}:{}", summed->sums.size(), summed->stage.summed) : "-");
  }
  return all;
}

TEST(FusedReductions, AreThoseWhoseTermsALaneHas) {
  for (const auto& [number, sums] :
       std::vector<std::pair<int, const char*>>{{0, "1:1"}, {1, "2:1"}, {2, "- 1:1 1:1"}, {3, "1:1"}})
    EXPECT_EQ(sums_of(kCells[number]), sums);
  const auto cell = [](const std::string& outs) {
    return "cell c[d, n] {\n  state h[d,n], g[d,n]\n  input x[d], B[n], S[n,d]\n  h' = B*h + x\n  g' = S*g + h'\n" +
           outs + "}\n";
  };
  EXPECT_EQ(sums_of(cell("")), "- -");
  EXPECT_EQ(sums_of(cell("  out y[d,n] = x*h'\n")), "- -");
  EXPECT_EQ(sums_of(cell("  out y = sum[n](h'*S)\n")), "1:1 -");
  EXPECT_EQ(sums_of(cell("  out y = sum[d](h'*S)\n")), "- -");  // along the outer axis
  EXPECT_EQ(sums_of(cell("  out y = sum[d,n](h'*S)\n")), "1:2 -");
  EXPECT_EQ(sums_of(cell("  out y = sum[n](h)\n")), "- -");               // of the step before
  EXPECT_EQ(sums_of(cell("  out y = sum[n](h'*lag(B, 1))\n")), "1:1 -");  // what is before the stage
  EXPECT_EQ(sums_of(cell("  out y = sum[n](h'*sum[d](x*S))\n")), "1:1 -");
  EXPECT_EQ(sums_of(cell("  out y = sum[n](h'*sum[n](h'))\n")), "1:1 -");  // the inner one
  EXPECT_EQ(sums_of(cell("  out y = sum[n](g'*h')\n")), "- 1:1");  // by the later stage, which reads the earlier
  EXPECT_EQ(sums_of(cell("  out y = sum[n](h'*g')\n")), "- 1:1");
  EXPECT_EQ(sums_of(cell("  out y = max[n](h')\n")), "- -");
}

}  // namespace
}  // namespace cellc
