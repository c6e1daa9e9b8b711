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

}  // namespace
}  // namespace cellc
