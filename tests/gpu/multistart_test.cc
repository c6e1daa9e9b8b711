// Calls that follow each other on data that do not forget (kernels-templates/segments/multistart.cuh):
// from the second on every segment is run from several starts first, and the sweep that follows is nearly
// right. The answers are held against a loop in f64 that shares no code with them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/front_end.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

const char* const kGru = R"(cell gru[d] {
  state h[d]
  input xz[d], xr[d], xc[d]
  param az[d], ar[d], ac[d]
  z = sigmoid(az*h + xz)
  r = sigmoid(ar*h + xr)
  h' = (1 - z)*h + z*tanh(ac*(r*h) + xc)
}
)";

double draw(std::int64_t i) {
  std::uint64_t z = static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  return static_cast<double>((z ^ (z >> 27)) >> 11) * 0x1p-53 * 2 - 1;
}
double triangular(std::int64_t i) { return 1.2 * (draw(2 * i) + draw(2 * i + 1)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Data {
  std::int64_t channels;
  std::vector<std::int64_t> lengths;
  bool reverse;
  int every;      ///< so many channels apart are those that do not forget
  double centre;  ///< about which their states lie
  Dtype dtype;
};

/// What a step may leave: the tolerance, and what the step code rounds, on a card with its own exponential function.
constexpr double kStep = 1e-6 + 5e-7;

struct Case {
  AnalysedCell cell = analyse_text(SourceText("gru.cell", kGru));
  BoundRun run;
  Array xz, xr, xc, az, ar, ac, start;

  explicit Case(const Data& data) {
    const std::int64_t channels = data.channels, sequences = static_cast<std::int64_t>(data.lengths.size());
    run.sizes[cell.cell.header[0]] = channels;
    run.offsets = {0};
    for (const std::int64_t n : data.lengths) run.offsets.push_back(run.offsets.back() + n);
    run.reverse = data.reverse;
    const std::int64_t rows = run.offsets.back();
    for (Array* x : {&xz, &xr, &xc}) *x = Array(data.dtype, {rows, channels});
    for (Array* p : {&az, &ar, &ac}) *p = Array(data.dtype, {channels});
    start = Array(Dtype::F32, {sequences, channels});
    for (std::int64_t i = 0; i < rows * channels; ++i) {
      const bool slow = i % channels % data.every == data.every / 2;
      xz.set(i, triangular(i) - (slow ? 6 : 0));
      xr.set(i, triangular(i + (1 << 26)));
      xc.set(i, triangular(i + (1 << 24)) + (slow ? data.centre : 0));
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      az.set(c, draw(c + 7));
      ar.set(c, draw(c + 700007));
      ac.set(c, draw(c + 70007));
    }
    for (std::int64_t i = 0; i < start.count(); ++i) start.set(i, 0.3 * draw(i + 99));
    run.symbols = {start, xz, xr, xc, az, ar, ac};
  }

  /// The largest difference from what a loop in f64 makes.
  double off(const RunOutput& output) const {
    const std::int64_t channels = start.shape()[1];
    double far = 0;
    for (std::int64_t s = 0; s < start.shape()[0]; ++s)
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t begin = run.offsets[static_cast<std::size_t>(s)],
                           end = run.offsets[static_cast<std::size_t>(s) + 1];
        double h = start.get(s * channels + c);
        for (std::int64_t t = 0; t < end - begin; ++t) {
          const std::int64_t row = (run.reverse ? end - 1 - t : begin + t) * channels + c;
          const double z = sigmoid(az.get(c) * h + xz.get(row)), r = sigmoid(ar.get(c) * h + xr.get(row));
          h = (1 - z) * h + z * std::tanh(ac.get(c) * (r * h) + xc.get(row));
          far = std::max(far, std::abs(h - output.states[0].get(row)));
        }
        far = std::max(far, std::abs(h - output.finals[0].get(s * channels + c)));
      }
    return far;
  }

  /// The largest residual of a step, over 1 + |h|: by a step in f64 from the row before, as both stand.
  double residual(const RunOutput& output) const {
    const std::int64_t channels = start.shape()[1];
    double worst = 0;
    for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s)
      for (std::int64_t c = 0; c < channels; ++c) {
        double h = start.get(static_cast<std::int64_t>(s) * channels + c);
        for (std::int64_t t = run.offsets[s]; t < run.offsets[s + 1]; ++t) {
          const std::int64_t row = (run.reverse ? run.offsets[s] + run.offsets[s + 1] - 1 - t : t) * channels + c;
          const double z = sigmoid(az.get(c) * h + xz.get(row)), r = sigmoid(ar.get(c) * h + xr.get(row));
          const double next = (1 - z) * h + z * std::tanh(ac.get(c) * (r * h) + xc.get(row));
          h = output.states[0].get(row);
          worst = std::max(worst, std::abs(h - next) / (1 + std::abs(h)));
        }
      }
    return worst;
  }
  /// Weights three times as large, from `seed` on.
  void stiffen(std::int64_t seed) {
    for (std::int64_t c = 0; c < start.shape()[1]; ++c) {
      az.set(c, 3 * draw(c + seed + 7));
      ar.set(c, 3 * draw(c + seed + 700007));
      ac.set(c, 3 * draw(c + seed + 70007));
    }
    run.symbols = {start, xz, xr, xc, az, ar, ac};
  }
};

/// Three calls and a run, on a card of so many multiprocessors.
void expect_right_and_little_missed(const Data& data, int multiprocessors) {
  const Case c(data);
  const Dtype dtype = data.dtype;
  const Device device = open_device(multiprocessors);
  CudaSolver solver(*device.gpu, c.cell.cell, c.cell.structure, dtype, &c.cell.source);
  solver.upload(c.run, {});
  std::vector<SolveReport> reports(3);
  for (SolveReport& report : reports) {
    solver.launch(0);
    solver.report(report, 0);
  }
  ASSERT_EQ(reports[0].stages[0].plan.strategy, Strategy::Segmented);
  EXPECT_LE(reports[2].max_residual, dtype == Dtype::F32 ? 1e-6 : 1e-4);
  // Rows of 16 bits are rounded when they are written, to 2^-9 of what they hold.
  SolveReport last;
  const RunOutput output = solver.run(c.run, {}, last);
  EXPECT_LE(c.off(output), dtype == Dtype::F32 ? 3e-5 : 5e-3);
  if (dtype == Dtype::F32) {
    EXPECT_LE(c.residual(output), kStep);
  }
  // How few are off depends on how many segments there are, which a card of another size knows: there the answer
  // counts.
  if (on_card()) return;
  // The first call finds nearly every boundary of a slow channel off, the third next to none: though slow states are
  // small, a fiftieth of 1, and a step is over that.
  EXPECT_GT(reports[0].stages[0].misses, reports[0].stages[0].boundaries / data.every / 3);
  EXPECT_LE(reports[2].stages[0].misses, reports[2].stages[0].boundaries / 25);
  EXPECT_LE(reports[2].stages[0].repair_rounds, 2);
}

class Multistarts : public testing::TestWithParam<Data> {};

TEST_P(Multistarts, EndInTheRightAnswerAndMissLittle) { expect_right_and_little_missed(GetParam(), 4); }

// More segments than the threads of a block take in one batch each: their maps are read again in every turn of a
// composition, and bend as well. 2048 of them, and 1024 of each of two channels.
TEST(ManySegments, MissLittleAsWell) {
  expect_right_and_little_missed(Data{1, {32768}, false, 1, 0, Dtype::F32}, 8);
  expect_right_and_little_missed(Data{2, {16384}, true, 1, 0, Dtype::F32}, 8);
}

// Where blocks find no room on the card, one goes on alone after the bundles, with tiles that were others' until then.
TEST(CrowdedBundles, EndInTheRightAnswer) {
  const Case c(Data{37, {4000, 900}, false, 1, 0, Dtype::F32});
  Device device = open_device(4);
  CudaSolver solver(*device.gpu, c.cell.cell, c.cell.structure, Dtype::F32, &c.cell.source);
  for (std::uint64_t call = 0; call < 16; ++call) {
    const int room = call % 8 == 0 ? 0 : static_cast<int>(2 + call % 4);
    device.crowd(room);
    device.reorder(call);  // it depends on that which block is the last
    spoil(device, solver, c.cell.cell, c.run, {});
    SolveReport report;
    const RunOutput output = solver.run(c.run, {}, report);
    EXPECT_LE(c.off(output), 3e-5) << "room for " << room;
    EXPECT_LE(c.residual(output), kStep) << "room for " << room;
    EXPECT_EQ(report.stages[0].plan.strategy, Strategy::Segmented);
  }
}

// Calls on data that forget: the first starts early enough, and those that follow start as late as will do.
TEST(RunUps, AreShortenedWhereLessWillDo) {
  const Case c(Data{64, {3000}, false, 1 << 30, 0, Dtype::F32});
  const Device device = open_device();
  CudaSolver solver(*device.gpu, c.cell.cell, c.cell.structure, Dtype::F32, &c.cell.source);
  solver.upload(c.run, {});
  std::vector<std::int64_t> early;
  for (int call = 0; call < 6; ++call) {
    SolveReport report;
    solver.launch(0);
    solver.report(report, 0);
    EXPECT_LE(report.max_residual, 1e-6);
    if (call < 2 && !on_card()) {
      EXPECT_EQ(report.stages[0].misses, 0);
    }
    early.push_back(report.stages[0].plan.burn_in);
  }
  EXPECT_EQ(early[0], 64);
  EXPECT_LT(early[2], 64);  // after two that missed nothing
  EXPECT_EQ(early[5], early[4]);
}

// One channel of 512 that does not forget is repaired, call after call; of two, every call from the second on begins
// with bundles.
TEST(FewSlowChannels, AreRepaired) {
  for (const int every : {512, 256}) {
    const Case c(Data{512, {1200}, false, every, 0, Dtype::F32});
    const Device device = open_device(4);
    if (on_card()) GTEST_SKIP() << "another number of segments";
    CudaSolver solver(*device.gpu, c.cell.cell, c.cell.structure, Dtype::F32, &c.cell.source);
    solver.upload(c.run, {});
    for (int call = 0; call < 4; ++call) {
      SolveReport report;
      solver.launch(0);
      solver.report(report, 0);
      const StageReport& stage = report.stages[0];
      ASSERT_EQ(stage.boundaries, 512);
      EXPECT_EQ(stage.plan.burn_in == 0, every == 256 && call > 0) << call;
      if (stage.plan.burn_in) {
        EXPECT_GE(stage.repaired, 512 / every) << call;
      }
      EXPECT_LE(report.max_residual, 1e-6) << call;
    }
    SolveReport last;
    EXPECT_LE(c.off(solver.run(c.run, {}, last)), 3e-5);
  }
}

// Chains that settle in one of two states sooner or later, and grow differences until then. Multistarts about the mean
// of where segments started draw them to the wrong state, and rounds that know a map near its last two runs only move
// on by two segments each.
TEST(ChannelsOfTwoStates, SettleInFewRounds) {
  Case c(Data{16, {16384}, false, 1, 0, Dtype::F32});
  c.stiffen(1000);
  const Device device = open_device();
  CudaSolver solver(*device.gpu, c.cell.cell, c.cell.structure, Dtype::F32, &c.cell.source);
  solver.upload(c.run, {});
  std::vector<StageReport> calls;
  for (int call = 0; call < 4; ++call) {
    SolveReport report;
    solver.launch(0);
    solver.report(report, 0);
    EXPECT_LE(report.max_residual, 1e-6) << call;
    calls.push_back(report.stages[0]);
  }
  SolveReport last;
  EXPECT_LE(c.off(solver.run(c.run, {}, last)), 3e-5);
  if (on_card()) return;  // it has another number of segments
  const std::int64_t boundaries = calls[0].boundaries;
  EXPECT_EQ(calls[0].misses, boundaries);  // the first call knows nothing
  for (int call = 1; call < 4; ++call) {
    EXPECT_LT(calls[call].misses, boundaries / 4) << call;
    EXPECT_LE(calls[call].repair_rounds, 18) << call;  // 23 before a walk
  }
}

// A segment may run again from a start that turns out wrong while its neighbour merges, and so ends as it did: that
// boundary is new.
TEST(StiffChannels, LeaveNoStepOff) {
  Case c(Data{64, {16384}, false, 1 << 30, 0, Dtype::F32});
  for (const std::int64_t seed : {0, 1000}) {
    c.stiffen(seed);
    const Device device = open_device(33);
    CudaSolver solver(*device.gpu, c.cell.cell, c.cell.structure, Dtype::F32, &c.cell.source);
    for (int call = 0; call < 2; ++call) {
      SolveReport report;
      const RunOutput output = solver.run(c.run, {}, report);
      EXPECT_EQ(report.stages[0].plan.strategy, Strategy::Segmented);
      EXPECT_LE(c.residual(output), kStep) << seed << ", call " << call;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Multistarts,
    testing::Values(Data{64, {3000}, false, 1, 0, Dtype::F32},                  // whole rows
                    Data{16, {8192}, false, 1, 0, Dtype::F32},                  // longer chains
                    Data{64, {3000}, false, 10, 0.8, Dtype::F32},               // some among others
                    Data{64, {16000}, false, 1, 0, Dtype::F32},                 // long segments: two starts
                    Data{37, {2111, 0, 900, 2111}, false, 1, 0.8, Dtype::F32},  // lane by lane, ragged
                    Data{37, {2111, 1, 900}, true, 5, 0, Dtype::F32},
                    Data{1, {9001}, true, 1, 0, Dtype::F32},  // one chain, all threads of a block
                    Data{64, {3000}, false, 1, 0, Dtype::BF16}),
    [](const auto& info) {
      return fmt::format("{}Of{}From{}Every{}{}{}", info.param.lengths.size(), info.param.lengths[0],
                         info.param.channels, info.param.every, info.param.reverse ? "Reversed" : "",
                         info.param.dtype == Dtype::F32 ? "" : "Narrow");
    });

}  // namespace
}  // namespace cellc
