// When segments are given up for walking every lane: by what earlier calls took, of ParaGRU's shape (1, 8192,
// 1024).
#include "runtime/cuda/launch/choose_cuda_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/front_end.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/launch/plan_execution.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

const char* const kTanh = "tanh(h + x)";

Strategy chosen(const Observed& seen, const std::string& update = kTanh, int storage_bytes = 4) {
  const AnalysedCell cell =
      analyse_text(SourceText("c.cell", "cell c[d] {\n  state h[d]\n  input x[d]\n  h' = " + update + "\n}\n"));
  StageShape shape;
  shape.sequences = 1;
  shape.longest = shape.rows = 8192;
  shape.channels = 1024;
  shape.block = 1;
  shape.storage_bytes = storage_bytes;
  GpuFacts card;
  card.multiprocessors = 132;
  return choose_cuda_plan(cell.structure.stages[0], shape, card, seen).plan.strategy;
}

/// Of segments of 256 steps whose sweep took 36 us: walking is expected to take 0.55 (36 - 4.8)/256 8192 = 549
/// us.
Observed after(int calls, double microseconds) {
  Observed seen;
  seen.calls = calls;
  seen.segmented_ns = microseconds * 1000;
  seen.sweep_ns = 36000;
  seen.sweep_steps = 256;
  return seen;
}

TEST(ChooseCudaPlan, TheFirstCallTeachesNothingOfTime) {
  EXPECT_EQ(chosen({}), Strategy::Segmented);
  EXPECT_EQ(chosen(after(1, 5000)), Strategy::Segmented);
}

TEST(ChooseCudaPlan, SegmentsAreGivenUpWhereTheyAreSlowerThanWalking) {
  EXPECT_EQ(chosen(after(2, 520)), Strategy::Segmented);
  EXPECT_EQ(chosen(after(2, 600)), Strategy::Sequential);
  // Two lanes a thread: 0.62 (36 - 4.8)/256 8192 = 619 us.
  EXPECT_EQ(chosen(after(2, 600), kTanh, 2), Strategy::Segmented);
  EXPECT_EQ(chosen(after(2, 640), kTanh, 2), Strategy::Sequential);
}

// ParaGRU on stiff data, (1, 8192, 1024): 440 to 485 us a call, and 565 for one of fourteen. Walking takes 525.
TEST(ChooseCudaPlan, OneCallOfMoreRoundsIsForgiven) {
  Observed seen = after(3, 450);
  seen.last_ns = 450000;
  const auto call = [&](double microseconds) {
    ++seen.calls;
    seen.took(microseconds * 1000);
    return chosen(seen);
  };
  EXPECT_EQ(call(600), Strategy::Segmented);
  EXPECT_EQ(call(460), Strategy::Segmented);
  EXPECT_EQ(call(600), Strategy::Segmented);
  EXPECT_EQ(call(600), Strategy::Sequential);  // other data
}

// One slow call must not decide for ever: data change, and another process may have had the card.
TEST(ChooseCudaPlan, SegmentsAreTriedAgain) {
  Observed seen = after(2, 600);
  const auto walks = [&] {
    int count = 0;
    for (; chosen(seen) == Strategy::Sequential && count < 5000; ++count) seen.went_another_way();
    return count;
  };
  EXPECT_EQ(walks(), 8);
  EXPECT_EQ(chosen(seen), Strategy::Segmented);
  seen.segmented_ns = 600000;  // and were slow again
  EXPECT_EQ(walks(), 16);
  for (int i = 0; i < 10; ++i) seen.segmented_ns = 600000, walks();
  seen.segmented_ns = 600000;
  EXPECT_EQ(walks(), 1024);
  seen.segmented_ns = 400000;
  EXPECT_EQ(walks(), 0);
}

// Scans walk what they rounded too much, a channel at a time; segments are the better choice for data where that is
// much.
TEST(ChooseCudaPlan, SegmentsTakeTheScanOfDataThatItWalks) {
  const std::string linear = "0.5*h + x";
  Observed seen;
  EXPECT_EQ(chosen(seen, linear), Strategy::Scan);
  seen.scan_walked = 0.1;
  EXPECT_EQ(chosen(seen, linear), Strategy::Scan);
  seen.scan_walked = 0.9;
  int calls = 0;
  for (; chosen(seen, linear) == Strategy::Shooting && calls < 5000; ++calls) seen.went_another_way();
  EXPECT_EQ(calls, 8);  // data change
  EXPECT_EQ(chosen(seen, linear), Strategy::Scan);
}

/// Of a whole cell of v = 64 lanes that couple k entries, 8192 steps, as a run on a card would have it.
StagePlan chosen_of(const std::string& text, std::int64_t k, const Observed& seen = {}) {
  const AnalysedCell cell = analyse_text(SourceText("c.cell", text));
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  OfflineGpu card(facts_of_architecture("sm_90"));
  StageProgram program(card, cell.cell, staged.stages[0], cell.structure.stages[0].scannable, Dtype::F32, nullptr);
  const std::map<AxisId, std::int64_t> sizes{{cell.cell.header[0], 64}, {cell.cell.header[1], k}};
  const StageFacts facts = facts_of(program, nullptr, sizes, 1, 8192, 8192);
  EXPECT_FALSE(facts.refusal) << *facts.refusal;
  EXPECT_EQ(facts.shape.block, k);
  return choose_cuda_plan(cell.structure.stages[0], facts.shape, card.facts(), seen).plan;
}

const char* const kDeltaNet =
    "cell c[v, k] {\n  state S[v,k]\n  input key[k] in (-0.3, 0.3), val[v], beta in (0, 1)\n"
    "  S' = S + beta*(val - S@key)*key\n}\n";

// Cut, such a stage ends in a walk: its starts are no more than the neighbours' ends, and it does not forget them.
TEST(ChooseCudaPlan, AStageWithoutTransitionsIsCutOnlyIfItIsKnownToForget) {
  EXPECT_EQ(chosen_of(kDeltaNet, 8).strategy, Strategy::Scan);  // a thread holds maps of so many
  for (const std::int64_t k : {9, 16}) {
    const StagePlan plan = chosen_of(kDeltaNet, k);
    EXPECT_EQ(plan.strategy, Strategy::Sequential);
    EXPECT_EQ(plan.segment, 0);
    EXPECT_EQ(plan.reason,
              fmt::format("nothing says that this linear stage forgets, and the map over a segment of {} coupled "
                          "entries is more than a thread holds: segments would end in a walk",
                          k));
  }
  const auto decaying = [](const char* decay, const char* range) {
    return fmt::format(
        "cell c[v, k=16] {{\n  state S[v,k]\n  input key[k]{}, val[v]\n  S' = {}*S + (val - S@key)*key\n}}\n", range,
        decay);
  };
  // Rows sum up to 0.3 + 16 0.2^2 = 0.94, to 1.04, and to anything.
  EXPECT_EQ(chosen_of(decaying("0.3", " in (-0.2, 0.2)"), 16).strategy, Strategy::Segmented);
  EXPECT_EQ(chosen_of(decaying("0.4", " in (-0.2, 0.2)"), 16).strategy, Strategy::Sequential);
  EXPECT_EQ(chosen_of(decaying("0.3", ""), 16).strategy, Strategy::Sequential);
  // Cells that saturate mostly forget, whatever can be proved.
  const char* const saturating =
      "cell c[v, k] {\n  state S[v,k]\n  input key[k], val[v]\n"
      "  S' = tanh(S + (val - S@key)*key)\n}\n";
  EXPECT_EQ(chosen_of(saturating, 16).strategy, Strategy::Segmented);
}

TEST(ChooseCudaPlan, SegmentsThatForgotAreTakenAgainWithoutAProof) {
  Observed seen = after(2, 100);
  EXPECT_EQ(chosen_of(kDeltaNet, 16, seen).strategy, Strategy::Sequential);
  seen.forgot = true;
  EXPECT_EQ(chosen_of(kDeltaNet, 16, seen).strategy, Strategy::Segmented);
  seen.segmented_ns = 5e6;  // but not where that took longer
  EXPECT_EQ(chosen_of(kDeltaNet, 16, seen).strategy, Strategy::Sequential);
}

TEST(ChooseCudaPlan, AWalkThatWasMadeTellsWhatItTakes) {
  Observed seen = after(3, 500);
  seen.tail_ns = 450000;
  seen.walked = 0.5;  // of half of the segments: nothing is known of the others
  EXPECT_EQ(chosen(seen), Strategy::Segmented);
  seen.walked = 1;
  EXPECT_EQ(chosen(seen), Strategy::Sequential);
}

// Segments that begin amid a stage of steps would not be written from where they begin. A stage that forgets at once
// misses no boundary whatever was written, so what an earlier run left would pass.
TEST(PinnedPlans, AreWholeStages) {
  const AnalysedCell cell =
      analyse_text(SourceText("c.cell", "cell c[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(x)\n}\n"));
  BoundRun run;
  run.sizes[cell.cell.header[0]] = 3;
  run.offsets = {0, 500};
  Array x(Dtype::F32, {500, 3});
  for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, 0.001 * static_cast<double>(i % 977));
  run.symbols = {Array(Dtype::F32, {1, 3}), x};
  Device device = open_device();
  CudaSolver solver(*device.gpu, cell.cell, cell.structure, Dtype::F32, &cell.source);
  const std::int64_t none = 0, far = std::numeric_limits<std::int64_t>::max();
  struct Pinned {
    std::int64_t segment, burn_in, as_segment, as_burn_in;
  };
  for (const Pinned p :
       {Pinned{75, 13, 80, 16}, {64, 1, 64, 8}, {1, 9, 1, 0}, {2858, 1, 504, 8}, {far, far, 504, 504}}) {
    SolveOptions options;
    options.plan = {{Strategy::Segmented, p.segment, p.burn_in, "test"}};
    spoil(device, solver, cell.cell, run, options);
    SolveReport report;
    const RunOutput output = solver.run(run, options, report);
    EXPECT_EQ(report.stages[0].plan.segment, p.as_segment);
    EXPECT_EQ(report.stages[0].plan.burn_in, p.as_burn_in);
    for (std::int64_t i = 0; i < x.count(); ++i)
      ASSERT_NEAR(output.states[0].get(i), std::tanh(x.get(i)), 2e-6) << p.segment << ", " << i;
  }
  SolveOptions options;
  options.plan = {{Strategy::Segmented, none, none, "test"}};
  SolveReport report;
  solver.run(run, options, report);
  EXPECT_GT(report.stages[0].plan.segment, 0);  // the strategy's own
}

// What runs that were asked for saw tells whether `auto` may cut a linear stage that carries no transitions.
TEST(ForcedSegments, TellAutoWhetherAStageForgets) {
  struct Row {
    double decay;
    std::vector<StagePlan> plan;
    Strategy then;
  };
  const StagePlan cut{Strategy::Segmented, 128, 32, "test"}, halves{Strategy::Segmented, 1024, 32, "test"};
  for (const Row& row : {Row{0.5, {cut}, Strategy::Segmented}, Row{1, {cut}, Strategy::Sequential},
                         // Two segments settle in a round, forgetting or not.
                         Row{1, {halves}, Strategy::Sequential}}) {
    const AnalysedCell cell = analyse_text(SourceText("c.cell", fmt::format(R"(cell c[v, k=16] {{
  state S[v,k]
  input key[k], val[v]
  S' = {}*(S - (S@key)*key) + val
}})",
                                                                            row.decay)));
    BoundRun run;
    run.sizes[cell.cell.header[0]] = 3;
    run.sizes[cell.cell.header[1]] = 16;
    run.offsets = {0, 2000};
    Array key(Dtype::F32, {2000, 16}), val(Dtype::F32, {2000, 3});
    for (std::int64_t i = 0; i < key.count(); ++i) key.set(i, i % 16 == 0 ? 0.3 : 0);  // all else is remembered
    for (std::int64_t i = 0; i < val.count(); ++i) val.set(i, std::sin(static_cast<double>(i)));
    run.symbols = {Array(Dtype::F32, {1, 3, 16}), key, val};
    Device device = open_device();
    CudaSolver solver(*device.gpu, cell.cell, cell.structure, Dtype::F32, &cell.source);
    const auto ran = [&](const SolveOptions& options) {
      SolveReport report;
      solver.run(run, options, report);
      EXPECT_TRUE(report.converged);
      return report.stages[0].plan.strategy;
    };
    EXPECT_EQ(ran({}), Strategy::Sequential);
    SolveOptions forced;
    forced.solver = Strategy::Segmented;
    EXPECT_EQ(ran(forced), Strategy::Segmented);
    SolveOptions pinned;
    pinned.plan = row.plan;
    EXPECT_EQ(ran(pinned), Strategy::Segmented);
    EXPECT_EQ(ran({}), row.then) << row.decay << ", segments of " << row.plan[0].segment;
  }
}

// As many rounds as are asked for, and no repair, also where a plan is pinned or it is left to us which.
TEST(FixedIterations, AreSoMany) {
  const AnalysedCell cell =
      analyse_text(SourceText("c.cell", "cell c[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(h + x)\n}\n"));
  BoundRun run;
  run.sizes[cell.cell.header[0]] = 3;
  run.offsets = {0, 2000};
  Array x(Dtype::F32, {2000, 3});  // remembered for long
  for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, 0.02 * std::sin(static_cast<double>(i)));
  run.symbols = {Array(Dtype::F32, {1, 3}), x};
  Device device = open_device();
  CudaSolver solver(*device.gpu, cell.cell, cell.structure, Dtype::F32, &cell.source);
  for (const int rounds : {1, 3}) {
    for (const bool pinned : {false, true}) {
      SolveOptions options;
      options.fixed_iterations = rounds;
      if (pinned) options.plan = {{Strategy::Segmented, 64, 8, "test"}};
      SolveReport report;
      solver.run(run, options, report);
      EXPECT_EQ(report.stages[0].plan.strategy, Strategy::Segmented);
      EXPECT_EQ(report.stages[0].iterations, rounds) << (pinned ? "pinned" : "auto");
      if (rounds == 1) {
        EXPECT_FALSE(report.converged);  // what is left is told, and not walked
      }
    }
  }
}

// Rounds are iterations: there are no more than the caller allows, also of a plan that is pinned or left to us. What
// they leave is repaired.
TEST(MaxIterations, CapTheRoundsOfSegments) {
  const AnalysedCell cell =
      analyse_text(SourceText("c.cell", "cell c[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(h + x)\n}\n"));
  BoundRun run;
  run.sizes[cell.cell.header[0]] = 3;
  run.offsets = {0, 2000};
  Array x(Dtype::F32, {2000, 3});  // remembered for long
  for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, 0.02 * std::sin(static_cast<double>(i)));
  run.symbols = {Array(Dtype::F32, {1, 3}), x};
  Device device = open_device();
  struct Asked {
    Strategy solver;
    std::vector<StagePlan> plan;
  };
  for (const bool repair : {true, false})
    for (const Asked& asked : {Asked{Strategy::Auto, {}}, Asked{Strategy::Segmented, {}},
                               Asked{Strategy::Auto, {{Strategy::Segmented, 64, 8, "test"}}},
                               Asked{Strategy::Auto, {{Strategy::Shooting, 64, 0, "test"}}}}) {
      CudaSolver solver(*device.gpu, cell.cell, cell.structure, Dtype::F32, &cell.source);  // which has learned nothing
      SolveOptions options;
      options.solver = asked.solver;
      options.plan = asked.plan;
      options.max_iterations = 1;
      options.repair = repair;
      SolveReport report;
      solver.run(run, options, report);
      EXPECT_LE(report.stages[0].iterations, 1)
          << to_string(report.stages[0].plan.strategy) << report.stages[0].plan.reason;
      EXPECT_EQ(report.converged, repair) << to_string(report.stages[0].plan.strategy) << report.stages[0].plan.reason;
    }
}

}  // namespace
}  // namespace cellc
