// What a host controls and is told: its own memory, workspaces, trimming; options, the text's hash, and plans as JSON.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cellc.h"
#include "tests/capi/kept_handles.h"
#include "tests/capi/shell.h"

namespace {

const std::string kText = "cell sums[d] {\n  state h[d]\n  input x[d]\n  param a[d]\n  h' = tanh(a*h) + x\n}\n";
constexpr std::int64_t kD = 24, kSteps = 2000;
const std::int64_t kLengths[] = {kD};

/// Memory that knows what was taken of it.
struct Counted {
  std::mutex mutex;
  std::unordered_map<void*, std::size_t> taken;
  std::size_t most = 0, now = 0;
  int until_none = -1;  ///< so many more allocations succeed
  bool wrong = false;   ///< something was released that was not taken, or as another size

  static void* allocate(void* self, std::size_t bytes, std::size_t alignment) {
    auto& c = *static_cast<Counted*>(self);
    const std::lock_guard lock(c.mutex);
    if (c.until_none == 0) return nullptr;
    if (c.until_none > 0) --c.until_none;
    void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    c.taken[memory] = bytes;
    c.most = std::max(c.most, c.now += bytes);
    return memory;
  }
  static void release(void* self, void* memory, std::size_t bytes) {
    auto& c = *static_cast<Counted*>(self);
    const std::lock_guard lock(c.mutex);
    const auto found = c.taken.find(memory);
    c.wrong = c.wrong || found == c.taken.end() || found->second != bytes;
    if (found == c.taken.end()) return;
    c.now -= bytes;
    c.taken.erase(found);
    std::free(memory);
  }
};

class Memory : public KeptHandles {
 protected:
  void TearDown() override {
    KeptHandles::TearDown();
    EXPECT_EQ(memory_.now, 0u);
    EXPECT_FALSE(memory_.wrong);
  }
  cellc_kernel* compiled(const cellc_options& options) {
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(kText.data(), kText.size(), &options, &kernel), CELLC_OK) << cellc_last_error();
    kernels_.push_back(kernel);
    if (!kernel) return kernel;
    const auto set = [&](const char* name, std::vector<float>& of) {
      arrays_[cellc_array_find(kernel, name)] = {of.data(), static_cast<std::int64_t>(of.size()), CELLC_F32, 0, 0};
    };
    set("x", x_);
    set("a", a_);
    set("h", h_);
    return kernel;
  }
  cellc_options own_memory() {
    cellc_options options;
    cellc_options_init(&options);
    options.threads = 2;
    options.allocate = Counted::allocate;
    options.release = Counted::release;
    options.allocator = &memory_;
    return options;
  }
  bool right() const {
    double before = 0;
    for (std::size_t t = 0; t < kSteps; ++t) {
      before = std::tanh(0.5 * before) + 0.25;
      if (std::fabs(h_[t * kD + 7] - before) > 1e-5) return false;
    }
    return true;
  }
  void clear() { std::fill(h_.begin(), h_.end(), 0.0f); }

  Counted memory_;
  cellc_shape shape_ = shape_of(kLengths, 1, kSteps);
  std::vector<float> x_ = std::vector<float>(kD * kSteps, 0.25f), a_ = std::vector<float>(kD, 0.5f),
                     h_ = std::vector<float>(kD * kSteps);
  cellc_array arrays_[5] = {};
};

TEST_F(Memory, ComesFromTheCaller) {
  cellc_kernel* kernel = compiled(own_memory());
  // Columns of steps: the call works on copies of x and h.
  const std::int64_t turned[] = {0, 1, kSteps};
  cellc_view views[5] = {};
  for (int i = 0; i < 5; ++i) views[i] = {arrays_[i].data, CELLC_F32, 3, nullptr, nullptr};
  views[cellc_array_find(kernel, "x")].strides = views[cellc_array_find(kernel, "h")].strides = turned;
  cellc_request request;
  cellc_request_init(&request);
  request.shape = &shape_;
  request.arrays = views;
  request.count = 5;
  ASSERT_EQ(cellc_apply(kernel, &request), CELLC_OK) << cellc_last_error();
  EXPECT_GE(memory_.most, 2 * kD * kSteps * sizeof(float));
  EXPECT_EQ(h_[7 * kSteps + 1], std::tanh(0.5f * 0.25f) + 0.25f);
  ASSERT_EQ(cellc_forward(kernel, &shape_, arrays_, 5, nullptr), CELLC_OK) << cellc_last_error();
  EXPECT_TRUE(right());
  clear();
  cellc_call* call = prepare(kernel, shape_);
  std::int64_t bytes = 0;
  ASSERT_EQ(cellc_call_workspace(call, &bytes), CELLC_OK);
  EXPECT_GT(bytes, 0);
  const std::size_t kept = memory_.now;
  ASSERT_EQ(cellc_call_trim(call), CELLC_OK);
  EXPECT_EQ(memory_.now, kept - static_cast<std::size_t>(bytes));
  ASSERT_EQ(cellc_run(call, arrays_, 5), CELLC_OK) << cellc_last_error();
  EXPECT_TRUE(right());
  EXPECT_EQ(memory_.now, kept);
}

// More at once than a call keeps memory for, while another thread gives back what is idle and memory is short at times.
TEST_F(Memory, OfManyRunsAtOnceIsOfOneEach) {
  cellc_kernel* kernel = compiled(own_memory());
  const std::int64_t steps = 6;
  cellc_call* call = prepare(kernel, shape_of(kLengths, 1, steps));
  const int h = cellc_array_find(kernel, "h");
  ASSERT_EQ(cellc_run(call, arrays_, 5), CELLC_OK) << cellc_last_error();
  const std::vector<float> want(h_.begin(), h_.begin() + steps * kD);
  const std::size_t kept = memory_.taken.size();
  // A run that found no memory leaves no trace: more of them than there are places.
  ASSERT_EQ(cellc_call_trim(call), CELLC_OK);
  memory_.until_none = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(cellc_run(call, arrays_, 5), CELLC_DEVICE_FAILED);
    ASSERT_EQ(cellc_last_error_kind(), CELLC_ERROR_MEMORY);
  }
  memory_.until_none = -1;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cellc_run(call, arrays_, 5), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(memory_.taken.size(), kept);
  }
  std::atomic<int> waiting = 90, wrong = 0;
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  for (int i = waiting; i-- > 0;)
    threads.emplace_back([&] {
      std::vector<float> own(static_cast<std::size_t>(steps) * kD);
      std::vector<cellc_array> arrays(arrays_, arrays_ + 5);
      arrays[static_cast<std::size_t>(h)] = {own.data(), steps * kD, CELLC_F32, 0, 0};
      for (--waiting; waiting > 0;) std::this_thread::yield();
      for (int k = 0; k < 50; ++k) {
        std::fill(own.begin(), own.end(), 0.0f);
        wrong += cellc_run(call, arrays.data(), 5) != CELLC_OK || own != want;
      }
    });
  std::thread trims([&] {
    while (!over) wrong += cellc_call_trim(call) != CELLC_OK;
  });
  for (std::thread& t : threads) t.join();
  over = true;
  trims.join();
  EXPECT_EQ(wrong, 0);
  ASSERT_EQ(cellc_call_trim(call), CELLC_OK);
  EXPECT_EQ(memory_.taken.size(), kept - 1);
}

// What a prepared call has copied of views is not kept when it refuses the next one: the allocator may be gone before
// the thread's next call.
TEST_F(Memory, OfCopiesIsGivenBackWhereARunIsRefused) {
  cellc_kernel* kernel = compiled(own_memory());
  cellc_call* call = prepare(kernel, shape_);
  const std::int64_t turned[] = {0, 1, kSteps}, far[] = {0, INT64_MAX, 1};
  cellc_view views[5] = {};
  for (int i = 0; i < 5; ++i) views[i] = {arrays_[i].data, CELLC_F32, 3, nullptr, nullptr};
  views[cellc_array_find(kernel, "a")].rank = 1;
  views[cellc_array_find(kernel, "x")].strides = turned;
  views[cellc_array_find(kernel, "h")].strides = far;
  const std::size_t kept = memory_.now;
  EXPECT_EQ(cellc_run_views(call, views, 5), CELLC_WRONG_INPUT) << cellc_last_error();
  EXPECT_EQ(memory_.now, kept);
  // Refused only after all arrays were read.
  views[cellc_array_find(kernel, "h")].strides = turned;
  cellc_request request;
  cellc_request_init(&request);
  request.arrays = views;
  request.count = 5;
  cellc_call_options options;
  cellc_call_options_init(&options);
  options.verify = 1;
  request.options = &options;
  EXPECT_EQ(cellc_apply_prepared(call, &request), CELLC_WRONG_USAGE) << cellc_last_error();
  EXPECT_EQ(memory_.now, kept);
}

TEST_F(Memory, IsGivenBackWhenTrimmed) {
  cellc_kernel* kernel = compiled(own_memory());
  const int count = cellc_call_array_count(kernel, CELLC_BACKWARD);
  std::vector<float> ones(h_.size(), 1), gradient(h_.size());
  std::vector<cellc_array> backward(static_cast<std::size_t>(count));
  const auto set = [&](cellc_quantity quantity, cellc_role role, const char* owner, std::vector<float>& of) {
    const int i = cellc_call_array_find(kernel, CELLC_BACKWARD, quantity, role, owner);
    backward[static_cast<std::size_t>(i)] = {of.data(), static_cast<std::int64_t>(of.size()), CELLC_F32, 0, 0};
  };
  set(CELLC_IS_VALUE, CELLC_ROLE_INPUT, "x", x_);
  set(CELLC_IS_VALUE, CELLC_ROLE_PARAM, "a", a_);
  set(CELLC_IS_VALUE, CELLC_ROLE_STATE, "h", h_);
  set(CELLC_IS_COTANGENT, CELLC_ROLE_STATE, "h", ones);
  set(CELLC_IS_GRADIENT, CELLC_ROLE_INPUT, "x", gradient);
  std::vector<float> first;
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(cellc_forward(kernel, &shape_, arrays_, 5, nullptr), CELLC_OK) << cellc_last_error();
    EXPECT_TRUE(right());
    ASSERT_EQ(cellc_backward(kernel, &shape_, backward.data(), count, nullptr, nullptr), CELLC_OK);
    if (again == 0) first = gradient;
    EXPECT_EQ(gradient, first);
    ASSERT_EQ(cellc_kernel_trim(kernel), CELLC_OK);
    EXPECT_EQ(memory_.now, 0u);
    clear();
  }
  EXPECT_EQ(cellc_kernel_trim(nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_call_trim(nullptr), CELLC_WRONG_USAGE);
}

TEST_F(Memory, ThatThereIsNotIsAStatus) {
  cellc_options options = own_memory();
  cellc_kernel* kernel = compiled(options);
  cellc_call *call = prepare(kernel, shape_), *none = nullptr;
  ASSERT_EQ(cellc_call_trim(call), CELLC_OK);
  memory_.until_none = 0;
  EXPECT_EQ(cellc_run(call, arrays_, 5), CELLC_DEVICE_FAILED);
  EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_MEMORY);
  EXPECT_EQ(cellc_prepare(kernel, &shape_, &none), CELLC_DEVICE_FAILED);
  EXPECT_EQ(none, nullptr);
  for (const int allocations : {0, 1, 2, 3}) {
    memory_.until_none = allocations;
    const cellc_status status = cellc_forward(kernel, &shape_, arrays_, 5, nullptr);
    if (status != CELLC_OK) {
      EXPECT_EQ(status, CELLC_DEVICE_FAILED);
      EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_MEMORY) << cellc_last_error();
    }
  }
  memory_.until_none = -1;
  clear();
  EXPECT_EQ(cellc_forward(kernel, &shape_, arrays_, 5, nullptr), CELLC_OK) << cellc_last_error();
  EXPECT_TRUE(right());
  options.release = nullptr;
  cellc_kernel* refused = nullptr;
  EXPECT_EQ(cellc_compile_text(kText.data(), kText.size(), &options, &refused), CELLC_WRONG_USAGE);
  EXPECT_STREQ(cellc_last_error(), "options: allocate and release are needed both, or neither");
}

TEST_F(Memory, OfAWorkspaceMayBeTheCallers) {
  cellc_options options;
  cellc_options_init(&options);
  cellc_call* call = prepare(compiled(options), shape_);
  std::int64_t bytes = 0;
  ASSERT_EQ(cellc_call_workspace(call, &bytes), CELLC_OK);
  std::vector<unsigned char> memory(static_cast<std::size_t>(bytes) + 256, 0x5a);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  unsigned char* workspace = memory.data() + (64 - address % 64);
  ASSERT_EQ(cellc_run_in(call, arrays_, 5, workspace, bytes), CELLC_OK) << cellc_last_error();
  EXPECT_TRUE(right());
  for (unsigned char* p = workspace + bytes; p < memory.data() + memory.size(); ++p) ASSERT_EQ(*p, 0x5a);
  clear();
  EXPECT_EQ(cellc_run_in(call, arrays_, 5, workspace, bytes - 1), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_run_in(call, arrays_, 5, workspace + 8, bytes), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_run_in(call, arrays_, 5, nullptr, bytes), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_run_in(nullptr, arrays_, 5, workspace, bytes), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_run_in(call, arrays_, 4, workspace, bytes), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_call_workspace(call, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(h_, std::vector<float>(h_.size()));
}

TEST_F(Memory, KernelsTellOptionsAndHash) {
  std::string cell = "sums", cpu = "x86-64-v3", products = "storage";
  cellc_options options = own_memory();
  options.cell = cell.c_str();
  options.cpu = cpu.c_str();
  options.products = products.c_str();
  options.tolerance = 1e-3;
  cellc_kernel* kernel = compiled(options);
  cell = cpu = products = "other";
  cellc_options found;
  cellc_options_init(&found);
  ASSERT_EQ(cellc_kernel_options(kernel, &found), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(found.size, sizeof found);
  EXPECT_STREQ(found.cell, "sums");
  EXPECT_STREQ(found.cpu, "x86-64-v3");
  EXPECT_STREQ(found.products, "storage");
  EXPECT_EQ(found.device, nullptr);
  EXPECT_EQ(found.tolerance, 1e-3);
  EXPECT_EQ(found.threads, 2);
  EXPECT_EQ(found.allocator, &memory_);
  found.size = 8;
  EXPECT_EQ(cellc_kernel_options(kernel, &found), CELLC_WRONG_USAGE);
  cellc_kernel_info info;
  info.size = sizeof info;
  ASSERT_EQ(cellc_kernel_describe(kernel, &info), CELLC_OK);
  const Outcome sum = shell("printf '%s' \"" + kText + "\" | sha256sum");
  EXPECT_EQ(sum.text.substr(0, 64), info.hash);
  // The struct of the first version has no hash.
  info.hash = "mine";
  info.size = offsetof(cellc_kernel_info, hash);
  ASSERT_EQ(cellc_kernel_describe(kernel, &info), CELLC_OK);
  EXPECT_STREQ(info.hash, "mine");
}

TEST_F(Memory, PlansAreReportedAndFollowed) {
  cellc_options options;
  cellc_options_init(&options);
  options.plan = R"({"stages": [{"solver": "segmented", "segment": 250, "burn_in": 60}]})";
  cellc_kernel* pinned = compiled(options);
  cellc_report report;
  cellc_report_init(&report);
  EXPECT_STREQ(report.plan, "");
  ASSERT_EQ(cellc_forward(pinned, &shape_, arrays_, 5, &report), CELLC_OK) << cellc_last_error();
  EXPECT_TRUE(right());
  const std::string plan = report.plan;
  EXPECT_EQ(plan,
            R"({"reason":"pinned by options.plan","stages":[{"burn_in":60,"segment":250,"solver":"segmented"}]})");
  options.plan = plan.c_str();
  cellc_kernel* again = compiled(options);
  const std::vector<float> first = h_;
  clear();
  ASSERT_EQ(cellc_forward(again, &shape_, arrays_, 5, &report), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(report.plan, plan);
  EXPECT_EQ(h_, first);
  // A report of the first version has no plan.
  report.plan = "mine";
  report.size = offsetof(cellc_report, plan);
  ASSERT_EQ(cellc_forward(again, &shape_, arrays_, 5, &report), CELLC_OK) << cellc_last_error();
  EXPECT_STREQ(report.plan, "mine");
  for (const char* wrong : {"", "{", "[]", R"({"stages": []})", R"({"stages": [{"solver": "auto"}]})",
                            R"({"stages": [{"solver": "segmented", "segment": -1}]})"}) {
    options.plan = wrong;
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(kText.data(), kText.size(), &options, &kernel), CELLC_WRONG_INPUT) << wrong;
    EXPECT_NE(std::string(cellc_last_error()).find("options.plan: "), std::string::npos) << cellc_last_error();
  }
}

}  // namespace
