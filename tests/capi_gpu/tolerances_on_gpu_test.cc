// What calls of a GPU accept, the emulator in its place: tolerances of states in their own units, tolerance 0, and what
// scans of gradients take besides; and gradients by products of 16 bits, which small cotangents must survive.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/capi_gpu/arrays_on_gpu.h"
#include "tests/capi_gpu/named_call.h"

namespace cellc {
namespace {

// It forgets slowly, so segments of g that begin anew differ from a run step by step until they are repaired. Of
// several stages a call on arrays of a GPU cuts the last one.
const char* const kTwo = R"(cell two[d] {
  state h[d], g[d]
  input x[d]
  param a[d]
  h' = 0.9*h + 0.1*tanh(a*h + x)
  g' = 0.9*g + 0.1*tanh(a*g - x)
}
)";
const char* const kLinear = "cell linear[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = (2*a)*h + x\n}\n";
const char* const kPlan = R"({"stages": [{"solver": "sequential"},
                                         {"solver": "segmented", "segment": 32, "burn_in": 8}]})";

class TolerancesOnGpu : public EmulatedGpu {
 protected:
  /// A forward call of `kTwo` by segments.
  struct Made {
    std::vector<Bytes> written;
    double residual = 0;
    std::int64_t repaired = 0;
    double far = 0;  ///< g from `stepwise`
  };
  enum class Way { Applied, Prepared, OnAStream };
  Made by_segments(const char* absolute, Way way, const std::vector<Bytes>* stepwise) {
    cellc_kernel* const kernel = compile(kTwo, "cuda", [&](cellc_options& o) {
      o.dtype = CELLC_F64;
      if (stepwise)
        o.plan = kPlan;
      else
        o.solver = "sequential";
      o.absolute_tolerance = absolute;
    });
    const std::int64_t lengths[] = {4};
    const cellc_shape shape = shape_of(lengths, 2, 300);
    ReadyOnGpu call(kernel, CELLC_FORWARD, shape, *emulator_);
    cellc_report report;
    cellc_report_init(&report);
    if (way == Way::OnAStream) {
      std::vector<cellc_array> arrays;
      for (std::size_t i = 0; i < call.all.size(); ++i)
        arrays.push_back({call.views[i].data, product(call.all[i].lengths), CELLC_F64, 0, 0});
      EXPECT_EQ(
          cellc_forward_on(kernel, &shape, arrays.data(), static_cast<int>(arrays.size()), nullptr, nullptr, &report),
          CELLC_OK)
          << cellc_last_error();
    } else {
      EXPECT_EQ(call.again(way == Way::Prepared ? prepare(kernel, shape) : nullptr, &report), CELLC_OK)
          << cellc_last_error();
    }
    EXPECT_EQ(report.converged, 1);
    Made made{call.written(), report.max_residual, report.repaired};
    if (!stepwise) return made;
    EXPECT_NE(std::string(report.plan).find("segmented"), std::string::npos) << report.plan;
    std::size_t w = 0;
    for (const OneArray& a : call.all) {
      if (!a.info.written) continue;
      const double far = furthest(made.written[w], (*stepwise)[w]);
      if (a.info.owner == std::string("g"))
        made.far = std::max(made.far, far);
      else
        EXPECT_EQ(far, 0);
      ++w;
    }
    return made;
  }
  static double furthest(const Bytes& found, const Bytes& want) {
    double far = 0;
    for (std::size_t i = 0; i + 8 <= found.size(); i += 8) {
      double f = 0, w = 0;
      std::memcpy(&f, found.data() + i, 8);
      std::memcpy(&w, want.data() + i, 8);
      far = std::max(far, std::abs(f - w));
    }
    return far;
  }
};

TEST_F(TolerancesOnGpu, ThoseOfStatesDecideWhatIsAccepted) {
  const std::vector<Bytes> stepwise = by_segments(nullptr, Way::Applied, nullptr).written;
  for (const Way way : {Way::Applied, Way::Prepared, Way::OnAStream}) {
    SCOPED_TRACE(static_cast<int>(way));
    const Made none = by_segments(nullptr, way, &stepwise);
    EXPECT_GT(none.repaired, 0);
    EXPECT_LT(none.far, 1e-10);
    for (const char* other : {"0", "g=0", "1000,h=7,g=0", "h=1000"}) {
      const Made same = by_segments(other, way, &stepwise);
      EXPECT_EQ(same.written, none.written) << other;
      EXPECT_EQ(same.repaired, none.repaired) << other;
      EXPECT_EQ(same.residual, none.residual) << other;
    }
    for (const char* wide : {"1000", "g=1e3", "g=1000,h=0", "h=1000,g=1000,0"}) {
      const Made left = by_segments(wide, way, &stepwise);
      EXPECT_EQ(left.repaired, 0) << wide;
      EXPECT_GT(left.far, 0.1) << wide;
    }
    // So much and no more: of what a step is off by a tenth is forgotten with each that follows.
    const Made within = by_segments("1e-7", way, &stepwise);
    EXPECT_GT(within.far, 1e-10);
    EXPECT_LT(within.far, 1e-5);
    EXPECT_LE(within.residual, none.residual + 1e-12);
  }
}

// Whatever is asked for besides, and whatever states are tolerated to be off by.
TEST_F(TolerancesOnGpu, NoneIsTheBitsOfARunStepByStep) {
  const char* const kDense =
      "cell dense[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = tanh(0.2*(U@h) + x)\n}\n";
  const struct {
    const char* text;
    std::vector<const char*> solvers;
  } cases[] = {{kTwo, {"auto", "segmented", "newton", "shooting", "scan"}},
               {kLinear, {"auto", "scan", "segmented", "newton"}},
               {kDense, {"auto", "relaxation", "persistent", "stepped"}}};
  for (const auto& c : cases)
    for (const cellc_dtype dtype : {CELLC_F32, CELLC_F64}) {
      const std::int64_t lengths[] = {c.text == kDense ? 80 : 16};  // more than a thread holds
      const cellc_shape shape = shape_of(lengths, 2, c.text == kDense ? 12 : 90);
      ReadyOnGpu stepwise(kernel_of(c.text, dtype, "sequential"), CELLC_FORWARD, shape, *emulator_);
      ASSERT_EQ(stepwise.again(nullptr), CELLC_OK) << cellc_last_error();
      const std::vector<Bytes> want = stepwise.written();
      for (const char* solver : c.solvers)
        for (const char* absolute : {static_cast<const char*>(nullptr), "1000"}) {
          SCOPED_TRACE(fmt::format("{} {} {}", std::string(c.text, 12), solver, absolute ? absolute : ""));
          cellc_kernel* const kernel = compile(c.text, "cuda", [&](cellc_options& o) {
            o.dtype = dtype, o.solver = solver, o.absolute_tolerance = absolute, o.has_tolerance = 1;
          });
          ReadyOnGpu call(kernel, CELLC_FORWARD, shape, *emulator_);
          call.clear();
          const std::vector<Bytes> zeros = call.written();
          const cellc_status status = call.again(nullptr);
          if (status == CELLC_OK) {
            EXPECT_EQ(call.written(), want);
          } else {
            EXPECT_EQ(status, CELLC_WRONG_USAGE);
            EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_SOLVER);
            EXPECT_NE(std::string(cellc_last_error()), "");
            EXPECT_EQ(call.written(), zeros);
          }
        }
    }
}

// Composed maps of this cell pass numbers much larger than what they leave, and round by more than one tolerance.
TEST_F(TolerancesOnGpu, ScansOfGradientsTakeMoreThanOneUnlessOneIsNamed) {
  const std::int64_t lengths[] = {64};
  const cellc_shape shape = shape_of(lengths, 2, 6000);
  const auto walked = [&](double of_kernel, double of_call, bool trust_scans) {
    cellc_kernel* const kernel =
        compile(kLinear, "cuda", [&](cellc_options& o) { o.tolerance = of_kernel, o.trust_scans = trust_scans; });
    ReadyOnGpu call(kernel, CELLC_BACKWARD, shape, *emulator_);
    cellc_call_options options;
    cellc_call_options_init(&options);
    options.has_tolerance = of_call > 0;
    options.tolerance = of_call;
    call.options = &options;
    cellc_report report;
    cellc_report_init(&report);
    EXPECT_EQ(call.again(nullptr, &report), CELLC_OK) << cellc_last_error();
    EXPECT_NE(std::string(report.plan).find("\"scan\""), std::string::npos) << report.plan;
    return report.repaired;
  };
  EXPECT_EQ(walked(0, 0, false), 0);
  const std::int64_t named = walked(1e-6, 0, false);  // which is what is taken where none is named
  EXPECT_GT(named, 0);
  EXPECT_EQ(walked(0, 1e-6, false), named);
  EXPECT_EQ(walked(1, 1e-6, false), named);
  EXPECT_EQ(walked(16e-6, 0, false), 0);
  EXPECT_EQ(walked(1e-6, 0, true), 0);  // nobody looks
}

// Cotangents of a mean are far below what f16 holds: as they are, factors of products would be zeros.
TEST_F(TolerancesOnGpu, ProductsOfF16KeepSmallCotangents) {
  const struct {
    const char* name;
    const char* text;
  } cells[] = {{"lanes", "cell c[d, m=24] {\n  state h[d]\n  input x[m]\n  param W[d,m]\n  h' = 0.5*h + W@x\n}\n"},
               {"mixes",
                "cell c[d, m=24] {\n  state h[d]\n  input x[m]\n  param W[d,m], U[d,d]\n"
                "  h' = tanh(0.1*(U@h) + W@x)\n}\n"}};
  const std::int64_t lengths[] = {16, 24};
  for (const auto& [name, text] : cells)
    for (const double scale : {1.0, 1e-6, 1e-12}) {
      SCOPED_TRACE(fmt::format("{}, {}", name, scale));
      const auto by = [&](const char* device, const char* products) {
        cellc_kernel* const kernel = compile(text, device, [&](cellc_options& o) {
          o.dtype = CELLC_F16;
          o.products = products;
        });
        NamedCall call{.kernel = kernel, .shape = shape_of(lengths, 2, 21)};
        if (products) call.gpu = emulator_.get();
        return call;
      };
      NamedCall exact = by("cpu", nullptr), halves = by("cuda", "storage");
      const auto fill = [&](const std::string& of, std::vector<std::int64_t> shape, double by) {
        Array& array = exact.arrays[of] = Array(Dtype::F32, std::move(shape));
        for (std::int64_t i = 0; i < array.count(); ++i)
          array.set(i, by * std::sin(0.7 * static_cast<double>(i + 1) + of[of.size() - 1]));
      };
      fill("x", {2, 21, 24}, 1);
      fill("W", {16, 24}, 0.5);
      fill("U", {16, 16}, 0.5);
      halves.arrays = exact.arrays;
      ASSERT_EQ(exact.run(CELLC_FORWARD), CELLC_OK) << cellc_last_error();
      ASSERT_EQ(halves.run(CELLC_FORWARD), CELLC_OK) << cellc_last_error();
      // Rows of cotangents have 16 bits themselves, the final's has not.
      if (scale > 1e-10) fill("cotangent.h", {2, 21, 16}, scale);
      fill("cotangent.h.final", {2, 16}, scale);
      for (const auto& [of, array] : exact.arrays)
        if (of.starts_with("cotangent.")) halves.arrays[of] = array;
      halves.arrays["h"] = exact.arrays["h"];
      cellc_report report;
      cellc_report_init(&report);
      ASSERT_EQ(exact.run(CELLC_BACKWARD), CELLC_OK) << cellc_last_error();
      ASSERT_EQ(halves.run(CELLC_BACKWARD, &report), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(std::string(report.plan).find("no numbers"), std::string::npos) << report.plan;
      double furthest = 0;
      int looked_at = 0;
      for (const auto& [of, want] : exact.arrays) {
        if (!of.starts_with("gradient.")) continue;
        double most = 0, error = 0;
        for (std::int64_t i = 0; i < want.count(); ++i) {
          most = std::max(most, std::abs(want.get(i)));
          error = std::max(error, std::abs(halves.arrays.at(of).get(i) - want.get(i)));
        }
        if (most < 1e-2 * scale) continue;  // what the state has forgotten
        ++looked_at;
        EXPECT_LT(error, 4e-3 * most) << of;
        furthest = std::max(furthest, error / most);
      }
      EXPECT_GE(looked_at, 2);
      EXPECT_GT(furthest, 1e-6);  // they are of f16
    }
}

}  // namespace
}  // namespace cellc
