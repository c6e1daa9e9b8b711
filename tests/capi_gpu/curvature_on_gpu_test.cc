// Gradients of gradients on a GPU, with the emulator in the card's place: the numbers of the CPU, which
// tests/capi/derivatives_test.cc holds against gradients by hand, from arrays of the device and into them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/capi_gpu/emulated_gpu.h"
#include "tests/capi_gpu/named_call.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

CELLC_ONE_IN(2, "Cells/CurvatureOnGpu");

struct CurvatureCase {
  const char *name, *text;
  cellc_dtype dtype = CELLC_F64;
};
void PrintTo(const CurvatureCase& c, std::ostream* to) { *to << c.name; }

const CurvatureCase kCases[] = {
    {"gated",
     "cell gated[d] {\n state h[d]\n input x[d]\n param a[d]\n z = sigmoid(a*h + x)\n h' = z*h + (1 - z)*x\n"
     " out y = h'*h*a\n}"},
    {"through_defaults",
     "cell follow[d] {\n state h[d] = 2*a*fall\n input x[d]\n param a[d], fall = 0.125, slope[d] = 0.75\n"
     " h' = tanh(slope*h + 0.5*lag(h, 2)*x) - fall*h\n out y = h*a + lag(x, 1)\n}"},
    {"dense", "cell dense[d] {\n state h[d]\n input x[d]\n param U[d,d]\n h' = tanh(U@h + x)\n out y = h'*x\n}",
     CELLC_F32},
    {"of_16_bits", "cell half[d] {\n state h[d]\n input x[d]\n param a[d]\n h' = tanh(a*h + x)\n out y = h'*h'\n}",
     CELLC_BF16},
};

class CurvatureOnGpu : public EmulatedGpu, public testing::WithParamInterface<CurvatureCase> {
 protected:
  cellc_kernel* of(const char* device) {
    return compile(GetParam().text, device, [&](cellc_options& o) { o.dtype = GetParam().dtype; });
  }
  /// Numbers for every array of a direction that is read and is none of the results.
  void fill(NamedCall& call, cellc_direction direction, bool all) {
    for (int i = 0; i < cellc_call_array_count(call.kernel, direction); ++i) {
      cellc_call_array_info info;
      cellc_call_array_info_init(&info);
      ASSERT_EQ(cellc_call_array_describe(call.kernel, direction, i, &info), CELLC_OK);
      const bool wanted = all || info.required || info.role == CELLC_ROLE_INPUT || info.quantity == CELLC_IS_COTANGENT;
      const bool is_result = info.role == CELLC_ROLE_STATE && info.quantity == CELLC_IS_VALUE;
      if (info.written || is_result || !wanted || call.arrays.contains(info.name)) continue;
      std::int64_t lengths[16];
      int rank = 0;
      ASSERT_EQ(cellc_call_array_shape(call.kernel, direction, &call.shape, i, lengths, 16, &rank), CELLC_OK);
      Array& array = call.arrays[info.name] = Array(Dtype::F64, {lengths, lengths + rank});
      for (std::int64_t k = 0; k < array.count(); ++k)
        array.set(k, 0.5 * std::sin(0.7 * static_cast<double>(k + 1) + info.name[0] + 2.0 * i));
    }
  }
  /// After a forward run on the CPU.
  NamedCall ready(const cellc_shape& shape, bool all) {
    NamedCall call{.kernel = of("cpu"), .shape = shape};
    fill(call, CELLC_FORWARD, all);
    EXPECT_EQ(call.run(CELLC_FORWARD), CELLC_OK) << cellc_last_error();
    fill(call, CELLC_BACKWARD, true);
    fill(call, CELLC_TANGENT, all);
    return call;
  }
  NamedCall on_gpu(const NamedCall& call, bool gaps) {
    NamedCall there = call;
    there.kernel = of("cuda");
    there.gpu = emulator_.get();
    there.gaps = gaps;
    return there;
  }
  void expect_alike(const NamedCall& found, const NamedCall& want, const std::string& kind, double tolerance) {
    int compared = 0;
    for (const auto& [name, array] : want.arrays) {
      if (!name.starts_with(kind)) continue;
      double largest = 0;
      for (std::int64_t i = 0; i < array.count(); ++i) largest = std::max(largest, std::fabs(array.get(i)));
      compared += largest > 0;
      for (std::int64_t i = 0; i < array.count(); ++i)
        ASSERT_NEAR(found.arrays.at(name).get(i), array.get(i), tolerance * (1 + largest)) << name << " " << i;
    }
    EXPECT_GT(compared, 0) << kind;
  }
  const std::int64_t lengths_[1] = {3};
};

TEST_P(CurvatureOnGpu, IsThatOfTheCpu) {
  const std::int64_t offsets[] = {0, 5, 5, 9};
  cellc_shape uniform = shape_of(lengths_, 2, 6), packed = shape_of(lengths_, 3, 0);
  packed.offsets = offsets;
  packed.reverse = 1;
  const double tolerance = GetParam().dtype == CELLC_F64 ? 1e-10 : 2e-5;
  for (const cellc_shape& shape : {uniform, packed}) {
    const bool gaps = shape.reverse != 0;
    NamedCall pulled = ready(shape, !gaps), pushed = pulled;
    NamedCall pulled_there = on_gpu(pulled, gaps), pushed_there = on_gpu(pushed, gaps);
    ASSERT_EQ(curvature(pulled, pushed), CELLC_OK) << cellc_last_error();
    ASSERT_EQ(curvature(pulled_there, pushed_there), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(pulled_there.touched + pushed_there.touched, "");
    expect_alike(pulled_there, pulled, "gradient.", tolerance);
    expect_alike(pushed_there, pushed, "tangent.", GetParam().dtype == CELLC_BF16 ? 0x1p-7 : tolerance);
  }
}
INSTANTIATE_TEST_SUITE_P(Cells, CurvatureOnGpu, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

using RefusedCurvature = CurvatureOnGpu;

TEST_P(RefusedCurvature, SaysWhy) {
  NamedCall pulled = on_gpu(ready(shape_of(lengths_, 2, 6), true), false), pushed = pulled;
  const auto refused = [&](cellc_status status, const std::int32_t* of, const std::string& why) {
    EXPECT_EQ(curvature(pulled, pushed, of), status);
    EXPECT_NE(std::string(cellc_last_error()).find(why), std::string::npos) << cellc_last_error();
    for (const auto& [name, array] : pulled.arrays) {
      if (!name.starts_with("gradient.")) continue;
      for (std::int64_t i = 0; i < array.count(); ++i) ASSERT_NE(array.get(i), 0) << name;  // as they lay there
    }
  };
  const std::int32_t bad[] = {0, 1};
  const GpuBuffer status(*emulator_, sizeof bad);
  emulator_->copy_in(status.address(), bad, sizeof bad, 0);
  refused(CELLC_NOT_CONVERGED, reinterpret_cast<const std::int32_t*>(status.address()), "sequence 1");
  refused(CELLC_WRONG_INPUT, bad, "status");
  pulled.captured = 5;
  refused(CELLC_WRONG_USAGE, nullptr, "capture");
  pulled.captured = 0;
  NamedCall of_host = pulled;
  of_host.gpu = nullptr;
  EXPECT_EQ(curvature(of_host, pushed), CELLC_WRONG_INPUT);
  EXPECT_NE(std::string(cellc_last_error()).find("array x"), std::string::npos) << cellc_last_error();
}
INSTANTIATE_TEST_SUITE_P(One, RefusedCurvature, testing::Values(kCases[0]),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cellc
