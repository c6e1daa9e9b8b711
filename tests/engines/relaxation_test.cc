// Waveform relaxation against the fused sequential kernel in f64, found from structure alone: no cell is
// known by name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/derive/pipeline.h"
#include "compiler/front_end.h"
#include "runtime/cpu/relax_stage.h"
#include "runtime/cpu/solve.h"
#include "runtime/cpu/strategy_relaxation.h"
#include "runtime/cpu/time_window.h"
#include "runtime/data/bind.h"
#include "runtime/strategy/choose_strategy.h"
#include "tests/engines/relaxed_cells.h"

namespace cellc {
namespace {

AnalysedCell load(const std::string& text) { return analyse_text(SourceText("test", text)); }

BindRequest request(Dtype dtype, std::int64_t steps) {
  BindRequest r;
  r.random_seed = 7;
  r.batch = 3;
  r.length = steps;
  r.dtype = dtype;
  r.dims = {{"d", 5}};
  return r;
}

class Relaxes : public testing::TestWithParam<const char*> {};

TEST_P(Relaxes, ToTheSequentialAnswer) {
  AnalysedCell l = load(GetParam());
  for (const std::int64_t steps : {0, 1, 2, 65, 300})
    for (const bool reverse : {false, true})
      for (const Dtype dtype : {Dtype::F64, Dtype::F32, Dtype::BF16}) {
        BindRequest r = request(dtype, steps);
        r.reverse = reverse;
        if (l.cell.name == "lstm") r.dims["m"] = 4;
        const Binding binding = bind(l.cell, r);
        CompileOptions options;
        options.dtype = dtype;
        Solver solver(l.cell, l.structure, options);
        SolveOptions solve;
        solve.solver = Strategy::Relaxation;
        SolveReport report;
        const RunOutput relaxed = solver.run(binding.run, solve, report);
        EXPECT_TRUE(report.converged);
        EXPECT_LE(report.max_residual, default_tolerance(dtype));
        const RunOutput sequential = Program::compile(l.cell, l.structure, options).run(binding.run);
        // bf16: both are rounded to eight bits, from trajectories that differ by the tolerance.
        const double within = dtype == Dtype::F64 ? 1e-11 : dtype == Dtype::F32 ? 1e-5 : 1e-2;
        EXPECT_LE(furthest(relaxed, sequential), within) << steps << (reverse ? " reversed" : "") << to_string(dtype);
      }
}

INSTANTIATE_TEST_SUITE_P(Cells, Relaxes, testing::ValuesIn(kRelaxedCells));

// Windows that no length divides, on lagged inputs and several sequences, with products in large blocks.
TEST(Relaxation, WindowByWindow) {
  AnalysedCell l = load(R"(cell lagged[d] {
  state e[d], h[d]
  input x[d]
  param U[d,d]
  e' = 0.5*e + x
  h' = 0.5*tanh(U@h + lag(x, 2) + e') + 0.2*lag(h, 1)
}
)");
  for (const bool reverse : {false, true})
    for (const Dtype dtype : {Dtype::F64, Dtype::BF16}) {
      BindRequest r = request(dtype, 700);
      r.reverse = reverse;
      Binding binding = bind(l.cell, r);
      // As packed sequences of uneven length.
      binding.run.offsets = {0, 1000, 1010, 2100};
      CompileOptions options;
      options.dtype = dtype;
      Solver solver(l.cell, l.structure, options);
      const RunOutput sequential = Program::compile(l.cell, l.structure, options).run(binding.run);
      for (const std::int64_t window : {0, 1, 7, 256, 400, 999, 1000, 5000}) {
        if (window == 1 && dtype != Dtype::F64) continue;
        SCOPED_TRACE(testing::Message() << "window " << window << (reverse ? " reversed " : " ") << to_string(dtype));
        SolveOptions solve;
        for (const Stage& stage : l.structure.stages)
          solve.plan.push_back(stage.kind == StructureClass::Dense ? StagePlan{Strategy::Relaxation, window, 0, "test"}
                                                                   : StagePlan{Strategy::Segmented, 128, 64, "test"});
        SolveReport report;
        const RunOutput relaxed = solver.run(binding.run, solve, report);
        EXPECT_TRUE(report.converged);
        EXPECT_EQ(report.repaired, 0);
        EXPECT_LE(furthest(relaxed, sequential), dtype == Dtype::F64 ? 1e-11 : 1e-2);
        // A window of n steps is right after n iterations, whatever the cell, and one more sees it.
        if (window > 0 && window < 1000) {
          EXPECT_LE(report.stages.back().iterations, window + 1);
        }
      }
    }
}

// Gains above one: differences grow through time before they die, and iterations grow with the window.
TEST(Relaxation, WindowsBoundTheIterations) {
  AnalysedCell l = load("cell gain[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = tanh(2*(U@h) + x)\n}\n");
  Binding binding = bind(l.cell, request(Dtype::F64, 600));
  Solver solver(l.cell, l.structure, {.dtype = Dtype::F64});
  SolveOptions solve;
  solve.max_iterations = 400;
  SolveReport whole, windows;
  solve.plan = {{Strategy::Relaxation, 0, 0, "test"}};
  const RunOutput a = solver.run(binding.run, solve, whole);
  solve.plan = {{Strategy::Relaxation, 16, 0, "test"}};
  const RunOutput b = solver.run(binding.run, solve, windows);
  EXPECT_TRUE(windows.converged);
  EXPECT_EQ(windows.repaired, 0);
  EXPECT_LE(windows.stages[0].iterations, 17);
  EXPECT_GT(whole.stages[0].iterations, windows.stages[0].iterations);
  EXPECT_LE(furthest(b, Program::compile(l.cell, l.structure, {.dtype = Dtype::F64}).run(binding.run)), 1e-9);
}

// Bits neither depend on the threads nor on which rows share a product. So many lanes that the rest of the
// cell is run the same way by all of them.
TEST(Relaxation, TheSameBitsForAnyThreads) {
  AnalysedCell l = load(kLstm);
  for (const bool reverse : {false, true}) {
    BindRequest r = request(Dtype::F32, 1500);
    r.reverse = reverse;
    r.dims["m"] = 4;
    r.dims["d"] = 112;
    Binding binding = bind(l.cell, r);
    Solver solver(l.cell, l.structure, {});
    SolveOptions solve;
    solve.solver = Strategy::Relaxation;
    SolveReport report;
    RunOutput first;
    for (const int threads : {1, 2, 5}) {
      binding.run.threads = threads;
      RunOutput output = solver.run(binding.run, solve, report);
      EXPECT_TRUE(report.converged);
      if (threads == 1)
        first = std::move(output);
      else
        EXPECT_EQ(furthest(output, first), 0) << threads << " threads" << (reverse ? ", reversed" : "");
    }
    ASSERT_TRUE(report.stages[0].predicted_iterations);
    EXPECT_NEAR(*report.stages[0].predicted_iterations, report.stages[0].iterations, 3);
  }
}

// Matrices that stay in no core's cache: what is chosen follows from what this machine measures, and the reason
// gives the numbers that it was chosen by. What does not contract is never chosen. The second matrix, 36 MB, stays in
// few shared caches either, so that relaxation runs where many threads share it.
TEST(Relaxation, IsChosenWhereItIsPredictedToBeFaster) {
  for (const auto& [gain, channels] : {std::pair{0.3, 1450}, std::pair{0.05, 3000}, std::pair{30.0, 1450}}) {
    AnalysedCell l = load(fmt::format(
        "cell elman[d] {{\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = tanh({}*(U@h) + x)\n}}\n", gain));
    BindRequest r = request(Dtype::F32, 600);
    r.batch = 1;
    r.dims["d"] = channels;
    r.threads = 2;
    const Binding binding = bind(l.cell, r);
    Solver solver(l.cell, l.structure, {});
    SolveReport report;
    const RunOutput output = solver.run(binding.run, {}, report);
    const StageReport& s = report.stages[0];
    SCOPED_TRACE(s.plan.reason);
    int predicted = 0, worth = 0;
    const std::size_t at = s.plan.reason.find("take ");
    const bool both = at != std::string::npos &&
                      std::sscanf(s.plan.reason.c_str() + at, "take %d iterations, and %d", &predicted, &worth) == 2;
    if (s.plan.strategy == Strategy::Relaxation) {
      ASSERT_TRUE(both);
      EXPECT_LT(gain, 1);
      EXPECT_LE(predicted, worth);
      EXPECT_LE(s.iterations, predicted + 3);
    } else if (both) {
      EXPECT_GE(predicted, worth);
    } else {
      EXPECT_TRUE(s.plan.reason.find("would have to end after") != std::string::npos ||
                  s.plan.reason.find("does not contract") != std::string::npos ||
                  s.plan.reason.find("second-level cache") != std::string::npos);
    }
    EXPECT_TRUE(report.converged);
    EXPECT_LE(furthest(output, Program::compile(l.cell, l.structure, {}).run(binding.run)), 1e-5);
    // Asked again for the same shape, the same is chosen.
    SolveReport again;
    solver.run(binding.run, {}, again);
    EXPECT_EQ(again.stages[0].plan.strategy, s.plan.strategy);
  }
}

/// The only stage of a cell at the sizes of a run.
class OneStage final : public StagesOfRun {
 public:
  OneStage(AnalysedCell& cell, const BoundRun& run, Relaxation& relaxation)
      : cell_(cell), run_(run), relaxation_(relaxation) {}
  int count() const override { return 1; }
  const Stage& stage(int) const override { return cell_.structure.stages[0]; }
  StageShape shape(int) override {
    StageShape shape;
    shape.sequences = 1;
    shape.longest = shape.rows = run_.offsets.back();
    shape.block = run_.symbols[cell_.cell.updates[0].symbol].count();
    return shape;
  }
  std::string states(int) const override { return "{h}"; }
  const BoundRun& run() const override { return run_; }
  Relaxation* relaxation(int) override { return &relaxation_; }

 private:
  AnalysedCell& cell_;
  const BoundRun& run_;
  Relaxation& relaxation_;
};

// As costs are told: a look that takes what relaxation would save leaves nothing to gain, and the code for a look is
// not made where relaxation would be slower without.
TEST(Relaxation, IsChosenWhereItIsFasterWithTheLookAtAllSteps) {
  AnalysedCell l = load("cell wide[d] {\n state h[d]\n input x[d]\n param U[d,d]\n h' = tanh(0.02*(U@h) + x)\n}\n");
  BindRequest r = request(Dtype::F32, 520);
  r.batch = 1;
  r.dims["d"] = 1450;  // 8 MB: in no second-level cache
  const Binding binding = bind(l.cell, r);
  const std::unique_ptr<Relaxation> relaxation = Relaxation::make(l.cell, l.structure, 0, {});
  ASSERT_TRUE(relaxation);
  OneStage stage(l, binding.run, *relaxation);
  int looks = 0;
  const auto choice = [&](double step_ns, double look_ns, RelaxationChoice& by) {
    looks = 0;
    return by.choose(
        stage, 1e-6, sizeof(float), [&] { return step_ns; }, [&] { return ++looks, look_ns; });
  };
  RelaxationChoice free, dear, slow;
  const std::optional<StagePlan> relaxed = choice(1e12, 0, free);
  ASSERT_TRUE(relaxed) << free.why_not();
  EXPECT_EQ(relaxed->strategy, Strategy::Relaxation);
  EXPECT_GT(free.worth(), 20);
  EXPECT_EQ(looks, 1);
  EXPECT_TRUE(choice(1e12, 0, free));
  EXPECT_EQ(looks, 0) << "of a shape that is known";

  EXPECT_FALSE(choice(1e12, 1e12, dear));
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(dear.why_not(), "; relaxation would have to end after 0 iterations to be faster");
  EXPECT_EQ(dear.worth(), 0);

  EXPECT_FALSE(choice(0, 0, slow));
  EXPECT_EQ(looks, 0);
}

// Iterations that are worth it are those of the whole run: who has few steps left may take more for them.
TEST(Relaxation, EndsWhereItTakesMoreIterationsThanItIsWorth) {
  AnalysedCell l = load("cell gain[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = tanh(U@h + x)\n}\n");
  Binding binding = bind(l.cell, request(Dtype::F64, 400));
  const std::unique_ptr<Relaxation> relaxation = Relaxation::make(l.cell, l.structure, 0, {.dtype = Dtype::F64});
  ASSERT_TRUE(relaxation);
  const auto outcome = [&](std::int64_t window, int worth) {
    TimeWindow all;
    cut_window(l.cell, binding.run, {}, 0, 400, all);
    all.arrays.trajectories[0] = Array(Dtype::F64, {1200, 5});
    return relaxation->run(all.arrays, {}, 1e-12, window, worth);
  };
  for (const std::int64_t window : {0, 100}) {
    const StageOutcome whole = outcome(window, 0);
    EXPECT_TRUE(whole.unconverged.empty());
    const int needed = whole.report.iterations;
    ASSERT_GT(needed, 10);
    EXPECT_TRUE(outcome(window, 2 * needed).unconverged.empty());
    const StageOutcome given_up = outcome(window, 5);
    EXPECT_FALSE(given_up.unconverged.empty());
    EXPECT_EQ(given_up.report.trace.size(), 4u) << "four iterations tell that it will take more than five";
  }
  // Nothing moves before the last quarter.
  auto* const x = static_cast<double*>(binding.run.symbols[l.cell.find_symbol("x")].data());
  for (std::int64_t s = 0; s < 3; ++s) std::fill_n(x + s * 400 * 5, 300 * 5, 0);
  const int of_last = outcome(100, 0).report.iterations;
  EXPECT_TRUE(outcome(100, of_last / 2).unconverged.empty());
  EXPECT_FALSE(outcome(100, of_last / 6).unconverged.empty());
}

TEST(Relaxation, LeavesALinearScanOfAnLstm) {
  AnalysedCell l = load(kLstm);
  auto relaxed = relax(l.cell, l.structure, 0);
  ASSERT_TRUE(relaxed);
  EXPECT_EQ(relaxed->mixing.cell.outs.size(), 4u);  // U_i h, U_f h, U_g h, U_o h
  EXPECT_EQ(relaxed->fixed.cell.outs.size(), 4u);   // W x
  const Jacobian jacobian = differentiate(relaxed->relaxed.cell);
  const Structure structure = analyse(relaxed->relaxed.cell, jacobian);
  EXPECT_TRUE(structure.linear);
  for (const Stage& stage : structure.stages) EXPECT_EQ(stage.kind, StructureClass::Diagonal);
}

// Where changes shrink fast the last iteration is spared, as what it would change is known to be within the tolerance;
// and the first change, from zeros, is one like the others. A run that is looked at too early is careful from there on,
// and ends with a change within the tolerance.
TEST(Relaxation, SparesTheLastIteration) {
  AnalysedCell l = load(kLstm);
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    BindRequest r = request(dtype, 300);
    r.dims["m"] = 4;
    const Binding binding = bind(l.cell, r);
    Solver solver(l.cell, l.structure, {.dtype = dtype});
    SolveOptions solve;
    solve.solver = Strategy::Relaxation;
    SolveReport report;
    for (int digits = 3; digits < (dtype == Dtype::F64 ? 11 : 7); ++digits) {
      solve.tolerance = std::pow(10.0, -digits);
      solver.run(binding.run, solve, report);
      EXPECT_TRUE(report.converged);
      const std::vector<IterationTrace>& trace = report.stages[0].trace;
      ASSERT_GE(trace.size(), 2u);
      EXPECT_LE(trace[0].change, 1);
      std::size_t settled = 1;
      const auto left = [&](std::size_t i) {
        const double q = trace[i].change / trace[i - 1].change;
        return trace[i].change * (q < 0.5 ? 2 * q : 1);
      };
      while (settled + 1 < trace.size() && left(settled) > *solve.tolerance) ++settled;
      EXPECT_EQ(trace.size(), settled + 1) << "tolerance " << *solve.tolerance;
    }
  }
}

// Later windows are over what a sequence began with, large steps that they have not: what few iterations leave is
// beyond the tolerance in the second sequence alone, which begins small and has ended when later windows begin.
TEST(Relaxation, ResidualsAreOverTheSizesOfWindowsBefore) {
  AnalysedCell l = load("cell kick[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = 0.1*tanh(U@h) + x\n}\n");
  for (const bool reverse : {false, true}) {
    BindRequest r = request(Dtype::F64, 300);
    r.reverse = reverse;
    Binding binding = bind(l.cell, r);
    const std::vector<std::int64_t> offsets = binding.run.offsets = {0, 300, 340, 900};
    auto* const x = static_cast<double*>(binding.run.symbols[l.cell.find_symbol("x")].data());
    for (std::size_t s = 0; s < 3; ++s)
      for (std::int64_t i = offsets[s] * 5; i < offsets[s + 1] * 5; ++i) {
        const bool first = i / 5 == (reverse ? offsets[s + 1] - 1 : offsets[s]);
        x[i] = std::copysign(first && s != 1 ? 10 : 1e-3, x[i]);
      }
    Solver solver(l.cell, l.structure, {.dtype = Dtype::F64});
    SolveOptions solve;
    solve.plan = {{Strategy::Relaxation, 100, 0, "test"}};
    solve.fixed_iterations = 3;
    solve.tolerance = 2e-4;
    SolveReport report;
    solver.run(binding.run, solve, report);
    ASSERT_EQ(report.unconverged.size(), 1u);
    EXPECT_EQ(report.unconverged[0].sequence, 1);
  }
}

TEST(Relaxation, RunsStepByStepWhatDoesNotContract) {
  AnalysedCell l = load(R"(cell wild[d] {
  state h[d]
  input x[d]
  param U[d,d]
  h' = tanh(20*(U@h) + x)
}
)");
  const Binding binding = bind(l.cell, request(Dtype::F64, 400));
  Solver solver(l.cell, l.structure, {.dtype = Dtype::F64});
  SolveOptions solve;
  solve.solver = Strategy::Relaxation;
  solve.max_iterations = 10;
  SolveReport report;
  const RunOutput repaired = solver.run(binding.run, solve, report);
  EXPECT_TRUE(report.converged);
  EXPECT_EQ(report.repaired, 3);
  EXPECT_EQ(furthest(repaired, Program::compile(l.cell, l.structure, {.dtype = Dtype::F64}).run(binding.run)), 0);

  solve.repair = false;
  solver.run(binding.run, solve, report);
  EXPECT_FALSE(report.converged);
  ASSERT_EQ(report.unconverged.size(), 3u);
  // Ten iterations make ten steps right at least.
  for (const Unconverged& u : report.unconverged) {
    EXPECT_GE(u.first_bad_step, 9);
    EXPECT_GT(u.residual, 1e-12);
  }
}

// No iteration at all leaves zeros, and a step from zero makes 9: the residual is over what is written, which has no
// size, and not over 9.
TEST(Relaxation, ResidualsAreOverWhatIsWritten) {
  AnalysedCell l = load("cell far[d] {\n  state h[d]\n  param U[d,d]\n  h' = 9 + tanh(U@h)\n}\n");
  const Binding binding = bind(l.cell, request(Dtype::F64, 4));
  Solver solver(l.cell, l.structure, {.dtype = Dtype::F64});
  SolveOptions solve;
  solve.solver = Strategy::Relaxation;
  solve.fixed_iterations = 0;
  SolveReport report;
  solver.run(binding.run, solve, report);
  EXPECT_FALSE(report.converged);
  EXPECT_EQ(report.max_residual, std::numeric_limits<double>::infinity());
  ASSERT_EQ(report.unconverged.size(), 3u);
  for (const Unconverged& u : report.unconverged) EXPECT_EQ(u.residual, std::numeric_limits<double>::infinity());
}

TEST(Relaxation, IsRefusedWhereNothingMixes) {
  AnalysedCell l = load("cell plain[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(h + x)\n}\n");
  const Binding binding = bind(l.cell, request(Dtype::F32, 4));
  Solver solver(l.cell, l.structure, {});
  SolveOptions solve;
  solve.solver = Strategy::Relaxation;
  SolveReport report;
  EXPECT_THROW(solver.run(binding.run, solve, report), SolverError);
}

}  // namespace
}  // namespace cellc
