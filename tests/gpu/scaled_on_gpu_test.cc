// What is promised on a GPU does not depend on units either: as tests/engines/scaled_test.cc for every strategy, from
// host arrays and on arrays of a caller, where nobody looks at whole steps afterwards. And of quiet data every step
// follows from the rows before it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "runtime/cuda/build/kernel_templates.h"
#include "tests/engines/homogeneous.h"
#include "tests/engines/promises.h"
#include "tests/gpu/call_setting.h"
#include "tests/gpu/emulated.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

/// The same run on arrays of a caller.
RunOutput called(Device& device, const LoweredCell& cell, const SourceText& source, Dtype dtype, const BoundRun& run,
                 const SolveOptions& options, SolveReport& report) {
  Binding binding;
  binding.run = run;
  binding.dtype = dtype;
  binding.packed = true;
  binding.batch = static_cast<std::int64_t>(run.offsets.size()) - 1;
  binding.length = run.offsets.back();
  CallArrays arrays(*device.gpu, cell.graph, binding, dtype, {});
  Calls calls(*device.gpu, cell, &source, dtype, arrays.shape(), options);
  calls.pool.run(arrays.arrays(), 0, arrays.status(), &report);
  return arrays.read(binding);
}

StepRecheck recheck_on(Device& device, const LoweredCell& cell, Dtype dtype, const SourceText& source) {
  auto solver = std::make_shared<CudaSolver>(*device.gpu, cell.graph, cell.structure, dtype, &source);
  return {cell.graph, [solver](const BoundRun& run) {
            SolveOptions options;
            options.solver = Strategy::Sequential;
            SolveReport report;
            return solver->run(run, options, report);
          }};
}

/// Powers of two by which numbers of a type can be scaled and stay normal.
std::vector<int> powers_of(Dtype dtype) {
  return dtype == Dtype::F16 ? std::vector<int>{0, -2, 9} : std::vector<int>{0, -30, 30};
}

std::string failure(const Homogeneous& of, Dtype dtype, bool calls, const HomogeneousShape& shape) {
  return try_cell(of.text, [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    Device device = open_device();
    const std::vector<int> powers = powers_of(dtype);
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
    const StepRecheck recheck = recheck_on(device, cell, dtype, source);
    for (const Forced& f : forced(solver, cell, homogeneous_run(cell.graph, dtype, 0, shape).sizes)) {
      std::vector<RunOutput> outputs;
      for (const int power : powers) {
        const BoundRun run = homogeneous_run(cell.graph, dtype, power, shape);
        // Of its own: in which order threads run follows from the launches before, and a solver learns. Where both
        // write a boundary's sides at the same time, the last bits depend on the order.
        Device alike = open_device();
        alike.reorder(7);
        CudaSolver fresh(*alike.gpu, cell.graph, cell.structure, dtype, &source);
        SolveReport report;
        outputs.push_back(calls ? called(alike, cell, source, dtype, run, f.options, report)
                                : fresh.run(run, f.options, report));
        std::string wrong = size_of(dtype) == 2 || f.strategy == Strategy::Sequential
                                ? ""
                                : broken_promise(recheck, run, outputs.back(), report, default_tolerance(dtype));
        if (wrong.empty()) wrong = not_scaled(outputs[0], outputs.back(), power - powers[0]);
        if (!wrong.empty()) return fmt::format("{}, 2^{}: {}", to_string(f.strategy), power, wrong);
      }
    }
    return {};
  });
}

class ScaledOnGpu : public testing::TestWithParam<Homogeneous> {};

TEST_P(ScaledOnGpu, ByPowersOfTwo) {
  turns::Turn turn;
  for (const bool calls : turn.of(std::vector{true, false}))
    for (const Dtype dtype : turn.of(std::vector{Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16})) {
      HomogeneousShape shape{{420, 0, 130}, 3, 70};
      if (size_of(dtype) == 2) shape.least = 0.25;
      EXPECT_EQ(failure(GetParam(), dtype, calls, shape), "") << to_string(dtype) << (calls ? ", calls" : "");
    }
}

/// A peak of 1e-9 that is held for long: far below the tolerance, and all that there is.
const Homogeneous kPeak{"peak",
                        "cell peak[d] {\n  state v[d]\n  input u[d], g[d]\n"
                        "  v' = where(abs(u) > v, abs(u), v - 1e-4*v*g)\n}\n"};

/// By how much rows of a call are off at most, over what a plain loop makes of the same data.
double quiet_error(const SourceText& source, const LoweredCell& cell, const SolveOptions& options) {
  Device device = open_device();
  const HomogeneousShape shape{{1500, 700}, 2, 120, 0, 0.01};
  const BoundRun run = homogeneous_run(cell.graph, Dtype::F32, -30, shape);
  SolveReport report;
  const RunOutput output = called(device, cell, source, Dtype::F32, run, options, report);
  std::map<std::string, const Array*> symbols;
  for (std::size_t i = 0; i < run.symbols.size(); ++i) symbols[cell.graph.symbols[i].name] = &run.symbols[i];
  double most = 0;
  for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s)
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      double v = 0;
      for (std::int64_t t = run.offsets[s]; t < run.offsets[s + 1]; ++t) {
        const std::int64_t at = t * shape.channels + c;
        const double u = symbols.at("u")->get(at), g = symbols.at("g")->get(at);
        v = u > v ? u : v - 1e-4 * v * g;
        most = std::max(most, std::fabs(output.states[0].get(at) - v) / v);
      }
    }
  return most;
}

TEST(QuietOnGpu, SignalsAreRightInCalls) {
  const std::string wrong = try_cell(kPeak.text, [](const SourceText& source, const LoweredCell& cell) -> std::string {
    for (const Strategy strategy : {Strategy::Auto, Strategy::Segmented, Strategy::Shooting}) {
      SolveOptions options;
      options.solver = strategy;
      if (const double error = quiet_error(source, cell, options); !(error <= 1e-4))
        return fmt::format("{}: off by {} of a row", to_string(strategy), error);
    }
    return {};
  });
  EXPECT_EQ(wrong, "");
}

// Who does not care about such a signal says so, of all states or of one, and then nothing of it is looked at.
TEST(QuietOnGpu, WhatIsToleratedBesidesReachesKernels) {
  const std::string wrong = try_cell(kPeak.text, [](const SourceText& source, const LoweredCell& cell) -> std::string {
    SolveOptions all, one;
    all.solver = one.solver = Strategy::Segmented;
    all.absolute_tolerance = one.absolute_tolerances["v"] = 1e-6;
    for (const SolveOptions& options : {all, one})
      if (const double error = quiet_error(source, cell, options); !(error > 0.1))
        return fmt::format("off by {} of a row only", error);
    one.absolute_tolerances["v"] = 1e-16;
    const double error = quiet_error(source, cell, one);
    return error <= 1e-4 ? "" : fmt::format("off by {}", error);
  });
  EXPECT_EQ(wrong, "");
}

// Where |s| and the size add up to more than the largest number: a third is a third.
TEST(LargeOnGpu, ResidualsOfTheLargestNumbers) {
  const auto gpu = open_emulator();
  std::string text = "#define CELLC_STORAGE_F32 1\n";
  for (const char* part : {"preamble.cuh", "math.cuh", "stub_traits.cuh", "stub_cell.cuh", "lanes.cuh", "sweep.cuh",
                           "maps.cuh", "semirings.cuh", "transitions.cuh", "segments.cuh"})
    text += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  text += R"(
extern "C" __global__ void kernel(float* x) {
  x[3] = cellc::relative_difference(x[0], x[1], x[2]);
  x[4] = cellc::are_near(x[0], x[1], 0.5f, x[2]);
  x[5] = cellc::are_near(x[0], x[1], 0.25f, x[2]);
})";
  const GpuFunction kernel = compile(*gpu, text);
  for (const float size : {1e-30f, 1e-5f, 1.0f, 1e38f, 2e38f, 3e38f}) {
    const auto x = upload(*gpu, std::vector<float>{size * 0.3333f, size, size, 0, 0, 0});
    launch(*gpu, kernel, shape(1, 1), x.address());
    const auto result = download<float>(*gpu, x);
    EXPECT_NEAR(result[3], 1.0 / 3, 1e-3) << size;
    EXPECT_EQ(result[4], 1) << size;
    EXPECT_EQ(result[5], 0) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, ScaledOnGpu, testing::ValuesIn(homogeneous_cells()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cellc
