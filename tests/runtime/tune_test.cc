// Which plan is chosen, with times that the test makes up; and how plans are kept.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "compiler/front_end.h"
#include "runtime/data/errors.h"
#include "runtime/evaluate/bench_cell.h"
#include "runtime/evaluate/tune_cell.h"

namespace cellc {
namespace {

/// A device whose times are a function of the plan.
class MadeUp : public TimedCell {
 public:
  using Times = std::function<double(const std::vector<StagePlan>&)>;
  MadeUp(int stages, double planner_ms, Times times)
      : stages_(stages), planner_ms_(planner_ms), times_(std::move(times)) {}

  std::string device() const override { return "cpu"; }
  std::string processor() const override { return "made up"; }
  std::optional<std::string> refusal(int stage, Strategy strategy) override {
    if (strategy == Strategy::Sequential || strategy == Strategy::Auto) return std::nullopt;
    return strategy == Strategy::Segmented || (strategy == Strategy::Scan && stage == 1)
               ? std::nullopt
               : std::optional<std::string>("no");
  }
  double time(const SolveOptions& options, int, SolveReport& report) override {
    report = {};
    report.stages.resize(static_cast<std::size_t>(stages_));
    if (options.plan.empty()) return planner_ms_;
    for (int k = 0; k < stages_; ++k) {
      EXPECT_FALSE(refusal(k, options.plan[static_cast<std::size_t>(k)].strategy)) << "timed what is refused";
      report.stages[static_cast<std::size_t>(k)].plan = options.plan[static_cast<std::size_t>(k)];
    }
    const double ms = times_(options.plan);
    report.converged = ms > 0;
    return std::abs(ms);
  }
  double floor_ms(const Traffic&, int) override { return 1; }

 private:
  int stages_;
  double planner_ms_;
  Times times_;
};

/// Least at segments of 512 that start 64 early.
double bowl(const StagePlan& p) {
  if (p.strategy != Strategy::Segmented) return 20;
  return 2 + std::abs(std::log2(static_cast<double>(p.segment) / 512)) +
         std::abs(std::log2(std::max(1.0, static_cast<double>(p.burn_in)) / 64));
}

TEST(Tune, FindsTheFastestSegments) {
  MadeUp cell(1, 30, [](const std::vector<StagePlan>& p) { return bowl(p[0]); });
  const TuneResult result = tune_cell(cell, 1, 100000, {}, 1);
  ASSERT_EQ(result.best.stages.size(), 1u);
  EXPECT_EQ(result.best.stages[0].strategy, Strategy::Segmented);
  EXPECT_EQ(result.best.stages[0].segment, 512);
  EXPECT_EQ(result.best.stages[0].burn_in, 64);
  EXPECT_EQ(result.best.planner_ms, 30);
  EXPECT_EQ(result.best.ms, 2);
}

TEST(Tune, KeepsThePlannersChoiceUnlessSomethingIsClearlyFaster) {
  MadeUp cell(1, 2.01, [](const std::vector<StagePlan>& p) { return bowl(p[0]); });
  const TuneResult result = tune_cell(cell, 1, 100000, {}, 1);
  EXPECT_TRUE(result.best.stages.empty());
  EXPECT_EQ(result.best.ms, 2.01);
}

TEST(Tune, TriesASegmentASequenceWhateverItsLength) {
  for (const std::int64_t longest : {5, 1001})
    for (const int stages : {1, 2}) {
      MadeUp cell(stages, 30, [&](const std::vector<StagePlan>& p) {
        bool whole = true;
        for (const StagePlan& s : p)
          whole &= s.strategy == Strategy::Segmented && s.segment == longest && s.burn_in == 0;
        return whole ? 1.0 : 20.0;  // one stage of several gains nothing
      });
      const TuneResult result = tune_cell(cell, stages, longest, {}, 1);
      ASSERT_EQ(result.best.stages.size(), static_cast<std::size_t>(stages)) << longest;
      EXPECT_EQ(result.best.stages.back().segment, longest);
    }
}

/// A device on which some strategies are known to take long before they are run.
class Slow : public MadeUp {
 public:
  Slow() : MadeUp(1, 3, [](const std::vector<StagePlan>&) { return 3.0; }) {}
  std::optional<std::string> refusal(int, Strategy) override { return std::nullopt; }
  std::optional<double> foreseen_ms(const SolveOptions& options) override {
    if (options.solver == Strategy::Newton) return 5e4;
    return options.solver == Strategy::Shooting ? std::optional<double>(500) : std::nullopt;
  }
  double time(const SolveOptions& options, int calls, SolveReport& report) override {
    timed.push_back(options.solver);
    return MadeUp::time(options, calls, report);
  }
  std::vector<Strategy> timed;
};

TEST(Bench, LeavesOutWhatWouldTakeMinutesAndSaysSo) {
  Slow cell;
  std::vector<std::size_t> told;
  const Bench bench =
      bench_cell(cell, 1, {}, {}, {}, 1, [&](const Bench& so_far) { told.push_back(so_far.strategies.size()); });
  for (std::size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], i) << "the floor, then a strategy each";
  EXPECT_EQ(told.size(), bench.strategies.size() + 1);
  for (const BenchedStrategy& s : bench.strategies) {
    EXPECT_EQ(s.refused.has_value(), s.strategy == Strategy::Newton) << to_string(s.strategy);
    EXPECT_EQ(s.refused.value_or("left out").rfind("left out", 0), 0u) << *s.refused;
  }
  EXPECT_EQ(std::count(cell.timed.begin(), cell.timed.end(), Strategy::Newton), 0);
  bench_cell(cell, 1, {}, {Strategy::Newton}, {}, 1);
  EXPECT_EQ(std::count(cell.timed.begin(), cell.timed.end(), Strategy::Newton), 1) << "asked for, it is timed";
}

TEST(Tune, WhatFindsNoMemoryIsNoCandidate) {
  MadeUp cell(1, 30, [](const std::vector<StagePlan>& p) -> double {
    if (p[0].strategy == Strategy::Segmented && p[0].segment < 256) throw MemoryError("no room");
    return bowl(p[0]);
  });
  EXPECT_EQ(tune_cell(cell, 1, 100000, {}, 1).best.stages.at(0).segment, 512);
}

TEST(Tune, WhatDoesNotConvergeIsNoCandidate) {
  MadeUp cell(1, 30,
              [](const std::vector<StagePlan>& p) { return p[0].strategy == Strategy::Segmented ? -1.0 : 20.0; });
  const TuneResult result = tune_cell(cell, 1, 1000, {}, 1);
  ASSERT_EQ(result.best.stages.size(), 1u);
  EXPECT_EQ(result.best.stages[0].strategy, Strategy::Sequential);
}

TEST(Tune, StageAfterStage) {
  MadeUp cell(2, 100,
              [](const std::vector<StagePlan>& p) { return bowl(p[0]) + (p[1].strategy == Strategy::Scan ? 1 : 30); });
  const TuneResult result = tune_cell(cell, 2, 5000, {}, 1);
  ASSERT_EQ(result.best.stages.size(), 2u);
  EXPECT_EQ(result.best.stages[0].segment, 512);
  EXPECT_EQ(result.best.stages[1].strategy, Strategy::Scan);
  EXPECT_EQ(result.best.ms, 3);
}

TEST(Tune, ShortAndEmptyRuns) {
  for (const std::int64_t longest : {0, 1, 16, 31, 32, 33, 67}) {
    MadeUp cell(1, 3, [&](const std::vector<StagePlan>& p) {
      EXPECT_LE(p[0].segment, std::max<std::int64_t>(longest, 0));
      return 1.0;
    });
    EXPECT_FALSE(tune_cell(cell, 1, longest, {}, 1).best.stages.empty()) << longest;
  }
}

class TunedPlansTest : public testing::Test {
 protected:
  void SetUp() override {
    directory = testing::TempDir() + "/cellc_tuned_XXXXXX";
    ASSERT_NE(mkdtemp(directory.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(directory); }
  std::string directory;
  TunedFor what{"cell", "f32", "cuda", "NVIDIA H200", "1e-06", "2 to 3 lanes of 4 to 7 steps"};
  TunedPlan plan{{{Strategy::Segmented, 16, 32, ""}, {Strategy::Sequential, 0, 0, ""}}, 0.5, 0.75};
};

TEST_F(TunedPlansTest, WhatIsKeptIsFound) {
  const TunedPlans plans(directory);
  EXPECT_FALSE(plans.find(what, 2));
  ASSERT_TRUE(plans.keep(what, plan));
  const auto found = TunedPlans(directory).find(what, 2);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->stages.size(), 2u);
  EXPECT_EQ(found->stages[0].strategy, Strategy::Segmented);
  EXPECT_EQ(found->stages[0].segment, 16);
  EXPECT_EQ(found->stages[0].burn_in, 32);
  EXPECT_EQ(found->stages[0].reason, "measured by cellc tune: 0.5 ms, the planner's own choice 0.75 ms");
  EXPECT_EQ(found->stages[1].strategy, Strategy::Sequential);
  EXPECT_EQ(found->ms, 0.5);
  // The last one wins; no stages: the planner's own choice.
  ASSERT_TRUE(plans.keep(what, {{}, 0.75, 0.75}));
  EXPECT_TRUE(plans.find(what, 2)->stages.empty());
}

TEST_F(TunedPlansTest, EverythingThatWasMeasuredWithCounts) {
  const TunedPlans plans(directory);
  ASSERT_TRUE(plans.keep(what, plan));
  for (std::string TunedFor::*part : {&TunedFor::cell, &TunedFor::dtype, &TunedFor::device, &TunedFor::processor,
                                      &TunedFor::tolerance, &TunedFor::range}) {
    TunedFor other = what;
    other.*part += "x";
    EXPECT_FALSE(plans.find(other, 2)) << other.*part;
  }
  EXPECT_FALSE(plans.find(what, 3)) << "a cell with another number of stages";
}

TEST_F(TunedPlansTest, EntriesOfAnotherKindAreNone) {
  const TunedPlans plans(directory);
  const ObjectCache cache(directory);
  ASSERT_TRUE(plans.keep(what, plan));
  const std::string path = plans.path_of(what);
  // An entry is found by its key: the key of this one is its file's name.
  ObjectKey key{};
  const std::string digits = std::filesystem::path(path).stem();
  for (std::size_t i = 0; i < key.size(); ++i)
    key[i] = static_cast<std::uint8_t>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  for (const char* text :
       {"", "cellc-plan-0 1 1 0\n", "cellc-plan-1 1 1 1\nsequential 0 0\n", "cellc-plan-1 -1 1 0\n",
        "cellc-plan-1 1 1 2\nsequential 0 0\n", "cellc-plan-1 1 1 2\nmagic 0 0\nsequential 0 0\n",
        "cellc-plan-1 1 1 2\nauto 0 0\nsequential 0 0\n", "cellc-plan-1 1 1 2\nsegmented -8 0\nsequential 0 0\n",
        "cellc-plan-1 nan 1 0\n", "cellc-plan-1 1 1 2\nsegmented 99999999999999999999 0\nsequential 0 0\n"}) {
    ASSERT_TRUE(cache.store(key, text));
    EXPECT_FALSE(plans.find(what, 2)) << text;
  }
  ASSERT_TRUE(plans.keep(what, plan));
  EXPECT_TRUE(plans.find(what, 2));
}

TEST_F(TunedPlansTest, NoDirectoryIsNoError) {
  EXPECT_FALSE(TunedPlans("").keep(what, plan));
  EXPECT_FALSE(TunedPlans("").find(what, 2));
  EXPECT_FALSE(TunedPlans("/proc/none").keep(what, plan));
}

TEST(ShapeRange, PowersOfTwoOfLanesAndSteps) {
  const auto range = [](const char* text, std::int64_t batch, std::int64_t length,
                        std::map<std::string, std::int64_t> dims) {
    AnalysedCell cell = analyse_text(SourceText("test.cell", text));
    BindRequest request;
    request.random_seed = 1;
    request.batch = batch;
    request.length = length;
    request.dims = std::move(dims);
    return shape_range(cell.cell, cell.structure, bind(cell.cell, request).run);
  };
  const char* lanes = "cell c[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(h + x)\n}\n";
  EXPECT_EQ(range(lanes, 3, 100, {{"d", 5}}), "8 to 15 lanes of 64 to 127 steps");
  EXPECT_EQ(range(lanes, 1, 1, {{"d", 1}}), "1 lane of 1 step");
  EXPECT_EQ(range(lanes, 0, 0, {{"d", 4}}), "0 lanes of 0 steps");
  const char* dense = "cell c[d] {\n  state h[d]\n  input x[d]\n  param W[d,d]\n  h' = tanh(W@h + x)\n}\n";
  EXPECT_EQ(range(dense, 2, 64, {{"d", 5}}), "2 to 3 lanes of 64 to 127 steps; d = 5");
}

}  // namespace
}  // namespace cellc
