// Gradients by running segments again: those of a sweep over the whole run, whatever the segments; and of 16-bit runs
// about the trajectory that was computed, not about the rounded one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/cpu/recompute_backward.h"
#include "runtime/gradient/name_gradients.h"
#include "tests/engines/lowered_cell.h"
#include "tests/gradients/gradient_trial.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// Each compiles two cells.
CELLC_ONE_IN(4, "Cells/Recomputed");

struct OneCell {
  const oracle::Example* file;
  const Cell* tree;
};

std::vector<OneCell> cells() {
  std::vector<OneCell> list;
  for (const oracle::Example& file : oracle::all_cells())
    for (const Cell& tree : file.tree.cells) list.push_back({&file, &tree});
  return list;
}

struct Setting {
  Dtype dtype;
  bool packed, reverse;
};

GradientTrial trial_of(const LoweredCell& cell, const oracle::Ranges& ranges, const Setting& setting,
                       std::vector<std::int64_t> lengths) {
  oracle::Random random(29);
  GradientTrial::Options options;
  options.sizes = oracle::axis_lengths(cell.oracle, {3, 2, 3, 2});
  options.lengths = std::move(lengths);
  options.packed = setting.packed;
  options.reverse = setting.reverse;
  options.dtype = setting.dtype == Dtype::F64 ? Dtype::F32 : setting.dtype;
  return GradientTrial(cell.graph, cell.oracle, ranges, random, options);
}

NamedArrays named(const CellGraph& cell, const GradientTrial& trial, const Binding& binding, Gradients gradients) {
  through_defaults(cell, binding.run, trial.given(binding), gradients);
  return gradient_arrays(cell, binding, gradients);
}

class Recomputed : public testing::TestWithParam<OneCell> {};

TEST_P(Recomputed, AreTheSweeps) {
  const auto [file, tree] = GetParam();
  const LoweredCell cell(file->source, file->tree, *tree);
  turns::Turn turn;
  for (const Setting& setting :
       turn.of(std::vector<Setting>{{Dtype::F64, true, false}, {Dtype::F64, true, true}, {Dtype::F64, false, true}})) {
    std::vector<std::int64_t> lengths =
        setting.packed ? std::vector<std::int64_t>{9, 0, 1, 7, 3} : std::vector<std::int64_t>{8, 8};
    if (cell.graph.has_lines())  // beyond the lags
      for (std::int64_t& n : lengths) n *= 5;
    const GradientTrial trial = trial_of(cell, file->ranges, setting, lengths);
    const Binding binding = trial.bound(Dtype::F64);
    const Cotangents cotangents = trial.cotangents(binding);
    const AdjointRun adjoint(cell.graph, with_lines(cell.graph, results_with(cotangents)));
    const NamedArrays plain = trial.reference(adjoint), want = trial.swept();
    const NamedArrays spread = trial.spread(adjoint, plain, Dtype::F64);
    RecomputeBackward backward(cell.graph, cell.structure, adjoint, {.dtype = Dtype::F64});
    for (const std::int64_t segment : {1, 2, 3, 8, 23, 0}) {
      SolveReport report;
      const Gradients found = backward.run(binding.run, cotangents, {}, {}, report, segment);
      EXPECT_TRUE(report.converged);
      EXPECT_LE(times_allowed(named(cell.graph, trial, binding, found), want, 1e-9, spread), 1)
          << tree->name << ", segments of " << segment << (setting.reverse ? ", reversed" : "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Recomputed, testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.file->name + "_" + info.param.tree->name; });

TEST(RecomputedGradients, OfNarrowRunsAreAboutWhatWasComputed) {
  for (const Dtype dtype : {Dtype::F16, Dtype::BF16})
    for (const char* name : {"01_para_gru", "03_gru", "02_para_lstm"}) {
      const oracle::Example& file = oracle::example_named(name);
      const LoweredCell cell(file.source, file.tree, file.tree.cells[0]);
      const GradientTrial trial = trial_of(cell, file.ranges, {dtype, false, false}, {40, 40});
      const Binding binding = trial.bound(dtype);
      const Cotangents cotangents = trial.cotangents(binding);
      const AdjointRun adjoint(cell.graph, with_lines(cell.graph, results_with(cotangents)));
      const NamedArrays want = trial.swept();
      const CompileOptions compile{.dtype = dtype};
      SolveOptions exact;
      exact.tolerance = 1e-6;
      SolveReport report;
      const RunOutput output = Solver(cell.graph, cell.structure, compile).run(binding.run, exact, report);
      const double rounded =
          largest_error(named(cell.graph, trial, binding,
                              BackwardOnCpu(adjoint, compile).run(binding.run, output, cotangents, exact, report)),
                        want);
      const double again = largest_error(named(cell.graph, trial, binding,
                                               RecomputeBackward(cell.graph, cell.structure, adjoint, compile)
                                                   .run(binding.run, cotangents, exact, exact, report, 7)),
                                         want);
      const double unit = dtype == Dtype::F16 ? 0x1p-11 : 0x1p-8;
      EXPECT_LE(again, 1e-5) << name;
      EXPECT_GE(rounded, 20 * again) << name;
      EXPECT_LE(rounded, 20 * unit) << name;
    }
}

}  // namespace
}  // namespace cellc
