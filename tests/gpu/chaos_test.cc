// Chaotic cells under `auto` (kernels-templates/segments/segmented.cuh): that nothing is forgotten is seen from the
// first sweep, in the first call as in those that follow, and all is walked at once.
#include <gtest/gtest.h>

#include "compiler/front_end.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

struct Chaotic {
  const char *name, *text;
};

class Chaos : public testing::TestWithParam<Chaotic> {};

TEST_P(Chaos, IsWalkedAtOnceInEveryCall) {
  constexpr std::int64_t kLanes = 40, kSteps = 3000;
  const AnalysedCell cell = analyse_text(SourceText("chaotic.cell", GetParam().text));
  BoundRun run;
  for (std::size_t s = 0; s < cell.cell.symbols.size(); ++s) {
    Array start(Dtype::F32, {kLanes});
    for (std::int64_t i = 0; i < kLanes; ++i)
      start.set(i, 0.1 + 0.02 * static_cast<double>(i * (7 + 4 * static_cast<std::int64_t>(s)) % kLanes));
    run.symbols.push_back(start);
  }
  run.offsets = {0};
  for (std::int64_t i = 0; i < kLanes; ++i) run.offsets.push_back((i + 1) * kSteps);

  const Device device = open_device();
  SolveReport report;
  SolveOptions options;
  options.solver = Strategy::Sequential;
  CudaSolver stepwise(*device.gpu, cell.cell, cell.structure, Dtype::F32, &cell.source);
  const RunOutput want = stepwise.run(run, options, report);

  CudaSolver solver(*device.gpu, cell.cell, cell.structure, Dtype::F32, &cell.source);
  solver.upload(run, {});
  for (int call = 0; call < 3; ++call) {
    solver.launch(0);
    solver.report(report, 0);
    const StageReport& stage = report.stages[0];
    ASSERT_EQ(stage.plan.strategy, Strategy::Segmented);
    EXPECT_EQ(stage.repair_rounds, 0) << "call " << call;
    EXPECT_GT(stage.repaired, stage.boundaries * 9 / 10) << "call " << call;
  }
  const RunOutput got = solver.download(0);
  for (std::size_t u = 0; u < want.states.size(); ++u)
    for (std::int64_t i = 0; i < kLanes * kSteps; ++i)
      ASSERT_EQ(got.states[u].get(i), want.states[u].get(i))
          << "state " << u << ", sequence " << i / kSteps << ", step " << i % kSteps;
}

INSTANTIATE_TEST_SUITE_P(Cells, Chaos,
                         testing::Values(Chaotic{"logistic", "cell logistic {\n  state x\n  x' = 3.9*x*(1 - x)\n}\n"},
                                         Chaotic{"lorenz", R"(cell lorenz {
  state x, y, z
  dt = 0.01
  x' = x + dt*10*(y - x)
  y' = y + dt*(x*(28 - z) - y)
  z' = z + dt*(x*y - 8/3*z)
}
)"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cellc
