// `build --backward`: gradients by programs that know nothing of cellc.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "build_fixture.h"

namespace cellc {
namespace {

using nlohmann::json;

// The gradients that `run` makes, of the same file by a program of C99 and one of C++.
const char* kBackward = R"(#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mix.h"
enum { B = 2, T = 37, D = 5, M = 3 };
static float x[B * T * M], W[D * M], U[D * D], b[D], h[B * T * D], y[B * T], gy[B * T], gh[B * D];
static float gx[B * T * M], gW[D * M], gU[D * D], gb[D], g0[B * D];
int main(void) {
  mix_lengths lengths;
  mix_arrays forward;
  mix_backward_arrays backward;
  int64_t bytes = 0, more = 0;
  char* workspace;
  FILE* file = fopen("mix.bin", "rb");
  if (!file || fread(x, 4, B * T * M, file) != B * T * M || fread(W, 4, D * M, file) != D * M ||
      fread(U, 4, D * D, file) != D * D || fread(b, 4, D, file) != D || fread(gy, 4, B * T, file) != B * T ||
      fread(gh, 4, B * D, file) != B * D) return 2;
  fclose(file);
  memset(&lengths, 0, sizeof lengths);
  memset(&forward, 0, sizeof forward);
  memset(&backward, 0, sizeof backward);
  lengths.d = D; lengths.m = M; lengths.sequences = B; lengths.steps = T;
  forward.x = x; forward.W = W; forward.U = U; forward.b = b; forward.h = h; forward.y = y;
  backward.x = x; backward.W = W; backward.U = U; backward.b = b; backward.h = h;
  backward.y_cotangent = gy; backward.h_final_cotangent = gh;
  backward.x_gradient = gx; backward.W_gradient = gW; backward.U_gradient = gU; backward.b_gradient = gb;
  backward.h_start_gradient = g0;
  if (mix_workspace(&lengths, &bytes) || mix_backward_workspace(&lengths, &more)) return 3;
  workspace = (char*)malloc((size_t)(bytes + more));
  if (mix_forward(&lengths, &forward, workspace, bytes, NULL)) return 4;
  if (mix_backward(&lengths, &backward, workspace + bytes, more, NULL)) return 5;
  /* Bad calls say what is wrong, and write nothing. */
  backward.x_gradient = NULL;
  gW[0] += 1;
  backward.b = NULL;
  if (!strstr(mix_backward_message(mix_backward(&lengths, &backward, workspace, more, NULL)), "b is a null pointer")) return 6;
  backward.b = b;
  backward.h = NULL;
  if (!strstr(mix_backward_message(mix_backward(&lengths, &backward, workspace, more, NULL)), "h is a null pointer")) return 7;
  backward.h = h;
  if (!strstr(mix_backward_message(mix_backward(&lengths, &backward, workspace, more - 1, NULL)),
              "smaller than mix_backward_workspace")) return 8;
  if (mix_backward_as(1, &lengths, &backward, workspace, more, NULL) != CELLC_OTHER_LAYOUT) return 9;
  gW[0] -= 1;
  file = fopen("out.bin", "wb");
  if (!file || fwrite(gx, 4, B * T * M, file) != B * T * M || fwrite(gW, 4, D * M, file) != D * M ||
      fwrite(gU, 4, D * D, file) != D * D || fwrite(gb, 4, D, file) != D || fwrite(g0, 4, B * D, file) != B * D ||
      fclose(file)) return 10;
  free(workspace);
  return 0;
}
)";

TEST_F(CommandBuild, BackwardGivesTheGradientsOfRun) {
  write("mix.cell",
        "cell mix[d, m] {\n  state h[d]\n  input x[m]\n  param W[d,m], U[d,d], b[d] = 0.1\n"
        "  h' = tanh(W@x + U@h + b)\n  out y = sum[d](h')\n}\n");
  const auto wave = [](std::int64_t i) { return 0.4 * std::sin(0.37 * static_cast<double>(i)); };
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> arrays = {
      {"x", {2, 37, 3}}, {"W", {5, 3}}, {"U", {5, 5}}, {"b", {5}}, {"y", {2, 37}}, {"h.final", {2, 5}}};
  std::string all;
  for (const auto& [name, shape] : arrays) {
    array(name + ".npy", shape, wave);
    all += payload(name + ".npy");
  }
  write("mix.bin", all);
  const Outcome run =
      cellc({"run", "mix.cell", "--input", "x=x.npy", "--param", "W=W.npy", "--param", "U=U.npy", "--param", "b=b.npy",
             "--cotangent", "y=y.npy", "--cotangent", "h.final=h.final.npy", "--solver", "sequential", "--out", "out"});
  ASSERT_EQ(run.status, 0) << run.err;
  std::string expected;
  for (const char* name : {"x", "W", "U", "b", "h.initial"})
    expected += payload(std::string("out/grad.") + name + ".npy");
  write("use.c", kBackward);
  write("use.cc", kBackward);
  const json report = build({"mix.cell", "--target", "cpu-object", "--backward", "-o", "mix.o"});
  EXPECT_HAS(report["functions"].dump(), "mix_backward_workspace");
  build({"mix.cell", "--target", "cpu-shared", "--backward", "-o", "libmix.so", "--name", "mix"});
  for (const std::string& program :
       {kCc + "use.c mix.o -o use", kCpp + "use.cc mix.o -o use", kCc + "use.c -L. -lmix -Wl,-rpath,. -o use"}) {
    std::filesystem::remove(path("out.bin"));
    EXPECT_EQ(shell(program + " && ./use"), "") << program;
    const std::string got = bytes("out.bin");
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); i += 4) {
      float a, b;
      std::memcpy(&a, got.data() + i, 4);
      std::memcpy(&b, expected.data() + i, 4);
      EXPECT_NEAR(a, b, 2e-5 * (1 + std::fabs(b))) << i / 4;
    }
  }
  EXPECT_EQ(shell("nm -D --undefined-only libmix.so | awk '{print $2}' | grep -v -E '^mem(cpy|move|set)$' || true"),
            "");
  EXPECT_EQ(shell("nm -D --defined-only libmix.so | grep -c backward"), "6\n");
}

// Of a cell that reads lags, the gradients of histories too.
const char* kLagged = R"(#include <stdio.h>
#include <string.h>
#include "echo.h"
enum { B = 2, T = 37, D = 3 };
static float x[B * T * D], a[D], h[B * T * D], xl[B * 2 * D], hl[B * 3 * D], gh[B * T * D], ghl[B * 3 * D];
static float gx[B * T * D], ga[D], g0[B * D], gxl[B * 2 * D], g0l[B * 3 * D];
static char workspace[1 << 16];
int main(void) {
  echo_lengths lengths = {0};
  echo_arrays forward = {0};
  echo_backward_arrays backward = {0};
  int64_t bytes = 0, more = 0;
  FILE* file = fopen("echo.bin", "rb");
  if (!file || fread(x, 4, B * T * D, file) != B * T * D || fread(a, 4, D, file) != D ||
      fread(xl, 4, B * 2 * D, file) != B * 2 * D || fread(hl, 4, B * 3 * D, file) != B * 3 * D ||
      fread(gh, 4, B * T * D, file) != B * T * D || fread(ghl, 4, B * 3 * D, file) != B * 3 * D) return 2;
  fclose(file);
  lengths.d = D; lengths.sequences = B; lengths.steps = T;
  forward.x = x; forward.a = a; forward.x_lag = xl; forward.h_lag = hl; forward.h = h;
  backward.x = x; backward.a = a; backward.x_lag = xl; backward.h_lag = hl; backward.h = h;
  backward.h_cotangent = gh; backward.h_lag_final_cotangent = ghl;
  backward.x_gradient = gx; backward.a_gradient = ga; backward.h_start_gradient = g0;
  backward.x_lag_gradient = gxl; backward.h_lag_gradient = g0l;
  if (echo_workspace(&lengths, &bytes) || echo_backward_workspace(&lengths, &more)) return 3;
  if (bytes > (int64_t)sizeof workspace || more > (int64_t)sizeof workspace) return 4;
  if (echo_forward(&lengths, &forward, workspace, bytes, NULL)) return 5;
  if (echo_backward(&lengths, &backward, workspace, more, NULL)) return 6;
  file = fopen("out.bin", "wb");
  if (!file || fwrite(gx, 4, B * T * D, file) != B * T * D || fwrite(ga, 4, D, file) != D ||
      fwrite(g0, 4, B * D, file) != B * D || fwrite(gxl, 4, B * 2 * D, file) != B * 2 * D ||
      fwrite(g0l, 4, B * 3 * D, file) != B * 3 * D || fclose(file)) return 7;
  return 0;
}
)";
const char* kEcho =
    "cell echo[d] {\n  state h[d]\n  input x[d]\n  param a[d]\n"
    "  h' = tanh(a*h - 0.2*lag(h, 3) + x + 0.5*lag(x, 2))\n}\n";

// Headers of builds with and without gradients, in one unit: gradients are declared, whichever comes first.
TEST_F(CommandBuild, AHeaderWithoutGradientsHidesNone) {
  write("leaky.cell", "cell leaky[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x\n}\n");
  struct Case {
    std::string target, extension, call, as_c, as_cpp;
  };
  // What is asked of no memory is refused. CUDA source is not compiled here, only its header.
  for (const Case& c :
       {Case{"cpu-object", ".o", "leaky_backward_workspace(0, 0)", "use.c with_cpu-object.o -o use && ./use",
             "use.c -x none with_cpu-object.o -o use && ./use"},
        Case{"cuda-source", ".cu", "leaky_cuda_backward_workspace(0, 0, 0)", "-c use.c -o use.o",
             "-c use.c -o use.o"}}) {
    build({"leaky.cell", "--target", c.target, "-o", "without_" + c.target + c.extension});
    build({"leaky.cell", "--target", c.target, "--backward", "-o", "with_" + c.target + c.extension});
    const std::string with = "#include \"with_" + c.target + ".h\"\n",
                      without = "#include \"without_" + c.target + ".h\"\n";
    for (const std::string& headers : {with + without + with, without + with}) {
      SCOPED_TRACE(headers);
      write("use.c", headers + "int main(void) { return " + c.call + " == 0; }\n");
      EXPECT_EQ(shell(kCc + c.as_c), "");
      EXPECT_EQ(shell(kCpp + "-x c++ " + c.as_cpp), "");
    }
  }
}

TEST_F(CommandBuild, BackwardOfLagsGivesTheGradientsOfRun) {
  write("echo.cell", kEcho);
  const auto wave = [](std::int64_t i) { return 0.4 * std::sin(0.37 * static_cast<double>(i)); };
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> arrays = {
      {"x", {2, 37, 3}},    {"a", {3}},        {"x.lag", {2, 2, 3}},
      {"h.lag", {2, 3, 3}}, {"h", {2, 37, 3}}, {"h.lag.final", {2, 3, 3}}};
  std::string all;
  for (const auto& [name, shape] : arrays) {
    array(name + ".npy", shape, wave);
    all += payload(name + ".npy");
  }
  // A run has cotangents of no final history: what the program is given there is zeros.
  std::fill(all.end() - 2 * 3 * 3 * 4, all.end(), '\0');
  write("echo.bin", all);
  const Outcome run =
      cellc({"run", "echo.cell", "--input", "x=x.npy", "--param", "a=a.npy", "--input", "x.lag=x.lag.npy", "--state",
             "h.lag=h.lag.npy", "--cotangent", "h=h.npy", "--solver", "sequential", "--out", "out"});
  ASSERT_EQ(run.status, 0) << run.err;
  std::string expected;
  for (const char* name : {"x", "a", "h.initial", "x.lag", "h.lag"})
    expected += payload(std::string("out/grad.") + name + ".npy");
  write("use.c", kLagged);
  build({"echo.cell", "--target", "cpu-object", "--backward", "-o", "echo.o"});
  EXPECT_EQ(shell(kCc + "use.c echo.o -o use && ./use"), "");
  const std::string got = bytes("out.bin");
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); i += 4) {
    float a, b;
    std::memcpy(&a, got.data() + i, 4);
    std::memcpy(&b, expected.data() + i, 4);
    EXPECT_NEAR(a, b, 2e-5 * (1 + std::fabs(b))) << i / 4;
  }
}

// What is read has the storage type, and gradients are f32.
TEST_F(CommandBuild, BackwardOf16BitsHasGradientsOfF32) {
  write("echo.cell", kEcho);
  build({"echo.cell", "--target", "cpu-object", "--backward", "--dtype", "bf16", "-o", "echo.o"});
  write("use.c",
        "#include \"echo.h\"\nint main(void) {\n  echo_bf16_backward_arrays b = {0};\n"
        "  const uint16_t* half = b.h_cotangent;\n  const float* start = b.h_start;\n  float* x = b.x_gradient;\n"
        "  float* past = b.x_lag_gradient;\n  half = b.x_lag;\n"
        "  return half || start || x || past || !echo_bf16_backward_message(1);\n}\n");
  EXPECT_EQ(shell(kCc + "use.c echo.o -o use && ./use"), "");
}

}  // namespace
}  // namespace cellc
