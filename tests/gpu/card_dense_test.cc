// Dense cells on a card, by kernels whose blocks wait for each other, by windows of kernels that are graphs, and by
// relaxation: many calls in a row, on two streams at once. Skipped where there is no card.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "compiler/front_end.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "tests/gpu/backward_trial.h"
#include "tests/gpu/fixtures.h"

namespace cellc {
namespace {

// Weights so small that relaxation contracts; too many for one block.
const char* const kDense = R"(cell dense[d] {
  state c[d], h[d]
  input x[d], z[d]
  param Uf[d,d] in (-0.05, 0.05), Uc[d,d] in (-0.05, 0.05), Uo[d,d] in (-0.05, 0.05)
  c' = sigmoid(Uf@h + x)*c + tanh(Uc@h + z)
  h' = sigmoid(Uo@h + z)*tanh(c')
}
)";

class CardDense : public WithGpu, public testing::WithParamInterface<Strategy> {};

std::vector<Array> arrays_of(const Gradients& gradients) { return gradients.symbols; }
std::vector<Array> arrays_of(const RunOutput& output) { return output.states; }

template <typename Results>
void expect_bits(const Results& found, const Results& expected, const std::string& about) {
  const std::vector<Array> a = arrays_of(found), b = arrays_of(expected);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t s = 0; s < a.size(); ++s)
    for (std::int64_t i = 0; i < b[s].count(); ++i) ASSERT_EQ(a[s].get(i), b[s].get(i)) << about << s << ", " << i;
}

/// What each stream runs alone is what it has after a thousand calls beside the other's; and what any strategy makes is
/// near the walk.
TEST_P(CardDense, AThousandCallsOnTwoStreamsKeepTheirBits) {
  const AnalysedCell analysed = analyse_text(SourceText("dense.cell", kDense));
  const CellGraph& cell = analysed.cell;
  SolveOptions options, walk;
  options.solver = GetParam();
  walk.solver = Strategy::Sequential;
  std::vector<GpuStream> streams{gpu->make_stream(), gpu->make_stream()};
  const bool small = std::getenv("CELLC_TEST_SIZE");  // under tools that take a hundred times as long
  const std::vector<GradientShape> shapes{{{0, 24, 48, 72}, false, small ? 64 : 320},
                                          {{0, 9, 40}, true, small ? 48 : 288}};
  std::vector<std::unique_ptr<BackwardTrial>> trials;
  std::vector<std::unique_ptr<AdjointRun>> adjoints;
  std::vector<std::unique_ptr<CudaSolver>> forward;
  std::vector<std::unique_ptr<BackwardOnGpu>> backward;
  std::vector<RunOutput> outputs;
  std::vector<Gradients> gradients;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    trials.push_back(std::make_unique<BackwardTrial>(cell, shapes[i], Dtype::F32));
    const BackwardTrial& t = *trials.back();
    adjoints.push_back(std::make_unique<AdjointRun>(cell, results_with(t.cotangents, true)));
    forward.push_back(std::make_unique<CudaSolver>(*gpu, cell, analysed.structure, Dtype::F32));
    SolveReport report, of_gradients;
    outputs.push_back(forward[i]->run(t.run, options, report));
    EXPECT_EQ(report.stages.at(0).plan.strategy, GetParam()) << report.stages.at(0).plan.reason;
    EXPECT_TRUE(report.converged);
    for (std::size_t s = 0; s < outputs[i].states.size(); ++s)
      for (std::int64_t k = 0; k < outputs[i].states[s].count(); ++k)
        ASSERT_NEAR(outputs[i].states[s].get(k), t.output.states[s].get(k), 2e-5) << s << ", " << k;
    backward.push_back(std::make_unique<BackwardOnGpu>(*gpu, cell, *adjoints[i], Dtype::F32));
    gradients.push_back(backward[i]->run(t.run, t.output, t.cotangents, options, of_gradients));
    const Gradients walked =
        BackwardOnGpu(*gpu, cell, *adjoints[i], Dtype::F32).run(t.run, t.output, t.cotangents, walk, of_gradients);
    for (std::size_t s = 0; s < walked.symbols.size(); ++s)
      for (std::int64_t k = 0; k < walked.symbols[s].count(); ++k)
        ASSERT_NEAR(gradients[i].symbols[s].get(k), walked.symbols[s].get(k),
                    5e-5 * (1 + std::abs(walked.symbols[s].get(k))))
            << cell.symbols[s].name << ", " << k;
  }
  for (int call = 0; call < (small ? 2 : 1000); ++call)
    for (std::size_t i = 0; i < streams.size(); ++i) {
      forward[i]->launch(streams[i]);
      backward[i]->launch(streams[i]);
    }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    gpu->synchronize(streams[i]);
    expect_bits(forward[i]->download(streams[i]), outputs[i], "state ");
    expect_bits(backward[i]->download(trials[i]->run), gradients[i], "gradient ");
    gpu->release_stream(streams[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, CardDense,
                         testing::Values(Strategy::Persistent, Strategy::Stepped, Strategy::Relaxation),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace cellc
