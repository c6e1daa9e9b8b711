// Arrays of the host in calls of a kernel of a GPU, the emulator in its place: what the same call gives on arrays of
// the device.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "capi/cellc.hpp"
#include "tests/capi/requested_call.h"
#include "tests/capi_gpu/arrays_on_gpu.h"

namespace cellc {
namespace {

const std::string kMixed = R"(cell mixed[d, m] {
  state h[d]
  input x[m]
  param W[d,m], a[d] = 0.5
  h' = tanh(a*h + W@x)
  out y = sum[d](h')
}
)";
constexpr std::int64_t kB = 3, kT = 6;
const std::int64_t kLengths[] = {4, 3}, kOffsets[] = {0, 4, 4, 9};

class HostArraysOfAGpu : public EmulatedGpu {
 protected:
  cellc_kernel* mixed(cellc_dtype dtype = CELLC_F64) { return kernel_of(kMixed, dtype, "sequential"); }
  /// On the host as it lies, spread over memory.
  static cellc_status run_on_host(ArraysOnGpu& call, cellc_call* prepared = nullptr) {
    call.views.clear();
    for (OneArray& a : call.all) call.views.push_back(a.as_view());
    cellc_request request = call.made();
    request.on_host = 1;
    request.on_stream = 0;
    return prepared ? cellc_apply_prepared(prepared, &request) : cellc_apply(call.kernel, &request);
  }
  static void set_on_host(RequestedCall& call) {
    call.request.on_host = 1;
    call.request.status = call.status.data();
  }
};

TEST_F(HostArraysOfAGpu, WithAnyStridesGiveWhatArraysOfTheDeviceGive) {
  for (const cellc_dtype dtype : {CELLC_F64, CELLC_F16}) {
    cellc_kernel* kernel = mixed(dtype);
    for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT})
      for (const bool packed : {false, true}) {
        SCOPED_TRACE(testing::Message() << dtype << " " << direction << packed);
        cellc_shape shape = shape_of(kLengths, kB, kT);
        if (packed) shape.offsets = kOffsets;
        shape.reverse = packed;
        Random random(5);
        ArraysOnGpu call(kernel, direction, shape, *emulator_);
        call.draw(random);
        for (OneArray& a : call.all) a.spread_out(random);
        ASSERT_EQ(call.run(false), CELLC_OK) << cellc_last_error();
        ASSERT_EQ(run_on_host(call), CELLC_OK) << cellc_last_error();
        call.expect_same();
        if (direction != CELLC_FORWARD) continue;
        cellc_call* const prepared = prepare(kernel, shape);
        for (OneArray& a : call.all) a.spread = a.before;
        ASSERT_EQ(run_on_host(call, prepared), CELLC_OK) << cellc_last_error();
        call.expect_same();
      }
  }
}

TEST_F(HostArraysOfAGpu, AndParamsOfEachSequence) {
  cellc_kernel* kernel = mixed();
  const cellc_shape shape = shape_of(kLengths, kB, kT);
  Random random(9);
  ArraysOnGpu call(kernel, CELLC_BACKWARD, shape, *emulator_);
  for (OneArray& a : call.all) {
    a.given = true;
    const std::string name = a.info.name;
    if (name == "W" || name == "gradient.W" || name == "gradient.a") a.lengths.insert(a.lengths.begin(), kB);
    a.draw(random, -1, 1);
    a.spread_out(random, false);
  }
  ASSERT_EQ(call.run(true), CELLC_OK) << cellc_last_error();
  std::vector<Bytes> want;
  for (OneArray& a : call.all) {
    want.push_back(a.spread);
    a.spread = a.before;
  }
  ASSERT_EQ(run_on_host(call), CELLC_OK) << cellc_last_error();
  for (std::size_t i = 0; i < call.all.size(); ++i) EXPECT_EQ(call.all[i].spread, want[i]) << call.all[i].info.name;
}

TEST_F(HostArraysOfAGpu, HaveAReportAndAStatus) {
  cellc_kernel* kernel = kernel_of("cell c[d] { state h[d]\n input x[d]\n h' = tanh(2*h + 3*x) }", CELLC_F64, nullptr);
  const std::int64_t lengths[] = {2};
  const cellc_shape shape = shape_of(lengths, 2, 64);
  RequestedCall call(kernel, CELLC_FORWARD, shape);
  set_on_host(call);
  ASSERT_EQ(call.run(), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(call.report.converged, 1);
  EXPECT_EQ(call.status, (std::vector<std::int32_t>{0, 0}));
  EXPECT_EQ(call.first_non_finite, (std::vector<std::int64_t>{-1, -1}));
  // Iterations that do not suffice are told of without a report, too, as on a CPU.
  cellc_call_options options;
  cellc_call_options_init(&options);
  options.solver = "newton";
  options.fixed_iterations = 1;
  call.request.options = &options;
  call.request.report = nullptr;
  call.status.assign(2, 9);
  EXPECT_EQ(call.run(), CELLC_NOT_CONVERGED);
  EXPECT_EQ(call.status, (std::vector<std::int32_t>{1, 1}));
}

TEST_F(HostArraysOfAGpu, AreRefusedByName) {
  cellc_kernel* kernel = mixed();
  const cellc_shape shape = shape_of(kLengths, kB, kT);
  const auto refused = [&](RequestedCall& call, cellc_status status, const std::string& why) {
    const auto before = call.of;
    EXPECT_EQ(call.run(), status) << why;
    EXPECT_NE(std::string(cellc_last_error()).find(why), std::string::npos) << cellc_last_error();
    EXPECT_EQ(call.of, before);
  };
  RequestedCall call(kernel, CELLC_FORWARD, shape);
  set_on_host(call);
  cellc_view& x = call.views[static_cast<std::size_t>(cellc_array_find(kernel, "x"))];
  const cellc_view right = x;
  x.dtype = CELLC_F32;
  refused(call, CELLC_WRONG_INPUT, "array x: has the dtype f32");
  x = right;
  x.data = nullptr;
  refused(call, CELLC_WRONG_INPUT, "array x: is a null pointer");
  const std::int64_t lengths[] = {kB, kT, 4};
  x = right;
  x.rank = 3;
  x.lengths = lengths;
  refused(call, CELLC_WRONG_INPUT, "array x: has the lengths [3, 6, 4]");
  x = right;
  emulator_->set_capture(4);
  refused(call, CELLC_WRONG_USAGE, "cannot capture");
  emulator_->set_capture(0);
  RequestedCall back(kernel, CELLC_BACKWARD, shape);
  back.request.on_host = 1;
  const std::int32_t bad[] = {0, 0, 1};
  back.request.forward_status = bad;
  refused(back, CELLC_NOT_CONVERGED, "sequence 2");
  // Without the word of the caller it is memory that no kernel can use.
  call.request.on_host = 0;
  refused(call, CELLC_WRONG_INPUT, "array x: its address");
}

TEST_F(HostArraysOfAGpu, AreNotRelaxed) {
  const std::string text = "cell c[d] { state h[d]\n input x[d]\n param U[d,d]\n h' = tanh(U@h + x) }";
  cellc_kernel* kernel = kernel_of(text, CELLC_F64, "relaxation");
  const std::int64_t lengths[] = {3};
  const cellc_shape shape = shape_of(lengths, 2, 6);
  RequestedCall call(kernel, CELLC_FORWARD, shape);
  set_on_host(call);
  EXPECT_EQ(call.run(), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_SOLVER);
  EXPECT_NE(std::string(cellc_last_error()).find("relax by `cellc run`"), std::string::npos) << cellc_last_error();
}

TEST_F(HostArraysOfAGpu, TakeMemoryOfTheCardOnceThatTrimFrees) {
  cellc_kernel* kernel = mixed();
  const cellc_shape shape = shape_of(kLengths, kB, kT);
  RequestedCall call(kernel, CELLC_FORWARD, shape);
  set_on_host(call);
  call.request.report = nullptr;
  // Compiled for before, with arrays that nobody may read.
  for (cellc_view& v : call.views) v.data = reinterpret_cast<void*>(std::uintptr_t{64});
  ASSERT_EQ(cellc_compile_request(kernel, &call.request), CELLC_OK) << cellc_last_error();
  RequestedCall again(kernel, CELLC_FORWARD, shape);
  set_on_host(again);
  again.request.report = nullptr;
  const Emulator::Counts first = emulator_->counts();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(again.run(), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(emulator_->counts().allocations, first.allocations);
  ASSERT_EQ(cellc_kernel_trim(kernel), CELLC_OK);
  EXPECT_LT(emulator_->counts().live_bytes, first.live_bytes);
  ASSERT_EQ(again.run(), CELLC_OK) << cellc_last_error();
}

TEST_F(HostArraysOfAGpu, OfFourThreads) {
  cellc_kernel* kernel = mixed();
  const cellc_shape shape = shape_of(kLengths, kB, kT);
  RequestedCall want(kernel, CELLC_FORWARD, shape);
  set_on_host(want);
  ASSERT_EQ(want.run(), CELLC_OK) << cellc_last_error();
  std::vector<std::unique_ptr<RequestedCall>> calls;
  for (int i = 0; i < 4; ++i) {
    calls.push_back(std::make_unique<RequestedCall>(kernel, CELLC_FORWARD, shape));
    set_on_host(*calls.back());
  }
  std::vector<std::thread> threads;
  for (auto& call : calls)
    threads.emplace_back([&call] {
      for (int k = 0; k < 3; ++k) EXPECT_EQ(call->run(), CELLC_OK) << cellc_last_error();
    });
  for (std::thread& t : threads) t.join();
  for (const auto& call : calls) EXPECT_EQ(call->of, want.of);
}

TEST_F(HostArraysOfAGpu, AreAlsoThoseOfAKernelOfTheCpuAndOfAWrapper) {
  const std::string text = "cell c[d] {\n state h[d]\n input x[d]\n param a[d]\n h' = a*h + x\n}";
  std::vector<std::vector<double>> found;
  for (const char* device : {"cpu", "cuda"}) {
    cellc::c::Options options;
    options.dtype = CELLC_F64;
    options.device = device;
    const cellc::c::Kernel kernel(text, options);
    const std::vector<double> x = {1, 2, 3, 4, 5, 6}, a = {0.5, 0.25};
    std::vector<double>& h = found.emplace_back(6);
    cellc::c::Call call(kernel, CELLC_FORWARD, kernel.shape({{"d", 2}}, 1, 3));
    call.on_host().set("x", std::span(x)).set("a", std::span(a)).set("h", std::span(h)).run();
    EXPECT_EQ(h, (std::vector<double>{1, 2, 3.5, 4.5, 6.75, 7.125}));
    h.assign(6, 0);
    cellc::c::PreparedCall(kernel, call.shape()).run(cellc::c::Call(call));
    EXPECT_EQ(h, (std::vector<double>{1, 2, 3.5, 4.5, 6.75, 7.125}));
    cellc_shape shape = call.shape().get();
    RequestedCall plain(kernel.get(), CELLC_FORWARD, shape);
    plain.request.on_host = 1;
    plain.request.status = plain.status.data();
    EXPECT_EQ(plain.run(), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(plain.status[0], 0) << device;
  }
  EXPECT_EQ(found[0], found[1]);
}

}  // namespace
}  // namespace cellc
