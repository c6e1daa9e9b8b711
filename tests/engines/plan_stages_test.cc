// The plan of a run on CPUs is a value: it follows from its request alone, so it is looked at without code or data.
#include "runtime/cpu/plan_stages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/front_end.h"
#include "runtime/data/errors.h"
#include "runtime/strategy/pass_costs.h"

namespace cellc {
namespace {

/// The stages of a cell at sizes that a test states; nothing is compiled.
class OnPaper final : public StagesOfRun {
 public:
  explicit OnPaper(const std::string& text) : front(analyse_text(SourceText("test.cell", text))) {
    StageShape shape;
    shape.sequences = 1;
    shape.longest = shape.rows = 100000;
    shape.channels = 2;
    shapes.assign(front.structure.stages.size(), shape);
    bound.offsets = {0, 100000};
  }

  int count() const override { return static_cast<int>(front.structure.stages.size()); }
  const Stage& stage(int k) const override { return front.structure.stages[k]; }
  StageShape shape(int k) override { return shapes[k]; }
  std::string states(int k) const override { return name_of_stage(front.cell, stage(k).states); }
  const BoundRun& run() const override { return bound; }
  Relaxation* relaxation(int) override { return nullptr; }

  StagesPlan plan(const SolveOptions& solve = {}, double tolerance = 1e-6) {
    return plan_stages({*this, solve, tolerance});
  }

  AnalysedCell front;
  std::vector<StageShape> shapes;
  BoundRun bound;
};

const char* const kTanh = "cell one[d] {\n state h[d]\n input x[d]\n h' = tanh(h + x)\n}";
const char* const kTwo =
    "cell two[d] {\n  state a[d], b[d]\n  input x[d]\n"
    "  a' = 0.5*a + x\n"
    "  b' = tanh(b + a')\n}";

TEST(PlanStages, LinearStagesAreScannedByTheShapeAlone) {
  OnPaper cell("cell one[d] {\n state h[d]\n input x[d], z[d]\n h' = sigmoid(z)*h + x\n}");
  const StagesPlan plan = cell.plan();
  EXPECT_FALSE(plan.fused);
  EXPECT_EQ(plan.stages[0].strategy, Strategy::Scan);
  EXPECT_NE(plan.stages[0].reason, "");
}

TEST(PlanStages, TheDataDecideWhatTheShapeLeavesOpen) {
  OnPaper cell(kTanh);
  EXPECT_EQ(cell.plan().stages[0].strategy, Strategy::Auto);
  const SolveOptions solve;
  StagesRequest request{cell, solve, 1e-6};
  request.next = 0;
  request.seen = {Forgetting{20, 40, 0, 0}};
  const StagesPlan forgets = plan_stages(request);
  EXPECT_EQ(forgets.stages[0].strategy, Strategy::Segmented);
  EXPECT_GT(forgets.stages[0].burn_in, 0);
  request.seen = {Forgetting{1e9, 1e9, 1, 0}};
  EXPECT_NE(plan_stages(request).stages[0].strategy, Strategy::Segmented);
}

TEST(PlanStages, ManyLanesLeaveNothingToGain) {
  OnPaper cell(kTanh);
  cell.shapes[0].sequences = 4096;
  cell.shapes[0].channels = 64;
  cell.shapes[0].rows = 4096 * cell.shapes[0].longest;
  EXPECT_TRUE(cell.plan().fused);
}

TEST(PlanStages, NoLookCostsMoreThanItCanSave) {
  OnPaper cell(kTanh);
  cell.shapes[0].channels = 1;
  cell.shapes[0].block = 40;
  cell.shapes[0].look_values = 160 * 40;
  cell.shapes[0].rows = 20000;
  EXPECT_TRUE(cell.plan().fused);
  cell.shapes[0].rows = 1'000'000'000;
  EXPECT_EQ(cell.plan().stages[0].strategy, Strategy::Auto);
}

TEST(PlanStages, SequencesOfANarrowCellLieSideBySide) {
  OnPaper cell(kTanh);
  cell.shapes[0].sequences = 4096, cell.shapes[0].longest = 100, cell.shapes[0].rows = 409600;
  const StagesPlan plan = cell.plan();
  EXPECT_FALSE(plan.fused);
  EXPECT_EQ(plan.stages[0].segment, 100);
  EXPECT_EQ(plan.stages[0].burn_in, 0);
  cell.shapes[0].sequences = 2;
  EXPECT_NE(cell.plan().stages[0].segment, 100);
}

TEST(PlanStages, NoStepsAndNoToleranceAreFused) {
  OnPaper cell(kTwo);
  const StagesPlan exact = cell.plan({}, 0);
  EXPECT_TRUE(exact.fused);
  for (const StagePlan& stage : exact.stages) EXPECT_NE(stage.reason.find("tolerance 0"), std::string::npos);
  cell.bound.offsets = {0};
  EXPECT_TRUE(cell.plan().fused);
  EXPECT_EQ(cell.plan().stages[1].reason, "no steps");
}

TEST(PlanStages, AWideStageKeepsTheOthersFused) {
  OnPaper cell(kTwo);
  cell.shapes[1].block = 4096;
  const StagesPlan plan = cell.plan();
  EXPECT_TRUE(plan.fused);
  EXPECT_EQ(plan.stages[1].reason, "4096 coupled entries are too many for transitions");
}

TEST(PlanStages, AStageThatStaysPaysForTheOneThatLeaves) {
  OnPaper cell(kTwo);
  // Sixty-four entries step by step behind each entry that would be scanned.
  cell.shapes[0].channels = 4, cell.shapes[1].channels = 4096;
  const SolveOptions solve;
  StagesRequest request{cell, solve, 1e-6};
  request.next = 1;
  request.seen = {std::nullopt, Forgetting{1e9, 1e9, 1, 0}};
  cell.shapes[1].vector_lanes = 3;  // no whole tiles: what remembers runs step by step
  const StagesPlan plan = plan_stages(request);
  EXPECT_TRUE(plan.fused);
  EXPECT_NE(plan.stages[0].reason.find("out of the fused kernel"), std::string::npos) << plan.stages[0].reason;
}

TEST(PlanStages, WhatAStageDoesNotAdmitIsRefused) {
  OnPaper cell(kTwo);
  SolveOptions solve;
  solve.plan = {{Strategy::Scan, 0, 0, ""}};
  EXPECT_THROW(cell.plan(solve), SolverError);  // one stage, the cell has two
  solve.plan = {{Strategy::Scan, 0, 0, ""}, {Strategy::Scan, 0, 0, ""}};
  try {
    cell.plan(solve);
    FAIL() << "a nonlinear stage was scanned";
  } catch (const SolverError& e) {
    EXPECT_NE(std::string(e.what()).find("{b}"), std::string::npos) << e.what();
  }
  solve.plan.clear();
  solve.solver = Strategy::Relaxation;
  EXPECT_THROW(cell.plan(solve), SolverError);
}

TEST(PlanStages, APinnedPlanIsTaken) {
  OnPaper cell(kTwo);
  SolveOptions solve;
  solve.plan = {{Strategy::Segmented, 128, 16, "mine"}, {Strategy::Shooting, 64, 8, "mine"}};
  const StagesPlan plan = cell.plan(solve);
  EXPECT_FALSE(plan.fused);
  EXPECT_EQ(plan.stages[0].segment, 128);
  EXPECT_EQ(plan.stages[1].strategy, Strategy::Shooting);
  EXPECT_EQ(plan.stages[1].burn_in, 8);
}

/// The plan of a run of which is known what passes cost.
StagesPlan weighed(OnPaper& cell, const PassCosts& costs, std::vector<std::optional<Forgetting>> seen = {},
                   int next = -1, bool looks_at_all = false) {
  const SolveOptions solve;
  StagesRequest request{cell, solve, 1e-6};
  request.costs = &costs;
  request.seen = std::move(seen);
  request.next = next;
  request.looks_at_all = looks_at_all;
  return plan_stages(request);
}

TEST(PlanStages, SequencesFillVectorsWhereThatCostsLess) {
  OnPaper cell(kTanh);
  cell.shapes[0].sequences = 1024, cell.shapes[0].longest = 1000, cell.shapes[0].rows = 1024000;
  const StagesPlan plan = weighed(cell, {4, {{0, 0.2, 0.2, 0}}, 0});
  EXPECT_FALSE(plan.fused);
  EXPECT_EQ(plan.stages[0].strategy, Strategy::Segmented);
  EXPECT_EQ(plan.stages[0].segment, 1000);
  EXPECT_EQ(plan.stages[0].burn_in, 0);
  EXPECT_TRUE(weighed(cell, {4, {{0, 5, 5, 0}}, 0}).fused);
  EXPECT_TRUE(weighed(cell, {4, {{0, 0.2, 0.2, 0}}, 5}).fused) << "what the outs cost counts";
  const StagesPlan with_outs = weighed(cell, {4, {{0, 0.2, 0.2, 0}}, 5, 0, 2});  // but lanes may make them
  EXPECT_FALSE(with_outs.fused);
  EXPECT_EQ(with_outs.stages[0].segment, 1000);
  EXPECT_NE(with_outs.stages[0].reason.find("outs among them"), std::string::npos) << with_outs.stages[0].reason;
  EXPECT_TRUE(weighed(cell, {4, {{0, 0.2, 0.2, 0}}, 5, 9, 2}, {}, -1, true).fused) << "every step is looked at again";
}

TEST(PlanStages, StagesRunAsOneWhereThatCostsLess) {
  OnPaper cell(kTwo);
  PassCosts costs{5, {{0.1, 2, 2, 0}, {0.1, 2, 2, 0}}, 0.1, 4, 1.5};
  const StagesPlan plan = weighed(cell, costs);
  EXPECT_FALSE(plan.fused);
  for (const StagePlan& s : plan.stages) {
    EXPECT_EQ(s.strategy, Strategy::Segmented);
    EXPECT_EQ(s.segment, 100000);
    EXPECT_NE(s.reason.find("at once"), std::string::npos) << s.reason;
  }
  costs.together = 6;
  EXPECT_EQ(weighed(cell, costs).stages[0].reason.find("at once"), std::string::npos);
  costs.together = 4.9;  // less than the fused kernel takes, but not by enough
  costs.stages.assign(2, {0.1, 9, 9, 0});
  EXPECT_TRUE(weighed(cell, costs).fused);
}

TEST(PlanStages, NoPlanIsChosenThatIsDearerThanRunningThrough) {
  OnPaper cell(kTwo);
  for (const double whole : {0.5, 3.0, 30.0})
    for (const double cut : {0.3, 2.0, 20.0})
      for (const double scan : {0.4, 4.0}) {
        const PassCosts costs{5, {{0.1, whole, cut, scan}, {0.1, whole, cut, 0}}, 0.1, 4};
        const StagesPlan plan = weighed(cell, costs, {Forgetting{20, 40, 0, 0}, Forgetting{20, 40, 0, 0}}, 0);
        const double least = std::min({whole, cut, scan}) + std::min(whole, cut) + 0.3;
        EXPECT_TRUE(least <= 5 || plan.fused) << whole << " " << cut << " " << scan;
        EXPECT_TRUE(2 * whole + 0.3 >= 4 || !plan.fused) << whole << " " << cut << " " << scan;
      }
}

TEST(PlanStages, ALookAtTheDataHasToPromiseEnough) {
  OnPaper cell(kTanh);
  EXPECT_EQ(weighed(cell, {10, {{0, 10, 1, 0}}, 0}).stages[0].strategy, Strategy::Auto);
  EXPECT_TRUE(weighed(cell, {1, {{0, 10, 1, 0}}, 0}).fused);
  // Looked at, and in vain: all lanes remember.
  const StagesPlan slow = weighed(cell, {10, {{0, 10, 1, 0}}, 0}, {Forgetting{1e9, 1e9, 1, 0}}, 0);
  EXPECT_TRUE(slow.fused);
  EXPECT_NE(slow.stages[0].reason.find("remember"), std::string::npos) << slow.stages[0].reason;
}

// What is added to all states is added to the next ones: there is nothing to be seen. Where paths begin anew there is.
TEST(PlanStages, MaximaOfSumsAreNotLookedAt) {
  constexpr const char* kViterbi =
      "cell viterbi[k=3] {\n  state v[k]\n  input e[k]\n  param A[k,k]\n  v'[j] = max[i](v[i] + A[i,j]) + e[j]\n}\n";
  constexpr const char* kLocal =
      "cell local[k=3] {\n  state v[k]\n  input e[k]\n  param A[k,k]\n"
      "  v'[j] = max(0, max[i](v[i] + A[i,j])) + e[j]\n}\n";
  OnPaper viterbi(kViterbi), local(kLocal);
  const PassCosts costs{10, {{0, 10, 1, 100}}, 0};
  EXPECT_TRUE(weighed(viterbi, costs).fused);
  EXPECT_EQ(weighed(local, costs).stages[0].strategy, Strategy::Auto);
}

}  // namespace
}  // namespace cellc
