// Calls on a GPU, the emulator in its place, on arrays whose axes are permuted, reversed, spread and repeated, against
// the same call on arrays without gaps; params of 16 bits; graphs; and what of it is refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/capi_gpu/arrays_on_gpu.h"

namespace cellc {
namespace {

using namespace strided;

const std::string kMixed = R"(cell mixed[d, m] {
  state h[d]
  input x[m], u[d]
  param W[d,m], a[d] = 0.5
  h' = tanh(a*h + W@x) + lag(u, 1)
  out y = sum[d](h')*lag(h, 2)
}
)";
const std::int64_t kLengths[] = {4, 3};

class StridedOnGpu : public EmulatedGpu {
 protected:
  cellc_kernel* kernel_of(cellc_dtype dtype) { return EmulatedGpu::kernel_of(kMixed, dtype, "sequential"); }
};

TEST_F(StridedOnGpu, IsTheSameCall) {
  static const std::int64_t offsets[] = {0, 4, 4, 9};
  for (const cellc_dtype dtype : {CELLC_F64, CELLC_BF16}) {
    cellc_kernel* kernel = kernel_of(dtype);
    for (const bool packed : {false, true}) {
      SCOPED_TRACE(testing::Message() << "dtype " << dtype << (packed ? ", packed" : ""));
      cellc_shape shape = shape_of(kLengths, packed ? 3 : 2, 5);
      if (packed) shape.offsets = offsets, shape.reverse = 1;
      Random random(5 + packed);
      for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT}) {
        if (direction != CELLC_FORWARD && (dtype == CELLC_BF16 || (packed && direction == CELLC_TANGENT)))
          continue;  // kernels take the emulator seconds
        SCOPED_TRACE(direction);
        ArraysOnGpu call(kernel, direction, shape, *emulator_);
        call.draw(random);
        ASSERT_EQ(call.run(false), CELLC_OK) << cellc_last_error();
        for (OneArray& a : call.all) a.spread_out(random, false);
        ASSERT_EQ(call.run(true), CELLC_OK) << cellc_last_error();
        call.expect_same();
        if (direction != CELLC_FORWARD) continue;
        for (OneArray& a : call.all) a.spread_out(random, false);
        // The call says what it holds: all that was allocated but the arrays.
        const auto of_others = [&] {
          std::int64_t held = 0, bytes = emulator_->counts().live_bytes;
          EXPECT_EQ(cellc_call_workspace(calls_.back(), &held), CELLC_OK);
          for (const GpuBuffer& array : call.device) bytes -= static_cast<std::int64_t>(array.bytes());
          return bytes - held;
        };
        std::int64_t before = 0, after = 0;
        ASSERT_EQ(cellc_call_workspace(prepare(kernel, shape), &before), CELLC_OK);
        const std::int64_t others = of_others();
        ASSERT_EQ(call.run(true, calls_.back()), CELLC_OK) << cellc_last_error();
        call.expect_same();
        ASSERT_EQ(cellc_call_workspace(calls_.back(), &after), CELLC_OK);
        EXPECT_GT(before, 0);
        EXPECT_GE(after - before, 256);
        EXPECT_EQ(of_others(), others);
      }
    }
  }
}

// What a call copies is queued, in graphs too; a repeated call allocates and waits for nothing.
TEST_F(StridedOnGpu, CopiesAreQueued) {
  cellc_kernel* kernel = kernel_of(CELLC_F64);
  const cellc_shape shape = shape_of(kLengths, 2, 5);
  Random random(3);
  ArraysOnGpu call(kernel, CELLC_FORWARD, shape, *emulator_);
  call.draw(random);
  ASSERT_EQ(call.run(false), CELLC_OK) << cellc_last_error();
  for (OneArray& a : call.all) a.spread_out(random, false);
  ASSERT_EQ(call.run(true), CELLC_OK) << cellc_last_error();
  const Emulator::Counts before = emulator_->counts();
  ASSERT_EQ(call.again(nullptr), CELLC_OK);
  EXPECT_EQ(emulator_->counts().allocations, before.allocations);
  EXPECT_EQ(emulator_->counts().synchronisations, before.synchronisations);
  // The graph's first call, in memory of its own.
  for (OneArray& a : call.all) a.spread = a.before;
  for (std::size_t i = 0; i < call.all.size(); ++i) call.upload(i, call.all[i].spread);
  call.stream = reinterpret_cast<void*>(8);
  emulator_->set_capture(5);
  EXPECT_EQ(call.again(nullptr), CELLC_OK) << cellc_last_error();
  emulator_->set_capture(0);
  for (std::size_t i = 0; i < call.all.size(); ++i)
    emulator_->copy_out(call.all[i].spread.data(), call.device[i].address(), call.all[i].spread.size(), 0);
  call.expect_same();
}

// Where rows lie is what a report looks through, backward in time as well.
TEST_F(StridedOnGpu, ReportsLookAtWhatWasWritten) {
  cellc_kernel* kernel = kernel_of(CELLC_F64);
  const cellc_shape shape = shape_of(kLengths, 2, 5);
  Random random(8);
  ArraysOnGpu call(kernel, CELLC_FORWARD, shape, *emulator_);
  call.draw(random);
  const double nan = std::nan("");
  OneArray& x = call.named("x");
  x.repeated.assign(x.lengths.size(), false);
  std::memcpy(x.dense.data() + (5 + 3) * 3 * sizeof nan, &nan, sizeof nan);
  for (OneArray& a : call.all) a.spread_out(random, false);
  ASSERT_EQ(call.run(true), CELLC_OK) << cellc_last_error();
  cellc_report report;
  cellc_report_init(&report);
  std::int64_t first[] = {9, 9};
  report.first_non_finite = first;
  ASSERT_EQ(call.again(nullptr, &report), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(first[0], -1);
  EXPECT_EQ(first[1], 3);
}

// Every number of 16 bits is one of f32 and f64: the bits are those of params that were widened before.
TEST_F(StridedOnGpu, ParamsOfSixteenBits) {
  const cellc_shape shape = shape_of(kLengths, 2, 5);
  const std::vector<double> numbers = {0.5,     -0.25, 1.75,  0, 0x1p-14, -0x1.8p-3,
                                       0x1p-16, -1,    0.625, 2, -0.125,  0x1.4p-15};
  for (const cellc_dtype dtype : {CELLC_F64, CELLC_F32})
    for (const cellc_dtype narrow : {CELLC_F16, CELLC_BF16}) {
      SCOPED_TRACE(testing::Message() << dtype << " from " << narrow);
      cellc_kernel* kernel = kernel_of(dtype);
      Random random(4);
      ArraysOnGpu call(kernel, CELLC_FORWARD, shape, *emulator_);
      call.draw(random);
      OneArray& W = call.named("W");
      std::vector<std::uint16_t> bits;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        store(W.dense.data() + i * W.size(), dtype, numbers[i]);
        const auto single = std::bit_cast<std::uint32_t>(static_cast<float>(numbers[i]));
        int exponent = 0;
        const double fraction = std::frexp(std::fabs(numbers[i]), &exponent);  // from 1/2 on
        std::uint32_t half = single >> 16 & 0x8000;
        if (exponent >= -13)
          half |=
              static_cast<std::uint32_t>((exponent + 14) << 10) | static_cast<std::uint32_t>(fraction * 2048) % 1024;
        else  // of the least exponent
          half |= static_cast<std::uint32_t>(std::fabs(numbers[i]) * 0x1p24);
        if (numbers[i] == 0) half = 0;
        bits.push_back(static_cast<std::uint16_t>(narrow == CELLC_BF16 ? single >> 16 : half));
      }
      ASSERT_EQ(call.run(false), CELLC_OK) << cellc_last_error();
      std::vector<Bytes> wide;
      for (const OneArray& a : call.all) wide.push_back(a.dense);
      // The columns last to first.
      std::vector<std::uint16_t> turned(bits.size());
      for (std::size_t r = 0; r < 4; ++r)
        for (std::size_t c = 0; c < 3; ++c) turned[r * 3 + 2 - c] = bits[r * 3 + c];
      const GpuBuffer narrow_bits(*emulator_, 2 * turned.size());
      emulator_->copy_in(narrow_bits.address(), turned.data(), 2 * turned.size(), 0);
      const std::int64_t lengths[] = {4, 3}, strides[] = {3, -1};
      for (std::size_t i = 0; i < call.all.size(); ++i) {
        call.upload(i, Bytes(call.all[i].dense.size(), 0x33));
        if (!call.all[i].info.written) call.upload(i, call.all[i].dense);
        if (&call.all[i] == &W)
          call.views[i] = {reinterpret_cast<void*>(narrow_bits.address() + 4), narrow, 2, lengths, strides};
      }
      ASSERT_EQ(call.again(nullptr), CELLC_OK) << cellc_last_error();
      for (std::size_t i = 0; i < call.all.size(); ++i) {
        Bytes found(wide[i].size());
        emulator_->copy_out(found.data(), call.device[i].address(), found.size(), 0);
        EXPECT_EQ(found, wide[i]) << call.all[i].info.name;
      }
    }
}

// Each type has a kernel of its own that copies, which a graph is not the place to load.
TEST_F(StridedOnGpu, ParamsOfOneGraphMayDifferInType) {
  cellc_kernel* kernel = kernel_of(CELLC_F64);
  const cellc_shape shape = shape_of(kLengths, 2, 5);
  Random random(5);
  ArraysOnGpu call(kernel, CELLC_FORWARD, shape, *emulator_);
  call.draw(random);
  ASSERT_EQ(call.run(false), CELLC_OK) << cellc_last_error();
  const GpuBuffer bits(*emulator_, 4 * 3 * 2);  // zeros, which are 0 in both
  emulator_->zero(bits.address(), bits.bytes(), 0);
  cellc_view& W = call.views[static_cast<std::size_t>(cellc_array_find(kernel, "W"))];
  W.data = reinterpret_cast<void*>(bits.address());
  call.stream = reinterpret_cast<void*>(8);
  for (const cellc_dtype narrow : {CELLC_BF16, CELLC_F16, CELLC_BF16}) {
    W.dtype = narrow;
    emulator_->set_capture(5);
    EXPECT_EQ(call.again(nullptr), CELLC_OK) << cellc_last_error();
    emulator_->set_capture(0);
  }
}

TEST_F(StridedOnGpu, WhatIsRefusedHasWrittenNothing) {
  cellc_kernel* kernel = kernel_of(CELLC_F64);
  const cellc_shape shape = shape_of(kLengths, 2, 5);
  Random random(6);
  const auto refused = [&](const char* name, auto change, const char* says) {
    ArraysOnGpu call(kernel, CELLC_FORWARD, shape, *emulator_);
    call.draw(random);
    for (OneArray& a : call.all) a.spread_out(random, false);
    std::size_t which = 0;
    for (std::size_t i = 0; i < call.all.size(); ++i) {
      OneArray& a = call.all[i];
      call.upload(i, a.spread);
      call.views.push_back(a.as_view());
      if (a.given)
        call.views[i].data = reinterpret_cast<void*>(call.device[i].address() + static_cast<GpuAddress>(a.origin));
      if (std::string(name) == a.info.name) which = i;
    }
    change(call.views[which]);
    EXPECT_EQ(call.again(nullptr), CELLC_WRONG_INPUT) << name;
    EXPECT_NE(std::string(cellc_last_error()).find(says), std::string::npos) << cellc_last_error();
    EXPECT_NE(std::string(cellc_last_error()).find(std::string("array ") + name), std::string::npos);
    for (std::size_t i = 0; i < call.all.size(); ++i) {
      Bytes found(call.all[i].spread.size());
      emulator_->copy_out(found.data(), call.device[i].address(), found.size(), 0);
      EXPECT_EQ(found, call.all[i].before);
    }
  };
  static const std::int64_t twice[] = {0, 4, 1}, far[] = {INT64_MAX / 2, 1, 1}, wide[] = {15, 3, -1 << 20},
                            low[] = {-15, -3, -1}, three[] = {2, 5, 9};
  static double on_host[40];
  const auto set = [](const std::int64_t* strides) { return [=](cellc_view& v) { v.strides = strides; }; };
  refused("h", set(twice), "is written, and overlaps itself");
  refused("x", set(far), "reaches beyond any memory");
  refused("x", set(wide), "its address");
  refused("x", set(low), "its address");
  refused(
      "x", [](cellc_view& v) { v.rank = 2; }, "has 2 axes; expected 3");
  refused(
      "x", [](cellc_view& v) { v.lengths = three; }, "has the lengths");
  refused(
      "x", [](cellc_view& v) { v.data = on_host; }, "its address");
  refused(
      "x", [](cellc_view& v) { v.data = static_cast<char*>(v.data) + 1; }, "is not aligned to the 8 bytes");
  refused(
      "x", [](cellc_view& v) { v.dtype = CELLC_BF16; }, "dtype");
  refused(
      "h", [](cellc_view& v) { v.dtype = CELLC_F16; }, "dtype");
}

}  // namespace
}  // namespace cellc
