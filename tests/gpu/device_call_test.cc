// Calls on arrays that lie on the device, as callers have them: the same tests on the emulator and, where
// CELLC_TEST_DEVICE=gpu asks for it, on a card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "runtime/data/errors.h"
#include "tests/gpu/call_setting.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

using oracle::Example;

class DeviceCalls : public testing::TestWithParam<std::string> {};

TEST_P(DeviceCalls, AgreeWithOracle) {
  Device device = open_device();
  const Example& file = oracle::example_named(GetParam());
  const std::vector<Dtype> dtypes = turns::Turn().of(std::vector{Dtype::F32, Dtype::BF16});
  for (const Cell& tree : file.tree.cells) {
    const LoweredCell cell(file.source, file.tree, tree);
    for (const Dtype dtype : dtypes) {
      // What a delay line brings was rounded when it was written; the oracle carries it along.
      // differentiate_on_gpu_test compares such runs with the CPU's.
      if (dtype == Dtype::BF16 && cell.graph.has_lines()) continue;
      oracle::Random random(57);
      Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, {3, 2, 3, 2}), .steps = 67};
      if (on_card()) with.narrow_tolerance = 1e-4;  // tanh.approx there
      SolveOptions solve;
      solve.tolerance = 1e-6;
      for (const bool starts : {true, false}) {
        if (dtype == Dtype::BF16 && !starts) continue;
        with.starts_given = starts;
        with.reverse = starts;
        with.step_by_step = with.skip_jumps = file.amplifies.count(tree.name) > 0 || has_jumps(cell.graph);
        // A step cannot be made again from rows that were rounded when they were written.
        if (with.step_by_step && dtype == Dtype::BF16) continue;
        const Trial trial(cell.graph, cell.oracle, file.ranges, random, with);
        for (const std::vector<std::int64_t>& lengths :
             std::vector<std::vector<std::int64_t>>{{67, 67, 67}, {64, 0, 67}, {0, 0}, {1, 1, 1}, {}}) {
          if (dtype == Dtype::BF16 && (lengths.empty() || lengths[0] < 64)) continue;
          const bool packed = lengths.size() == 3 && lengths[0] != lengths[2];
          const Binding binding = trial.bound(lengths, packed, 1);
          std::unique_ptr<Calls> calls;
          for (const CallLook& look :
               {CallLook{}, CallLook{.strided = true, .in_place = true}, CallLook{.leave_out = true}}) {
            if (look.leave_out == starts) continue;
            SCOPED_TRACE(fmt::format("{} {} {} sequences of {}{}{}{}{}", tree.name, to_string(dtype), lengths.size(),
                                     lengths.empty() ? 0 : lengths[0], packed ? ", packed" : "",
                                     look.strided ? ", strided" : "", look.in_place ? ", in place" : "",
                                     look.leave_out ? ", with defaults" : ""));
            CallArrays arrays(*device.gpu, cell.graph, binding, dtype, look);
            if (!calls) calls = std::make_unique<Calls>(*device.gpu, cell, &file.source, dtype, arrays.shape(), solve);
            ASSERT_NO_THROW(check_on_device(*device.gpu,
                                            directed_call(cell.graph, call_layout(cell.graph), CallDirection::Forward),
                                            arrays.shape(), dtype, arrays.arrays(), arrays.status()));
            calls->pool.run(arrays.arrays(), 0, arrays.status(), nullptr);
            const RunOutput output = arrays.read(binding);
            ASSERT_EQ(trial.verify(binding.run, output, lengths), "");
            ASSERT_EQ(arrays.wrong_histories(binding, output), "");
            EXPECT_EQ(arrays.statuses(), std::vector<int>(lengths.size(), 0));
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, DeviceCalls, testing::ValuesIn(oracle::names_of(oracle::all_cells())),
                         [](const auto& info) { return info.param; });
CELLC_ONE_IN(4, "Examples/DeviceCalls");

/// What a call costs on the emulator, which counts.
class QueuedCalls : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    EmulatorOptions quick;
    quick.optimisation = 0;
    gpu = open_emulator(quick);
  }
  std::unique_ptr<Emulator> gpu;
};

TEST_P(QueuedCalls, AllocateAndWaitForNothing) {
  for (const CallLook& look : {CallLook{}, CallLook{.strided = true, .in_place = true}}) {
    CallSetting s(*gpu, GetParam(), Dtype::F32, {67, 67}, 3, look);
    if (look.strided)
      s.calls->pool.run(s.arrays->arrays(), 0, s.arrays->status(), nullptr);  // a form that was not foreseen
    s.arrays->fill(s.binding);
    const Emulator::Counts before = gpu->counts();
    s.calls->pool.run(s.arrays->arrays(), 0, s.arrays->status(), nullptr);
    const Emulator::Counts after = gpu->counts();
    EXPECT_GT(after.launches, before.launches);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.synchronisations, before.synchronisations);
    EXPECT_EQ(s.wrong(), "");
  }
}

TEST_P(QueuedCalls, CanBeCaptured) {
  CallSetting s(*gpu, GetParam(), Dtype::F32, {67, 67}, 4, CallLook{.strided = true, .in_place = true, .stream = 8});
  EXPECT_FALSE(s.calls->pool.captured());
  // A form that is new while a graph is captured: the emulator refuses whatever a capture would not stand.
  gpu->set_capture(17);
  s.calls->pool.run(s.arrays->arrays(), 8, s.arrays->status(), nullptr);
  EXPECT_TRUE(s.calls->pool.captured());
  SolveReport report;
  EXPECT_THROW(s.calls->pool.run(s.arrays->arrays(), 8, s.arrays->status(), &report), UsageError);
  gpu->set_capture(0);
  EXPECT_EQ(s.wrong(), "");
  // What the graph holds stays its own, for all that runs later.
  const std::int64_t held = gpu->counts().live_bytes;
  s.arrays->fill(s.binding);
  s.calls->pool.run(s.arrays->arrays(), 8, s.arrays->status(), nullptr);
  EXPECT_GE(gpu->counts().live_bytes, held);
  EXPECT_EQ(s.wrong(), "");
}

// Streams that fork and join within one graph may overlap when it runs.
TEST_P(QueuedCalls, OfTwoStreamsInOneGraphShareNoMemory) {
  CallSetting s(*gpu, GetParam(), Dtype::F32, {67, 67}, 4, CallLook{.stream = 8});
  gpu->set_capture(17);
  const auto held_after = [&](GpuStream stream) {
    s.calls->pool.run(s.arrays->arrays(), stream, s.arrays->status(), nullptr);
    return gpu->counts().live_bytes;
  };
  const std::int64_t first = held_after(8), again = held_after(8), second = held_after(9);
  gpu->set_capture(0);
  EXPECT_EQ(again, first);
  EXPECT_GT(second, first);
}

TEST_P(QueuedCalls, OfAFreedPoolLeaveNoMemory) {
  const std::int64_t before = gpu->counts().live_bytes;
  {
    CallSetting s(*gpu, GetParam(), Dtype::F32, {5, 5}, 4, CallLook{});
    s.calls->pool.run(s.arrays->arrays(), 0, 0, nullptr);
  }
  EXPECT_EQ(gpu->counts().live_bytes, before);
}

INSTANTIATE_TEST_SUITE_P(Cells, QueuedCalls, testing::Values("01_para_gru", "04_lstm", "08_gilr", "34_narx3", "stages"),
                         [](const auto& info) { return info.param; });

TEST(CallPools, ServeEightThreads) {
  Device device = open_device();
  CallSetting first(*device.gpu, "01_para_gru", Dtype::F32, {67, 67}, 0, CallLook{});
  std::vector<std::unique_ptr<CallArrays>> arrays;
  std::vector<std::unique_ptr<Trial>> trials;
  std::vector<Binding> bindings;
  for (int i = 0; i < 8; ++i) {
    trials.push_back(
        std::make_unique<Trial>(first.cell.graph, first.cell.oracle, first.file.ranges, first.random, first.with));
    bindings.push_back(trials.back()->bound({67, 67}, false, 1));
    arrays.push_back(
        std::make_unique<CallArrays>(*device.gpu, first.cell.graph, bindings.back(), Dtype::F32, CallLook{}));
  }
  std::vector<std::thread> threads;
  std::vector<std::string> wrong(8);
  for (std::size_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      try {
        const GpuStream stream = device.gpu->make_stream();
        for (int k = 0; k < 3; ++k) {
          first.calls->pool.run(arrays[i]->arrays(), stream, arrays[i]->status(), nullptr);
          device.gpu->synchronize(stream);
        }
        wrong[i] = trials[i]->verify(bindings[i].run, arrays[i]->read(bindings[i]), {67, 67});
        device.gpu->release_stream(stream);
      } catch (const std::exception& e) {
        wrong[i] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<std::string>(8));
}

TEST(CallPools, ReportWhatIsAsked) {
  Device device = open_device();
  SolveOptions solve;
  solve.solver = Strategy::Segmented;
  CallSetting s(*device.gpu, "01_para_gru", Dtype::F32, {67, 67}, 5, CallLook{}, solve);
  SolveReport report;
  s.calls->pool.run(s.arrays->arrays(), 0, s.arrays->status(), &report);
  EXPECT_TRUE(report.converged);
  ASSERT_EQ(report.stages.size(), 1u);
  EXPECT_EQ(report.stages[0].plan.strategy, Strategy::Segmented);
  EXPECT_EQ(s.wrong(), "");
}

/// Two states that couple strongly, cut into segments that no round may repair: some sequences stay apart.
TEST(CallPools, SayWhichSequencesDidNotConverge) {
  Device device = open_device();
  SolveOptions solve;
  solve.solver = Strategy::Segmented;
  solve.repair = false;
  const Example& file = oracle::example_named("40_logistic");
  const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
  oracle::Random random(7);
  Trial::Options with{.dtype = Dtype::F32, .sizes = oracle::axis_lengths(cell.oracle, {3}), .steps = 67};
  const Trial trial(cell.graph, cell.oracle, file.ranges, random, with);
  const Binding binding = trial.bound({67, 3, 67}, true, 1);
  CallArrays arrays(*device.gpu, cell.graph, binding, Dtype::F32, {});
  Calls calls(*device.gpu, cell, &file.source, Dtype::F32, arrays.shape(), solve);
  SolveReport report;
  calls.pool.run(arrays.arrays(), 0, arrays.status(), &report);
  EXPECT_FALSE(report.converged);
  // A sequence of one segment has no boundary that could be off.
  EXPECT_EQ(arrays.statuses(), (std::vector<int>{1, 0, 1}));
}

TEST(CallChecks, NameTheArrayAndTheFault) {
  Device device = open_device();
  CallSetting s(*device.gpu, "01_para_gru", Dtype::F32, {5, 5}, 6, CallLook{});
  const CallLayout layout = call_layout(s.cell.graph);
  const auto fault = [&](std::size_t field, GpuAddress address) -> std::string {
    std::vector<CallArray> arrays = s.arrays->arrays();
    arrays[field].data = address;
    try {
      check_on_device(*device.gpu, directed_call(s.cell.graph, layout, CallDirection::Forward), s.arrays->shape(),
                      Dtype::F32, arrays, s.arrays->status());
    } catch (const RequestError& e) {
      return e.what();
    }
    return "";
  };
  float on_host = 0;
  const GpuAddress good = s.arrays->arrays()[0].data;
  EXPECT_EQ(fault(0, good), "");
  EXPECT_NE(fault(0, reinterpret_cast<GpuAddress>(&on_host)).find("array " + layout.fields[0].name + ": its address"),
            std::string::npos);
  EXPECT_NE(fault(0, good + 2).find("is not aligned to the 4 bytes of an entry"), std::string::npos);
  EXPECT_NE(fault(0, good + 4), "");  // runs past the end
}
}  // namespace
}  // namespace cellc
