// Calls that end before time, on a card: skipped where there is none.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi_gpu/arrays_on_gpu.h"

namespace cellc {
namespace {

const std::string kSlow = R"(cell slow[d] {
  state h[d]
  input x[d]
  param a[d]
  h' = 0.9*h + 0.1*tanh(a*h + x)
  out y = h'*lag(x, 1)
}
)";
const std::int64_t kLengths[] = {64};

class OnCard : public KeptHandles {
 protected:
  void SetUp() override {
    std::string reason;
    gpu_ = open_gpu("", reason);
    if (!gpu_) GTEST_SKIP() << reason;
  }
  cellc_kernel* segmented() {
    return KeptHandles::compile(kSlow, "cuda", [](cellc_options& o) {
      o.solver = "segmented";
      o.threads = 0;
    });
  }
  std::unique_ptr<Gpu> gpu_;
};

/// Lets so many kernels be queued; less than 0: all.
struct Host {
  std::int64_t most = -1, asked = 0, last = -1;
  static int go_on(void* self, std::int64_t rows) {
    Host& host = *static_cast<Host*>(self);
    host.last = rows;
    return host.most < 0 || host.asked++ < host.most;
  }
};

TEST_F(OnCard, CallsEndWhereTheHostSaysSo) {
  cellc_kernel* kernel = segmented();
  const cellc_shape shape = shape_of(kLengths, 2, 6000);
  for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT})
    for (const bool reported : {false, true}) {
      SCOPED_TRACE(testing::Message() << direction << reported);
      ReadyOnGpu call(kernel, direction, shape, *gpu_);
      cellc_report report;
      cellc_report_init(&report);
      cellc_report* const to = reported ? &report : nullptr;
      ASSERT_EQ(call.again(nullptr, to), CELLC_OK) << cellc_last_error();
      const std::vector<Bytes> whole = call.written();
      Host host;
      cellc_call_options options;
      cellc_call_options_init(&options);
      options.go_on = Host::go_on;
      options.host = &host;
      call.options = &options;
      ASSERT_EQ(call.again(nullptr, to), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(call.written(), whole);
      const std::int64_t kernels = host.last + 1;
      ASSERT_GT(kernels, 1);
      for (std::int64_t most = 0; most < kernels; ++most) {
        host = {most};
        call.options = &options;
        EXPECT_EQ(call.again(nullptr, to), CELLC_CANCELLED) << most << " of " << kernels;
        EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_CANCELLED);
        call.options = nullptr;
        call.clear();
        ASSERT_EQ(call.again(nullptr, to), CELLC_OK) << cellc_last_error();
        EXPECT_EQ(call.written(), whole) << most;
      }
    }
}

// Another thread sets the number at some time of a call: the call has its results then, or says that it was cancelled.
TEST_F(OnCard, AnotherThreadMayEndACall) {
  cellc_kernel* kernel = segmented();
  const cellc_shape shape = shape_of(kLengths, 2, 6000);
  ReadyOnGpu call(kernel, CELLC_FORWARD, shape, *gpu_);
  cellc_report report;
  cellc_report_init(&report);
  ASSERT_EQ(call.again(nullptr, &report), CELLC_OK) << cellc_last_error();
  const std::vector<Bytes> whole = call.written();
  for (int after = 0; after < 40; ++after) {
    volatile int cancel = 0;
    cellc_call_options options;
    cellc_call_options_init(&options);
    options.cancel = &cancel;
    call.options = &options;
    call.clear();
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(5 * after));
      __atomic_store_n(&cancel, 1, __ATOMIC_RELAXED);
    });
    const cellc_status status = call.again(nullptr, after % 2 ? &report : nullptr);
    other.join();
    if (status == CELLC_OK)
      EXPECT_EQ(call.written(), whole);
    else
      EXPECT_EQ(status, CELLC_CANCELLED) << cellc_last_error();
    call.options = nullptr;
    ASSERT_EQ(call.again(nullptr, &report), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(call.written(), whole);
  }
}

}  // namespace
}  // namespace cellc
