// What rounds of repair do not settle (the tail of kernels-templates/segments/segmented.cuh): lanes of one warp that
// merge, that never do, and whose boundaries go off at different times. Every written step is held against the
// one before it, the finals against the last row.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/front_end.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/bind.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

// r below 3 settles, above 3.6 is chaotic; x pushes a lane onto another course now and then.
const char* const kLogistic = R"(cell kicked[d] {
  state h[d] = 0.3
  input x[d]
  param r[d]
  h' = min(0.999, r*h*(1 - h) + x)
}
)";

struct Shape {
  std::int64_t channels;
  std::vector<std::int64_t> lengths;
  bool reverse;
  std::int64_t segment;
  Strategy strategy;
};

class Tail : public testing::TestWithParam<Shape> {};

TEST_P(Tail, EndsInTheRightAnswer) {
  const auto [channels, lengths, reverse, segment, strategy] = GetParam();
  const AnalysedCell cell = analyse_text(SourceText("kicked.cell", kLogistic));
  std::int64_t rows = 0;
  BoundRun run;
  run.sizes[cell.cell.header[0]] = channels;
  run.offsets = {0};
  for (const std::int64_t n : lengths) run.offsets.push_back(rows += n);
  run.reverse = reverse;
  Array x(Dtype::F32, {rows, channels}), r(Dtype::F32, {channels});
  for (std::int64_t i = 0; i < rows * channels; ++i) x.set(i, i % 997 == 13 ? 0.05 : 0);
  for (std::int64_t c = 0; c < channels; ++c)
    r.set(c, 0.5 + 3.4 * static_cast<double>(c * 7 % channels) / static_cast<double>(channels));
  for (const Symbol& s : cell.cell.symbols) {
    if (s.kind == SymbolKind::State) run.symbols.push_back(Array());
    if (s.kind == SymbolKind::Input) run.symbols.push_back(x);
    if (s.kind == SymbolKind::Param) run.symbols.push_back(r);
  }
  Array start(Dtype::F32, {static_cast<std::int64_t>(lengths.size()), channels});
  for (std::int64_t i = 0; i < start.count(); ++i) start.set(i, 0.1 + 0.01 * static_cast<double>(i % 50));
  for (std::size_t s = 0; s < cell.cell.symbols.size(); ++s)
    if (cell.cell.symbols[s].kind == SymbolKind::State) run.symbols[s] = start;

  const Device device = open_device();
  CudaSolver solver(*device.gpu, cell.cell, cell.structure, Dtype::F32, &cell.source);
  SolveOptions options;
  options.solver = strategy;
  options.max_iterations = 3;
  if (segment) options.plan.push_back({strategy, segment, 8, "test"});
  SolveReport report;
  const RunOutput output = solver.run(run, options, report);
  EXPECT_TRUE(report.converged);
  EXPECT_GT(report.stages[0].repaired, 0);
  const double tolerance = 1e-6;
  EXPECT_LE(report.max_residual, tolerance);

  const auto h = [&](std::int64_t row, std::int64_t c) {
    return static_cast<float>(output.states[0].get(row * channels + c));
  };
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    const std::int64_t begin = run.offsets[s], end = run.offsets[s + 1];
    for (std::int64_t c = 0; c < channels; ++c) {
      float before = static_cast<float>(start.get(static_cast<std::int64_t>(s) * channels + c));
      for (std::int64_t t = 0; t < end - begin; ++t) {
        const std::int64_t row = reverse ? end - 1 - t : begin + t;
        const double rate = r.get(c), want = std::min(0.999, rate * before * (1 - before) + x.get(row * channels + c));
        ASSERT_NEAR(h(row, c), want, 2 * tolerance * (1 + std::abs(want)))
            << "sequence " << s << ", step " << t << ", channel " << c;
        before = h(row, c);
      }
      ASSERT_EQ(output.finals[0].get(static_cast<std::int64_t>(s) * channels + c), before)
          << "sequence " << s << ", channel " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Tail,
                         testing::Values(Shape{64, {600}, false, 24, Strategy::Segmented},  // whole rows
                                         Shape{64, {600, 0, 77}, true, 24, Strategy::Segmented},
                                         Shape{37, {600}, false, 24, Strategy::Segmented},  // lane by lane
                                         Shape{5, {600, 31, 333, 0, 600}, false, 16, Strategy::Segmented},
                                         Shape{5, {600, 31, 333, 0, 600}, true, 16, Strategy::Shooting},
                                         Shape{64, {300}, false, 0, Strategy::Newton},  // every step a segment
                                         Shape{3, {300, 299}, true, 0, Strategy::Newton}),
                         [](const auto& info) {
                           return fmt::format("{}{}Of{}{}", to_string(info.param.strategy), info.param.lengths.size(),
                                              info.param.channels, info.param.reverse ? "Reversed" : "");
                         });

}  // namespace
}  // namespace cellc
