// Waveform relaxation on a device against kernels that go step by step; where it does not contract, and where there is
// none.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/front_end.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/choose_relaxation.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/evaluate/reference.h"
#include "runtime/evaluate/row_difference.h"
#include "runtime/evaluate/timed_cell.h"
#include "tests/engines/relaxed_cells.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/fixtures.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

Binding bound(const AnalysedCell& cell, Dtype dtype, std::int64_t steps, std::int64_t channels, bool reverse) {
  BindRequest r;
  r.random_seed = 7;
  r.batch = 3;
  r.length = steps;
  r.dtype = dtype;
  r.reverse = reverse;
  r.dims = {{"d", channels}};
  if (cell.cell.name == "lstm") r.dims["m"] = 4;
  return bind(cell.cell, r);
}

SolveOptions relaxed() {
  SolveOptions solve;
  solve.solver = Strategy::Relaxation;
  return solve;
}

RunOutput step_by_step(CudaSolver& solver, const BoundRun& run) {
  SolveOptions solve;
  solve.solver = Strategy::Sequential;
  SolveReport report;
  return solver.run(run, solve, report);
}

class RelaxesOnDevice : public testing::TestWithParam<const char*> {};

TEST_P(RelaxesOnDevice, ToTheSequentialAnswer) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", GetParam()));
  turns::Turn turn;
  // No thread holds the lanes of 20 channels; of 5 it does.
  const std::vector<std::int64_t> channels = turn.of(std::vector<std::int64_t>{5, 20});
  // So many that every cell ends: an iteration makes a step right at the least.
  SolveOptions solve = relaxed();
  solve.max_iterations = 120;
  for (const Dtype dtype : turn.of(std::vector<Dtype>{Dtype::F64, Dtype::F32, Dtype::BF16}))
    for (const std::int64_t d : channels) {
      Device device = open_device(8);
      CudaSolver solver(*device.gpu, l.cell, l.structure, dtype), steps_alone(*device.gpu, l.cell, l.structure, dtype);
      for (const std::int64_t steps : {0, 1, 65})
        for (const bool reverse : {false, true}) {
          SCOPED_TRACE(
              fmt::format("{}, {} channels, {} steps{}", to_string(dtype), d, steps, reverse ? ", reversed" : ""));
          Binding binding = bound(l, dtype, steps, d, reverse);
          for (const bool ragged : {false, true}) {
            if (ragged && steps != 65) continue;
            if (ragged) binding.run.offsets = {0, 100, 100, 195};
            SolveReport report;
            const RunOutput output = solver.run(binding.run, solve, report);
            EXPECT_TRUE(report.converged);
            EXPECT_LE(report.max_residual, default_tolerance(dtype));
            // A single step whose terms cancel may be off by their rounding, and then it is made again. So may a stage
            // that amplifies what the one before leaves: it then goes step by step.
            if (steps > 1 && (report.repaired == 0 || GetParam() != kStaged)) {
              EXPECT_EQ(std::count_if(report.stages.begin(), report.stages.end(),
                                      [](const StageReport& s) {
                                        return s.plan.strategy == Strategy::Relaxation && s.iterations > 0;
                                      }),
                        1);
            }
            // bf16: both are rounded to eight bits, from trajectories that differ by the tolerance.
            const double within = dtype == Dtype::F64 ? 1e-11 : dtype == Dtype::F32 ? 2e-5 : 1e-2;
            EXPECT_LE(furthest(output, step_by_step(steps_alone, binding.run)), within);
          }
        }
    }
}

CELLC_ONE_IN(5, "Cells/RelaxesOnDevice");
CELLC_ONE_IN(3, "RelaxationOnDevice");
INSTANTIATE_TEST_SUITE_P(Cells, RelaxesOnDevice, testing::ValuesIn(kRelaxedCells));

// A state read through lag(), and an input of earlier steps.
TEST(RelaxationOnDevice, WithLags) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", R"(cell lagged[d] {
  state e[d], h[d]
  input x[d]
  param U[d,d]
  e' = 0.5*e + x
  h' = 0.5*tanh(U@h + lag(x, 2) + e') + 0.2*lag(h, 1)
}
)"));
  Device device = open_device(8);
  CudaSolver solver(*device.gpu, l.cell, l.structure, Dtype::F64), steps(*device.gpu, l.cell, l.structure, Dtype::F64);
  for (const bool reverse : {false, true}) {
    const Binding binding = bound(l, Dtype::F64, 70, 5, reverse);
    SolveReport report;
    const RunOutput output = solver.run(binding.run, relaxed(), report);
    EXPECT_TRUE(report.converged);
    EXPECT_EQ(report.repaired, 0);
    EXPECT_LE(furthest(output, step_by_step(steps, binding.run)), 1e-11);
  }
}

constexpr const char* kChaos =
    "cell gain[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = tanh(9*(U@h) + x)\n}\n";

/// Of a gain that decides whether it contracts.
constexpr const char* kGain =
    "cell elman[d] {\n  state h[d]\n  input x[d]\n  param U[d,d], g\n  h' = tanh(g*(U@h) + x)\n}\n";

Array& of_name(const CellGraph& cell, BoundRun& run, const std::string& name) {
  for (std::size_t s = 0; s < cell.symbols.size(); ++s)
    if (cell.symbols[s].name == name) return run.symbols[s];
  throw std::logic_error("no symbol " + name);
}

TEST(RelaxationOnDevice, WhatDoesNotContractRunsStepByStep) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kChaos));
  Device device = open_device(8);
  turns::Turn turn;
  for (const Dtype dtype : turn.of(std::vector<Dtype>{Dtype::F32, Dtype::F16})) {
    const Binding binding = bound(l, dtype, 90, 20, false);
    CudaSolver solver(*device.gpu, l.cell, l.structure, dtype);
    SolveOptions solve = relaxed();
    solve.max_iterations = 12;
    SolveReport report;
    solver.run(binding.run, solve, report);
    EXPECT_TRUE(report.converged);
    EXPECT_GT(report.repaired, 0);
    EXPECT_NE(report.stages[0].plan.strategy, Strategy::Relaxation);
    EXPECT_NE(report.stages[0].plan.reason.find("relaxation did not converge"), std::string::npos)
        << report.stages[0].plan.reason;
    // Or is reported.
    solve.repair = false;
    solver.run(binding.run, solve, report);
    EXPECT_FALSE(report.converged);
    EXPECT_GT(report.max_residual, default_tolerance(dtype));
    EXPECT_EQ(report.unconverged.size(), 3u);
    EXPECT_EQ(report.stages[0].iterations, 12);
    // A run that asks for something else forgets it.
    solver.run(binding.run, {}, report);
    EXPECT_EQ(report.stages[0].plan.reason.find("relaxation"), std::string::npos);
  }
}

// A run that leaves the choice to us looks at some iterations, and goes step by step where they do not end soon.
TEST(RelaxationOnDevice, IsTriedWhereItMayBeFaster) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kGain));
  turns::Turn turn;
  for (const double gain : turn.of(std::vector<double>{0.1, 9.0})) {
    Device device = open_device(8);
    BindRequest r;
    r.random_seed = 7;
    r.batch = 1;
    r.length = 9000;
    r.dims = {{"d", 20}};
    Binding binding = bind(l.cell, r);
    of_name(l.cell, binding.run, "g").set(0, gain);
    CudaSolver solver(*device.gpu, l.cell, l.structure, Dtype::F32);
    SolveReport report;
    solver.run(binding.run, {}, report);
    EXPECT_TRUE(report.converged);
    EXPECT_EQ(report.repaired, 0);
    const StageReport& stage = report.stages[0];
    if (gain < 1) {
      EXPECT_EQ(stage.plan.strategy, Strategy::Relaxation) << stage.plan.reason;
      EXPECT_GT(stage.iterations, 1);
      EXPECT_LE(stage.iterations, 8);
      EXPECT_CONTAINS(stage.plan.reason, "take as long as going step by step");
    } else {
      EXPECT_EQ(stage.plan.strategy, Strategy::Persistent) << stage.plan.reason;
      EXPECT_CONTAINS(stage.plan.reason, "; relaxation ");
    }
  }
}

// What a run of its own accord has learned of a shape does not bind who asks.
TEST(RelaxationOnDevice, AfterItWasGivenUp) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kGain));
  Device device = open_device(8);
  BindRequest r;
  r.random_seed = 7;
  r.batch = 1;
  r.length = 9000;
  r.dims = {{"d", 20}};
  Binding binding = bind(l.cell, r);
  Array& gain = of_name(l.cell, binding.run, "g");
  gain.set(0, 9);
  CudaSolver solver(*device.gpu, l.cell, l.structure, Dtype::F32);
  SolveReport report;
  solver.run(binding.run, {}, report);
  EXPECT_CONTAINS(report.stages[0].plan.reason, "; relaxation ");
  gain.set(0, 0.1);
  SolveOptions pinned;
  pinned.plan = {{Strategy::Relaxation, 0, 0, "test"}};
  solver.run(binding.run, pinned, report);
  EXPECT_EQ(report.stages[0].plan.strategy, Strategy::Relaxation) << report.stages[0].plan.reason;
  EXPECT_EQ(report.repaired, 0);
}

// What nobody asked for must not take the memory that going step by step has enough of.
TEST(RelaxationOnDevice, WithoutMemoryForIterations) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kGain));
  EmulatorOptions options;
  options.multiprocessors = 8;
  options.optimisation = 0;
  options.memory_bytes = 3 << 20;  // rows of states, or of inputs, are 0.7 MB
  const auto gpu = open_emulator(options);
  BindRequest r;
  r.random_seed = 7;
  r.batch = 1;
  r.length = 9000;
  r.dims = {{"d", 20}};
  const Binding binding = bind(l.cell, r);
  CudaSolver solver(*gpu, l.cell, l.structure, Dtype::F32);
  SolveReport report;
  solver.run(binding.run, {}, report);
  EXPECT_TRUE(report.converged);
  EXPECT_EQ(report.stages[0].plan.strategy, Strategy::Persistent);
  EXPECT_CONTAINS(report.stages[0].plan.reason, "; relaxation found no memory");
  EXPECT_THROW(solver.run(binding.run, relaxed(), report), MemoryError);
  // And all is as it was.
  solver.run(binding.run, {}, report);
  EXPECT_TRUE(report.converged);
}

// Factors of TF32 round the iterate, and what that makes of a step is more than the tolerance: it goes on by others.
TEST(RelaxationOnDevice, GoesOnByFinerProducts) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kGain));
  Device device = open_device(8);
  Binding binding = bound(l, Dtype::F32, 40, 20, false);
  of_name(l.cell, binding.run, "g").set(0, 1);
  CudaSolver solver(*device.gpu, l.cell, l.structure, Dtype::F32), steps(*device.gpu, l.cell, l.structure, Dtype::F32);
  for (const Products products : {Products::Tf32, Products::Tf32x3, Products::Tf32}) {
    SolveOptions solve = relaxed();
    solve.products = products;
    SolveReport report;
    const RunOutput output = solver.run(binding.run, solve, report);
    EXPECT_TRUE(report.converged);
    EXPECT_EQ(report.repaired, 0);
    EXPECT_LE(report.stages[0].iterations, 30);
    EXPECT_LE(furthest(output, step_by_step(steps, binding.run)), 2e-5);
  }
}

/// Gradients of a run, by one way and the other.
Gradients gradients_of(Gpu& gpu, const AnalysedCell& l, const AdjointRun& adjoint, const BoundRun& run,
                       const RunOutput& output, const Cotangents& cotangents, Dtype dtype, const SolveOptions& solve,
                       SolveReport& report) {
  return BackwardOnGpu(gpu, l.cell, adjoint, dtype).run(run, output, cotangents, solve, report);
}

double furthest(const Gradients& a, const Gradients& b) {
  double most = 0;
  for (std::size_t s = 0; s < a.symbols.size(); ++s)
    for (std::int64_t i = 0; i < a.symbols[s].count(); ++i)
      most = std::max(most, std::abs(a.symbols[s].get(i) - b.symbols[s].get(i)) / (1 + std::abs(b.symbols[s].get(i))));
  return most;
}

class RelaxesAdjoint : public testing::TestWithParam<const char*> {};

// The adjoint of a cell that mixes is linear and mixes by the matrices the other way round.
TEST_P(RelaxesAdjoint, ToTheSequentialGradients) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", GetParam()));
  turns::Turn turn;
  const bool reverse = turn.of(std::vector<bool>{false, true}).front();
  for (const Dtype dtype : turn.of(std::vector<Dtype>{Dtype::F64, Dtype::F32}))
    for (const bool ragged : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, ragged {}", to_string(dtype), ragged));
      Device device = open_device(8);
      Binding binding = bound(l, dtype, 40, 20, reverse);
      if (ragged) binding.run.offsets = {0, 60, 60, 120};
      for (Array& a : binding.run.symbols)  // so that each of them contracts
        for (std::int64_t i = 0; i < a.count(); ++i) a.set(i, 0.5 * a.get(i));
      const RunOutput output = reference_run(l.cell, binding.run);
      const Cotangents cotangents = random_cotangents(l.cell, binding.run, dtype, 3);
      const AdjointRun adjoint(l.cell, results_with(cotangents, true));
      SolveOptions by = relaxed();
      by.products = Products::F32;
      by.max_iterations = 120;
      SolveReport report;
      const Gradients found = gradients_of(*device.gpu, l, adjoint, binding.run, output, cotangents, dtype, by, report);
      EXPECT_TRUE(report.converged);
      const auto relaxed_stages = std::count_if(report.stages.begin(), report.stages.end(), [](const StageReport& s) {
        return s.plan.strategy == Strategy::Relaxation && s.iterations > 0;
      });
      const std::string& reason = report.stages[0].plan.reason;
      // The step of a stage behind it may make more of what is left than is tolerated, which in f32 is about ten
      // roundings.
      if (relaxed_stages == 0 && dtype == Dtype::F32 && GetParam() == kStaged)
        EXPECT_CONTAINS(reason, "relaxation did not converge");
      else
        EXPECT_EQ(relaxed_stages, 1) << reason;
      by.solver = Strategy::Sequential;
      const Gradients steps = gradients_of(*device.gpu, l, adjoint, binding.run, output, cotangents, dtype, by, report);
      EXPECT_LE(furthest(found, steps), dtype == Dtype::F64 ? 1e-10 : 1e-4);
    }
}
INSTANTIATE_TEST_SUITE_P(Cells, RelaxesAdjoint, testing::Values(kLstm, kGru, kMeanField, kStaged));

TEST(RelaxationOnDevice, AdjointsThatDoNotContractGoStepByStep) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kGain));
  Device device = open_device(8);
  Binding binding = bound(l, Dtype::F32, 60, 20, false);
  of_name(l.cell, binding.run, "g").set(0, 2);
  const RunOutput output = reference_run(l.cell, binding.run);
  const Cotangents cotangents = random_cotangents(l.cell, binding.run, Dtype::F32, 3);
  const AdjointRun adjoint(l.cell, results_with(cotangents, true));
  const auto run = [&](const SolveOptions& by, SolveReport& report) {
    return gradients_of(*device.gpu, l, adjoint, binding.run, output, cotangents, Dtype::F32, by, report);
  };
  SolveOptions by = relaxed(), steps;
  steps.solver = Strategy::Sequential;
  by.max_iterations = 4;
  SolveReport report, of_steps;
  const Gradients found = run(by, report);
  EXPECT_TRUE(report.converged);
  EXPECT_GT(report.repaired, 0);
  EXPECT_NE(report.stages[0].plan.strategy, Strategy::Relaxation);
  EXPECT_CONTAINS(report.stages[0].plan.reason, "; relaxation did not converge");
  EXPECT_LE(furthest(found, run(steps, of_steps)), 1e-3);
  // Or it is said.
  by.repair = false;
  run(by, report);
  EXPECT_FALSE(report.converged);
  EXPECT_GT(report.max_residual, default_tolerance(Dtype::F32));
  // Of a cell whose adjoint has nothing to relax.
  const AnalysedCell lanes =
      analyse_text(SourceText("test.cell", "cell c[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x\n}\n"));
  const Binding plain = bound(lanes, Dtype::F32, 9, 3, false);
  const Cotangents of = random_cotangents(lanes.cell, plain.run, Dtype::F32, 3);
  const AdjointRun without(lanes.cell, results_with(of, true));
  EXPECT_THROW(gradients_of(*device.gpu, lanes, without, plain.run, reference_run(lanes.cell, plain.run), of,
                            Dtype::F32, relaxed(), report),
               SolverError);
}

// Iterations take several times the memory of steps: where they are given up, it is given back.
TEST(RelaxationOnDevice, GivesItsMemoryBack) {
  if (on_card()) GTEST_SKIP() << "counts what the emulator holds";
  const AnalysedCell l = analyse_text(SourceText("test.cell", kChaos));
  Device device = open_device(8);
  const Binding binding = bound(l, Dtype::F32, 90, 20, false);
  const auto held = [&](const SolveOptions& solve) {
    CudaSolver solver(*device.gpu, l.cell, l.structure, Dtype::F32);
    const std::int64_t before = device.emulator->counts().live_bytes;
    SolveReport report;
    solver.run(binding.run, solve, report);
    EXPECT_TRUE(report.converged);
    EXPECT_NE(report.stages[0].plan.strategy, Strategy::Relaxation);
    return device.emulator->counts().live_bytes - before;
  };
  SolveOptions asked = relaxed();
  asked.max_iterations = 12;
  EXPECT_EQ(held(asked), held({}));
}

/// Tells which products were compiled.
class HearsOfProducts final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  GpuModule load(const GpuSource& source) override {
    for (const ProductFactors factors : {ProductFactors::Tf32, ProductFactors::Tf32x3})
      if (source.text.find(product_template(factors, Dtype::F32).macro) != std::string::npos) heard.insert(factors);
    return WrappedGpu::load(source);
  }
  std::set<ProductFactors> heard;
};

// While iterates move far, coarse products do, and the answer is that of fine ones.
TEST(RelaxationOnDevice, BeginsByCoarseProducts) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kGain));
  Device device = open_device(8);
  Binding binding = bound(l, Dtype::F32, 24, 20, false);
  of_name(l.cell, binding.run, "g").set(0, 1);
  HearsOfProducts gpu(*device.gpu);
  CudaSolver solver(gpu, l.cell, l.structure, Dtype::F32), steps(*device.gpu, l.cell, l.structure, Dtype::F32);
  SolveReport report;
  SolveOptions solve = relaxed();
  solve.fixed_iterations = 3;  // each of them is one of the map that was asked for
  solver.run(binding.run, solve, report);
  EXPECT_FALSE(gpu.heard.contains(ProductFactors::Tf32));
  const RunOutput output = solver.run(binding.run, relaxed(), report);
  EXPECT_EQ(gpu.heard.size(), 2u);
  EXPECT_TRUE(report.converged);
  EXPECT_EQ(report.repaired, 0);
  EXPECT_LE(report.stages[0].iterations, 26);
  EXPECT_LE(furthest(output, step_by_step(steps, binding.run)), 3e-6);
}

// So many and no more may be none: then the states are those that iterations begin with.
TEST(RelaxationOnDevice, WithoutIterations) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kGain));
  Device device = open_device(8);
  Binding binding = bound(l, Dtype::F32, 20, 20, false);
  of_name(l.cell, binding.run, "g").set(0, 0.5);
  SolveOptions none = relaxed();
  none.fixed_iterations = 0;
  CudaSolver solver(*device.gpu, l.cell, l.structure, Dtype::F32);
  SolveReport report;
  step_by_step(solver, binding.run);  // leaves other finals in the same memory
  const RunOutput output = solver.run(binding.run, none, report);
  EXPECT_FALSE(report.converged);
  EXPECT_EQ(report.stages[0].iterations, 0);
  for (const Array* array : {&output.states[0], &output.finals[0]})
    for (std::int64_t i = 0; i < array->count(); ++i) ASSERT_EQ(array->get(i), 0) << i;
  // Of a sequence without steps it is the start.
  Binding ragged = binding;
  ragged.run.offsets = {0, 20, 20, 60};
  Array& starts = of_name(l.cell, ragged.run, "h");
  for (std::int64_t i = 0; i < starts.count(); ++i) starts.set(i, 0.5);
  const Array finals = solver.run(ragged.run, none, report).finals[0];
  for (std::int64_t i = 0; i < finals.count(); ++i) ASSERT_EQ(finals.get(i), i / 20 == 1 ? 0.5 : 0) << i;
  // Where more may be made, and something else is made instead, it is right.
  SolveOptions capped = relaxed();
  capped.max_iterations = 0;
  const RunOutput repaired = solver.run(binding.run, capped, report);
  EXPECT_TRUE(report.converged);
  EXPECT_LE(furthest(repaired, step_by_step(solver, binding.run)), 2e-5);
}

/// What row_differences.cuh makes of rows [rows, 2].
double largest_on_device(const char* kernel, const Array& from, const Array& to,
                         const std::vector<std::int64_t>& offsets, bool reverse, double absolute) {
  struct {
    GpuAddress from, to, offsets;
    std::int64_t sequences, steps, entries, reverse;
    double absolute;
    GpuAddress most, sizes;
  } d{};
  const auto gpu = open_emulator();
  std::string text = storage_macro(to.dtype());
  for (const char* part : {"preamble.cuh", "row_differences.cuh"}) text += kernel_template(part);
  const std::size_t bytes = static_cast<std::size_t>(to.count()) * size_of(to.dtype());
  const GpuBuffer rows(*gpu, bytes), made(*gpu, bytes), most = upload(*gpu, std::vector<float>{0}),
                                                        places = upload(*gpu, offsets);
  gpu->copy_in(rows.address(), to.data(), bytes, 0);
  gpu->copy_in(made.address(), from.data(), bytes, 0);
  std::int64_t longest = 0;
  for (std::size_t s = 1; s < offsets.size(); ++s) longest = std::max(longest, offsets[s] - offsets[s - 1]);
  const auto sequences = static_cast<std::int64_t>(offsets.size()) - 1;
  const GpuBuffer sizes(*gpu, static_cast<std::size_t>(sequences * (longest / 64 + 1) * 2) * 8);
  d = {made.address(), rows.address(), places.address(), sequences,      longest, 2,
       reverse,        absolute,       most.address(),   sizes.address()};
  for (const char* name : {"cellc_row_sizes", "cellc_row_sizes_before", kernel})
    launch(*gpu, compile(*gpu, text, name), shape(3, 32), d);
  return static_cast<double>(download<float>(*gpu, most)[0]);
}

// Never less than over the largest of a lane, and not much more where that comes early.
TEST(RowDifferences, OfAwkwardRows) {
  const std::vector<std::int64_t> offsets{0, 300, 300, 301, 430, 1100};
  for (const Dtype dtype : {Dtype::F32, Dtype::F64})
    for (const double scale : {1e-30, 1.0, 3e38})
      for (const bool reverse : {false, true})
        for (const std::int64_t place : {std::int64_t{0}, std::int64_t{299}, std::int64_t{300}, std::int64_t{429},
                                         std::int64_t{1000}, std::int64_t{1099}}) {
          Array made(dtype, {1100, 2}), rows(dtype, {1100, 2});
          // Large rows come first: they count many parts later.
          for (std::int64_t i = 0; i < rows.count(); ++i) {
            const auto next = std::upper_bound(offsets.begin(), offsets.end(), i / 2);
            const std::int64_t step = reverse ? *next - 1 - i / 2 : i / 2 - *std::prev(next);
            rows.set(i, scale * (step < 20 ? 1 : 0.05) * (0.6 + 0.4 * std::cos(static_cast<double>(i))));
            made.set(i, rows.get(i));
          }
          const auto compared = [&](double absolute) {
            const auto sequence = std::upper_bound(offsets.begin(), offsets.end(), place) - offsets.begin() - 1;
            const std::int64_t at = 2 * place + 1;
            const double size = lane_sizes(rows, offsets)[static_cast<std::size_t>(2 * sequence + 1)],
                         exact = relative_difference(made.get(at), rows.get(at), size, absolute),
                         far = largest_on_device("cellc_row_residual", made, rows, offsets, reverse, absolute),
                         moved = largest_on_device("cellc_row_change", made, rows, offsets, reverse, 0);
            EXPECT_GE(moved > 0, exact > 0);
            return std::pair{far, exact};
          };
          SCOPED_TRACE(fmt::format("{}, {}, row {}{}", to_string(dtype), scale, place, reverse ? ", reversed" : ""));
          EXPECT_EQ(compared(0), (std::pair{0.0, 0.0}));
          made.set(2 * place + 1, 0.5 * rows.get(2 * place + 1));
          const auto [far, exact] = compared(0);
          EXPECT_GT(exact, 0.001);
          EXPECT_GE(far, exact * (1 - 1e-6));
          EXPECT_LE(far, exact * 5);
          const auto [less, exactly] = compared(0.25 * rows.get(2 * place + 1));
          EXPECT_GE(less, exactly * (1 - 1e-6));
          EXPECT_LT(less, far);
          EXPECT_EQ(compared(rows.get(2 * place + 1)), (std::pair{0.0, 0.0}));
          for (const double none : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
            made.set(2 * place + 1, none);
            EXPECT_EQ(compared(0), (std::pair{HUGE_VAL, HUGE_VAL}));
          }
        }
}

TEST(ChooseRelaxation, WhatIsWorthTrying) {
  // LSTMs of 768 and 512 units.
  RelaxationRequest r{4.0 * 768 * 768, 2 * 768, 16 * 1024, 1024, 16, Dtype::F32, ProductFactors::Tf32x3, 0, 132};
  const int of_large = iterations_worth_on_gpu(r);
  EXPECT_GT(of_large, 50);
  r.other_step_ns = 2700;  // in 16 bits
  r.factors = ProductFactors::F16;
  EXPECT_EQ(iterations_worth_on_gpu(r), 0);
  r = {4.0 * 512 * 512, 2 * 512, 16384, 16384, 1, Dtype::F32, ProductFactors::BF16, 1000, 132};
  EXPECT_GT(iterations_worth_on_gpu(r), 20);
  r.rows = r.longest = 256;  // not worth compiling for
  EXPECT_EQ(iterations_worth_on_gpu(r), 0);
  r.product_entries = 0;  // nothing is a product over all steps
  EXPECT_EQ(iterations_worth_on_gpu(r), 0);
}

TEST(RelaxationOnDevice, SaysWhyThereIsNone) {
  Device device = open_device(8);
  const auto refusal = [&](const char* text, const SolveOptions& solve) -> std::string {
    const AnalysedCell l = analyse_text(SourceText("test.cell", text));
    const Binding binding = bound(l, Dtype::F32, 20, 5, false);
    CudaSolver solver(*device.gpu, l.cell, l.structure, Dtype::F32);
    SolveReport report;
    try {
      solver.run(binding.run, solve, report);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(
      refusal("cell decay[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x\n}\n", relaxed()),
      "the stage {h} has no term that mixes its channels, so there is nothing to relax; leave the choice to auto");
  EXPECT_CONTAINS(refusal("cell line[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n"
                          "  h' = 0.1*tanh(U@h) + 0.5*lag(h, 40) + x\n}\n",
                          relaxed()),
                  "delay line of h");
  SolveOptions windows;
  windows.plan = {{Strategy::Relaxation, 8, 0, "test"}};
  EXPECT_EQ(refusal(kChaos, windows),
            "the plan relaxes windows of 8 steps, and a GPU relaxes all steps at once: leave 0");

  const AnalysedCell l = analyse_text(SourceText("test.cell", kChaos));
  const Binding binding = bound(l, Dtype::F32, 20, 5, false);
  CudaSolver solver(*device.gpu, l.cell, l.structure, Dtype::F32);
  try {
    solver.prepare(binding.run, relaxed());
    FAIL() << "a call that waits for nothing cannot look at what iterations change";
  } catch (const SolverError& error) {
    EXPECT_NE(std::string(error.what()).find("wait for nothing"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace cellc
