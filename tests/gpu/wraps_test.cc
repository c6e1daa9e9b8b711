// Numbers that would wrap after 2^32 calls or barriers, to which calls of ten microseconds come in half a day.
#include <gtest/gtest.h>

#include "compiler/front_end.h"
#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/cuda/launch/stage_text.h"
#include "tests/engines/known_recurrences.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

/// Knows where the memory of segmented.cuh begins that is kept from call to call.
class Kept : public WrappedGpu {
 public:
  explicit Kept(Gpu& gpu) : WrappedGpu(gpu) {}
  GpuAddress allocate(std::size_t bytes) override {
    const GpuAddress address = WrappedGpu::allocate(bytes);
    if (bytes == static_cast<std::size_t>(stage_control_bytes())) control = address;
    return address;
  }
  GpuAddress control = 0;
};

TEST(NumbersThatWrap, OfCallsAndBarriers) {
  const KnownRecurrence& gru = known_recurrences()[0];
  KnownRun known(gru, Dtype::F32, {32, {1500}, false});
  oracle::Random random(3);
  known.draw(random);
  const Device device = open_device();
  for (const unsigned last : {~0u, ~0u - 1, ~0u - 2}) {
    Kept gpu(*device.gpu);
    CudaSolver solver(gpu, known.cell().cell, known.cell().structure, Dtype::F32, &known.cell().source);
    SolveReport report;
    solver.run(known.run(), {}, report);
    ASSERT_NE(gpu.control, 0u);
    // Control of segments.cuh: three words of 64 bits, the barriers before this call, and behind them the calls.
    gpu.copy_in(gpu.control + 32, &last, 4, 0);
    for (int call = 0; call < 4; ++call) {
      const RunOutput output = solver.run(known.run(), {}, report);
      EXPECT_EQ(known.wrong(output, 1.5e-6), "") << last << ", call " << call;
      unsigned passed = 0;
      gpu.copy_out(&passed, gpu.control + 24, 4, 0);
      EXPECT_LT(passed, 3u);  // or the barriers around a count of 2^32 would use one word
    }
  }
}

}  // namespace
}  // namespace cellc
