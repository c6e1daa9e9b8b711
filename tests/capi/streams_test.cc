// Calls on a stream, of a kernel of the CPU: the null stream is there as it is on a GPU, and calls on it are made at
// once, so that a program may be the same for both.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/capi/kept_handles.h"
#include "tests/capi/requested_call.h"

namespace {

const std::string kCell = R"(cell slow[d] {
  state h[d]
  input x[d]
  param a[d]
  h' = 0.995*h + 0.005*tanh(a*h + x)
  out y = sum[d](h')
}
)";
const std::int64_t kLengths[] = {3};

class StreamsOfTheCpu : public KeptHandles {
 protected:
  void SetUp() override {
    kernel_ = KeptHandles::compile(kCell, nullptr, [](cellc_options& o) { o.dtype = CELLC_F64; });
  }
  static std::vector<cellc_array> arrays_of(RequestedCall& call) {
    std::vector<cellc_array> arrays;
    for (const cellc_view& v : call.views) arrays.push_back({v.data, 1 << 20, v.dtype, 0, 0});
    return arrays;
  }
  cellc_kernel* kernel_ = nullptr;
  const cellc_shape shape_ = shape_of(kLengths, 2, 3000);
};

TEST_F(StreamsOfTheCpu, TheNullStreamIsAtOnce) {
  int own = 0;
  void* const stream = &own;
  for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT}) {
    SCOPED_TRACE(direction);
    RequestedCall plain(kernel_, direction, shape_), queued(kernel_, direction, shape_),
        run(kernel_, direction, shape_);
    ASSERT_EQ(plain.run(), CELLC_OK) << cellc_last_error();
    std::vector<std::int32_t> status(2, 9);
    queued.request.on_stream = 1;
    queued.request.status = status.data();
    queued.request.report = nullptr;
    ASSERT_EQ(queued.run(), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(queued.of, plain.of);
    const std::vector<std::int32_t> want(2, direction == CELLC_FORWARD ? 0 : 9);
    EXPECT_EQ(status, want);

    const std::vector<cellc_array> arrays = arrays_of(run);
    const int count = static_cast<int>(arrays.size());
    status.assign(2, 9);
    const auto on = [&](void* stream_) {
      return direction == CELLC_FORWARD
                 ? cellc_forward_on(kernel_, &shape_, arrays.data(), count, stream_, status.data(), nullptr)
             : direction == CELLC_BACKWARD
                 ? cellc_backward_on(kernel_, &shape_, arrays.data(), count, stream_, nullptr, nullptr)
                 : cellc_tangent_on(kernel_, &shape_, arrays.data(), count, stream_, nullptr, nullptr);
    };
    EXPECT_EQ(on(stream), CELLC_WRONG_USAGE);
    EXPECT_NE(std::string(cellc_last_error()).find("has no streams"), std::string::npos);
    EXPECT_EQ(status, std::vector<std::int32_t>(2, 9));
    ASSERT_EQ(on(nullptr), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(run.of, plain.of);
    EXPECT_EQ(status, want);
    EXPECT_EQ(cellc_compile_request(kernel_, &queued.request), CELLC_OK) << cellc_last_error();
    queued.request.stream = stream;
    EXPECT_EQ(cellc_compile_request(kernel_, &queued.request), CELLC_WRONG_USAGE);
    EXPECT_EQ(cellc_apply(kernel_, &queued.request), CELLC_WRONG_USAGE);
  }
}

TEST_F(StreamsOfTheCpu, PreparedCalls) {
  cellc_call* call = prepare(kernel_, shape_);
  RequestedCall plain(kernel_, CELLC_FORWARD, shape_), queued(kernel_, CELLC_FORWARD, shape_),
      run(kernel_, CELLC_FORWARD, shape_);
  ASSERT_EQ(cellc_apply_prepared(call, &plain.request), CELLC_OK) << cellc_last_error();
  std::vector<std::int32_t> status(2, 9);
  queued.request.on_stream = 1;
  queued.request.status = status.data();
  ASSERT_EQ(cellc_apply_prepared(call, &queued.request), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(queued.of, plain.of);
  EXPECT_EQ(status, std::vector<std::int32_t>(2, 0));
  const std::vector<cellc_array> arrays = arrays_of(run);
  status.assign(2, 9);
  cellc_report report;
  cellc_report_init(&report);
  ASSERT_EQ(cellc_run_on(call, arrays.data(), static_cast<int>(arrays.size()), nullptr, status.data(), &report),
            CELLC_OK)
      << cellc_last_error();
  EXPECT_EQ(run.of, plain.of);
  EXPECT_EQ(status, std::vector<std::int32_t>(2, 0));
  EXPECT_EQ(report.converged, 1);
  EXPECT_GE(report.stages, 1);
  report.size = 8;
  EXPECT_EQ(cellc_run_on(call, arrays.data(), static_cast<int>(arrays.size()), nullptr, nullptr, &report),
            CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_run_on(call, arrays.data(), static_cast<int>(arrays.size()), &report, nullptr, nullptr),
            CELLC_WRONG_USAGE);
  queued.request.stream = &report;
  EXPECT_EQ(cellc_apply_prepared(call, &queued.request), CELLC_WRONG_USAGE);
}

// Which sequences have not converged, without a report; prepared ones with options likewise.
TEST_F(StreamsOfTheCpu, StatusesOfWhatHasNotConverged) {
  cellc_call_options options;
  cellc_call_options_init(&options);
  options.solver = "newton";
  options.fixed_iterations = 1;
  cellc_call* call = prepare(kernel_, shape_);
  for (const bool prepared : {false, true}) {
    RequestedCall queued(kernel_, CELLC_FORWARD, shape_);
    std::vector<std::int32_t> status(2, 9);
    queued.request.on_stream = 1;
    queued.request.status = status.data();
    queued.request.options = &options;
    queued.request.report = nullptr;
    EXPECT_EQ(prepared ? cellc_apply_prepared(call, &queued.request) : queued.run(), CELLC_NOT_CONVERGED);
    EXPECT_EQ(status, std::vector<std::int32_t>(2, 1));
  }
}

}  // namespace
