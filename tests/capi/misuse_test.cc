// Programs that do what they must not: a status, never a crash.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "cellc.h"
#include "tests/capi/every_call.h"
#include "tests/capi/kept_handles.h"
#include "tests/capi/shell.h"

namespace {

const std::string kText = "cell sums[d] {\n  state h[d]\n  input x[d]\n  param a[d]\n  h' = tanh(a*h) + x\n}\n";
constexpr std::int64_t kD = 48, kSteps = 300;
const std::int64_t kLengths[] = {kD};

/// One run of the cell, by itself.
struct OneRun {
  explicit OneRun(int threads = 1) {
    cellc_options options;
    cellc_options_init(&options);
    options.threads = threads;
    EXPECT_EQ(cellc_compile_text(kText.data(), kText.size(), &options, &kernel), CELLC_OK) << cellc_last_error();
    set("x", x);
    set("a", a);
    set("h", h);
  }
  void set(const char* name, std::vector<float>& memory) {
    const int i = cellc_array_find(kernel, name);
    arrays[i] = {memory.data(), static_cast<std::int64_t>(memory.size()), CELLC_F32, 0, 0};
    views[i] = {memory.data(), CELLC_F32, 0, nullptr, nullptr};
  }
  cellc_status forward() { return cellc_forward(kernel, &shape, arrays, 5, nullptr); }
  bool right() const {
    double before = 0;
    for (std::size_t t = 0; t < kSteps; ++t) {
      before = std::tanh(0.5 * before) + 0.25;
      if (std::fabs(h[t * kD + 7] - before) > 1e-5) return false;
    }
    return true;
  }
  cellc_kernel* kernel = nullptr;
  cellc_shape shape = shape_of(kLengths, 1, kSteps);
  std::vector<float> x = std::vector<float>(kD * kSteps, 0.25f), a = std::vector<float>(kD, 0.5f),
                     h = std::vector<float>(kD * kSteps);
  cellc_array arrays[5] = {};
  cellc_view views[5] = {};
};

TEST(Misuse, AHandleThatWasFreedIsRefused) {
  OneRun run;
  cellc_call* call = nullptr;
  ASSERT_EQ(cellc_prepare(run.kernel, &run.shape, &call), CELLC_OK);
  cellc_kernel_free(run.kernel);
  cellc_kernel_free(run.kernel);
  EXPECT_STREQ(cellc_last_error(), "the kernel was freed before");
  EXPECT_EQ(run.forward(), CELLC_WRONG_USAGE);
  EXPECT_STREQ(cellc_last_error(), "the kernel was freed before");
  cellc_request request;
  cellc_request_init(&request);
  request.shape = &run.shape;
  request.arrays = run.views;
  request.count = 5;
  EXPECT_EQ(cellc_apply(run.kernel, &request), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_backward(run.kernel, &run.shape, run.arrays, 5, nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_tangent_on(run.kernel, &run.shape, run.arrays, 5, nullptr, nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_forward_on(run.kernel, &run.shape, run.arrays, 5, nullptr, nullptr, nullptr), CELLC_WRONG_USAGE);
  cellc_call* other = nullptr;
  EXPECT_EQ(cellc_prepare(run.kernel, &run.shape, &other), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_inspect_text(run.kernel), nullptr);
  EXPECT_EQ(cellc_inspect_json(run.kernel), nullptr);
  EXPECT_EQ(cellc_axis_count(run.kernel), -1);
  EXPECT_EQ(cellc_array_count(run.kernel), -1);
  EXPECT_EQ(cellc_axis_find(run.kernel, "d"), -1);
  EXPECT_EQ(cellc_array_find(run.kernel, "x"), -1);
  EXPECT_EQ(cellc_call_array_count(run.kernel, CELLC_BACKWARD), -1);
  cellc_kernel_info info;
  info.size = sizeof info;
  EXPECT_EQ(cellc_kernel_describe(run.kernel, &info), CELLC_WRONG_USAGE);
  cellc_axis axis;
  EXPECT_EQ(cellc_axis_describe(run.kernel, 0, &axis), CELLC_WRONG_USAGE);
  std::int64_t entries = 0;
  EXPECT_EQ(cellc_array_entries(run.kernel, &run.shape, 0, &entries), CELLC_WRONG_USAGE);

  EXPECT_EQ(cellc_run(call, run.arrays, 5), CELLC_OK) << cellc_last_error();  // it keeps what it needs
  EXPECT_TRUE(run.right());
  cellc_call_free(call);
  cellc_call_free(call);
  EXPECT_STREQ(cellc_last_error(), "the call was freed before");
  EXPECT_EQ(cellc_run(call, run.arrays, 5), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_run_views(call, run.views, 5), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_run_on(call, run.arrays, 5, nullptr, nullptr, nullptr), CELLC_WRONG_USAGE);
  cellc_kernel_free(nullptr);
  cellc_call_free(nullptr);
}

TEST(Misuse, ThreadsHaveTheirOwnErrorsAndMayFreeAtOnce) {
  OneRun shared;
  cellc_call* call = nullptr;
  ASSERT_EQ(cellc_prepare(shared.kernel, &shared.shape, &call), CELLC_OK);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      OneRun own;
      cellc_kernel* none = nullptr;
      const std::string text = "cell of_" + std::to_string(i);
      EXPECT_EQ(cellc_compile_text(text.data(), text.size(), nullptr, &none), CELLC_WRONG_INPUT);
      EXPECT_NE(std::string(cellc_last_error()).find(text), std::string::npos) << cellc_last_error();
      EXPECT_EQ(own.forward(), CELLC_OK);
      EXPECT_TRUE(own.right());
      std::fill(own.h.begin(), own.h.end(), 0.0f);
      EXPECT_EQ(cellc_run(call, own.arrays, 5), CELLC_OK);
      EXPECT_EQ(cellc_forward(shared.kernel, &shared.shape, own.arrays, 5, nullptr), CELLC_OK);
      EXPECT_TRUE(own.right());
      cellc_kernel_free(own.kernel);
    });
  for (std::thread& t : threads) t.join();
  threads.clear();
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      cellc_kernel_free(shared.kernel);
      cellc_call_free(call);
    });
  for (std::thread& t : threads) t.join();
}

TEST(Misuse, ForkedProcessesGoOn) {
  OneRun run(2);
  ASSERT_EQ(run.forward(), CELLC_OK) << cellc_last_error();
  cellc_call* call = nullptr;
  ASSERT_EQ(cellc_prepare(run.kernel, &run.shape, &call), CELLC_OK);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::fill(run.h.begin(), run.h.end(), 0.0f);
    if (run.forward() != CELLC_OK || !run.right()) _exit(1);
    std::fill(run.h.begin(), run.h.end(), 0.0f);
    if (cellc_run(call, run.arrays, 5) != CELLC_OK || !run.right()) _exit(2);
    OneRun own(2);
    if (own.forward() != CELLC_OK || !own.right()) _exit(3);
    cellc_kernel_free(own.kernel);
    _exit(0);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "ended by signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  EXPECT_EQ(run.forward(), CELLC_OK);
  EXPECT_TRUE(run.right());
  cellc_call_free(call);
  cellc_kernel_free(run.kernel);
}

// Options, requests, derivatives and what was prepared of a kernel: in the child as in the parent.
TEST(Misuse, ForkedProcessesGoOnWithCallsOfEveryKind) {
  every_handle handle;
  ASSERT_EQ(every_open(&handle, 2), 0) << cellc_last_error();
  ASSERT_EQ(every_call(&handle), 0) << cellc_last_error();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    every_handle own;
    if (every_call(&handle) || every_open(&own, 2) || every_call(&own)) _exit(1);
    every_close(&own);
    every_close(&handle);
    _exit(0);
  }
  ASSERT_GT(child, 0);
  EXPECT_EQ(every_call(&handle), 0) << cellc_last_error();
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "ended by signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  every_close(&handle);
}

TEST(Misuse, TheLibraryIsLoadedAndUnloaded) {
  if (const char* why = not_to_be_loaded()) GTEST_SKIP() << why;
  std::string pattern = testing::TempDir() + "/cellc_unload_XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::string program = pattern + "/program";
  const Outcome built = shell("cc -std=c99 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -I" CELLC_SOURCE_DIR
                              "/capi " CELLC_SOURCE_DIR "/tests/capi/load_and_unload.c -o " +
                              program + " -ldl -lpthread -lm");
  EXPECT_EQ(built.status, 0) << built.text;
  // Threads that a BLAS starts are its own, and stay.
  const Outcome run = shell("OPENBLAS_NUM_THREADS=1 " + program + " " CELLC_BINARY_DIR "/libcellc.so");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(run.text, "done\n");
  std::error_code ignored;
  std::filesystem::remove_all(pattern, ignored);
}

// The same of a kernel of a GPU, by a driver that does nothing: what was compiled, prepared and queued with it.
TEST(Misuse, OnAGpuAForkedChildIsRefusedAndTheLibraryIsUnloaded) {
  if (const char* why = not_to_be_loaded()) GTEST_SKIP() << why;
  std::string pattern = testing::TempDir() + "/cellc_driver_XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  std::filesystem::copy_file(CELLC_FAKE_DRIVER, pattern + "/libcuda.so.1");
  for (const char* name : {"/libnvrtc.so.13.0", "/libnvrtc-builtins.so.13.0"})
    std::filesystem::copy_file(CELLC_FAKE_NVRTC, pattern + name);
  const std::string program = pattern + "/program";
  const Outcome built = shell("cc -std=c99 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -I" CELLC_SOURCE_DIR
                              "/capi " CELLC_SOURCE_DIR "/tests/capi/calls_of_a_driver.c -o " +
                              program + " -ldl");
  EXPECT_EQ(built.status, 0) << built.text;
  const Outcome run = shell("CELLC_LIBRARY=" CELLC_BINARY_DIR "/libcellc.so CELLC_NVRTC=" + pattern +
                            " LD_LIBRARY_PATH=" + pattern + " " + program);
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(run.text, "done\n");
  std::error_code ignored;
  std::filesystem::remove_all(pattern, ignored);
}

}  // namespace
