// What calls of every kind say of how they went: stages, the first step that has not converged, the first that is not
// finite, the cache.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tests/capi/kept_handles.h"
#include "tests/capi/requested_call.h"

namespace {

// h passes on to g what is not finite, one step later.
const std::string kTwo = R"(cell two[d] {
  state h[d], g[d]
  input x[d]
  param a[d]
  h' = a*h + x
  g' = 0.5*g + lag(x, 1)
  out y = h'*g'
}
)";
const std::string kNonlinear = "cell bent {\n  state h\n  input x\n  h' = 0.8*tanh(h) + x\n}\n";
const double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kD = 2;
const std::int64_t kLengths[] = {kD};

using Steps = std::vector<std::int64_t>;

class Reports : public KeptHandles {
 protected:
  cellc_kernel* kernel_of(const std::string& text, const char* solver, void (*change)(cellc_options&) = nullptr) {
    cellc_options options;
    cellc_options_init(&options);
    options.dtype = CELLC_F64;
    options.solver = solver;
    options.threads = 1;
    if (change) change(options);
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(text.data(), text.size(), &options, &kernel), CELLC_OK) << cellc_last_error();
    kernels_.push_back(kernel);
    return kernel;
  }
  cellc_call* prepare_backward(cellc_kernel* kernel, const cellc_shape& shape) {
    cellc_call* call = nullptr;
    EXPECT_EQ(cellc_prepare_backward(kernel, &shape, &call), CELLC_OK) << cellc_last_error();
    calls_.push_back(call);
    return call;
  }
};

TEST_F(Reports, EveryKindOfCallNamesItsStages) {
  const std::string text =
      "cell two[d] {\n  state h[d], g[d]\n  input x[d]\n  param a[d]\n  h' = a*h + x\n"
      "  g' = 0.5*g + h'\n}\n";
  cellc_kernel* kernel = kernel_of(text, "scan");
  const cellc_shape shape = shape_of(kLengths, 3, 500);
  const auto expect_whole = [](const RequestedCall& call, const char* solver) {
    const std::vector<cellc_stage> stages = call.stages();
    EXPECT_EQ(call.report.converged, 1);
    EXPECT_EQ(call.report.cache, CELLC_CACHE_OFF);
    EXPECT_GE(stages.size(), 1u);
    double residual = 0;
    for (const cellc_stage& s : stages) {
      EXPECT_STREQ(s.solver, solver);
      EXPECT_STRNE(s.reason, "");
      residual = std::max(residual, s.max_residual);
    }
    EXPECT_EQ(residual, call.report.max_residual);
    EXPECT_EQ(call.first_bad, Steps(3, -1));
    EXPECT_EQ(call.first_non_finite, Steps(3, -1));
    EXPECT_EQ(call.status, std::vector<std::int32_t>(3, 0));
    EXPECT_GE(call.report.run_ms, 0);
    EXPECT_GT(call.report.compile_ms, 0);
  };
  RequestedCall forward(kernel, CELLC_FORWARD, shape), prepared(kernel, CELLC_FORWARD, shape);
  ASSERT_EQ(forward.run(), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(forward.report.stages, 2);
  expect_whole(forward, "scan");
  prepared.request.shape = nullptr;  // as the call has it
  prepared.request.direction = 77;
  ASSERT_EQ(cellc_apply_prepared(prepare(kernel, shape), &prepared.request), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(prepared.report.stages, 2);
  expect_whole(prepared, "sequential");
  EXPECT_EQ(prepared.report.iterations, 0);
  EXPECT_NE(std::string(prepared.report.plan).find("\"sequential\""), std::string::npos) << prepared.report.plan;
  for (std::size_t i = 0; i < forward.of["g"].size(); ++i)
    ASSERT_NEAR(prepared.of["g"][i], forward.of["g"][i], 1e-10) << i;

  for (const cellc_direction direction : {CELLC_BACKWARD, CELLC_TANGENT}) {
    RequestedCall call(kernel, direction, shape);
    for (const char* state : {"h", "g"}) call.of[state] = forward.of[state];
    for (std::size_t i = 0; i < call.views.size(); ++i) {
      cellc_call_array_info info;
      cellc_call_array_info_init(&info);
      cellc_call_array_describe(kernel, direction, static_cast<int>(i), &info);
      call.views[i].data = call.of[info.name].data();
    }
    ASSERT_EQ(call.run(), CELLC_OK) << cellc_last_error();
    EXPECT_GE(call.report.stages, 1);
    EXPECT_EQ(call.first_non_finite, Steps(3, -1));
    EXPECT_EQ(call.first_bad, Steps(3, -1));
    for (const cellc_stage& s : call.stages()) EXPECT_STRNE(s.solver, "");
    if (direction == CELLC_TANGENT) continue;
    const std::vector<double> want = call.of["gradient.x"];
    Steps none(3, 9);
    call.first_non_finite = none;
    ASSERT_EQ(cellc_apply_prepared(prepare_backward(kernel, shape), &call.request), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(call.report.stages, 1);
    expect_whole(call, "sequential");
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(call.of["gradient.x"][i], want[i], 1e-9) << i;
    const std::int32_t bad[] = {0, 0, 1};
    call.request.forward_status = bad;
    EXPECT_EQ(cellc_apply_prepared(calls_.back(), &call.request), CELLC_NOT_CONVERGED);
  }
}

// x is not finite at one step of each sequence but the second, in one channel; g sees it a step later, y = h*g too.
TEST_F(Reports, TheFirstStepThatIsNotFinite) {
  cellc_kernel* kernel = kernel_of(kTwo, "sequential");
  const std::int64_t offsets[] = {0, 7, 12, 12, 20};
  for (const bool packed : {false, true})
    for (const int reverse : {0, 1})
      for (const bool prepared : {false, true})
        for (const bool of_g : {false, true}) {
          SCOPED_TRACE(testing::Message() << packed << reverse << prepared << of_g);
          cellc_shape shape = shape_of(kLengths, 4, 9);
          shape.reverse = reverse;
          if (packed) shape.offsets = offsets;
          RequestedCall call(kernel, CELLC_FORWARD, shape);
          const auto begin = [&](std::int64_t s) { return packed ? offsets[s] : 9 * s; };
          const Steps at = {4, -1, -1, 3};
          for (const std::int64_t s : {0, 3})
            call.of["x"][static_cast<std::size_t>((begin(s) + at[static_cast<std::size_t>(s)]) * kD + 1)] =
                s == 0 ? kNaN : kInfinity;
          // What nobody wants is not looked at: then g alone tells, a step later in the order of the run.
          if (of_g)
            for (const char* name : {"h", "y"})
              call.views[static_cast<std::size_t>(cellc_array_find(kernel, name))].data = nullptr;
          ASSERT_EQ(prepared ? cellc_apply_prepared(prepare(kernel, shape), &call.request) : call.run(), CELLC_OK)
              << cellc_last_error();
          Steps want = at;
          if (of_g)
            for (const std::size_t s : {0, 3}) want[s] += reverse ? -1 : 1;
          EXPECT_EQ(call.first_non_finite, want);
          EXPECT_EQ(call.first_bad, Steps(4, -1));
        }
}

// Gradients are made from the last step to the first, so the first that is not finite is the last in time.
TEST_F(Reports, TheFirstGradientThatIsNotFinite) {
  cellc_kernel* kernel = kernel_of(kTwo, "sequential");
  const cellc_shape shape = shape_of(kLengths, 2, 30);
  RequestedCall call(kernel, CELLC_BACKWARD, shape);
  call.of["cotangent.h"][(30 + 11) * kD] = kNaN;
  ASSERT_EQ(call.run(), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(call.first_non_finite, (Steps{-1, 11}));
}

// Newton that stops early: before the step that is named every step is a step of the cell, and at it it is not.
TEST_F(Reports, TheFirstStepThatHasNotConverged) {
  cellc_kernel* kernel = kernel_of(kNonlinear, "newton");
  constexpr std::int64_t kSteps = 400;
  for (const int reverse : {0, 1}) {
    cellc_shape shape = shape_of(nullptr, 2, kSteps);
    shape.reverse = reverse;
    RequestedCall call(kernel, CELLC_FORWARD, shape);
    cellc_call_options options;
    cellc_call_options_init(&options);
    options.fixed_iterations = 2;
    call.request.options = &options;
    ASSERT_EQ(call.run(), CELLC_NOT_CONVERGED) << cellc_last_error();
    EXPECT_EQ(call.stages().at(0).iterations, 2);
    EXPECT_EQ(call.stages().at(0).max_residual, call.report.max_residual);
    for (std::int64_t s = 0; s < 2; ++s) {
      const double *h = &call.of["h"][static_cast<std::size_t>(s * kSteps)],
                   *x = &call.of["x"][static_cast<std::size_t>(s * kSteps)];
      const std::int64_t first = call.first_bad[static_cast<std::size_t>(s)];
      EXPECT_EQ(call.status[static_cast<std::size_t>(s)], 1);
      ASSERT_GT(reverse ? kSteps - 1 - first : first, 0);
      double before = call.of["h.start"][static_cast<std::size_t>(s)];
      for (std::int64_t t = 0; t < kSteps; ++t) {
        const std::int64_t row = reverse ? kSteps - 1 - t : t;
        const double residual = std::fabs(h[row] - (0.8 * std::tanh(before) + x[row]));
        // Over sizes of about 1.
        if (row != first) {
          ASSERT_LE(residual, 5e-12) << row;
        } else {
          EXPECT_GE(residual, 5e-13);
          break;
        }
        before = h[row];
      }
    }
  }
}

TEST_F(Reports, WhetherCodeWasThere) {
  static const std::string cache = testing::TempDir() + "cellc-report-cache";
  std::filesystem::remove_all(cache);
  const cellc_shape shape = shape_of(kLengths, 1, 3);
  for (const cellc_cache want : {CELLC_CACHE_MISS, CELLC_CACHE_HIT}) {
    cellc_kernel* kernel = kernel_of(kTwo, "sequential", [](cellc_options& o) { o.cache_dir = cache.c_str(); });
    RequestedCall call(kernel, CELLC_FORWARD, shape), backward(kernel, CELLC_BACKWARD, shape);
    ASSERT_EQ(call.run(), CELLC_OK);
    EXPECT_EQ(call.report.cache, want);
    ASSERT_EQ(backward.run(), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(backward.report.cache, want);
    ASSERT_EQ(cellc_apply_prepared(prepare(kernel, shape), &call.request), CELLC_OK);
    EXPECT_EQ(call.report.cache, want);
  }
  std::filesystem::remove_all(cache);
}

TEST_F(Reports, OfCallsBySequence) {
  cellc_kernel* kernel = kernel_of(kTwo, "sequential");
  const cellc_shape shape = shape_of(kLengths, 3, 20);
  RequestedCall call(kernel, CELLC_FORWARD, shape);
  const std::vector<double> a = {0.5, 0.25, 0.125, 0.5, 0.25, 0.75};
  const std::int64_t lengths[] = {3, kD};
  call.views[static_cast<std::size_t>(cellc_array_find(kernel, "a"))] = {const_cast<double*>(a.data()), CELLC_F64, 2,
                                                                         lengths, nullptr};
  call.of["x"][(20 + 6) * kD] = kNaN;
  ASSERT_EQ(call.run(), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(call.report.stages, 2);
  EXPECT_STREQ(call.stages()[1].solver, "sequential");
  EXPECT_EQ(call.first_non_finite, (Steps{-1, 6, -1}));
  EXPECT_EQ(call.first_bad, Steps(3, -1));
}

TEST_F(Reports, WhatCannotBeMeant) {
  cellc_kernel* kernel = kernel_of(kTwo, "sequential");
  const cellc_shape shape = shape_of(kLengths, 1, 3);
  RequestedCall call(kernel, CELLC_FORWARD, shape);
  cellc_call* prepared = prepare(kernel, shape);
  ASSERT_EQ(call.run(), CELLC_OK);
  cellc_stage stage{};
  stage.size = sizeof stage;
  for (const int number : {-1, call.report.stages, 1000}) {
    EXPECT_EQ(cellc_report_stage(number, &stage), CELLC_WRONG_USAGE);
    EXPECT_EQ(stage.solver, nullptr);
  }
  EXPECT_EQ(cellc_report_stage(0, nullptr), CELLC_WRONG_USAGE);
  stage.size = 8;
  EXPECT_EQ(cellc_report_stage(0, &stage), CELLC_WRONG_USAGE);

  EXPECT_EQ(cellc_apply_prepared(nullptr, &call.request), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_apply_prepared(prepared, nullptr), CELLC_WRONG_USAGE);
  const auto refused = [&](auto change, cellc_status want = CELLC_WRONG_USAGE) {
    RequestedCall other(kernel, CELLC_FORWARD, shape);
    other.of["h"].assign(other.of["h"].size(), 77);
    change(other);
    EXPECT_EQ(cellc_apply_prepared(prepared, &other.request), want) << cellc_last_error();
    for (const double v : other.of["h"]) EXPECT_EQ(v, 77);
  };
  refused([](RequestedCall& c) { c.request.size = 0; });
  refused([](RequestedCall& c) { c.request.size = sizeof c.request + 8; });
  refused([](RequestedCall& c) { c.request.arrays = nullptr; });
  refused([](RequestedCall& c) { --c.request.count; });
  refused([](RequestedCall& c) { c.report.size = 8; });
  refused([](RequestedCall& c) { c.request.on_stream = 1, c.request.stream = &c; });
  refused([](RequestedCall& c) { c.views[0].dtype = CELLC_F32; }, CELLC_WRONG_INPUT);

  // A report of an earlier version is not written beyond its end.
  call.report.size = offsetof(cellc_report, stages);
  call.report.stages = 55;
  call.report.first_bad = reinterpret_cast<std::int64_t*>(8);
  call.report.first_non_finite = reinterpret_cast<std::int64_t*>(8);
  EXPECT_EQ(call.run(), CELLC_OK);
  EXPECT_EQ(cellc_apply_prepared(prepared, &call.request), CELLC_OK);
  EXPECT_EQ(call.report.stages, 55);
}

}  // namespace
