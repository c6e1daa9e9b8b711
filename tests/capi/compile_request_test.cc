// Compiling for one kind of call, in every direction, before the first of them; and that it is refused like the call.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/kept_handles.h"
#include "tests/capi/requested_call.h"

namespace {

namespace fs = std::filesystem;

const std::string kSlow = R"(cell slow[d] {
  state h[d]
  input x[d]
  param a[d] = 0.5
  h' = 0.9*h + 0.1*tanh(a*h + x)
  out y = sum[d](h')
}
)";
const std::int64_t kLengths[] = {8};

class CompileRequest : public KeptHandles {
 protected:
  void SetUp() override {
    cache_ = testing::TempDir() + "cellc-request-" + std::to_string(getpid());
    fs::remove_all(cache_);
  }
  void TearDown() override {
    KeptHandles::TearDown();
    fs::remove_all(cache_);
  }
  cellc_kernel* kernel_of(const std::string& text) {
    cellc_options options;
    cellc_options_init(&options);
    options.dtype = CELLC_F64;
    options.cache_dir = cache_.c_str();
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(text.data(), text.size(), &options, &kernel), CELLC_OK) << cellc_last_error();
    kernels_.push_back(kernel);
    return kernel;
  }
  /// Whatever is compiled is kept there, under a name of its own; so are measured costs, which are small.
  int compiled() const {
    int files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(cache_))
      files += entry.is_regular_file() && entry.file_size() > 2000;
    return files;
  }
  std::string cache_;
};

TEST_F(CompileRequest, ThenNothingIsCompiled) {
  for (const char* file : {"01_para_gru", "06_sru", "02_para_lstm", "03_gru"}) {
    std::ifstream in(std::string(CELLC_SOURCE_DIR "/dsl-examples/") + file + ".cell");
    std::ostringstream text;
    text << in.rdbuf();
    for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT}) {
      SCOPED_TRACE(testing::Message() << file << " " << direction);
      cellc_kernel* kernel = kernel_of(text.str());
      const std::vector<std::int64_t> lengths(static_cast<std::size_t>(cellc_axis_count(kernel)), 8);
      const cellc_shape some = shape_of(lengths.data(), 1, 1);
      RequestedCall ahead(kernel, direction, some);
      const auto before = ahead.of;
      ASSERT_EQ(cellc_compile_request(kernel, &ahead.request), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(ahead.of, before);
      const int files = compiled();
      EXPECT_GT(files, 0);
      for (const std::int64_t steps : {1, 700, 9000}) {
        const cellc_shape shape = shape_of(lengths.data(), 2, steps);
        RequestedCall call(kernel, direction, shape);
        ASSERT_EQ(call.run(), CELLC_OK) << cellc_last_error();
        EXPECT_EQ(compiled(), files) << steps << " steps: " << call.report.plan;
      }
    }
  }
}

// Of what a call with options may need, and arrays need no memory.
TEST_F(CompileRequest, OfACallWithOptions) {
  cellc_kernel* kernel = kernel_of(kSlow);
  const cellc_shape shape = shape_of(kLengths, 2, 5000);
  for (const bool planned : {false, true}) {
    RequestedCall call(kernel, CELLC_FORWARD, shape);
    cellc_call_options options;
    cellc_call_options_init(&options);
    if (planned)
      options.plan = R"({"stages": [{"solver": "segmented", "segment": 250, "burn_in": 60}]})";
    else
      options.solver = "segmented";
    int cancel = 1;  // says nothing of compiling
    options.cancel = &cancel;
    call.request.options = &options;
    std::vector<cellc_view> views = call.views;
    for (cellc_view& v : views)
      if (v.data) v.data = reinterpret_cast<void*>(64);
    call.request.arrays = views.data();
    ASSERT_EQ(cellc_compile_request(kernel, &call.request), CELLC_OK) << cellc_last_error();
    const int files = compiled();
    call.request.arrays = call.views.data();
    cancel = 0;
    ASSERT_EQ(call.run(), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(compiled(), files) << call.report.plan;
    EXPECT_NE(std::string(call.report.plan).find("segmented"), std::string::npos);
  }
}

TEST_F(CompileRequest, IsRefusedLikeTheCall) {
  cellc_kernel* kernel = kernel_of(kSlow);
  const cellc_shape shape = shape_of(kLengths, 2, 30);
  const auto refused = [&](auto change, cellc_status want, const char* says) {
    RequestedCall call(kernel, CELLC_BACKWARD, shape);
    cellc_call_options options;
    cellc_call_options_init(&options);
    call.request.options = &options;
    change(call, options);
    EXPECT_EQ(cellc_compile_request(kernel, &call.request), want) << says;
    EXPECT_NE(std::string(cellc_last_error()).find(says), std::string::npos) << cellc_last_error();
  };
  EXPECT_EQ(cellc_compile_request(nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_compile_request(kernel, nullptr), CELLC_WRONG_USAGE);
  refused([](auto& c, auto&) { c.request.size = 0; }, CELLC_WRONG_USAGE, "size");
  refused([](auto& c, auto&) { c.request.size = 4096; }, CELLC_WRONG_USAGE, "later version");
  refused([](auto& c, auto&) { c.request.shape = nullptr; }, CELLC_WRONG_USAGE, "null");
  refused([](auto& c, auto&) { c.request.arrays = nullptr; }, CELLC_WRONG_USAGE, "null");
  refused([](auto& c, auto&) { c.request.count = 2; }, CELLC_WRONG_USAGE, "number of arrays");
  refused([](auto& c, auto&) { c.request.direction = 5; }, CELLC_WRONG_USAGE, "direction");
  refused([](auto& c, auto&) { c.request.on_stream = 1, c.request.stream = &c; }, CELLC_WRONG_USAGE, "no streams");
  refused([](auto&, auto& o) { o.solver = "newton"; }, CELLC_WRONG_USAGE, "of forward calls");
  refused([](auto&, auto& o) { o.threads = -1; }, CELLC_WRONG_USAGE, "-1 threads");
  refused(
      [&](auto& c, auto&) {
        c.views[static_cast<std::size_t>(
                    cellc_call_array_find(kernel, CELLC_BACKWARD, CELLC_IS_VALUE, CELLC_ROLE_STATE, "h"))]
            .data = nullptr;
      },
      CELLC_WRONG_INPUT, "array h: is a null pointer");
  RequestedCall call(kernel, CELLC_FORWARD, shape);
  cellc_call_options options;
  cellc_call_options_init(&options);
  options.solver = "scan";
  call.request.options = &options;
  EXPECT_EQ(cellc_compile_request(kernel, &call.request), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_SOLVER);
  kernels_.pop_back();
  cellc_kernel_free(kernel);
  EXPECT_EQ(cellc_compile_request(kernel, &call.request), CELLC_WRONG_USAGE);
  EXPECT_STREQ(cellc_last_error(), "the kernel was freed before");
}

TEST_F(CompileRequest, WhileOtherThreadsCall) {
  cellc_kernel* kernel = kernel_of(kSlow);
  const cellc_shape shape = shape_of(kLengths, 2, 400);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      const cellc_direction direction = i % 2 ? CELLC_BACKWARD : CELLC_FORWARD;
      RequestedCall call(kernel, direction, shape);
      EXPECT_EQ(i < 2 ? cellc_compile_request(kernel, &call.request) : call.run(), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(call.run(), CELLC_OK) << cellc_last_error();
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace
