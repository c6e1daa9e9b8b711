// `build --cpu` with several processors: a call takes the code of the last that the machine can run, and says so where
// it can run none. bdver3 and bdver4 have instructions that no x86 of the last years has (XOP).
#include <gtest/gtest.h>

#include "build_fixture.h"

#if defined(__x86_64__)
namespace cellc {
namespace {

const char* kCell = R"(cell mixer[d] {
  state h[d] = h0
  input x[d]
  param U[d,d], h0[d], bias = 0.1
  h' = tanh(U@h + x + bias)*sigmoid(x - h)
  out y = sum[d](h'*exp(x))
}
)";

/// Prints what is supported, what a call gave, and every bit that it wrote.
const char* kProgram = R"(#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "mixer.h"
enum { B = 3, T = 40, D = 37 };
static float x[B * T * D], U[D * D], h0[D], h[B * T * D], y[B * T];
static char workspace[1 << 16];
int main(void) {
  mixer_lengths lengths;
  mixer_arrays arrays;
  int64_t bytes = 0;
  int result, i;
  uint32_t bits;
  memset(&lengths, 0, sizeof lengths);
  memset(&arrays, 0, sizeof arrays);
  for (i = 0; i < B * T * D; ++i) x[i] = (float)(i * 37 % 101) * 0.03f - 1.5f;
  for (i = 0; i < D * D; ++i) U[i] = (float)(i * 53 % 97) * 0.005f - 0.24f;
  for (i = 0; i < D; ++i) h0[i] = (float)i * 0.02f;
  lengths.d = D; lengths.sequences = B; lengths.steps = T;
  arrays.x = x; arrays.U = U; arrays.h0 = h0; arrays.h = h; arrays.y = y;
  printf("%d\n", mixer_supported());
  result = mixer_workspace(&lengths, &bytes);
  if (bytes > (int64_t)sizeof workspace) return 2;
  if (!result) result = mixer_forward(&lengths, &arrays, workspace, bytes, NULL);
  if (result == CELLC_NO_PROCESSOR) printf("none: %s\n", mixer_message(result));
  else if (result) printf("%s\n", mixer_message(result));
  else {
    for (i = 0; i < B * T * D; ++i) memcpy(&bits, h + i, 4), printf("%08x ", (unsigned)bits);
    for (i = 0; i < B * T; ++i) memcpy(&bits, y + i, 4), printf("%08x ", (unsigned)bits);
  }
  return 0;
}
)";

class CommandBuildProcessors : public CommandBuild {
 protected:
  void SetUp() override {
    CommandBuild::SetUp();
    write("mixer.cell", kCell);
    write("use.c", kProgram);
  }
  /// What the program says with code for these processors: the first line, and the rest.
  std::pair<std::string, std::string> run(const std::string& cpus) {
    build({"mixer.cell", "--target", "cpu-object", "-o", "mixer.o", "--cpu", cpus});
    const std::string said = shell(kCc + "use.c mixer.o -o use && ./use");
    const std::size_t line = said.find('\n');
    return {said.substr(0, line), said.substr(line + 1)};
  }
};

TEST_F(CommandBuildProcessors, CallsTakeTheLastThatRuns) {
  const std::string supported = run("x86-64-v2,x86-64-v3,x86-64-v4").first;
  ASSERT_TRUE(supported == "1" || supported == "2" || supported == "3") << supported;
  const std::string best = "x86-64-v" + std::to_string(std::stoi(supported) + 1);
  const std::string alone = run(best).second;
  EXPECT_GT(alone.size(), 30000u);
  EXPECT_EQ(run("x86-64-v2,x86-64-v3,x86-64-v4").second, alone);
  EXPECT_EQ(run(best + ",bdver4"), std::pair("1" + std::string(), alone));
  EXPECT_EQ(run("bdver3,x86-64-v2,bdver4").first, "2");
  EXPECT_EQ(run("bdver3,x86-64-v2,bdver4").second, run("x86-64-v2").second);
  EXPECT_EQ(run("x86-64-v2").first, "1");
}

TEST_F(CommandBuildProcessors, WhereNoneRunsCallsSaySo) {
  const auto none = run("bdver3,bdver4");
  EXPECT_EQ(none.first, "0");
  EXPECT_EQ(none.second, "none: this machine's processor runs none of the code that this was built with\n");
  build({"mixer.cell", "--target", "cpu-shared", "-o", "libmixer.so", "--cpu", "bdver4"});
  EXPECT_EQ(shell("python3 -c \"import ctypes; print(ctypes.CDLL('./libmixer.so').mixer_supported())\""), "0\n");
}

TEST_F(CommandBuildProcessors, ALibraryShowsEachFunctionOnce) {
  const nlohmann::json report = build({"mixer.cell", "--target", "cpu-shared", "--backward", "-o", "libmixer.so",
                                       "--cpu", "x86-64-v2,x86-64-v3,x86-64-v4"});
  EXPECT_EQ(report["cpu"], "x86-64-v2,x86-64-v3,x86-64-v4");
  EXPECT_HAS(report["about"].get<std::string>(), "for x86-64-v2, x86-64-v3, x86-64-v4, by");
  EXPECT_EQ(shell("nm -D --defined-only libmixer.so | awk '{print $3}' | sort | tr '\\n' ' '"),
            "mixer_about mixer_backward mixer_backward_about mixer_backward_as mixer_backward_message "
            "mixer_backward_workspace mixer_backward_workspace_as mixer_forward mixer_forward_as mixer_message "
            "mixer_supported mixer_workspace mixer_workspace_as ");
  EXPECT_EQ(shell("nm -D --undefined-only libmixer.so | awk '{print $2}' | grep -v -E '^mem(cpy|move|set)$' || true"),
            "");
  write("load.py",
        "import ctypes\n"
        "cell = ctypes.CDLL('./libmixer.so')\n"
        "cell.mixer_about.restype = cell.mixer_message.restype = ctypes.c_char_p\n"
        "assert 1 <= cell.mixer_supported() <= 3\n"
        "print(cell.mixer_about().decode()[:11], cell.mixer_message(cell.mixer_workspace(None, ctypes.byref("
        "ctypes.c_int64()))).decode())\n");
  EXPECT_EQ(shell("python3 load.py"), "cell mixer, the struct of lengths is a null pointer\n");
}

TEST_F(CommandBuildProcessors, WhatIsAskedOfAProcessor) {
  const Outcome old = cellc({"build", "mixer.cell", "--target", "cpu-object", "-o", "a.o", "--cpu", "x86-64"});
  EXPECT_EQ(old.status, 4);
  EXPECT_HAS(old.err, "processor 'x86-64' has no SSE 4.1");
  const Outcome unknown =
      cellc({"build", "mixer.cell", "--target", "cpu-object", "-o", "a.o", "--cpu", "x86-64-v3,abacus"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_HAS(unknown.err, "--cpu abacus: LLVM knows no processor");
  // What a processor lacks is no function of a library.
  build({"mixer.cell", "--target", "cpu-object", "-o", "a.o", "--dtype", "f16", "--cpu", "x86-64-v2,x86-64-v4"});
  EXPECT_EQ(shell("nm --undefined-only a.o | awk '{print $2}' | grep -v -E '^mem(cpy|move|set)$' || true"), "");
}

}  // namespace
}  // namespace cellc
#endif
