// Backward calls of the C API on a GPU, with the emulator in the card's place: the numbers of the CPU, from the same
// arrays, which differentiate_test.cc holds against the oracle; graphs, threads and refusals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "tests/capi_gpu/emulated_gpu.h"
#include "tests/capi_gpu/named_call.h"
#include "tests/engines/lowered_cell.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// The emulator's compiler takes seconds for each kernel.
CELLC_ONE_IN(6, "Cells/DifferentiatedOnGpu");

class OnEmulator : public EmulatedGpu {
 protected:
  cellc_kernel* compiled(const std::string& text, const char* cell, const char* device, cellc_dtype dtype) {
    return compile(text, device, [&](cellc_options& o) { o.cell = cell, o.dtype = dtype; });
  }
};

struct OnGpuCase {
  const char *file, *cell;
  cellc_dtype dtype = CELLC_F64;
};
void PrintTo(const OnGpuCase& c, std::ostream* to) { *to << c.file; }

const OnGpuCase kCases[] = {{"01_para_gru", "para_gru", CELLC_F64}, {"01_para_gru", "para_gru", CELLC_BF16},
                            {"05_elman", "elman", CELLC_F32},       {"34_narx3", "narx3", CELLC_F64},
                            {"lags", "lags_many", CELLC_F64},       {"lags", "lag_projected", CELLC_F32},
                            {"39_kalman1", "kalman1", CELLC_F64},   {"18_delta_net", "delta_net", CELLC_BF16},
                            {"08_gilr", "gilr", CELLC_F64},         {"02_para_lstm", "para_lstm", CELLC_F32},
                            {"delay_lines", "crossed", CELLC_F64},  {"delay_lines", "crossed", CELLC_BF16},
                            {"delay_lines", "mixed", CELLC_F64},    {"delay_lines", "taps", CELLC_F32}};

struct Form {
  std::vector<std::int64_t> lengths;
  bool packed, reverse, gaps, given;
  double without;
};
const std::vector<Form> kForms = {{{7, 7}, false, false, true, true, 0},
                                  {{5, 0, 1, 6}, true, true, true, false, 0.3},
                                  {{6, 6, 6}, false, true, false, false, 0},
                                  {{20, 0, 35}, true, false, true, true, 0},
                                  {{0, 0}, false, false, false, true, 0}};

class DifferentiatedOnGpu : public OnEmulator, public testing::WithParamInterface<OnGpuCase> {};

TEST_P(DifferentiatedOnGpu, BackwardAndTangentsAreTheCpus) {
  const oracle::Example& file = oracle::example_named(GetParam().file);
  const Cell* tree = nullptr;
  for (const Cell& cell : file.tree.cells)
    if (cell.name == GetParam().cell) tree = &cell;
  ASSERT_TRUE(tree);
  const LoweredCell cell(file.source, file.tree, *tree);
  const cellc_dtype c_dtype = GetParam().dtype;
  const Dtype dtype = c_dtype == CELLC_F64 ? Dtype::F64 : c_dtype == CELLC_F32 ? Dtype::F32 : Dtype::BF16;
  const std::string text(file.source.text());
  cellc_kernel* const here = compiled(text, GetParam().cell, "cpu", c_dtype);
  cellc_kernel* const there = compiled(text, GetParam().cell, "cuda", c_dtype);
  turns::Turn turn;
  for (const Form& form : turn.of(kForms)) {
    SCOPED_TRACE(fmt::format("lengths {}{}", fmt::join(form.lengths, " "), form.packed ? ", packed" : ""));
    oracle::Random random(31 + form.lengths.size());
    GradientTrial::Options options;
    options.sizes = oracle::axis_lengths(cell.oracle, {3, 2, 3, 2});
    options.lengths = form.lengths;
    options.packed = form.packed;
    options.reverse = form.reverse;
    options.starts_given = options.defaults_given = form.given;
    options.without = form.without;
    options.dtype = dtype;
    GradientTrial trial(cell.graph, cell.oracle, file.ranges, random, options);
    const Binding binding = trial.bound(dtype);
    const OwnedShape shape(cell.graph, binding);
    NamedCall cpu{.kernel = here, .shape = shape.shape};
    cpu.arrays = given_arrays(cell.graph, binding, trial.given(binding));
    if (cell.graph.has_lines())  // what no row could hold in 16 bits
      for (auto& [name, array] : cpu.arrays)
        if (array.dtype() == Dtype::F32)
          for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, array.get(i) * 1.0009);
    NamedCall ahead = cpu;
    ASSERT_EQ(cpu.run(CELLC_FORWARD), CELLC_OK) << cellc_last_error();
    if (cell.graph.has_lines()) {
      ahead.kernel = there;
      ahead.gpu = emulator_.get();
      ahead.gaps = form.gaps;
      ASSERT_EQ(ahead.run(CELLC_FORWARD), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(ahead.touched, "");
      const NamedArrays forward(ahead.arrays.begin(), ahead.arrays.end()), want(cpu.arrays.begin(), cpu.arrays.end());
      EXPECT_LE(largest_error(forward, want), dtype == Dtype::F64 ? 1e-9 : dtype == Dtype::F32 ? 1e-5 : 0x1p-7);
    }
    cpu.arrays.merge(cotangent_arrays(cell.graph, trial.cotangents(binding), Dtype::F64));
    NamedCall gpu = cpu;
    gpu.kernel = there;
    gpu.gpu = emulator_.get();
    gpu.gaps = form.gaps;
    ASSERT_EQ(cpu.run(CELLC_BACKWARD), CELLC_OK) << cellc_last_error();
    cellc_report report;
    cellc_report_init(&report);
    ASSERT_EQ(gpu.run(CELLC_BACKWARD, form.gaps ? &report : nullptr), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(gpu.touched, "");
    EXPECT_LE(largest_error(named_gradients(cell.graph, gpu.arrays), named_gradients(cell.graph, cpu.arrays)),
              dtype == Dtype::F64 ? 1e-9 : 1e-4);
    if (dtype == Dtype::BF16) continue;
    // Everything moves as the inputs do.
    for (const auto& [name, value] : std::map<std::string, Array>(cpu.arrays))
      if (cpu.arrays.contains("gradient." + name)) cpu.arrays["tangent." + name] = value;
    gpu.arrays.insert(cpu.arrays.begin(), cpu.arrays.end());
    ASSERT_EQ(cpu.run(CELLC_TANGENT), CELLC_OK) << cellc_last_error();
    ASSERT_EQ(gpu.run(CELLC_TANGENT), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(gpu.touched, "");
    const auto written = [&](const std::map<std::string, Array>& arrays) {
      NamedArrays all;
      for (const StateUpdate& u : cell.graph.updates)
        if (const Symbol& state = cell.graph.symbol_of(u); state.lag_of < 0)
          for (const char* part : {"", ".final"})
            all.emplace_back(state.name + part, arrays.at("tangent." + state.name + part));
      for (const Out& out : cell.graph.outs) all.emplace_back(out.name, arrays.at("tangent." + out.name));
      return all;
    };
    EXPECT_LE(largest_error(written(gpu.arrays), written(cpu.arrays)), dtype == Dtype::F64 ? 1e-9 : 1e-4);
  }
}
INSTANTIATE_TEST_SUITE_P(Cells, DifferentiatedOnGpu, testing::ValuesIn(kCases), [](const auto& info) {
  return fmt::format("{}_{}_{}", info.param.file, info.param.cell, static_cast<int>(info.param.dtype));
});

/// A start that follows from params, and copies that start as it does: derivatives flow through all of them.
const std::string kFollowing = R"(cell follow[d] {
  state h[d] = 2*a*fall
  input x[d]
  param a[d], fall = 0.125, slope[d] = 0.75
  h' = tanh(slope*h + 0.5*lag(h, 2)*x) - fall*h
  out y = h*a + lag(x, 1)
}
)";

/// The same through a delay line, which is longer than its parts.
const std::string kFollowingFar = R"(cell follow[d] {
  state h[d] = 2*a*fall
  input x[d]
  param a[d], fall = 0.125, slope[d] = 0.75
  h' = tanh(slope*h + 0.5*lag(h, 2)*x + 0.25*lag(h, 18)*a) - fall*h
  out y = h*a + lag(x, 1)
}
)";

class BackwardOnEmulator : public OnEmulator {
 protected:
  struct Following {
    const std::string& text;
    std::int64_t steps, deepest;
  };
  const std::vector<Following> both_ = {{kFollowing, 9, 2}, {kFollowingFar, 25, 18}};
  /// After a forward run on the CPU: a call with cotangents of y and of the final state.
  NamedCall call(cellc_kernel* on_gpu) { return call(on_gpu, both_[0]); }
  NamedCall call(cellc_kernel* on_gpu, const Following& of) {
    cellc_kernel* const cpu = compiled(of.text, nullptr, "cpu", CELLC_F32);
    NamedCall c{.kernel = cpu, .shape = shape_of(lengths_, 2, of.steps)};
    const auto fill = [&](const char* name, std::vector<std::int64_t> shape) {
      Array& array = c.arrays[name] = Array(Dtype::F32, std::move(shape));
      for (std::int64_t i = 0; i < array.count(); ++i)
        array.set(i, std::sin(0.7 * static_cast<double>(i + 1) + name[0]));
    };
    fill("x", {2, of.steps, 3});
    fill("a", {3});
    EXPECT_EQ(c.run(CELLC_FORWARD), CELLC_OK) << cellc_last_error();
    fill("cotangent.y", {2, of.steps, 3});
    fill("cotangent.h.final", {2, 3});
    cpu_ = c;
    EXPECT_EQ(cpu_.run(CELLC_BACKWARD), CELLC_OK) << cellc_last_error();
    c.kernel = on_gpu;
    c.gpu = emulator_.get();
    return c;
  }
  void expect_the_cpus(const NamedCall& found) const {
    for (const auto& [name, want] : cpu_.arrays) {
      if (!name.starts_with("gradient.") || found.unwanted.contains(name)) continue;
      for (std::int64_t i = 0; i < want.count(); ++i)
        ASSERT_NEAR(found.arrays.at(name).get(i), want.get(i), 1e-4 * (1 + std::fabs(want.get(i)))) << name << " " << i;
    }
  }
  const std::int64_t lengths_[1] = {3};
  NamedCall cpu_;
};

TEST_F(BackwardOnEmulator, FlowsThroughDefaultsAlsoWhereTheirGradientsAreNotWanted) {
  for (const Following& of : both_) {
    cellc_kernel* const kernel = compiled(of.text, nullptr, "cuda", CELLC_F32);
    NamedCall c = call(kernel, of);
    ASSERT_EQ(c.run(CELLC_BACKWARD), CELLC_OK) << cellc_last_error();
    expect_the_cpus(c);
    for (const char* name : {"gradient.h.start", "gradient.slope", "gradient.x", "gradient.h.lag"})
      c.unwanted.insert(name);
    ASSERT_EQ(c.run(CELLC_BACKWARD), CELLC_OK) << cellc_last_error();
    expect_the_cpus(c);
  }
}

TEST_F(BackwardOnEmulator, IsCapturedOnceACallOfItsKindWasMade) {
  for (const Following& of : both_) {
    cellc_kernel* const kernel = compiled(of.text, nullptr, "cuda", CELLC_F32);
    NamedCall c = call(kernel, of);
    ASSERT_EQ(c.run(CELLC_BACKWARD), CELLC_OK) << cellc_last_error();
    const Emulator::Counts first = emulator_->counts();
    ASSERT_EQ(c.run(CELLC_BACKWARD), CELLC_OK) << cellc_last_error();
    // The arrays of the test itself, and their copies back.
    EXPECT_LE(emulator_->counts().allocations - first.allocations, cellc_call_array_count(kernel, CELLC_BACKWARD));
    EXPECT_LE(emulator_->counts().synchronisations - first.synchronisations,
              cellc_call_array_count(kernel, CELLC_BACKWARD));
    c.captured = 5;
    ASSERT_EQ(c.run(CELLC_BACKWARD), CELLC_OK) << cellc_last_error();
    expect_the_cpus(c);
    cellc_report report;
    cellc_report_init(&report);
    EXPECT_EQ(c.run(CELLC_BACKWARD, &report), CELLC_WRONG_USAGE);
    EXPECT_NE(std::string(cellc_last_error()).find("cannot wait"), std::string::npos) << cellc_last_error();
  }
}

TEST_F(BackwardOnEmulator, IsRefusedWhereTheForwardRunHasNotConvergedAndSomebodyWaits) {
  cellc_kernel* const kernel = compiled(kFollowing, nullptr, "cuda", CELLC_F32);
  NamedCall c = call(kernel);
  const GpuBuffer status(*emulator_, 8);
  const std::int32_t bad[] = {0, 1};
  emulator_->copy_in(status.address(), bad, sizeof bad, 0);
  const auto* at = reinterpret_cast<const std::int32_t*>(status.address());
  cellc_report report;
  cellc_report_init(&report);
  EXPECT_EQ(c.run(CELLC_BACKWARD, &report, at), CELLC_NOT_CONVERGED);
  EXPECT_NE(std::string(cellc_last_error()).find("sequence 1"), std::string::npos) << cellc_last_error();
  EXPECT_EQ(c.run(CELLC_BACKWARD, nullptr, at), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(c.run(CELLC_BACKWARD, nullptr, bad), CELLC_WRONG_INPUT) << "memory of the host";
}

TEST_F(BackwardOnEmulator, FourThreadsOnOneKernel) {
  cellc_kernel* const kernel = compiled(kFollowing, nullptr, "cuda", CELLC_F32);
  NamedCall c = call(kernel);
  std::vector<NamedCall> calls(4, c);
  std::vector<std::string> errors(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 2; ++k)
        if (calls[i].run(CELLC_BACKWARD) != CELLC_OK) errors[i] = cellc_last_error();
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(errors, std::vector<std::string>(4));
  for (const NamedCall& found : calls) expect_the_cpus(found);
}

TEST_F(BackwardOnEmulator, TangentsFlowThroughDefaultsToo) {
  for (const Following& of : both_) {
    cellc_kernel* const kernel = compiled(of.text, nullptr, "cuda", CELLC_F32);
    NamedCall c = call(kernel, of);
    for (const char* name : {"tangent.a", "tangent.x", "tangent.h.lag"}) {
      Array& array = c.arrays[name] = Array(Dtype::F32, name[8] == 'a'   ? std::vector<std::int64_t>{3}
                                                        : name[8] == 'x' ? std::vector<std::int64_t>{2, of.steps, 3}
                                                                         : std::vector<std::int64_t>{2, of.deepest, 3});
      for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, std::cos(0.3 * static_cast<double>(i)));
    }
    NamedCall want = c;
    want.kernel = cpu_.kernel;
    want.gpu = nullptr;
    ASSERT_EQ(want.run(CELLC_TANGENT), CELLC_OK) << cellc_last_error();
    for (const bool captured : {false, true}) {
      c.captured = captured ? 5 : 0;
      ASSERT_EQ(c.run(CELLC_TANGENT), CELLC_OK) << cellc_last_error();
      for (const char* name : {"tangent.h", "tangent.y", "tangent.h.final"})
        for (std::int64_t i = 0; i < want.arrays.at(name).count(); ++i) {
          const double w = want.arrays.at(name).get(i);
          ASSERT_NEAR(c.arrays.at(name).get(i), w, 1e-4 * (1 + std::fabs(w))) << name << " " << i;
        }
    }
  }
}

TEST_F(BackwardOnEmulator, StreamsOfACpuAreRefused) {
  NamedCall c = call(nullptr);
  c = cpu_;
  c.stream_on_cpu = true;
  for (const cellc_direction direction : {CELLC_BACKWARD, CELLC_TANGENT}) {
    EXPECT_EQ(c.run(direction), CELLC_WRONG_USAGE);
    EXPECT_NE(std::string(cellc_last_error()).find("has no streams"), std::string::npos) << cellc_last_error();
  }
}

}  // namespace
}  // namespace cellc
