// What one run of a prepared call has of its own, by cellc_apply_prepared: the numbers and statuses of a call of the
// kernel that is asked for the same.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/capi/kept_handles.h"
#include "tests/capi/requested_call.h"

namespace {

// It forgets slowly; g reads what h was.
const std::string kSlow = R"(cell slow[d] {
  state h[d], g[d]
  input x[d]
  param a[d]
  h' = 0.995*h + 0.005*tanh(a*h + x)
  g' = 0.5*g + lag(h, 1)*lag(x, 2)
  out y = sum[d](h'*g')
}
)";
const std::int64_t kLengths[] = {3};

class PreparedOptions : public KeptHandles {
 protected:
  cellc_kernel* kernel_of(const std::string& text, cellc_dtype dtype = CELLC_F64) {
    cellc_options options;
    cellc_options_init(&options);
    options.dtype = dtype;
    options.threads = 1;
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(text.data(), text.size(), &options, &kernel), CELLC_OK) << cellc_last_error();
    kernels_.push_back(kernel);
    return kernel;
  }
  cellc_call* prepared(cellc_kernel* kernel, const cellc_shape& shape, cellc_direction direction) {
    if (direction == CELLC_FORWARD) return prepare(kernel, shape);
    cellc_call* call = nullptr;
    EXPECT_EQ(cellc_prepare_backward(kernel, &shape, &call), CELLC_OK) << cellc_last_error();
    calls_.push_back(call);
    return call;
  }
};

struct Pool {
  int calls = 0;
  static void run(void* self, void (*task)(void*, int), void* data, int tasks) {
    ++static_cast<Pool*>(self)->calls;
    for (int i = tasks - 1; i >= 0; --i) task(data, i);
  }
};

TEST_F(PreparedOptions, RunsGoAsIsAskedFor) {
  cellc_kernel* kernel = kernel_of(kSlow);
  const cellc_shape shape = shape_of(kLengths, 2, 12000);
  cellc_call* call = prepared(kernel, shape, CELLC_FORWARD);
  Pool pool;
  int stop = 1;
  // `solver`: what the report names then; `like`: what a call of the kernel has to be asked for besides.
  const auto expect_alike = [&](auto change, const char* solver, auto like, cellc_status want = CELLC_OK) {
    RequestedCall plain(kernel, CELLC_FORWARD, shape), run(kernel, CELLC_FORWARD, shape);
    cellc_call_options options, of_plain;
    cellc_call_options_init(&options);
    change(options);
    of_plain = options;
    like(of_plain);
    plain.request.options = &of_plain;
    run.request.options = &options;
    EXPECT_EQ(plain.run(), want) << cellc_last_error();
    ASSERT_EQ(cellc_apply_prepared(call, &run.request), want) << cellc_last_error();
    if (want == CELLC_CANCELLED) return;
    for (const auto& [name, memory] : run.of) EXPECT_EQ(memory, plain.of[name]) << name;
    EXPECT_EQ(run.status, plain.status);
    EXPECT_EQ(run.first_bad, plain.first_bad);
    EXPECT_EQ(run.report.iterations, plain.report.iterations);
    EXPECT_EQ(run.report.verified, plain.report.verified);
    EXPECT_STREQ(run.stages().at(0).solver, solver);
  };
  const auto same = [](cellc_call_options&) {};
  const auto step_by_step = [](cellc_call_options& o) { o.solver = "sequential"; };
  using Options = cellc_call_options;
  expect_alike(same, "sequential", step_by_step);
  expect_alike([](Options& o) { o.solver = "sequential"; }, "sequential", same);
  expect_alike([](Options& o) { o.has_tolerance = 1; }, "sequential", step_by_step);
  expect_alike([](Options& o) { o.max_iterations = 7; }, "sequential", step_by_step);
  expect_alike([](Options& o) { o.threads = 3; }, "sequential", step_by_step);
  expect_alike([](Options& o) { o.threads = 2, o.solver = "segmented"; }, "segmented", same);
  expect_alike([&](Options& o) { o.threads = 2, o.run_tasks = Pool::run, o.pool = &pool; }, "sequential", step_by_step);
  EXPECT_GT(pool.calls, 1);
  expect_alike([](Options& o) { o.solver = "newton"; }, "newton", same);
  expect_alike([](Options& o) { o.solver = "newton", o.fixed_iterations = 1; }, "newton", same, CELLC_NOT_CONVERGED);
  expect_alike([](Options& o) { o.solver = "newton", o.verify = 1; }, "newton", same);
  RequestedCall planned(kernel, CELLC_FORWARD, shape);
  Options segmented;
  cellc_call_options_init(&segmented);
  segmented.solver = "segmented";
  planned.request.options = &segmented;
  ASSERT_EQ(planned.run(), CELLC_OK) << cellc_last_error();
  const std::string plan = planned.report.plan;
  expect_alike([&](Options& o) { o.plan = plan.c_str(); }, "segmented", same);
  expect_alike([&](Options& o) { o.cancel = &stop; }, "", step_by_step, CELLC_CANCELLED);
  const int on = 0;
  expect_alike([&](Options& o) { o.cancel = &on; }, "sequential", step_by_step);
  // The call itself has not changed.
  RequestedCall after(kernel, CELLC_FORWARD, shape);
  ASSERT_EQ(cellc_apply_prepared(call, &after.request), CELLC_OK);
  EXPECT_STREQ(after.stages().at(0).solver, "sequential");
}

// The driver's own numbers against the reference, finals over starts: as far as f32 is from f64 for the same arrays.
TEST_F(PreparedOptions, WhatTheDriverWroteIsVerified) {
  cellc_kernel *narrow = kernel_of(kSlow, CELLC_F32), *wide = kernel_of(kSlow);
  const cellc_shape shape = shape_of(kLengths, 2, 300);
  RequestedCall exact(wide, CELLC_FORWARD, shape), run(narrow, CELLC_FORWARD, shape);
  std::map<std::string, std::vector<float>> memory;
  for (std::size_t i = 0; i < run.views.size(); ++i) {
    cellc_array_info info;
    ASSERT_EQ(cellc_array_describe(narrow, static_cast<int>(i), &info), CELLC_OK);
    cellc_call_array_info of;
    cellc_call_array_info_init(&of);
    ASSERT_EQ(cellc_call_array_describe(narrow, CELLC_FORWARD, static_cast<int>(i), &of), CELLC_OK);
    std::vector<float>& own = memory[of.name];
    for (double& v : exact.of[of.name]) own.push_back(static_cast<float>(v)), v = own.back();
    run.views[i] = {own.data(), CELLC_F32, 0, nullptr, nullptr};
  }
  for (std::size_t i = 0; i < run.views.size(); ++i)
    for (const char* state : {"h", "g"})
      if (run.views[i].data == memory[std::string(state) + ".final"].data())
        run.views[i].data = memory[std::string(state) + ".start"].data();
  cellc_call_options options;
  cellc_call_options_init(&options);
  options.verify = 1;
  run.request.options = &options;
  ASSERT_EQ(exact.run(), CELLC_OK) << cellc_last_error();
  ASSERT_EQ(cellc_apply_prepared(prepared(narrow, shape, CELLC_FORWARD), &run.request), CELLC_OK) << cellc_last_error();
  double far = 0;
  const auto look = [&](const std::string& name, std::size_t entries) {
    const std::vector<double>& want = exact.of[name];
    const std::size_t of_sequence = want.size() / 2;
    for (std::size_t s = 0; s < 2; ++s)
      for (std::size_t e = 0; e < entries; ++e) {
        double size = 0;
        for (std::size_t i = e; i < of_sequence; i += entries)
          size = std::max(size, std::fabs(want[s * of_sequence + i]));
        for (std::size_t i = e; i < of_sequence; i += entries) {
          const double b = want[s * of_sequence + i];
          far = std::max(far, std::fabs(memory[name][s * of_sequence + i] - b) / (size + std::fabs(b)));
        }
      }
  };
  look("h", 3);
  look("g", 3);
  look("y", 1);
  EXPECT_GT(far, 1e-9);
  EXPECT_NEAR(run.report.verified, far, 1e-3 * far);
  EXPECT_LT(run.report.verified, 1e-5);
}

TEST_F(PreparedOptions, OfABackwardCall) {
  const std::string plain = "cell plain[d] {\n  state h[d]\n  input x[d]\n  param a[d]\n  h' = tanh(a*h + x)\n}\n";
  cellc_kernel* kernel = kernel_of(plain);
  const cellc_shape shape = shape_of(kLengths, 3, 5000);
  cellc_call* call = prepared(kernel, shape, CELLC_BACKWARD);
  const auto run = [&](auto change, cellc_status want) {
    RequestedCall made(kernel, CELLC_BACKWARD, shape);
    cellc_call_options options;
    cellc_call_options_init(&options);
    change(options);
    made.request.options = &options;
    EXPECT_EQ(cellc_apply_prepared(call, &made.request), want) << cellc_last_error();
    return made.of["gradient.x"];
  };
  Pool pool;
  int stop = 1;
  const std::vector<double> own = run([](auto&) {}, CELLC_OK);
  const std::vector<double> pooled =
      run([&](auto& o) { o.threads = 2, o.run_tasks = Pool::run, o.pool = &pool; }, CELLC_OK);
  EXPECT_GT(pool.calls, 0);
  for (std::size_t i = 0; i < own.size(); ++i) ASSERT_NEAR(pooled[i], own[i], 1e-9) << i;
  run([&](auto& o) { o.cancel = &stop; }, CELLC_CANCELLED);
  run([](auto& o) { o.solver = "newton"; }, CELLC_WRONG_USAGE);
  run([](auto& o) { o.verify = 1; }, CELLC_WRONG_USAGE);
}

TEST_F(PreparedOptions, ParamsOfSequencesAndFreedKernels) {
  cellc_kernel* kernel = kernel_of(kSlow);
  const cellc_shape shape = shape_of(kLengths, 2, 40);
  cellc_call* call = prepared(kernel, shape, CELLC_FORWARD);
  const std::int64_t lengths[] = {2, 3};
  std::vector<double> a = {0.5, 0.25, 0.125, 1, 2, 3};
  RequestedCall plain(kernel, CELLC_FORWARD, shape), run(kernel, CELLC_FORWARD, shape);
  for (RequestedCall* one : {&plain, &run})
    one->views[static_cast<std::size_t>(cellc_array_find(kernel, "a"))] = {a.data(), CELLC_F64, 2, lengths, nullptr};
  ASSERT_EQ(plain.run(), CELLC_OK) << cellc_last_error();
  cellc_kernel_free(kernel);
  kernels_.clear();
  ASSERT_EQ(cellc_apply_prepared(call, &run.request), CELLC_OK) << cellc_last_error();
  EXPECT_STREQ(run.stages().at(0).solver, "sequential");
  for (const char* name : {"h", "g", "y", "h.final"}) EXPECT_EQ(run.of[name], plain.of[name]) << name;
}

TEST_F(PreparedOptions, MistakesAreRefused) {
  cellc_kernel* kernel = kernel_of(kSlow);
  const cellc_shape shape = shape_of(kLengths, 1, 30);
  cellc_call* call = prepared(kernel, shape, CELLC_FORWARD);
  const auto refused = [&](auto change, const char* word) {
    RequestedCall run(kernel, CELLC_FORWARD, shape);
    run.of["h"].assign(run.of["h"].size(), 77);
    cellc_call_options options;
    cellc_call_options_init(&options);
    change(options, run.request);
    run.request.options = &options;
    const cellc_status status = cellc_apply_prepared(call, &run.request);
    EXPECT_TRUE(status == CELLC_WRONG_USAGE || status == CELLC_WRONG_INPUT) << status;
    EXPECT_NE(std::string(cellc_last_error()).find(word), std::string::npos) << cellc_last_error();
    for (const double v : run.of["h"]) EXPECT_EQ(v, 77);
  };
  refused([](auto& o, auto&) { o.size = 0; }, "size");
  refused([](auto& o, auto&) { o.size = sizeof o + 8; }, "later version");
  refused([](auto& o, auto&) { o.threads = -1; }, "-1 threads");
  refused([](auto& o, auto&) { o.has_tolerance = 1, o.tolerance = NAN; }, "tolerance of nan");
  refused([](auto& o, auto&) { o.solver = "magic"; }, "magic");
  refused([](auto& o, auto&) { o.solver = "scan"; }, "neither linear");
  refused([](auto& o, auto&) { o.plan = "[]"; }, "options.plan");
  refused([](auto& o, auto&) { o.max_iterations = -2; }, "-2 iterations");
  refused([](auto& o, auto& r) { o.verify = 1, r.report = nullptr; }, "verify");
  refused([](auto& o, auto& r) { o.solver = "newton", o.verify = 1, r.report = nullptr; }, "verify");
  refused([](auto& o, auto& r) { o.solver = "newton", --r.count; }, "number of arrays");
  refused([](auto& o, auto& r) { o.solver = "newton", r.arrays = nullptr; }, "null pointer");
}

}  // namespace
