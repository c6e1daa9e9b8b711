// Timing on a device: the floor moves the bytes that it says, and every strategy is either timed and right or
// refused with a reason. On the emulator; times there mean nothing, so none is looked at.
#include "runtime/cuda/launch/timed_gpu.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "compiler/front_end.h"
#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/evaluate/bench_cell.h"
#include "runtime/evaluate/tune_cell.h"
#include "tests/emulator/emulator.h"

namespace cellc {
namespace {

std::unique_ptr<Emulator> fast_to_compile() {
  EmulatorOptions options;
  options.optimisation = 0;
  return open_emulator(options);
}

TEST(FloorCopy, MovesAllBytes) {
  const auto gpu = open_emulator();
  FloorCopy floor(*gpu);
  // More in than out, with and without a rest; more out than in; one side only.
  for (const auto& [reads, writes] : {std::pair<int, int>{3000, 1000}, {2500, 1000}, {700, 2000}, {1, 1}, {0, 300}}) {
    std::vector<std::uint64_t> in(2 * static_cast<std::size_t>(reads)),
        out(2 * static_cast<std::size_t>(writes) + 2, 7);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = (i + 1) * 0x9E3779B97F4A7C15ull;
    const GpuBuffer from(*gpu, in.size() * 8 + 16), to(*gpu, out.size() * 8);
    gpu->copy_in(from.address(), in.data(), in.size() * 8, 0);
    gpu->copy_in(to.address(), out.data(), out.size() * 8, 0);
    floor.launch(from.address(), 16 * reads - (reads ? 3 : 0), to.address(), 16 * writes, 2);
    gpu->copy_out(out.data(), to.address(), out.size() * 8, 0);
    for (int i = 0; i < writes; ++i) {
      std::uint64_t low = 0, high = 0;
      const int first = reads > 0 && reads < writes ? i % reads : i;
      for (int j = first; j < reads; j += writes)
        low ^= in[2 * static_cast<std::size_t>(j)], high ^= in[2 * static_cast<std::size_t>(j) + 1];
      ASSERT_EQ(out[2 * static_cast<std::size_t>(i)], low) << reads << " in, " << writes << " out, word " << i;
      ASSERT_EQ(out[2 * static_cast<std::size_t>(i) + 1], high);
    }
    EXPECT_EQ(out[2 * static_cast<std::size_t>(writes)], 7u) << "wrote past the end";
  }
}

TEST(FloorCopy, CallsAreCounted) {
  const auto gpu = open_emulator();
  int calls = 0;
  ms_a_call(*gpu, 5, [&] { ++calls; });
  EXPECT_EQ(calls, 2 + 7 * 5);
}

struct Prepared {
  explicit Prepared(const char* text, Dtype dtype = Dtype::F32) : cell(analyse_text(SourceText("test.cell", text))) {
    BindRequest request;
    request.random_seed = 3;
    request.batch = 2;
    request.length = 70;
    request.dtype = dtype;
    for (const AxisId a : cell.cell.header) request.dims[cell.cell.graph.axis(a).name] = 3;
    binding = bind(cell.cell, request);
  }
  int stages() const { return static_cast<int>(cell.structure.stages.size()); }
  AnalysedCell cell;
  Binding binding;
};

const char* const kLeaky =
    "cell leaky[d] {\n  state h[d]\n  input x[d]\n  param a[d]\n  h' = tanh(a*h + x)\n  out y = 2*h'\n}\n";

TEST(TimedGpu, TrafficIsOfInputsStatesAndOuts) {
  const Prepared leaky(kLeaky);
  const Traffic f32 = traffic_of(leaky.cell.cell, leaky.binding.run, Dtype::F32);
  EXPECT_EQ(f32.read, 2 * 70 * 3 * 4);
  EXPECT_EQ(f32.written, 2 * f32.read);
  EXPECT_EQ(f32.step_channels, 2 * 70 * 3);
  EXPECT_EQ(traffic_of(leaky.cell.cell, leaky.binding.run, Dtype::BF16).read, f32.read / 2);
  // What a lag keeps is not written for anybody.
  const Prepared lagged("cell lagged[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*lag(h, 2) + x\n}\n");
  EXPECT_GT(lagged.cell.cell.updates.size(), 1u);
  EXPECT_EQ(traffic_of(lagged.cell.cell, lagged.binding.run, Dtype::F32).written, f32.read);
}

TEST(TimedGpu, EveryStrategyRunsOrIsRefused) {
  const auto gpu = fast_to_compile();
  const Prepared p(kLeaky);
  const auto timed = timed_on_gpu(*gpu, p.cell.cell, p.cell.structure, Dtype::F32, p.binding.run);
  EXPECT_EQ(timed->device(), "cuda");
  EXPECT_EQ(timed->processor(), gpu->facts().name);
  const Bench bench = bench_cell(*timed, p.stages(), traffic_of(p.cell.cell, p.binding.run, Dtype::F32), {}, {}, 1);
  ASSERT_EQ(bench.strategies.size(), 9u);
  EXPECT_GT(bench.floor_ms, 0);
  for (const BenchedStrategy& s : bench.strategies) {
    SCOPED_TRACE(to_string(s.strategy));
    const bool refused = s.strategy == Strategy::Scan || s.strategy == Strategy::Relaxation ||
                         s.strategy == Strategy::Persistent || s.strategy == Strategy::Stepped;
    ASSERT_EQ(s.refused.has_value(), refused) << s.refused.value_or("");
    if (refused) {
      EXPECT_NE(*s.refused, "");
      continue;
    }
    EXPECT_GT(s.ms, 0);
    EXPECT_TRUE(s.report.converged);
    ASSERT_EQ(s.report.stages.size(), 1u);
    if (s.strategy != Strategy::Auto) {
      EXPECT_EQ(s.report.stages[0].plan.strategy, s.strategy);
    }
  }
}

TEST(TimedGpu, RepeatsAllocateNothing) {
  const auto gpu = fast_to_compile();
  const Prepared p(kLeaky);
  const auto timed = timed_on_gpu(*gpu, p.cell.cell, p.cell.structure, Dtype::F32, p.binding.run);
  SolveReport report;
  SolveOptions options;
  options.solver = Strategy::Segmented;
  timed->time(options, 1, report);
  const std::int64_t before = gpu->counts().allocations;
  timed->time(options, 3, report);
  EXPECT_EQ(gpu->counts().allocations, before);
}

/// Gradients too; a plan that is pinned runs, and leaves the same bits each time.
TEST(TimedGpu, PlansOfAdjointsAreMeasured) {
  const auto gpu = fast_to_compile();
  const Prepared p("cell leaky[d] {\n  state h[d]\n  input x[d]\n  param a[d]\n  h' = tanh(a*h + x)\n}\n");
  const CellGraph& cell = p.cell.cell;
  const Cotangents cotangents = random_cotangents(cell, p.binding.run, Dtype::F32, 1);
  const AdjointRun adjoint(cell, results_with(cotangents, true));
  const auto timed = timed_backward_on_gpu(*gpu, cell, p.cell.structure, adjoint, Dtype::F32, p.binding.run);
  const TuneResult result = tune_cell(*timed, static_cast<int>(adjoint.structure().stages.size()), 70, {}, 1);
  std::set<Strategy> tried;
  RunOutput output;
  {
    SolveReport report;
    output = CudaSolver(*gpu, cell, p.cell.structure, Dtype::F32).run(p.binding.run, {}, report);
  }
  std::optional<Gradients> first;
  for (const TuneTrial& t : result.trials) {
    EXPECT_TRUE(t.converged);
    EXPECT_GT(t.ms, 0);
    if (!tried.insert(t.stages[0].strategy).second) continue;
    SolveOptions pinned;
    pinned.plan = t.stages;
    BackwardOnGpu backward(*gpu, cell, adjoint, Dtype::F32);
    SolveReport report;
    const Gradients found = backward.run(p.binding.run, output, cotangents, pinned, report),
                    again = backward.run(p.binding.run, output, cotangents, pinned, report);
    EXPECT_EQ(report.stages[0].plan.strategy, t.stages[0].strategy);
    if (!first) first = found;
    for (std::size_t s = 0; s < found.symbols.size(); ++s)
      for (std::int64_t i = 0; i < found.symbols[s].count(); ++i) {
        ASSERT_EQ(found.symbols[s].get(i), again.symbols[s].get(i));
        ASSERT_NEAR(found.symbols[s].get(i), first->symbols[s].get(i), 1e-4);
      }
  }
  EXPECT_TRUE(tried.contains(Strategy::Sequential));
  EXPECT_TRUE(tried.contains(Strategy::Scan));
}

TEST(TimedGpu, PlansThatAreMeasuredRun) {
  const auto gpu = fast_to_compile();
  const Prepared p(kLeaky);
  const auto timed = timed_on_gpu(*gpu, p.cell.cell, p.cell.structure, Dtype::F32, p.binding.run);
  const TuneResult result = tune_cell(*timed, p.stages(), 70, {}, 1);
  ASSERT_FALSE(result.trials.empty());
  std::set<Strategy> tried;
  for (const TuneTrial& t : result.trials) {
    EXPECT_TRUE(t.converged);
    EXPECT_GT(t.ms, 0);
    tried.insert(t.stages[0].strategy);
  }
  EXPECT_TRUE(tried.contains(Strategy::Sequential));
  EXPECT_TRUE(tried.contains(Strategy::Segmented));
  EXPECT_TRUE(tried.contains(Strategy::Shooting));
  EXPECT_FALSE(tried.contains(Strategy::Relaxation));
  // Each, pinned, gives the answer.
  CudaSolver solver(*gpu, p.cell.cell, p.cell.structure, Dtype::F32);
  SolveReport report;
  SolveOptions options;
  options.solver = Strategy::Sequential;
  const RunOutput expected = solver.run(p.binding.run, options, report);
  options.solver = Strategy::Auto;
  for (const TuneTrial& t : result.trials) {
    options.plan = t.stages;
    const RunOutput output = solver.run(p.binding.run, options, report);
    for (std::int64_t i = 0; i < expected.states[0].count(); ++i)
      ASSERT_NEAR(output.states[0].get(i), expected.states[0].get(i), 3e-6)
          << t.stages[0].segment << " " << t.stages[0].burn_in;
  }
}

}  // namespace
}  // namespace cellc
