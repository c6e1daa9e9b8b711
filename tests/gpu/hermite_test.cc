// The cubic that two runs of a segment tell (kernels-templates/segments/hermite.cuh), on the emulator: a map that is a
// cubic is known everywhere between the two starts, and what two runs cannot tell leaves the line as it is.
#include <fmt/format.h>

#include <cmath>

#include "runtime/cuda/build/kernel_templates.h"
#include "tests/gpu/emulated.h"

namespace cellc {
namespace {

struct Line {
  double end, slope;
};

/// What becomes of (end, slope) at `began` where the run before began at `before`, seen from `by` further on.
/// `between`: and a run between the two, if it is not where that at `began` is.
Line followed(double began, Line now, double before, Line then, double by, double between = NAN, Line middle = {}) {
  static const auto gpu = open_emulator();
  static const GpuFunction kernel = [] {
    std::string text = "#define CELLC_STORAGE_F64 1\n";
    for (const char* part : {"preamble.cuh", "math.cuh", "stub_traits.cuh", "stub_cell.cuh", "lanes.cuh", "sweep.cuh",
                             "maps.cuh", "semirings.cuh", "transitions.cuh", "segments.cuh", "hermite.cuh"})
      text += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
    text += R"(
extern "C" __global__ void kernel(double* x) {
  cellc::HermiteMap bend;
  cellc::Runs runs;
  runs.start[0] = x[3], runs.end[0] = x[4], runs.slope[0] = x[5];
  runs.start[1] = x[7], runs.end[1] = x[8], runs.slope[1] = x[9];
  bend.take(x[0], runs, x[7] == x[7]);
  bend.fit(x[1], x[2], 1e-6);
  bend.follow(x[6], x[1], x[2]);
})";
    return compile(*gpu, text);
  }();
  const auto x = upload(*gpu, std::vector<double>{began, now.end, now.slope, before, then.end, then.slope, by, between,
                                                  middle.end, middle.slope});
  launch(*gpu, kernel, shape(1, 1), x.address());
  const auto result = download<double>(*gpu, x);
  return {result[1], result[2]};
}

double cubic(double x) { return 0.3 + x * (0.7 + x * (-0.4 + x * 0.9)); }
double slope(double x) { return 0.7 + x * (-0.8 + x * 2.7); }

TEST(Hermite, ACubicIsKnownBetweenItsTwoStarts) {
  const double before = -0.35, began = 0.25;
  for (const double by : {0.0, -0.1, -0.3, -0.6, 0.2, 0.8, -1.4}) {
    const Line line = followed(began, {cubic(began), slope(began)}, before, {cubic(before), slope(before)}, by);
    EXPECT_NEAR(line.end + line.slope * by, cubic(began + by), 1e-14) << by;
    EXPECT_NEAR(line.slope, slope(began + by), 1e-13) << by;
  }
}

TEST(Hermite, AQuinticIsKnownBetweenItsThreeStarts) {
  const auto value = [](double x) { return cubic(x) + x * x * x * x * (0.8 - 1.3 * x); };
  const auto steep = [](double x) { return slope(x) + x * x * x * (3.2 - 6.5 * x); };
  const double before = -0.35, between = 0.03, began = 0.25;
  for (const double by : {0.0, -0.1, -0.22, -0.5, -0.6, 0.2, -0.9}) {
    const Line line = followed(began, {value(began), steep(began)}, before, {value(before), steep(before)}, by, between,
                               {value(between), steep(between)});
    EXPECT_NEAR(line.end + line.slope * by, value(began + by), 1e-13) << by;
    EXPECT_NEAR(line.slope, steep(began + by), 1e-12) << by;
  }
}

TEST(Hermite, ARunWithoutCarriersLeavesAParabola) {
  const auto square = [](double x) { return 0.1 + x * (0.5 + x * 0.25); };
  const Line line = followed(0.5, {square(0.5), 0.75}, 0, {square(0), 0}, -0.2);
  EXPECT_NEAR(line.end - 0.2 * line.slope, square(0.3), 1e-15);
  EXPECT_NEAR(line.slope, 0.5 + 0.5 * 0.3, 1e-14);
}

TEST(Hermite, WhatIsNotKnownLeavesTheLine) {
  const double nan = std::nan(""), infinite = HUGE_VAL;
  const Line now{cubic(0.25), slope(0.25)};
  const auto stays = [&](double before, Line then, double by) {
    const Line line = followed(0.25, now, before, then, by);
    EXPECT_EQ(line.end, now.end) << before << " " << by;
    EXPECT_EQ(line.slope, now.slope) << before << " " << by;
  };
  stays(0.25, now, 0.1);                                               // run once
  stays(0.25 - 1e-7, {cubic(0.25 - 1e-7) + 1e-9, slope(0.25)}, 1e-7);  // rounding would be taken for a bend
  stays(-0.35, {cubic(-0.35), slope(-0.35)}, 1.0);                     // far beyond the two starts
  stays(-0.35, {cubic(-0.35), slope(-0.35)}, -1.6);
  stays(-0.35, {cubic(-0.35), slope(-0.35)}, nan);
  stays(-0.35, {nan, slope(-0.35)}, 0.1);
  stays(infinite, {1, 1}, 0.1);
  stays(0.25 - 1e-200, {now.end + 1, now.slope}, 1e-201);  // a chord that overflows
}

}  // namespace
}  // namespace cellc
