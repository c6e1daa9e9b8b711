// The plan of a run on a GPU is a value: it follows from its request alone, so it is looked at without a device.
#include "runtime/cuda/launch/plan_execution.h"

#include <gtest/gtest.h>

#include "compiler/front_end.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/data/errors.h"

namespace cellc {
namespace {

/// A cell, its stages, and a request for many sequences, of which every stage is run sequentially.
struct Planned {
  explicit Planned(const std::string& text)
      : front(analyse_text(SourceText("test.cell", text))), staged(split_stages(front.cell, front.structure)) {
    for (int k = 0; k < static_cast<int>(staged.stages.size()); ++k) fused.push_back(fuse_reductions(staged, k));
  }

  ExecutionRequest request(std::int64_t sequences = 4096, std::int64_t steps = 100) const {
    ExecutionRequest r{front.cell, front.structure, staged};
    r.card = OfflineGpu(facts_of_architecture("sm_90")).facts();
    r.rows = sequences * steps;
    r.longest = steps;
    for (std::size_t k = 0; k < staged.stages.size(); ++k) {
      StageFacts f;
      f.shape.sequences = sequences;
      f.shape.longest = steps;
      f.shape.rows = r.rows;
      f.shape.channels = 64;
      f.shape.block = 1;
      f.shape.storage_bytes = 4;
      f.sum_parts = fused[k] ? 2 : 0;
      r.stages.push_back(f);
    }
    return r;
  }

  std::vector<std::string> passes(const ExecutionPlan& plan, bool outs_wanted = true) const {
    std::vector<std::string> all;
    for (const Pass& p : plan.passes(staged, fused, outs_wanted))
      all.push_back(to_string(p, front.cell, staged) + (p.fused ? ", fused" : ""));
    return all;
  }

  AnalysedCell front;
  StagedCell staged;
  std::vector<std::optional<FusedStage>> fused;
};

using Texts = std::vector<std::string>;

TEST(PlanExecution, OutsAreMadeByLanesThatRunEachStepOnce) {
  const Planned p("cell c[d] {\n state h[d]\n input a[d], x[d]\n h' = a*h + x\n out y[d] = h*x\n}");
  const std::vector<std::optional<StageCells>> with_outs = {fuse_outs(p.staged, 0)};
  ASSERT_TRUE(with_outs[0]);
  struct Case {
    Strategy solver;
    bool checks, repairs, makes;
    std::int64_t channels = CELLC_LEAST_SCANNED_OUTS;
    bool narrow = false, alone = false;
  };
  for (const Case& c :
       {Case{Strategy::Sequential, true, true, true}, Case{Strategy::Scan, true, true, true},
        Case{Strategy::Scan, false, false, true}, Case{Strategy::Scan, true, false, false},
        Case{Strategy::Shooting, true, true, false}, Case{Strategy::Sequential, true, true, true, 64},
        Case{Strategy::Scan, true, true, false, 64}, Case{Strategy::Scan, true, true, true, 64, true, true},
        Case{Strategy::Scan, true, true, false, 64, true, false}}) {
    ExecutionRequest r = p.request();
    r.on_device = true;
    r.dtype = c.narrow ? Dtype::BF16 : Dtype::F32;
    r.rows = 1;
    r.card.multiprocessors = 1;
    r.stages[0].shape.channels = c.channels;
    r.stages[0].stands_alone = c.alone;
    r.solve.solver = c.solver;
    r.solve.check_scans = c.checks;
    r.solve.repair = c.repairs;
    r.stages[0].shape.carries = r.stages[0].scans_in_one_pass = r.stages[0].makes_outs = true;
    const ExecutionPlan plan = plan_execution(r);
    EXPECT_EQ(plan.makes_outs[0], c.makes) << to_string(c.solver) << c.checks << c.repairs << c.channels << c.narrow;
    EXPECT_EQ(plan.storage, c.alone ? r.dtype : Dtype::F32);
    const bool left = !c.makes;
    EXPECT_EQ(plan.passes(p.staged, p.fused, true, with_outs, left).size(), c.makes ? 1u : 2u);
    EXPECT_EQ(plan.passes(p.staged, p.fused, false, with_outs, left).size(), 1u) << "outs that nobody wants";
    r.stages[0].makes_outs = false;
    EXPECT_FALSE(plan_execution(r).makes_outs[0]);
  }
}

const char* const kTwoStages = R"(
cell two[d] {
  state a[d], b[d]
  input x[d]
  a' = 0.5*a + x
  b' = tanh(b + a')
  out y = b' + a'
})";

TEST(PlanExecution, PassesStandInTheOrderInWhichTheyRun) {
  const Planned p(kTwoStages);
  const ExecutionPlan plan = plan_execution(p.request());
  EXPECT_EQ(p.passes(plan), (Texts{"stage {a}", "stage {b}", "outs"}));
  EXPECT_EQ(p.passes(plan, false), (Texts{"stage {a}", "stage {b}"}));
  for (const CudaPlan& stage : plan.stages) EXPECT_FALSE(stage.plan.reason.empty());
}

TEST(PlanExecution, TheSameRequestGivesTheSamePlan) {
  const Planned p(kTwoStages);
  const ExecutionPlan one = plan_execution(p.request(1, 4096)), other = plan_execution(p.request(1, 4096));
  EXPECT_EQ(p.passes(one), p.passes(other));
  for (std::size_t k = 0; k < one.stages.size(); ++k) {
    EXPECT_EQ(one.stages[k].plan.strategy, other.stages[k].plan.strategy);
    EXPECT_EQ(one.stages[k].plan.segment, other.stages[k].plan.segment);
    EXPECT_EQ(one.stages[k].plan.reason, other.stages[k].plan.reason);
  }
}

TEST(PlanExecution, AStageThatNoThreadHoldsMakesOnePassOfTheWholeCell) {
  const Planned p(kTwoStages);
  ExecutionRequest r = p.request();
  r.dtype = Dtype::BF16;
  r.stages[1].refusal = "it couples 64 entries";
  const ExecutionPlan plan = plan_execution(r);
  EXPECT_TRUE(plan.runs_stepwise);
  EXPECT_EQ(plan.storage, Dtype::BF16);
  EXPECT_EQ(plan.stepwise_reason, "the stage {b}: it couples 64 entries");
  EXPECT_EQ(p.passes(plan), (Texts{"the whole cell step by step, as nests"}));
  r.solve.solver = Strategy::Segmented;
  EXPECT_THROW(plan_execution(r), SolverError);
}

TEST(PlanExecution, SixteenBitsStayWhereNobodyElseReadsThem) {
  const Planned alone("cell one[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(h + x)\n}\n"), two(kTwoStages);
  EXPECT_EQ(lane_storage(alone.front.cell, alone.staged, Dtype::BF16), Dtype::BF16);
  EXPECT_EQ(lane_storage(two.front.cell, two.staged, Dtype::BF16), Dtype::F32);
  EXPECT_EQ(lane_storage(two.front.cell, two.staged, Dtype::F64), Dtype::F64);
  EXPECT_EQ(lane_storage(two.front.cell, two.staged, Dtype::BF16, true), Dtype::BF16);
  EXPECT_TRUE(rounds_rows(product_factors(Products::Storage, Dtype::F16), Dtype::F16));
  EXPECT_FALSE(rounds_rows(product_factors(Products::Storage, Dtype::F32), Dtype::F32));
  EXPECT_FALSE(rounds_rows(product_factors(Products::Tf32x3, Dtype::F16), Dtype::F16));
}

TEST(PlanExecution, WhereNobodyLooksAtWholeStepsAStageThatIsReadLeavesNoResidual) {
  const Planned p(kTwoStages);
  ExecutionRequest r = p.request(1, 100000);
  ASSERT_NE(plan_execution(r).stages[0].plan.strategy, Strategy::Sequential);
  r.on_device = true;
  r.stages[0].scans_in_one_pass = false;
  EXPECT_EQ(plan_execution(r).stages[0].plan.strategy, Strategy::Sequential);
}

TEST(PlanExecution, OnlyLanesThatRunSequentiallyMakeSums) {
  const Planned p(R"(
cell sums[d, n] {
  state h[d,n]
  input a[d,n], x[d,n], c[n]
  h' = tanh(a*h + x)
  out y = sum[n](c*h')
})");
  ASSERT_TRUE(p.fused[0]);
  const ExecutionPlan plan = plan_execution(p.request());
  ASSERT_EQ(plan.stages[0].plan.strategy, Strategy::Sequential);
  EXPECT_EQ(plan.sum_parts, std::vector<int>{2});
  EXPECT_TRUE(plan.fuses(0, true));
  EXPECT_FALSE(plan.fuses(0, false));  // outs that nobody wants need no sums
  ExecutionRequest cut = p.request(1, 100000);
  cut.solve.solver = Strategy::Segmented;
  EXPECT_EQ(plan_execution(cut).sum_parts, std::vector<int>{0});
}

TEST(PlanExecution, LanesThatShareGradientsWalkWhereTheyAreMany) {
  const Planned p(
      "cell c[d, n] {\n state h[d,n]\n input a[d,n], x[d,n], c[n]\n h' = a*h + x\n out y = sum[n](c*h')\n}");
  const auto strategy = [&](std::int64_t lanes, bool shares) {
    ExecutionRequest r = p.request(1, 100000);
    r.stages[0].shape.channels = lanes;
    r.stages[0].shape.carries = r.stages[0].scans_in_one_pass = true;
    r.stages[0].shares_gradients = shares;
    return plan_execution(r).stages[0].plan.strategy;
  };
  const std::int64_t many = 32 * p.request().card.multiprocessors;
  EXPECT_EQ(strategy(many, false), Strategy::Scan);
  EXPECT_EQ(strategy(many - 1, true), Strategy::Scan);
  EXPECT_EQ(strategy(many, true), Strategy::Sequential);
}

TEST(PlanExecution, NothingRunsWithoutSteps) {
  const Planned p(kTwoStages);
  const ExecutionPlan plan = plan_execution(p.request(0, 0));
  EXPECT_EQ(p.passes(plan), Texts{});
  EXPECT_EQ(plan.stages[0].plan.reason, "no steps");
}

}  // namespace
}  // namespace cellc
