// Adjoints as kernels for a GPU, on the emulator: by every strategy that they admit there, against the evaluator's,
// which cells_test compares with differences.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/cuda/launch/cuda_solver.h"
#include "tests/emulator/emulator.h"
#include "tests/engines/lowered_cell.h"
#include "tests/gradients/gradient_trial.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// The emulator's compiler takes seconds for each kernel.
CELLC_ONE_IN(12, "Cells/EmulatedGradients");

const std::vector<std::pair<std::string, std::string>> kCells = {{"01_para_gru", "para_gru"},
                                                                 {"02_para_lstm", "para_lstm"},
                                                                 {"08_gilr", "gilr"},
                                                                 {"14_mamba2", ""},
                                                                 {"18_delta_net", ""},
                                                                 {"05_elman", "elman"},
                                                                 {"39_kalman1", ""},
                                                                 {"43_peak_hold", ""},
                                                                 {"lags", "comb"},
                                                                 {"lags", "lag_projected"},
                                                                 {"stages", "down_up"},
                                                                 {"axes", "batch_head_inner"},
                                                                 {"dense", "head_mats"},
                                                                 {"low_rank", "delta_t"},
                                                                 {"branches", "coupled"},
                                                                 {"scans", "missing_observation"},
                                                                 {"renamed", "diagonal_entry"},
                                                                 {"functions", "every_function"},
                                                                 {"34_narx3", ""},
                                                                 {"delay_lines", "crossed"},
                                                                 {"17_mlstm", ""}};

struct Asked {
  std::string name;
  SolveOptions options;
};

std::vector<Asked> admitted(CudaSolver& solver, const AdjointRun& adjoint, const BoundRun& run) {
  std::vector<Asked> all(2);
  all[0].name = "auto";
  all[1].name = "sequential";
  all[1].options.solver = Strategy::Sequential;
  const std::size_t stages = adjoint.structure().stages.size();
  for (std::size_t k = 0; k < stages; ++k)
    if (solver.refusal(static_cast<int>(k), Strategy::Segmented, run)) return all;
  for (const StrategyFacts& f : strategies()) {
    if (!f.on_gpu || f.strategy == Strategy::Sequential) continue;
    SolveOptions options;
    options.solver = f.strategy;
    std::size_t admitting = 0;
    for (std::size_t k = 0; k < stages; ++k) {
      const bool admits = !solver.refusal(static_cast<int>(k), f.strategy, run);
      admitting += admits;
      options.plan.push_back(admits ? StagePlan{f.strategy, f.strategy == Strategy::Newton ? 1 : 16,
                                                f.strategy == Strategy::Segmented ? 8 : 0, "test"}
                                    : StagePlan{});
    }
    if (admitting == stages) options.plan.clear();
    if (admitting > 0) all.push_back({std::string(to_string(f.strategy)), options});
  }
  return all;
}

class EmulatedGradients : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(EmulatedGradients, AreTheEvaluators) {
  const oracle::Example& file = oracle::example_named(GetParam().first);
  const Cell* tree = nullptr;
  for (const Cell& cell : file.tree.cells)
    if (!tree && (GetParam().second.empty() || cell.name == GetParam().second)) tree = &cell;
  ASSERT_TRUE(tree);
  const LoweredCell cell(file.source, file.tree, *tree);
  turns::Turn turn;
  for (const Dtype dtype : turn.of(std::vector<Dtype>{Dtype::F64, Dtype::F32}))
    for (const bool packed : turn.of(std::vector<bool>{false, true})) {
      oracle::Random random(3);
      GradientTrial::Options options;
      options.sizes = oracle::axis_lengths(cell.oracle, {3, 2, 3, 2});
      options.lengths = packed ? std::vector<std::int64_t>{33, 0, 1, 19} : std::vector<std::int64_t>{33, 33};
      options.packed = options.reverse = packed;
      options.dtype = Dtype::F32;
      GradientTrial trial(cell.graph, cell.oracle, file.ranges, random, options);
      const AdjointRun adjoint(cell.graph, {});
      const NamedArrays want = trial.reference(adjoint);
      const NamedArrays spread = trial.spread(adjoint, want, dtype);
      const Binding binding = trial.bound(dtype);
      EmulatorOptions emulated;
      emulated.multiprocessors = 4;
      emulated.optimisation = 0;
      const auto gpu = open_emulator(emulated);
      CudaSolver solver(*gpu, adjoint.cell(), adjoint.structure(), dtype);
      for (const Asked& asked : admitted(solver, adjoint, binding.run)) {
        SolveReport report;
        const NamedArrays found = trial.gradients(
            adjoint, binding, [&](const BoundRun& run) { return solver.run(run, asked.options, report); });
        EXPECT_TRUE(report.converged) << asked.name;
        EXPECT_LE(times_allowed(found, want, dtype == Dtype::F64 ? 1e-9 : 1e-4, spread), 1)
            << tree->name << " by " << asked.name << ", " << to_string(dtype)
            << (packed ? ", packed and reversed" : "");
      }
    }
}
INSTANTIATE_TEST_SUITE_P(Cells, EmulatedGradients, testing::ValuesIn(kCells),
                         [](const auto& info) { return info.param.first + "_" + info.param.second; });

}  // namespace
}  // namespace cellc
