// What one call has of its own: threads, tolerance, solver, plan, iterations, a reference; that it can be ended, and
// whose threads work for it. And compiling ahead of all calls.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/call_arrays.h"
#include "tests/capi/kept_handles.h"

namespace {

// It forgets slowly, so segments differ from a run step by step within a tolerance.
const std::string kSlow = R"(cell slow[d] {
  state h[d]
  input x[d]
  param a[d]
  h' = 0.995*h + 0.005*tanh(a*h + x)
  out y = sum[d](h')
}
)";
const std::string kDense = R"(cell dense[d] {
  state h[d]
  input x[d]
  param U[d,d]
  h' = tanh(U@h + x)
}
)";

/// A pool of the host: as many tasks at a time as it is asked for, or one after another.
struct Pool {
  bool at_once = true;
  std::atomic<int> calls{0}, tasks{0};
  static void run(void* self, void (*task)(void*, int), void* data, int tasks) {
    Pool& pool = *static_cast<Pool*>(self);
    ++pool.calls;
    pool.tasks += tasks;
    std::vector<std::thread> threads;
    for (int i = tasks - 1; i >= 0; --i) {
      if (pool.at_once)
        threads.emplace_back(task, data, i);
      else
        task(data, i);
    }
    for (std::thread& t : threads) t.join();
  }
};

class CallOptions : public KeptHandles {
 protected:
  cellc_kernel* kernel_of(const std::string& text, const char* solver = nullptr, cellc_dtype dtype = CELLC_F32) {
    cellc_options options;
    cellc_options_init(&options);
    options.dtype = dtype;
    options.solver = solver;
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(text.data(), text.size(), &options, &kernel), CELLC_OK) << cellc_last_error();
    kernels_.push_back(kernel);
    return kernel;
  }

  /// A call on fresh arrays.
  struct Made {
    cellc_status status;
    cellc_report report;
    std::string plan;
    Arrays<float> arrays;
  };
  template <typename Change>
  Made call(cellc_kernel* kernel, const cellc_shape& shape, Change change) {
    Made made{CELLC_OK, {}, "", Arrays<float>(kernel, shape, CELLC_F32)};
    std::vector<cellc_view> views;
    for (const cellc_array& a : made.arrays.table) views.push_back({a.data, a.dtype, 0, nullptr, nullptr});
    cellc_call_options options;
    cellc_call_options_init(&options);
    change(options);
    cellc_report_init(&made.report);
    cellc_request request;
    cellc_request_init(&request);
    request.shape = &shape;
    request.arrays = views.data();
    request.count = static_cast<int>(views.size());
    request.report = &made.report;
    request.options = &options;
    made.status = cellc_apply(kernel, &request);
    if (made.report.plan) made.plan = made.report.plan;
    return made;
  }
};

const std::int64_t kChannels[] = {7};

TEST_F(CallOptions, TheStructsGrow) {
  EXPECT_EQ(cellc_api_require(1, 1), CELLC_OK);
  cellc_kernel* kernel = kernel_of(kSlow);
  const cellc_shape shape = shape_of(kChannels, 2, 30);
  Arrays<float> arrays(kernel, shape, CELLC_F32);
  std::vector<cellc_view> views;
  for (const cellc_array& a : arrays.table) views.push_back({a.data, a.dtype, 0, nullptr, nullptr});
  cellc_request request{};
  request.size = offsetof(cellc_request, options);  // of a program that knows none
  request.shape = &shape;
  request.arrays = views.data();
  request.count = static_cast<int>(views.size());
  request.options = reinterpret_cast<const cellc_call_options*>(8);
  EXPECT_EQ(cellc_apply(kernel, &request), CELLC_OK) << cellc_last_error();
  cellc_call_options zeros{};
  zeros.size = sizeof zeros;
  request.size = sizeof request;
  request.options = &zeros;
  EXPECT_EQ(cellc_apply(kernel, &request), CELLC_OK) << cellc_last_error();
  zeros.size = 0;
  EXPECT_EQ(cellc_apply(kernel, &request), CELLC_WRONG_USAGE);
}

TEST_F(CallOptions, ToleranceSolverPlanAndIterations) {
  cellc_kernel *kernel = kernel_of(kSlow), *stepwise = kernel_of(kSlow, "sequential");
  const cellc_shape shape = shape_of(kChannels, 1, 20000);
  const auto plain = [](cellc_call_options&) {};
  Made exact = call(stepwise, shape, plain);
  const Made segmented = call(kernel, shape, [](auto& o) { o.solver = "segmented"; });
  ASSERT_EQ(segmented.status, CELLC_OK) << cellc_last_error();
  EXPECT_NE(segmented.plan.find("segmented"), std::string::npos) << segmented.plan;
  EXPECT_EQ(segmented.report.verified, -1);
  // The kernel itself has not changed.
  EXPECT_EQ(call(kernel, shape, plain).plan.find("segmented"), std::string::npos);
  Made zero = call(kernel, shape, [](auto& o) { o.has_tolerance = 1; });
  EXPECT_EQ(zero.arrays.of("h"), exact.arrays.of("h"));
  // The same of a kernel.
  cellc_options options;
  cellc_options_init(&options);
  options.has_tolerance = 1;
  options.solver = "segmented";
  kernels_.push_back(nullptr);
  ASSERT_EQ(cellc_compile_text(kSlow.data(), kSlow.size(), &options, &kernels_.back()), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(call(kernels_.back(), shape, plain).arrays.of("h"), exact.arrays.of("h"));
  EXPECT_NE(call(kernel_of(kSlow, "segmented"), shape, plain).arrays.of("h"), exact.arrays.of("h"));
  const std::string plan = segmented.plan;
  Made pinned = call(kernel, shape, [&](auto& o) { o.plan = plan.c_str(), o.verify = 1; });
  EXPECT_EQ(pinned.status, CELLC_OK) << cellc_last_error();
  EXPECT_NE(pinned.plan.find("segmented"), std::string::npos);
  EXPECT_GT(pinned.report.verified, 0);
  EXPECT_LT(pinned.report.verified, 1e-4);
  // One iteration of Newton leaves a residual, and nobody repairs it.
  Made once = call(kernel, shape, [](auto& o) { o.solver = "newton", o.fixed_iterations = 1, o.verify = 1; });
  EXPECT_EQ(once.status, CELLC_NOT_CONVERGED);
  EXPECT_EQ(once.report.iterations, 1);
  EXPECT_GT(once.report.verified, pinned.report.verified);
  EXPECT_EQ(call(kernel, shape, [](auto& o) { o.solver = "newton"; }).status, CELLC_OK);
}

TEST_F(CallOptions, MistakesAreRefused) {
  cellc_kernel* kernel = kernel_of(kSlow);
  const cellc_shape shape = shape_of(kChannels, 1, 30);
  const auto refused = [&](auto change, const char* word) {
    Made made = call(kernel, shape, change);
    EXPECT_TRUE(made.status == CELLC_WRONG_USAGE || made.status == CELLC_WRONG_INPUT) << made.status;
    EXPECT_NE(std::string(cellc_last_error()).find(word), std::string::npos) << cellc_last_error();
    EXPECT_TRUE(made.arrays.untouched());
  };
  refused([](auto& o) { o.threads = -1; }, "-1 threads");
  refused([](auto& o) { o.has_tolerance = 1, o.tolerance = -1; }, "tolerance of -1");
  refused([](auto& o) { o.has_tolerance = 1, o.tolerance = 1 / 0.0; }, "tolerance of inf");
  refused([](auto& o) { o.solver = "magic"; }, "magic");
  refused([](auto& o) { o.plan = "{"; }, "options.plan");
  refused([](auto& o) { o.fixed_iterations = -2; }, "-2 iterations");
  refused([](auto& o) { o.solver = "scan"; }, "neither linear");
}

TEST_F(CallOptions, ThreadsOfTheHost) {
  for (const std::string& text : {kSlow, kDense})
    for (const char* solver : {"sequential", "segmented", "newton", "relaxation"}) {
      if (text == kSlow && solver == std::string("relaxation")) continue;
      if (text == kDense && solver != std::string("relaxation") && solver != std::string("sequential")) continue;
      SCOPED_TRACE(solver);
      cellc_kernel* kernel = kernel_of(text, solver);
      const std::int64_t channels[] = {64};
      const cellc_shape shape = shape_of(channels, 9, 3000);
      Made own = call(kernel, shape, [](auto& o) { o.threads = 3; });
      ASSERT_EQ(own.status, CELLC_OK) << cellc_last_error();
      for (const bool at_once : {true, false}) {
        Pool pool;
        pool.at_once = at_once;
        Made by_pool = call(kernel, shape, [&](auto& o) { o.threads = 3, o.run_tasks = Pool::run, o.pool = &pool; });
        EXPECT_EQ(by_pool.status, CELLC_OK) << cellc_last_error();
        EXPECT_EQ(by_pool.arrays.of("h"), own.arrays.of("h"));
        EXPECT_GT(pool.calls, 0);
        EXPECT_LE(pool.tasks, 3 * pool.calls);
      }
    }
}

TEST_F(CallOptions, CallsThatAreAskedHaveTheSameBits) {
  for (const cellc_dtype dtype : {CELLC_F32, CELLC_BF16}) {
    cellc_kernel* kernel = kernel_of(kSlow, "sequential", dtype);
    const cellc_shape shape = shape_of(kChannels, 2, 10001);
    const auto run = [&](auto number, bool asked) {
      Arrays<decltype(number)> arrays(kernel, shape, dtype);
      for (const char* name : {"a", "h_start", "h_final"}) arrays.at(name).data = nullptr;
      std::vector<float> a(7, 0.5f), last(14);
      arrays.at("a") = {a.data(), 7, CELLC_F32, 0, 0};
      arrays.at("h_final") = {last.data(), 14, CELLC_F32, 0, 0};
      std::vector<cellc_view> views;
      for (const cellc_array& one : arrays.table) views.push_back({one.data, one.dtype, 0, nullptr, nullptr});
      cellc_call_options options;
      cellc_call_options_init(&options);
      const int cancel = 0;
      if (asked) options.cancel = &cancel;
      cellc_request request;
      cellc_request_init(&request);
      request.shape = &shape;
      request.arrays = views.data();
      request.count = static_cast<int>(views.size());
      request.options = &options;
      EXPECT_EQ(cellc_apply(kernel, &request), CELLC_OK) << cellc_last_error();
      return std::pair(arrays.of("h"), last);
    };
    if (dtype == CELLC_F32)
      EXPECT_EQ(run(float(), true), run(float(), false));
    else
      EXPECT_EQ(run(std::uint16_t(), true), run(std::uint16_t(), false));
  }
}

struct Asked {
  std::int64_t times = 0, last = 0, most = -1;
  std::thread::id thread = std::this_thread::get_id();
  bool same_thread = true, grows = true;
  static int go_on(void* host, std::int64_t rows) {
    Asked& asked = *static_cast<Asked*>(host);
    asked.grows &= rows >= asked.last;
    asked.last = rows;
    asked.same_thread &= std::this_thread::get_id() == asked.thread;
    return asked.most < 0 || ++asked.times <= asked.most;
  }
};

TEST_F(CallOptions, CallsEndWhereTheHostSaysSo) {
  for (const char* solver : {"sequential", "segmented", "newton"})
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(testing::Message() << solver << threads);
      cellc_kernel* kernel = kernel_of(kSlow, solver);
      const cellc_shape shape = shape_of(kChannels, 3, 30000);
      const Made whole = call(kernel, shape, [&](auto& o) { o.threads = threads; });
      Asked all;
      EXPECT_EQ(
          call(kernel, shape, [&](auto& o) { o.threads = threads, o.go_on = Asked::go_on, o.host = &all; }).status,
          CELLC_OK);
      EXPECT_TRUE(all.same_thread && all.grows);
      EXPECT_GT(all.last, 0);
      if (threads == 1) {
        EXPECT_GE(all.last, 3 * 30000);
      }
      Asked some;
      some.most = 2;
      Made ended = call(kernel, shape, [&](auto& o) { o.threads = threads, o.go_on = Asked::go_on, o.host = &some; });
      if (threads == 1) {
        EXPECT_EQ(ended.status, CELLC_CANCELLED);
        EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_CANCELLED);
        EXPECT_EQ(some.times, 3);
      }
      int cancel = 1;
      EXPECT_EQ(call(kernel, shape, [&](auto& o) { o.threads = threads, o.cancel = &cancel; }).status, CELLC_CANCELLED);
      // The kernel is as good as before.
      Made again = call(kernel, shape, [&](auto& o) { o.threads = threads; });
      EXPECT_EQ(again.status, CELLC_OK);
      EXPECT_EQ(again.arrays.memory, whole.arrays.memory);
    }
}

TEST_F(CallOptions, OfABackwardCall) {
  cellc_kernel* kernel = kernel_of(kSlow, "sequential");
  const cellc_shape shape = shape_of(kChannels, 2, 5000);
  const int count = cellc_call_array_count(kernel, CELLC_BACKWARD);
  const auto run = [&](auto change, cellc_status expected) {
    std::vector<std::vector<float>> memory(static_cast<std::size_t>(count));
    std::vector<cellc_view> views;
    for (int i = 0; i < count; ++i) {
      std::int64_t lengths[8], entries = 1;
      int rank = 0;
      EXPECT_EQ(cellc_call_array_shape(kernel, CELLC_BACKWARD, &shape, i, lengths, 8, &rank), CELLC_OK);
      for (int r = 0; r < rank; ++r) entries *= lengths[r];
      memory[static_cast<std::size_t>(i)].assign(static_cast<std::size_t>(entries), 0.25f);
      views.push_back({memory[static_cast<std::size_t>(i)].data(), CELLC_F32, 0, nullptr, nullptr});
    }
    cellc_call_options options;
    cellc_call_options_init(&options);
    change(options);
    cellc_request request;
    cellc_request_init(&request);
    request.direction = CELLC_BACKWARD;
    request.shape = &shape;
    request.arrays = views.data();
    request.count = count;
    request.options = &options;
    EXPECT_EQ(cellc_apply(kernel, &request), expected) << cellc_last_error();
    return memory;
  };
  Pool pool;
  int cancel = 1;
  const auto own = run([](auto& o) { o.threads = 2; }, CELLC_OK);
  EXPECT_EQ(run([&](auto& o) { o.threads = 2, o.run_tasks = Pool::run, o.pool = &pool; }, CELLC_OK), own);
  EXPECT_GT(pool.calls, 0);
  run([&](auto& o) { o.cancel = &cancel; }, CELLC_CANCELLED);
  run([](auto& o) { o.solver = "newton"; }, CELLC_WRONG_USAGE);
  run([](auto& o) { o.verify = 1; }, CELLC_WRONG_USAGE);
}

// A CPU's calls have the same bits each time, so that asking for it changes nothing and refuses nothing.
TEST_F(CallOptions, DeterministicIsNothingNewOnACpu) {
  const cellc_shape shape = shape_of(kChannels, 2, 300);
  for (const char* solver : {"auto", "newton", "segmented"}) {
    cellc_kernel* kernel = kernel_of(kSlow, solver);
    const Made plain = call(kernel, shape, [](auto&) {});
    const Made asked = call(kernel, shape, [](auto& o) { o.deterministic = 1; });
    EXPECT_EQ(asked.status, CELLC_OK);
    EXPECT_EQ(asked.arrays.memory, plain.arrays.memory) << solver;
    EXPECT_EQ(asked.plan, plain.plan) << solver;
  }
  // Options of who does not know of it.
  cellc_kernel* kernel = kernel_of(kSlow, "auto");
  const Made shorter = call(kernel, shape, [](auto& o) { o.size = offsetof(cellc_call_options, deterministic); });
  EXPECT_EQ(shorter.status, CELLC_OK);
  const Made none = call(kernel, shape, [](auto& o) { o.size = offsetof(cellc_call_options, pool); });
  EXPECT_EQ(none.status, CELLC_WRONG_USAGE);
}

// What it leaves is nothing to report; of one state it holds instead of that of all.
TEST_F(CallOptions, AbsoluteTolerancesAreOfAKernel) {
  const cellc_shape shape = shape_of(kChannels, 1, 20000);
  const auto made_with = [&](const char* absolute) {
    cellc_kernel* kernel = compile(kSlow, "cpu", [&](cellc_options& o) {
      o.solver = "segmented";
      o.absolute_tolerance = absolute;
    });
    return call(kernel, shape, [](auto&) {});
  };
  const Made none = made_with(nullptr);
  EXPECT_GT(none.report.max_residual, 0);
  for (const char* zero : {"0", "h=0", "1000,h=0"}) {
    const Made same = made_with(zero);
    EXPECT_EQ(same.report.max_residual, none.report.max_residual) << zero;
    EXPECT_EQ(same.arrays.memory, none.arrays.memory) << zero;
  }
  for (const char* wide : {"1000", "h=1e3", "h=1000,0"}) EXPECT_EQ(made_with(wide).report.max_residual, 0) << wide;
  // Options of who does not know of it.
  cellc_kernel* shorter = compile(kSlow, "cpu", [&](cellc_options& o) {
    o.solver = "segmented";
    o.absolute_tolerance = "1000";
    o.size = offsetof(cellc_options, absolute_tolerance);
  });
  EXPECT_EQ(call(shorter, shape, [](auto&) {}).report.max_residual, none.report.max_residual);
}

TEST_F(CallOptions, AbsoluteTolerancesThatAreNone) {
  const struct {
    const char *given, *message;
  } cases[] = {{"abc", "'abc' is no number from 0 on"},   {"-1", "'-1' is no number from 0 on"},
               {"nan", "'nan' is no number from 0 on"},   {"", "'' is no number from 0 on"},
               {"h=", "'' is no number from 0 on"},       {"1,,2", "'' is no number from 0 on"},
               {"x=1", "no state 'x'; its states are h"}, {"1,inf", "'inf' is no number from 0 on"}};
  for (const auto& c : cases) {
    cellc_options options;
    cellc_options_init(&options);
    options.absolute_tolerance = c.given;
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(kSlow.data(), kSlow.size(), &options, &kernel), CELLC_WRONG_USAGE) << c.given;
    EXPECT_NE(std::string(cellc_last_error()).find(std::string("options.absolute_tolerance '") + c.given + "': "),
              std::string::npos)
        << cellc_last_error();
    EXPECT_NE(std::string(cellc_last_error()).find(c.message), std::string::npos) << cellc_last_error();
  }
}

TEST_F(CallOptions, AfterCompilingAheadNothingIsCompiled) {
  for (const char* file : {"01_para_gru", "06_sru", "02_para_lstm", "03_gru"}) {
    SCOPED_TRACE(file);
    std::ifstream in(std::string(CELLC_SOURCE_DIR "/dsl-examples/") + file + ".cell");
    std::ostringstream text;
    text << in.rdbuf();
    const std::string cache = testing::TempDir() + "cellc-ahead-" + file;
    std::filesystem::remove_all(cache);
    cellc_options options;
    cellc_options_init(&options);
    options.cache_dir = cache.c_str();
    cellc_kernel* kernel = nullptr;
    ASSERT_EQ(cellc_compile_text(text.str().data(), text.str().size(), &options, &kernel), CELLC_OK);
    kernels_.push_back(kernel);
    // Whatever is compiled is kept there, under a name of its own; so are measured costs, which are small.
    const auto compiled = [&] {
      int files = 0;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(cache))
        files += entry.is_regular_file() && entry.file_size() > 2000;
      return files;
    };
    const std::vector<std::int64_t> lengths(static_cast<std::size_t>(cellc_axis_count(kernel)), 8);
    const cellc_shape some = shape_of(lengths.data(), 1, 1);
    ASSERT_EQ(cellc_compile_ahead(kernel, &some, 1), CELLC_OK) << cellc_last_error();
    const int ahead = compiled();
    EXPECT_GT(ahead, 1);
    for (const std::int64_t steps : {1, 700, 20000}) {
      const Made made = call(kernel, shape_of(lengths.data(), 2, steps), [](auto&) {});
      EXPECT_EQ(made.status, CELLC_OK) << cellc_last_error();
      EXPECT_EQ(compiled(), ahead) << steps << " steps: " << made.plan;
    }
    cellc_call* call = prepare(kernel, some);
    EXPECT_NE(call, nullptr);
    EXPECT_EQ(compiled(), ahead);
    std::filesystem::remove_all(cache);
  }
}

}  // namespace
