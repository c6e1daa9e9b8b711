// Stages whose every step is some kernels (runtime/cuda/launch/stepped_on_gpu.h): against the oracle, in captured
// windows and without them, on a caller's arrays; which cards and weights they are for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/derive/pipeline.h"
#include "compiler/front_end.h"
#include "compiler/syntax/parse.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/choose_stepped.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/errors.h"
#include "runtime/evaluate/reference.h"
#include "runtime/evaluate/timed_cell.h"
#include "tests/engines/against_oracle.h"
#include "tests/engines/lowered_cell.h"
#include "tests/gpu/call_setting.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

struct Stepping {
  const char *name, *text;
};

constexpr Stepping kCells[] = {
    {"lstm", R"(cell lstm[d, m] {
  state c[d], h[d]
  input x[m]
  param Wi[d,m], Wf[d,m], Wg[d,m], Wo[d,m], Ui[d,d], Uf[d,d], Ug[d,d], Uo[d,d], bi[d], bf[d]
  c' = sigmoid(Wf@x + Uf@h + bf)*c + sigmoid(Wi@x + Ui@h + bi)*tanh(Wg@x + Ug@h)
  h' = sigmoid(Wo@x + Uo@h)*tanh(c')
}
)"},
    // A product inside of a product: what the reset gate has of the input is fixed, and the rest of it is not.
    {"gru", R"(cell gru[d, m] {
  state h[d]
  input x[m]
  param Wr[d,m], Uz[d,d], Ur[d,d], Uc[d,d]
  z = sigmoid(Uz@h)
  r = sigmoid(Wr@x + Ur@h)
  h' = z*h + (1 - z)*tanh(Uc@(r*h))
}
)"},
    // A matrix the other way round, a sum over params alone, an out, an input of the step before.
    {"both", R"(cell both[d] {
  state a[d], b[d]
  input x[d]
  param U[d,d], V[d,d], q[d]
  a' = tanh(a@U + V@b + lag(x, 1) + mean[d](b) + softmax[d](q)*x)
  b' = 0.5*b + 0.1*a*x
  out y = a*b' + x
}
)"},
    {"heads", R"(cell heads[heads, k] {
  state h[heads,k], c[heads,k]
  input u[heads,k]
  param R[heads,k,k], S[heads,k,k]
  i = sigmoid(R@h + u)
  c' = i*c + (1 - i)*tanh(S@h)
  h' = tanh(c')
}
)"},
    // A stage of lanes before and one behind it, each by its own strategy, and sums over channels within the step.
    {"staged", R"(cell staged[d] {
  state e[d], h[d], s[d]
  input x[d]
  param U[d,d]
  e' = 0.9*e + 0.1*x
  u = U@h + e' - e
  h' = tanh(u - mean[d](u)) + 0.1*lag(h, 1)
  s' = 0.9*s + h'
  out y = sum[d](s'*h')
}
)"},
};

struct Kind {
  const char* name;
  Dtype dtype;
  Products products;
  double rounded = 0;  ///< of one step, where factors are rounded; 0: as stored
};
constexpr Kind kKinds[] = {{"f32", Dtype::F32, Products::F32},
                           {"f64", Dtype::F64, Products::F32},
                           {"bf16", Dtype::BF16, Products::F32},
                           {"f16", Dtype::F16, Products::F32}};
constexpr Kind kTensorKinds[] = {{"3xtf32", Dtype::F32, Products::Tf32x3},
                                 {"bf16 products", Dtype::BF16, Products::Storage, 0.08},
                                 {"f16 products", Dtype::F16, Products::Storage, 0.01}};

SolveOptions stepped(const Kind& kind) {
  SolveOptions solve;
  solve.solver = Strategy::Stepped;
  solve.products = kind.products;
  return solve;
}

class Steps : public testing::TestWithParam<std::size_t> {
 protected:
  Steps()
      : source_(fmt::format("{}.cell", kCells[GetParam()].name), kCells[GetParam()].text),
        tree_(parsed()),
        cell_(source_, tree_, tree_.cells.at(0)) {
    const bool heads = kCells[GetParam()].name == std::string("heads");
    sizes_ =
        oracle::axis_lengths(cell_.oracle, heads ? std::vector<std::int64_t>{2, 18} : std::vector<std::int64_t>{19, 3});
  }
  Trial trial(const Kind& kind, bool reverse, std::int64_t steps, int sequences) const {
    oracle::Random random(5);
    Trial::Options with{.dtype = kind.dtype, .sizes = sizes_, .steps = steps, .sequences = sequences};
    with.starts_given = true;
    with.reverse = reverse;
    with.step_by_step = kind.rounded > 0;
    if (kind.rounded > 0) with.narrow_tolerance = kind.rounded;
    return Trial(cell_.graph, cell_.oracle, {}, random, with);
  }
  /// The stage that takes kernels, in a report.
  static const StageReport& stage_of(const SolveReport& report) {
    for (const StageReport& s : report.stages)
      if (s.plan.strategy == Strategy::Stepped) return s;
    ADD_FAILURE() << "no stage is stepped: " << report.stages.at(0).plan.reason;
    return report.stages.at(0);
  }

  SourceText source_;
  File tree_;
  LoweredCell cell_;
  std::map<std::string, std::int64_t> sizes_;

 private:
  File parsed() const {
    Diagnostics found;
    return parse(source_, found);
  }
};

std::string name_of(const testing::TestParamInfo<std::size_t>& info) { return kCells[info.param].name; }

TEST_P(Steps, AgreeWithOracle) {
  turns::Turn turn;
  std::uint64_t schedule = 0;
  for (const Kind& kind : turn.of(std::vector<Kind>(std::begin(kKinds), std::end(kKinds)))) {
    Device device = open_device(8);
    CudaSolver solver(*device.gpu, cell_.graph, cell_.structure, kind.dtype);
    for (const bool reverse : {false, true}) {
      const Trial trial = this->trial(kind, reverse, 21, 4);
      for (const std::vector<std::int64_t>& steps :
           std::vector<std::vector<std::int64_t>>{{21, 21, 21}, {21, 0, 13, 2}, {1, 1}, {0, 0, 0}, {}, {6}}) {
        SCOPED_TRACE(fmt::format("{}, reverse {}, {} sequences of {}", kind.name, reverse, steps.size(),
                                 steps.empty() ? 0 : steps[0]));
        const Binding binding = trial.bound(steps, steps.size() == 4, 1);
        device.reorder(schedule++);
        SolveReport report;
        ASSERT_EQ(trial.verify(binding.run, solver.run(binding.run, stepped(kind), report), steps), "");
        EXPECT_TRUE(report.converged);
        EXPECT_CONTAINS(stage_of(report).plan.reason, "asked for: ");
      }
    }
  }
}

TEST_P(Steps, ByTensorCoresAgreeWithOracle) {
  turns::Turn turn;
  for (const Kind& kind : turn.of(std::vector<Kind>(std::begin(kTensorKinds), std::end(kTensorKinds)))) {
    Device device = open_device(8, 1);
    CudaSolver solver(*device.gpu, cell_.graph, cell_.structure, kind.dtype);
    const Trial trial = this->trial(kind, false, 4, 2);
    const std::vector<std::int64_t> steps{4, 4};
    const Binding binding = trial.bound(steps, false, 1);
    SolveReport report;
    ASSERT_EQ(trial.verify(binding.run, solver.run(binding.run, stepped(kind), report), steps), "") << kind.name;
  }
}

/// A device that keeps no launches.
class CapturesNothing final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  bool begin_capture(GpuStream) override { return false; }
};

/// Windows are captured once for the arrays that they are of, and have the bits of steps that are queued.
TEST_P(Steps, InCapturedWindows) {
  if (on_card()) GTEST_SKIP() << "counts what the emulator launches";
  const Trial trial = this->trial(kKinds[0], false, 30, 3);
  Device device = open_device(8);
  CapturesNothing elsewhere(*device.gpu);
  CudaSolver solver(*device.gpu, cell_.graph, cell_.structure, Dtype::F32),
      queued(elsewhere, cell_.graph, cell_.structure, Dtype::F32);
  const auto counts = [&] { return device.emulator->counts(); };
  for (const std::vector<std::int64_t>& steps : std::vector<std::vector<std::int64_t>>{{30, 30, 30}, {29, 3, 0}}) {
    const Binding binding = trial.bound(steps, steps[1] == 3, 1);
    SolveReport report;
    const std::int64_t none = counts().graph_launches;
    const RunOutput plain = queued.run(binding.run, stepped(kKinds[0]), report);
    EXPECT_EQ(counts().graph_launches, none);
    std::int64_t launched = counts().launches;
    solver.run(binding.run, stepped(kKinds[0]), report);
    EXPECT_EQ(counts().graph_launches - none, 7) << "of four steps each, behind the first step";
    launched = counts().launches - launched;
    const auto before = counts();
    const RunOutput output = solver.run(binding.run, stepped(kKinds[0]), report);
    EXPECT_EQ(counts().graphs, before.graphs) << "the arrays are where they were";
    EXPECT_EQ(counts().allocations, before.allocations);
    EXPECT_EQ(counts().launches - before.launches, launched);
    ASSERT_EQ(trial.verify(binding.run, output, steps), "");
    for (std::size_t s = 0; s < output.states.size(); ++s)
      for (std::int64_t i = 0; i < output.states[s].count(); ++i)
        ASSERT_EQ(output.states[s].get(i), plain.states[s].get(i)) << "state " << s << ", " << i;
  }
  EXPECT_GT(counts().graphs, 1);
}

/// The adjoint of such a cell is one of the same kind: matrices the other way round, what the gates were fixed.
TEST_P(Steps, OfTheAdjointGiveTheGradients) {
  const bool reverse = turns::Turn().of(std::vector<bool>{false, true}).front();
  const Trial trial = this->trial(kKinds[0], reverse, 17, 3);
  Device device = open_device(8);
  const Binding binding = trial.bound({17, 5, 0}, true, 1);
  const RunOutput output = reference_run(cell_.graph, binding.run);
  const Cotangents cotangents = random_cotangents(cell_.graph, binding.run, Dtype::F32, 3);
  const AdjointRun adjoint(cell_.graph, results_with(cotangents, true));
  const auto gradients = [&](Strategy solver, SolveReport& report) {
    SolveOptions by = stepped(kKinds[0]);
    by.solver = solver;
    return BackwardOnGpu(*device.gpu, cell_.graph, adjoint, Dtype::F32)
        .run(binding.run, output, cotangents, by, report);
  };
  SolveReport report, of_walks;
  const Gradients found = gradients(Strategy::Stepped, report), walked = gradients(Strategy::Sequential, of_walks);
  EXPECT_CONTAINS(stage_of(report).plan.reason, "asked for: ");
  for (std::size_t s = 0; s < found.symbols.size(); ++s)
    for (std::int64_t i = 0; i < found.symbols[s].count(); ++i)
      ASSERT_NEAR(found.symbols[s].get(i), walked.symbols[s].get(i), 2e-5 * (1 + std::abs(walked.symbols[s].get(i))))
          << cell_.graph.symbols[s].name << ", " << i;
}

INSTANTIATE_TEST_SUITE_P(Cells, Steps, testing::Range<std::size_t>(0, std::size(kCells)), name_of);

/// On a caller's arrays, which a graph of the caller's own may be captured over: then kernels are queued.
TEST(StepsOfCalls, CanBeCapturedByTheCaller) {
  if (on_card()) GTEST_SKIP() << "captures as the emulator does";
  EmulatorOptions options;
  options.multiprocessors = 8;
  options.optimisation = 0;
  const auto gpu = open_emulator(options);
  SolveOptions solve;
  solve.solver = Strategy::Stepped;
  solve.products = Products::F32;
  for (const Dtype dtype : {Dtype::F32, Dtype::F16}) {
    CallSetting s(*gpu, "04_lstm", dtype, {67, 67}, 4, CallLook{.strided = true, .in_place = true, .stream = 8}, solve);
    s.calls->pool.run(s.arrays->arrays(), 8, s.arrays->status(), nullptr);
    EXPECT_EQ(s.wrong(), "") << to_string(dtype);
    const auto before = gpu->counts();
    EXPECT_GT(before.graph_launches, 0);
    s.arrays->fill(s.binding);
    gpu->set_capture(17);
    s.calls->pool.run(s.arrays->arrays(), 8, s.arrays->status(), nullptr);
    gpu->set_capture(0);
    EXPECT_EQ(gpu->counts().graph_launches, before.graph_launches) << "a graph in a graph";
    EXPECT_EQ(s.wrong(), "") << to_string(dtype);
  }
}

TEST(StepsOfCalls, LeaveNothingBehind) {
  if (on_card()) GTEST_SKIP() << "counts what the emulator holds";
  const auto gpu = open_emulator();
  SolveOptions solve;
  solve.solver = Strategy::Stepped;
  solve.products = Products::F32;
  {
    CallSetting s(*gpu, "04_lstm", Dtype::F32, {17, 17}, 4, CallLook{}, solve);
    s.calls->pool.run(s.arrays->arrays(), 0, 0, nullptr);
    EXPECT_GT(gpu->counts().graphs, 0);
  }
  EXPECT_EQ(gpu->counts().graphs, 0);
  EXPECT_EQ(gpu->counts().live_bytes, 0);
}

/// An LSTM, whose weights are so many, on a card.
SteppedChoice of_lstm(std::int64_t units, std::int64_t sequences, const GpuFacts& card,
                      ProductFactors factors = ProductFactors::BF16) {
  SteppedStage stage;
  for (int gate = 0; gate < 4; ++gate) stage.products.push_back({units, units, 1});
  stage.kernels = 6;
  stage.fixed_bytes = 16 * units;
  return choose_stepped({{stage}, sequences, sequences * 1024, Dtype::F32, factors, card});
}

TEST(ChooseStepped, WhereTheWholeCardReadsSooner) {
  GpuFacts card = facts_of_architecture("sm_80");
  card.multiprocessors = 108;
  card.l2_bytes = 40 << 20;
  card.memory_bytes = std::int64_t{40} << 30;
  // A few kernels take as long as a block that reads few weights.
  EXPECT_FALSE(of_lstm(64, 16, card).pays);
  EXPECT_FALSE(of_lstm(128, 16, card).pays);
  EXPECT_TRUE(of_lstm(768, 16, card).pays);
  const SteppedChoice large = of_lstm(3072, 16, card);
  EXPECT_TRUE(large.pays);
  EXPECT_GT(large.walk_ns, 10 * large.step_ns);
  EXPECT_CONTAINS(large.reason, "with 151.0 MB of weights a step is 6 kernels of ");
  // More sequences than multiprocessors walk one after another.
  EXPECT_GT(of_lstm(768, 200, card).walk_ns, 1.9 * of_lstm(768, 100, card).walk_ns);
  // Products in f32 take longer, and never less than what is read.
  EXPECT_GT(of_lstm(3072, 16, card, ProductFactors::Real).step_ns, large.step_ns);
  EXPECT_GT(large.step_ns, 151e6 / 4500);
  card.memory_bytes = std::int64_t{2} << 30;
  EXPECT_FALSE(of_lstm(3072, 16, card).pays);
  EXPECT_CONTAINS(of_lstm(3072, 16, card).reason, "leave too little memory");
}

/// A card of before clusters, with one multiprocessor, so that a few sequences take it long to walk.
class OldCard final : public WrappedGpu {
 public:
  explicit OldCard(Gpu& below, int major) : WrappedGpu(below), facts_(below.facts()) {
    facts_.major = major;
    facts_.multiprocessors = 1;
  }
  const GpuFacts& facts() const override { return facts_; }

 private:
  GpuFacts facts_;
};

TEST(StepsUnasked, AreTakenWhereWeightsRestNowhere) {
  const AnalysedCell cell = analyse_text(SourceText(
      "elman.cell", "cell elman[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = tanh(U@h + x)\n}\n"));
  Device device = open_device(8, 1);
  OldCard old(*device.gpu, 8), young(*device.gpu, 9);
  BindRequest r;
  r.random_seed = 7;
  r.length = 3;
  r.dtype = Dtype::BF16;
  r.batch = 64;
  r.dims = {{"d", 64}};
  SolveOptions solve;
  solve.products = Products::Storage;
  const auto run = [&](Gpu& gpu, SolveReport& report) {
    const Binding binding = bind(cell.cell, r);
    return CudaSolver(gpu, cell.cell, cell.structure, Dtype::BF16).run(binding.run, solve, report);
  };
  SolveReport report;
  const RunOutput output = run(old, report);
  const std::string reason = report.stages.at(0).plan.reason;
  EXPECT_EQ(report.stages.at(0).plan.strategy, Strategy::Stepped) << reason;
  EXPECT_CONTAINS(reason, "weights cannot rest on chip: blocks of this card cannot tell each other values");
  EXPECT_CONTAINS(reason, "of weights a step is 3 kernels of ");
  run(young, report);
  EXPECT_EQ(report.stages.at(0).plan.strategy, Strategy::Persistent) << report.stages.at(0).plan.reason;
  // The bits of the walk are asked for, one way or the other.
  solve.tolerance = 0;
  const RunOutput walked = run(old, report);
  EXPECT_EQ(report.stages.at(0).plan.strategy, Strategy::Sequential);
  for (std::int64_t i = 0; i < output.states[0].count(); ++i)
    ASSERT_NEAR(output.states[0].get(i), walked.states[0].get(i), 0.03) << i;
  solve.tolerance.reset();
  solve.persistent.blocks = -1;
  run(old, report);
  EXPECT_EQ(report.stages.at(0).plan.strategy, Strategy::Sequential);
  solve.persistent.blocks = 0;
  // Where a walk takes less, the reason says so.
  r.batch = 1;
  run(old, report);
  EXPECT_EQ(report.stages.at(0).plan.strategy, Strategy::Sequential);
  EXPECT_CONTAINS(report.stages.at(0).plan.reason, "where a block a sequence takes ");
}

TEST(StepsUnasked, SayWhyThereAreNone) {
  Device device = open_device(8);
  const auto refusal = [&](const char* text, std::int64_t channels) -> std::string {
    const AnalysedCell cell = analyse_text(SourceText("test.cell", text));
    BindRequest r;
    r.random_seed = 7;
    r.length = 5;
    r.batch = 2;
    r.dims = {{"d", channels}};
    const Binding binding = bind(cell.cell, r);
    CudaSolver solver(*device.gpu, cell.cell, cell.structure, Dtype::F32);
    SolveOptions solve;
    solve.solver = Strategy::Stepped;
    SolveReport report;
    try {
      solver.run(binding.run, solve, report);
    } catch (const SolverError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_CONTAINS(refusal("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x\n}\n", 40),
                  "fit a thread each, which walks all of its steps in one launch; leave the choice to auto");
  EXPECT_CONTAINS(refusal("cell c[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n  "
                          "h' = tanh(U@h + 0.1*lag(h, 20))\n}\n",
                          20),
                  "a step is not made by kernels of its own: the delay line of h brings rows");
}

}  // namespace
}  // namespace cellc
