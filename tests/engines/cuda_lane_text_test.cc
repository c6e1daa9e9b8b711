// The CUDA text of single lane cells: which entries transitions have, names that are awkward in C++, lines,
// refusals.
#include <gtest/gtest.h>

#include <stdexcept>

#include "compiler/codegen_cuda/without_names.h"
#include "compiler/derive/pipeline.h"
#include "tests/engines/cuda_lane_code.h"

namespace cellc {
namespace {

std::vector<Emitted> emitted(const std::string& text, Storage storage) {
  const SourceText source("test.cell", text);
  const File file = oracle::parse_or_throw(source);
  std::vector<Emitted> all;
  emit_all(source, file, file.cells.at(0), {}, storage, all);
  return all;
}

const Emitted& named(const std::vector<Emitted>& all, const std::string& suffix) {
  for (const Emitted& e : all)
    if (e.label.ends_with(suffix)) return e;
  throw std::runtime_error("no " + suffix);
}

TEST(CudaLane, TextsWithoutNames) {
  const auto of = [](const char* text) {
    return without_names(named(emitted(text, Storage::F32), "1, carried").code.text);
  };
  const std::string one =
      of("cell a[d] {\n state h[d]\n input x[d]\n param w[d]\n y = w*h\n h' = tanh(y + x) + y\n}\n");
  EXPECT_EQ(one.find("#line"), std::string::npos);
  EXPECT_EQ(one.find("//"), std::string::npos);
  EXPECT_EQ(
      one, of("cell a[d] {\n\n state other[d]\n input to[d]\n param by[d]\n v0 = by*other\n\n other' = tanh(v0 + to) + "
              "v0\n}\n"));
  EXPECT_NE(one, of("cell a[d] {\n state h[d]\n input x[d]\n param w[d]\n y = w*h\n h' = tanh(y - x) + y\n}\n"));
  EXPECT_NE(one, of("cell a[d] {\n state h[d]\n input w[d], x[d]\n y = w*h\n h' = tanh(y + x) + y\n}\n"));
  // A number is told from a value, and one value from another.
  EXPECT_EQ(without_names("y_ = z_ + 1_0; // y_\n#line 3 \"a\"\nz_ = y_\n"), "v0_ = v1_ + 1_0; \nv1_ = v0_\n");
  EXPECT_NE(without_names("a_ + b_"), without_names("a_ + a_"));
}

// A coupling that only entries show: each of a chain hears the one before it.
TEST(CudaLane, ZeroMaskIsByEntry) {
  const std::vector<Emitted> all = emitted(R"(cell chain[d, k = 3] {
  state S[d, k]
  input x[d]
  param a[d]
  S'[d,k] = a*S + x*(eye[k,1]*S[d,0] + eye[k,2]*S[d,1])
}
)",
                                           Storage::F64);
  const Emitted& carried = named(all, "1, carried");
  EXPECT_EQ(carried.code.states.size(), 3u + 6u) << carried.code.text;
  const Runner<double> runner(all, Storage::F64);
  const auto rule = runner.rules[&carried - all.data()];
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) EXPECT_EQ(rule(3 * i + j) >= 0, i >= j) << i << ", " << j;
}

// The headers bring in macros, the dialect some more (linux, unix).
TEST(CudaLane, AnyNameIsLegal) {
  const std::vector<Emitted> all = emitted(R"(cell awkward[d, k = 2] {
  state int[d], float[d], step[d], warpSize[d], next[d], Real[d], cellc[d], S[d,k]
  input uniform[d], threadIdx[d], NULL[d]
  param kStates[d], linux[d], entry, M_PI[k]
  double = int*float + uniform
  t1 = step*warpSize + threadIdx
  t1_2 = t1*double + NULL
  unix = t1*t1_2
  errno = unix*linux + kStates*entry
  I = sum[k](S*M_PI)
  EOF = 0.5*S + I
  param_ = tanh(errno)
  const = sigmoid(param_)
  INFINITY = const*param_
  __x = INFINITY + const
  x__y = __x*__x
  int' = double*0.1
  float' = t1
  step' = t1_2
  warpSize' = unix + errno
  next' = const*next
  Real' = x__y*Real
  cellc' = 0.3*cellc + INFINITY
  S' = 0.5*EOF
}
)",
                                           Storage::F64);
  const std::string headers =
      "#include <assert.h>\n#include <complex.h>\n#include <errno.h>\n#include <math.h>\n#include <stdio.h>\n"
      "#include <sys/sysmacros.h>\n#include <limits.h>\n#include <stdlib.h>\n";
  const Runner<double> runner(
      all, Storage::F64, headers,
      "-std=gnu++17 -O0 -Wall -Wno-unused-variable -Wno-unused-function -Werror -ffp-contract=off");
  for (std::size_t i = 0; i < all.size(); ++i) {
    oracle::Random random(3);
    Values values = draw(all[i], random, false);
    clear_left_out(all[i], values);
    const std::vector<double> got = runner.step(static_cast<int>(i), all[i], values), want = reference(all[i], values);
    for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(near(got[k], want[k], 1e-12)) << all[i].label << " " << k;
  }
  EXPECT_NE(named(all, "1, step").code.text.find("const Real double_ = "), std::string::npos);
}

TEST(CudaLane, CompilerErrorsPointAtTheCell) {
  std::vector<Emitted> all =
      emitted("cell c[d] {\n  state h[d]\n  input x[d]\n\n  z = sigmoid(h + x)\n\n  h' = z*h\n}\n", Storage::F64);
  std::string& text = all[0].code.text;
  const std::size_t at = text.find("cellc::scaled_sigmoid");
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, 21, "cellc::nothing");
  try {
    Runner<double> runner(all, Storage::F64);
    FAIL() << "compiled";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("test.cell:5:"), std::string::npos) << e.what();
  }
}

TEST(CudaLane, RefusesWhatIsTooLong) {
  const SourceText source("test.cell", "cell long[d, k = 64] {\n  state S[k,d]\n  param W[k,k]\n  S' = tanh(W@S)\n}\n");
  const File file = oracle::parse_or_throw(source);
  const Lowered cell = lowered(source, file, file.cells.at(0));
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  const StageCells& stage = staged.stages.at(0);
  EXPECT_THROW(emit_cuda_lane(stage.lanes.cell, stage.lane, {}), ScalarizedTooLong);
  CudaLaneOptions options;
  options.limit = 64 * 64 * 2 + 64;
  EXPECT_EQ(emit_cuda_lane(stage.lanes.cell, stage.lane, options).operations, 64 * 64 * 2 + 64);
}

TEST(CudaLane, ALengthThatIsMissingIsNamed) {
  const SourceText source("test.cell", "cell c[d, k] {\n  state S[k,d]\n  param W[k,k]\n  S' = tanh(W@S)\n}\n");
  const File file = oracle::parse_or_throw(source);
  const Lowered cell = lowered(source, file, file.cells.at(0));
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  try {
    emit_cuda_lane(staged.stages.at(0).lanes.cell, staged.stages.at(0).lane, {});
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("axis 'k'"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace cellc
