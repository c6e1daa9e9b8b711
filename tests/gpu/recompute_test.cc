// Gradients on a device by running segments again: those of a sweep over the whole run, whatever the segments; and of
// 16-bit runs about the trajectory that was computed, not about the rounded one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/front_end.h"
#include "runtime/cuda/launch/recompute_on_gpu.h"
#include "runtime/evaluate/reference.h"
#include "tests/gpu/backward_trial.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

class RecomputedOnGpu : public testing::TestWithParam<GradientCell> {};

TEST_P(RecomputedOnGpu, AreTheSweeps) {
  const AnalysedCell analysed = analyse_text(SourceText("test.cell", GetParam().text));
  const CellGraph& cell = analysed.cell;
  Device device = open_device();
  turns::Turn turn;
  for (const Dtype dtype : turn.of(std::vector{Dtype::F64, Dtype::F32, Dtype::BF16}))
    for (const GradientShape& shape :
         {GradientShape{{0, 41, 82}, false, 3}, GradientShape{{0, 9, 9, 55, 56}, true, 3}}) {
      BackwardTrial trial(cell, shape, dtype);
      trial.output = reference_run(cell, trial.run);  // never rounded
      const Gradients expected = trial.expected(AdjointRun(cell, results_with(trial.cotangents)));
      const AdjointRun adjoint(cell, with_lines(cell, results_with(trial.cotangents, true)));
      RecomputeOnGpu backward(*device.gpu, cell, analysed.structure, adjoint, dtype);
      SolveOptions options;
      options.products = Products::F32;
      for (const std::int64_t segment : {7, 23, 0}) {
        SolveReport report;
        const Gradients found = backward.run(trial.run, trial.cotangents, options, options, report, segment);
        const Gradients again = backward.run(trial.run, trial.cotangents, options, options, report, segment);
        EXPECT_TRUE(report.converged);
        EXPECT_EQ(backward.segment(), segment ? segment : 512);
        EXPECT_GT(backward.device_bytes(), 0);
        const auto compare = [&](const std::string& name, const Array& a, const Array& b, const Array& want) {
          expect_same(fmt::format("{}, {}, segments of {}", name, to_string(dtype), segment), a, b, want,
                      dtype == Dtype::F64 ? 1e-9 : 1e-4);
        };
        for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
          compare(cell.symbols[s].name, found.symbols[s], again.symbols[s], expected.symbols[s]);
          compare(cell.symbols[s].name + ".lag", found.histories[s], again.histories[s], expected.histories[s]);
        }
      }
    }
}

std::vector<GradientCell> cells() {
  std::vector<GradientCell> list;
  for (const char* name : {"gru", "dense", "lags", "delay_lines", "stages"}) list.push_back(gradient_cell(name));
  return list;
}
INSTANTIATE_TEST_SUITE_P(Cells, RecomputedOnGpu, testing::ValuesIn(cells()),
                         [](const auto& info) { return std::string(info.param.name); });

/// A segment at a time is on the device, so that longer runs hold no more there.
TEST(RecomputedOnGpuOf, LongerRunsTheDeviceHoldsNoMore) {
  const AnalysedCell analysed = analyse_text(SourceText("test.cell", kLinearCell));
  const CellGraph& cell = analysed.cell;
  Device device = open_device();
  std::vector<std::int64_t> held;
  for (const std::int64_t length : {64, 640}) {
    const BackwardTrial trial(cell, {{0, length}, false, 32}, Dtype::F32);
    const AdjointRun adjoint(cell, results_with(trial.cotangents, true));
    RecomputeOnGpu backward(*device.gpu, cell, analysed.structure, adjoint, Dtype::F32);
    SolveReport report;
    backward.run(trial.run, trial.cotangents, {}, {}, report, 32);
    held.push_back(backward.device_bytes());
  }
  EXPECT_EQ(held[0], held[1]);
}

}  // namespace
}  // namespace cellc
