// Inputs that lack an axis of the channels: threads of a warp that read the same entries divide their copies (Sharers
// of sweep.cuh), in rows of sixteen bytes where what a warp reads is one row in memory. Rows of 4 to 32 columns, beside
// such as are not whole or not alone in a warp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/data/bind.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

// One entry for all n, a row for all d, a row of its own, one whose neighbours are apart.
constexpr const char* kCell = R"(cell outer[d, n] {
  state h[d,n]
  input g[d], b[n], x[d,n], y[n,d]
  h' = 0.4*g*h + b*x + y
}
)";

class SharedInputs : public testing::TestWithParam<Dtype> {};

TEST_P(SharedInputs, AgreeWithOracle) {
  const Dtype dtype = GetParam();
  Device device = open_device();
  std::uint64_t seed = 0;
  const std::string wrong = try_cell(kCell, [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
    oracle::Random random(31);
    for (const auto& [d, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {2, 64}, {5, 32}, {4, 16}, {3, 8}, {9, 4}, {3, 12}, {2, 36}, {7, 6}, {40, 1}}) {
      Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, {d, n}), .steps = 67};
      with.starts_given = true;
      with.f64_tolerance = 1e-11;
      with.reverse = n % 8 == 0 && n != 32;
      const Trial trial(cell.graph, cell.oracle, {}, random, with);
      for (const auto& [strategy, options] : forced(solver, cell, sizes_of(cell, {d, n}))) {
        // The others run the kernel of segmented.
        if (strategy == Strategy::Auto || strategy == Strategy::Shooting || strategy == Strategy::Newton) continue;
        for (const RunShape& shape : {RunShape{{67, 67}}, RunShape{{17, 0, 67}, true}}) {
          device.reorder(seed++);
          const Binding binding = trial.bound(shape.lengths, shape.packed, 1);
          SolveReport report;
          spoil(device, solver, cell.graph, binding.run, options);
          const RunOutput output = solver.run(binding.run, options, report);
          std::string what = trial.verify(binding.run, output, shape.lengths);
          if (what.empty() && !report.converged) what = "reported as not converged";
          if (!what.empty())
            return fmt::format("{}, d {}, n {}{}: {}", to_string(strategy), d, n, shape.packed ? ", packed" : "", what);
        }
      }
    }
    return {};
  });
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(CudaLanes, SharedInputs, testing::Values(Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace cellc
