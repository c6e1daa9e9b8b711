// `build`: what is compiled ahead of time, as programs use it that know nothing of cellc. They are built
// outside of the tree, against the object file and the shared library, in C99 and in C++.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "build_fixture.h"
#include "runtime/strategy/strategy.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

using nlohmann::json;

// Products, a start that is computed, a default, a lag: all that a driver has to deal with.
const char* kGru = R"(cell gru[d, m] {
  state h[d] = h0
  input x[m]
  param W[d,m], U[d,d], h0[d], bias = 0.1
  z = sigmoid(W@x + U@h + bias)
  h' = (1 - z)*h + z*tanh(W@lag(x, 2))
  out y = sum[d](h')
}
)";

/// Runs the cell on gru.bin (x, W, U, h0 as floats) and writes h, y, h_final, x_lag_final to out.bin.
/// Compiles as C99 and as C++.
const char* kProgram = R"(#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gru.h"
enum { B = 3, T = 41, D = 19, M = 6 };
static float x[B * T * M], W[D * M], U[D * D], h0[D];
static float h[B * T * D], y[B * T], last[B * D], past[B * 2 * M];
static int32_t status[B];
int main(void) {
  gru_lengths lengths;
  gru_arrays arrays;
  int64_t bytes = 0;
  void* workspace;
  int result, s;
  FILE* file = fopen("gru.bin", "rb");
  if (!file || fread(x, 4, B * T * M, file) != B * T * M || fread(W, 4, D * M, file) != D * M ||
      fread(U, 4, D * D, file) != D * D || fread(h0, 4, D, file) != D) return 2;
  fclose(file);
  memset(&lengths, 0, sizeof lengths);
  memset(&arrays, 0, sizeof arrays);
#ifdef OPEN
  lengths.d = D;
  lengths.m = M;
#endif
  lengths.sequences = B;
  lengths.steps = T;
  arrays.x = x;
  arrays.W = W;
  arrays.U = U;
  arrays.h0 = h0;
  arrays.h = h;
  arrays.y = y;
  arrays.h_final = last;
  arrays.x_lag_final = past;
  result = gru_workspace(&lengths, &bytes);
  if (result) { printf("%s\n", gru_message(result)); return 3; }
  workspace = malloc((size_t)bytes);
  for (s = 0; s < B; ++s) status[s] = 9;
  result = gru_forward(&lengths, &arrays, workspace, bytes, status);
  if (result) { printf("%s\n", gru_message(result)); return 4; }
  for (s = 0; s < B; ++s) if (status[s]) return 5;
  file = fopen("out.bin", "wb");
  if (!file || fwrite(h, 4, B * T * D, file) != B * T * D || fwrite(y, 4, B * T, file) != B * T ||
      fwrite(last, 4, B * D, file) != B * D || fwrite(past, 4, B * 2 * M, file) != B * 2 * M || fclose(file)) return 6;
  free(workspace);
  puts(gru_about());
  return 0;
}
)";

/// Every kind of bad call: a result that is not 0, a message, and memory as it was.
const char* kBadCalls = R"(#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "gru.h"
enum { B = 2, T = 5, D = 4, M = 3 };
static float x[B * T * M], W[D * M], U[D * D], h0[D], h[B * T * D], y[B * T], last[B * D];
static unsigned char workspace[1 << 16];
static int32_t status[B];
static int wrong = 0;
static int64_t bytes;
static void expect(const char* what, const gru_lengths* l, const gru_arrays* a, void* w, int64_t n, const char* word) {
  size_t i;
  int result;
  for (i = 0; i < sizeof workspace; ++i) workspace[i] = 0x5a;
  for (i = 0; i < B * T * D; ++i) h[i] = 77;
  status[0] = status[1] = 9;
  result = gru_forward(l, a, w, n, status);
  if (!result || !strstr(gru_message(result), word)) {
    printf("%s: result %d, %s\n", what, result, gru_message(result));
    wrong = 1;
  }
  for (i = 0; i < B * T * D; ++i) if (h[i] != 77) { printf("%s: wrote h\n", what); wrong = 1; break; }
  for (i = 0; i < sizeof workspace; ++i) if (workspace[i] != 0x5a) { printf("%s: wrote the workspace\n", what); wrong = 1; break; }
  if (status[0] != 9 || status[1] != 9) { printf("%s: wrote the status\n", what); wrong = 1; }
}
int main(void) {
  gru_lengths l, good;
  gru_arrays a, fine;
  static const int64_t late[] = {1, 3, 5}, backwards[] = {0, 5, 4};
  memset(&good, 0, sizeof good);
  memset(&fine, 0, sizeof fine);
  good.d = D; good.m = M; good.sequences = B; good.steps = T;
  fine.x = x; fine.W = W; fine.U = U; fine.h0 = h0; fine.h = h; fine.y = y; fine.h_final = last;
  if (gru_workspace(&good, &bytes) || bytes > (int64_t)sizeof workspace) return 2;
  if (!gru_workspace(&good, NULL) || !gru_workspace(NULL, &bytes)) return 3;
  expect("no lengths", NULL, &fine, workspace, bytes, "lengths");
  expect("no arrays", &good, NULL, workspace, bytes, "arrays");
  expect("no workspace", &good, &fine, NULL, bytes, "workspace is a null");
  expect("small workspace", &good, &fine, workspace, bytes - 1, "workspace is smaller");
  expect("negative workspace", &good, &fine, workspace, -1, "workspace is smaller");
  a = fine; a.x = NULL; expect("no x", &good, &a, workspace, bytes, "x is a null");
  a = fine; a.W = NULL; expect("no W", &good, &a, workspace, bytes, "W is a null");
  l = good; l.d = 0; expect("no channels", &l, &fine, workspace, bytes, "axis d");
  l = good; l.m = -3; expect("negative axis", &l, &fine, workspace, bytes, "axis m");
  l = good; l.sequences = -1; expect("negative batch", &l, &fine, workspace, bytes, "sequences");
  l = good; l.steps = -1; expect("negative steps", &l, &fine, workspace, bytes, "steps");
  l = good; l.d = LLONG_MAX / 2; expect("huge", &l, &fine, workspace, bytes, "too large");
  l = good; l.d = 1LL << 40; l.m = 1LL << 40; expect("large", &l, &fine, workspace, bytes, "workspace is smaller");
  l = good; l.offsets = late; expect("late offsets", &l, &fine, workspace, bytes, "not 0");
  l = good; l.offsets = backwards; expect("offsets", &l, &fine, workspace, bytes, "decrease");
  if (strcmp(gru_message(-7), gru_message(9999)) || !gru_message(0)) return 4;
  if (gru_forward(&good, &fine, workspace, bytes, NULL)) return 5;
  return wrong;
}
)";

/// Eight threads, each with a workspace of its own, give what one gives.
const char* kThreads = R"(#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>
#include "gru.h"
int main() {
  constexpr int B = 2, T = 60, D = 16, M = 5;
  std::vector<float> x(B * T * M), W(D * M), U(D * D), h0(D, 0.5f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(i % 7) - 3;
  for (std::size_t i = 0; i < W.size(); ++i) W[i] = float(i % 5) * 0.1f - 0.2f;
  for (std::size_t i = 0; i < U.size(); ++i) U[i] = float(i % 3) * 0.1f - 0.1f;
  gru_lengths lengths{D, M, B, T, nullptr, 0};
  std::vector<std::vector<float>> results(8, std::vector<float>(B * T * D));
  std::vector<int> failed(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      std::int64_t bytes = 0;
      failed[i] |= gru_workspace(&lengths, &bytes);
      std::vector<char> workspace(bytes);
      gru_arrays arrays{};
      arrays.x = x.data(); arrays.W = W.data(); arrays.U = U.data(); arrays.h0 = h0.data(); arrays.h = results[i].data();
      for (int k = 0; k < 20; ++k) failed[i] |= gru_forward(&lengths, &arrays, workspace.data(), bytes, nullptr);
    });
  for (auto& t : threads) t.join();
  for (int i = 0; i < 8; ++i)
    if (failed[i] || results[i] != results[0] || results[0][5] == 0) return 1;
  return 0;
}
)";

TEST_F(CommandBuild, ProgramsGiveTheBitsOfRun) {
  write("gru.cell", kGru);
  const auto wave = [](std::int64_t i) { return 0.4 * std::sin(0.37 * static_cast<double>(i)); };
  array("x.npy", {3, 41, 6}, wave);
  array("W.npy", {19, 6}, wave);
  array("U.npy", {19, 19}, wave);
  array("h0.npy", {19}, wave);
  const json pinned = build({"gru.cell", "--target", "cpu-object", "-o", "gru.o"});
  write("plan.json", pinned.dump());
  const Outcome run =
      cellc({"run", "gru.cell", "--cpu", "x86-64-v3", "--plan", "plan.json", "--input", "x=x.npy", "--param", "W=W.npy",
             "--param", "U=U.npy", "--param", "h0=h0.npy", "--out", "out", "--verify"});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string expected =
      payload("out/h.npy") + payload("out/y.npy") + payload("out/h.final.npy") + payload("out/x.lag.npy");
  write("gru.bin", payload("x.npy") + payload("W.npy") + payload("U.npy") + payload("h0.npy"));
  write("use.c", kProgram);
  write("use.cc", kProgram);
  build({"gru.cell", "--target", "cpu-shared", "-o", "libgru.so"});
  const std::vector<std::string> programs = {
      kCc + "-DOPEN use.c gru.o -o use",
      kCpp + "-DOPEN use.cc gru.o -o use",
      kCc + "-DOPEN use.c -L. -lgru -Wl,-rpath,. -o use",
      kCpp + "-DOPEN use.cc -L. -lgru -Wl,-rpath,. -o use",
  };
  for (const std::string& program : programs) {
    std::filesystem::remove(path("out.bin"));
    EXPECT_EQ(shell(program), "");
    EXPECT_HAS(shell("./use"), "cell gru, f32, for x86-64-v3");
    EXPECT_TRUE(bytes("out.bin") == expected) << program;
    const std::string needed = shell("ldd ./use");
    for (const char* none : {"cellc", "LLVM", "blas", "libm.", "fmt"})
      EXPECT_EQ(needed.find(none), std::string::npos) << needed;
  }
  // Fixed lengths are the same loops.
  build({"gru.cell", "--target", "cpu-object", "-o", "gru.o", "--dim", "d=19", "--dim", "m=6", "--length", "41",
         "--name", "gru"});
  shell(kCc + "use.c gru.o -o use && ./use");
  EXPECT_TRUE(bytes("out.bin") == expected);
}

TEST_F(CommandBuild, BadCallsAndManyThreads) {
  write("gru.cell", kGru);
  write("bad.c", kBadCalls);
  write("threads.cc", kThreads);
  build({"gru.cell", "--target", "cpu-object", "-o", "gru.o"});
  EXPECT_EQ(shell(kCc + "bad.c gru.o -o bad -Wno-long-long && ./bad"), "");
  EXPECT_EQ(shell(kCpp + "threads.cc gru.o -o threads -pthread && ./threads"), "");
}

TEST_F(CommandBuild, SameInputSameBytes) {
  for (const char* target : {"cpu-object", "cpu-shared"}) {
    const json report = build({example("01_para_gru.cell"), "--target", target, "-o", "a/para_gru.so"});
    build({example("01_para_gru.cell"), "--target", target, "-o", "b/para_gru.so"});
    EXPECT_EQ(bytes("a/para_gru.so"), bytes("b/para_gru.so"));
    EXPECT_EQ(bytes("a/para_gru.h"), bytes("b/para_gru.h"));
    EXPECT_EQ(report["bytes"].get<std::size_t>(), bytes("a/para_gru.so").size());
    EXPECT_LT(bytes("a/para_gru.so").size(), 100'000u);
  }
  build({example("01_para_gru.cell"), "--target", "cpu-object", "-o", "c/para_gru.so", "--cpu", "x86-64-v4"});
  EXPECT_NE(bytes("a/para_gru.so"), bytes("c/para_gru.so"));
}

TEST_F(CommandBuild, LibraryShowsItsFunctionsOnly) {
  build({example("03_gru.cell"), "--target", "cpu-shared", "-o", "libgru.so", "--dtype", "bf16"});
  EXPECT_EQ(shell("readelf -d libgru.so | grep -c NEEDED || true"), "0\n");
  EXPECT_EQ(shell("nm -D --defined-only libgru.so | awk '{print $3}' | sort | tr '\\n' ' '"),
            "gru_bf16_about gru_bf16_forward gru_bf16_forward_as gru_bf16_message gru_bf16_supported "
            "gru_bf16_workspace gru_bf16_workspace_as ");
  EXPECT_EQ(shell("nm -D --undefined-only libgru.so | awk '{print $2}' | grep -v -E '^mem(cpy|move|set)$' || true"),
            "");
}

class CommandBuildCells : public CommandBuild, public testing::WithParamInterface<std::string> {};

TEST_P(CommandBuildCells, EveryTargetAndDtype) {
  const Outcome tree = cellc({"inspect", GetParam(), "--stage", "tree"});
  std::istringstream lines(tree.out);
  std::vector<std::string> cells;
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("cell ", 0) == 0) cells.push_back(line.substr(5, line.find_first_of(" [{", 5) - 5));
  ASSERT_FALSE(cells.empty()) << tree.out;
  for (const std::string& cell : cells)
    for (const char* dtype : {"f32", "f16"}) {
      build({GetParam(), "--cell", cell, "--target", "cpu-object", "--dtype", dtype, "-o", "cell.o"});
      const std::string header = bytes("cell.h");
      build({GetParam(), "--cell", cell, "--target", "cpu-shared", "--dtype", dtype, "-o", "cell.so"});
      EXPECT_EQ(bytes("cell.h"), header);
      // A program that only asks: linked with both, and by both kinds of compiler.
      const std::size_t end = header.find("_workspace(const ");
      const std::string name = header.substr(header.rfind(' ', end) + 1, end - header.rfind(' ', end) - 1);
      write("ask.c", "#include \"cell.h\"\nint main(void) { return " + name + "_workspace(0, 0) == 0 || !" + name +
                         "_about(); }\n");
      std::filesystem::copy_file(path("ask.c"), path("ask.cc"), std::filesystem::copy_options::overwrite_existing);
      EXPECT_EQ(shell(kCc + "ask.c cell.o -o ask && ./ask && " + kCc + "ask.c ./cell.so -Wl,-rpath,. -o ask && ./ask"),
                "")
          << cell;
      EXPECT_EQ(shell(kCpp + "-fsyntax-only ask.cc"), "") << cell;
    }
}

std::vector<std::string> example_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(CELLC_SOURCE_DIR "/dsl-examples"))
    if (entry.path().extension() == ".cell") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(Examples, CommandBuildCells, testing::ValuesIn(example_files()),
                         [](const auto& info) { return std::filesystem::path(info.param).stem().string(); });
CELLC_ONE_IN(2, "Examples/CommandBuildCells");

TEST_F(CommandBuild, TheLinkerIsWaitedForWhereChildrenAreIgnored) {
  ProcessOptions options;
  options.ignores_children = true;
  const Outcome outcome =
      cellc({"build", example("01_para_gru.cell"), "--target", "cpu-shared", "-o", "gru.so"}, options);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_GT(std::filesystem::file_size(path("gru.so")), 1000u);
  // A linker that fails, and one that only seems not to.
  options.environment = {{"PATH", path("bin")}};
  std::filesystem::create_directory(path("bin"));
  for (const auto& [script, message] : {std::pair{"#!/bin/sh\nexit 3\n", "ld could not link the library"},
                                        std::pair{"#!/bin/sh\nexit 0\n", "ld left no library"}}) {
    std::filesystem::permissions(write("bin/ld", script), std::filesystem::perms::owner_all);
    for (const bool ignores : {false, true}) {
      options.ignores_children = ignores;
      const Outcome failed =
          cellc({"build", example("01_para_gru.cell"), "--target", "cpu-shared", "-o", "bad.so"}, options);
      EXPECT_EQ(failed.status, 4);
      EXPECT_HAS(failed.err, message);
      EXPECT_FALSE(std::filesystem::exists(path("bad.so")));
    }
  }
}

TEST_F(CommandBuild, APathNeedNotBeUtf8) {
  const Outcome built =
      cellc({"build", example("01_para_gru.cell"), "--target", "cpu-object", "-o", "b\xff.o", "--json"});
  EXPECT_EQ(built.status, 0) << built.err;
  EXPECT_EQ(json::parse(built.out).at("out"), "b\xef\xbf\xbd.o");
}

TEST_F(CommandBuild, TheHeaderNamesStagesOfCopies) {
  const std::string cell =
      write("late.cell", "cell late[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x\n  out y = lag(h, 1)\n}\n");
  build({cell, "--target", "cpu-object", "-o", "late.o"});
  EXPECT_HAS(bytes("late.h"), "structure: {h} diagonal; {lag(h, 1)} diagonal\n");
}

// The names of a cell, the words of C and C++, macros of the C library and the suffixes of a header's own get
// out of each other's way.
TEST_F(CommandBuild, TheHeaderHasRoomForEveryName) {
  const std::string cell = write("main.cell", R"(cell main[int, sequences] {
  state h[int], new, x_start, INT64_MAX, SIZE_MAX, I
  input x[int], h_strides, h_final[sequences], int64_t, float, NAN
  param x_strides, h_ = 1, INT8_MIN = 2, typeof_unqual = 1
  h' = 0.5*h + x*h_ + x_strides
  new' = 0.5*new + h_strides + sum[sequences](h_final)
  x_start' = 0.5*x_start + int64_t*float
  INT64_MAX' = 0.5*INT64_MAX
  SIZE_MAX' = 0.5*SIZE_MAX + INT8_MIN
  I' = 0.5*I + typeof_unqual*NAN
}
)");
  build({cell, "--target", "cpu-object", "-o", "main.o"});
  const std::string use =
      "#include \"main.h\"\nint use(const main_arrays* a) { return a->h_strides != 0 && a->new_ != 0; }\n";
  write("use.c", use);
  write("after.c", "#include <complex.h>\n#include <limits.h>\n#include <math.h>\n#include <stdio.h>\n" + use);
  for (const char* program : {"use.c", "after.c"}) {
    shell(kCc + "-c " + program + " -o use.o");
    shell(kCpp + "-x c++ -c " + program + " -o use.o");
  }
}

TEST_F(CommandBuild, ACellMayBeCalledLlvm) {
  const std::string cell = write("llvm.cell", "cell llvm[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(h + x)\n}\n");
  build({cell, "--target", "cpu-shared", "-o", "libllvm.so"});
  write("use.c", "#include \"libllvm.h\"\nint main(void) { return llvm__about()[0] != 'c'; }\n");
  shell(kCc + "use.c -L. -lllvm -Wl,-rpath,. -o use && ./use");
}

// A program may have included any header of the C library before ours, whose macros would replace our members.
TEST_F(CommandBuild, NamesThatAreMacrosOrReservedAreTaken) {
  const std::string cell = write("names.cell", R"(cell names[SIGINT, EOF] {
  state _Bool[SIGINT], INFINITY[SIGINT]
  input RAND_MAX[EOF], errno[SIGINT]
  param W[SIGINT,EOF], CELLC_DEVICE[SIGINT], M_PI[SIGINT], PRId64, E2BIG[SIGINT], si_pid[SIGINT]
  _Bool' = 0.5*_Bool + W@RAND_MAX + CELLC_DEVICE*PRId64
  INFINITY' = 0.5*INFINITY + errno + M_PI + E2BIG*si_pid
}
)");
  build({cell, "--target", "cpu-object", "-o", "names.o"});
  write("use.c",
        "#include <errno.h>\n#include <inttypes.h>\n#include <math.h>\n#include <signal.h>\n#include <stdio.h>\n"
        "#include <stdlib.h>\n#include \"names.h\"\n"
        "int main(void) { names_arrays a = {0}; names_lengths l = {0}; return a.W != NULL || l.SIGINT_ != 0; }\n");
  shell(kCc + "-D_GNU_SOURCE use.c names.o -o use && ./use");
}

TEST_F(CommandBuild, NamesThatDifferInCaseAreTwoCells) {
  const std::string body = " {\n  state h\n  h' = 0.5*h\n}\n";
  const std::string cells = write("two.cell", "cell leaky" + body + "cell Leaky" + body);
  build({cells, "--cell", "leaky", "--target", "cpu-object", "-o", "one.o"});
  build({cells, "--cell", "Leaky", "--target", "cpu-object", "-o", "other.o"});
  write("use.c",
        "#include \"one.h\"\n#include \"other.h\"\nint main(void) { return leaky_message(0) == "
        "Leaky_about(); }\n");
  shell(kCc + "use.c one.o other.o -o use && ./use");
}

// gilr_lstm's W@x leave the step, and their kernel is the one that was asked for.
TEST_F(CommandBuild, ProductsAreThoseAskedFor) {
  const auto build_for = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"build", example("09_gilr_lstm.cell"), "--target", "cuda-source", "-o", "a.cu",
                                 "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome built = cellc(all);
    EXPECT_EQ(built.status, 0) << built.err;
    return json::parse(built.out).at("products");
  };
  const auto kernels_in = [&] { return bytes("a.cu"); };
  EXPECT_EQ(build_for({}), "3xtf32");
  EXPECT_HAS(kernels_in(), "#define CELLC_PRODUCTS_3XTF32 1");
  EXPECT_EQ(build_for({"--products", "tf32"}), "tf32");
  EXPECT_HAS(kernels_in(), "#define CELLC_PRODUCTS_TF32 1");
  EXPECT_EQ(build_for({"--products", "storage", "--dtype", "bf16"}), "bf16");
  EXPECT_HAS(kernels_in(), "#define CELLC_PRODUCTS_BF16 1");
  EXPECT_EQ(build_for({"--products", "f32"}), "f32");
  EXPECT_EQ(kernels_in().find("#define CELLC_PRODUCTS_"), std::string::npos);
}

// Kernels are the same; the tables say that scans wait.
TEST_F(CommandBuild, DeterministicIsOfTheTables) {
  const auto built = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"build", example("09_gilr_lstm.cell"), "--target", "cuda-source", "-o", "a.cu"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = cellc(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return bytes("a.cu");
  };
  const std::string plain = built({}), same = built({"--deterministic"});
  ASSERT_EQ(plain.size(), same.size());
  int differ = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] == same[i]) continue;
    ++differ;
    EXPECT_EQ(plain[i], '0');
    EXPECT_EQ(same[i], '1');
  }
  EXPECT_EQ(differ, 3);  // of two stages, and of the second one's lanes that make the out
}

TEST_F(CommandBuild, CudaSourceSaysWhatItIs) {
  write("gru.cell", kGru);
  ProcessOptions without;  // neither NVRTC nor a GPU is needed
  without.environment["CELLC_NVRTC"] = path("none");
  const Outcome built = cellc({"build", example("01_para_gru.cell"), "--target", "cuda-source", "--arch", "sm_90,sm_80",
                               "-o", "a.cu", "--json"},
                              without);
  ASSERT_EQ(built.status, 0) << built.err;
  const json facts = json::parse(built.out);
  EXPECT_EQ(facts["arch"], json({"sm_80", "sm_90"}));
  EXPECT_EQ(facts["functions"],
            json({"para_gru_cuda_workspace", "para_gru_cuda_forward", "para_gru_cuda_message", "para_gru_cuda_about"}));
  EXPECT_EQ(facts["runs"], json({"the stage {h}, a lane a thread: step by step, segments"}));
  EXPECT_EQ(facts["bytes"], std::filesystem::file_size(path("a.cu")));
  EXPECT_TRUE(std::filesystem::exists(path("a.h")));
  ASSERT_EQ(
      cellc({"build", example("01_para_gru.cell"), "--target", "cuda-source", "--arch", "sm_80,sm_90", "-o", "b.cu"},
            without)
          .status,
      0);
  std::ifstream a(path("a.cu")), b(path("b.cu"));
  std::stringstream first, second;
  first << a.rdbuf();
  second << b.rdbuf();
  EXPECT_EQ(first.str(), second.str());
  EXPECT_EQ(first.str().find(path("")), std::string::npos) << "no path of this machine";
}

TEST_F(CommandBuild, CubinsNeedNvrtcOnce) {
  const Outcome built = cellc(
      {"build", example("01_para_gru.cell"), "--target", "cubin", "--arch", "sm_80,sm_90", "-o", "a.cubin", "--json"});
  if (built.status == 4 && !std::getenv("CELLC_REQUIRE_NVRTC")) GTEST_SKIP() << built.err;
  ASSERT_EQ(built.status, 0) << built.err;
  EXPECT_EQ(json::parse(built.out)["functions"][0], "para_gru_cuda_load");
  const Outcome unknown =
      cellc({"build", example("01_para_gru.cell"), "--target", "cubin", "--arch", "sm_99", "-o", "b.cubin"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_HAS(unknown.err, "compiles for sm_");
}

TEST_F(CommandBuild, HelpNamesTheSolversThatAreBuiltAndNoOthers) {
  const std::string help = cellc({"build", "--help"}).out;
  const std::size_t begin = help.find("--solver"), end = help.find("\n  --", begin);
  ASSERT_NE(end, std::string::npos);
  std::string line = help.substr(begin, end - begin);
  for (const StrategyFacts& f : strategies()) {
    const Outcome outcome = cellc({"build", example("05_elman.cell"), "--target", "cuda-source", "-o", "a.cu", "--dim",
                                   "d=2", "--solver", f.name});
    const bool refused = outcome.err.find("leave the choice to auto, or run the cell by cellc") != std::string::npos;
    EXPECT_EQ(line.find(f.name) == std::string::npos, refused) << f.name << ": " << outcome.err << line;
    EXPECT_EQ(f.ships, !refused) << f.name;
  }
}

TEST_F(CommandBuild, Refusals) {
  write("gru.cell", kGru);
  write("pick.cell", "cell pick[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x[3]\n}\n");
  struct Case {
    std::vector<std::string> arguments;
    int status;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{"gru.cell", "--target", "wasm", "-o", "a.o"},
       2,
       "expected cuda-source, ptx, cubin, gpu-shared, cpu-object or cpu-shared"},
      {{"gru.cell", "-o", "a.o"}, 2, "--target"},
      {{"gru.cell", "--target", "cpu-object"}, 2, "--out"},
      {{"gru.cell", "--target", "cpu-object", "-o", "a.h"}, 2, "header"},
      {{"gru.cell", "--target", "cpu-object", "-o", "a.o", "--solver", "newton"}, 2, "step by step"},
      {{"gru.cell", "--target", "cpu-object", "-o", "a.o", "--solver", "magic"}, 2, "expected auto, sequential"},
      {{"gru.cell", "--target", "cpu-object", "-o", "a.o", "--dtype", "f8"}, 2, "f8"},
      {{"gru.cell", "--target", "cpu-object", "-o", "a.o", "--dim", "q=3"}, 2, "no axis 'q'"},
      {{"gru.cell", "--target", "cpu-object", "-o", "a.o", "--dim", "d=0"}, 2, "at least 1"},
      {{"pick.cell", "--target", "cpu-object", "-o", "a.o", "--dim", "d=2"}, 1, "needs 4 or more"},
      {{"gru.cell", "--target", "cpu-object", "-o", "a.o", "--cpu", "abacus"},
       2,
       "--cpu abacus: LLVM knows no processor of that name"},
      {{"none.cell", "--target", "cpu-object", "-o", "a.o"}, 1, "none.cell"},
      {{"gru.cell", "--target", "cuda-source", "-o", "a.o", "--cpu", "native"}, 2, "--target cuda-source is for GPUs"},
      {{"gru.cell", "--target", "cpu-object", "-o", "a.o", "--arch", "sm_90"}, 2, "--target cpu-object is for CPUs"},
      {{"gru.cell", "--target", "cuda-source", "-o", "a.o", "--arch", "h100"},
       2,
       "expected architectures such as sm_90"},
      {{"gru.cell", "--target", "cuda-source", "-o", "a.o", "--arch", "sm_75"}, 2, "need sm_80 or newer"},
      {{"gru.cell", "--target", "ptx", "-o", "a.o", "--arch", "sm_80,sm_90"}, 2, "PTX is of one architecture"},
      {{"gru.cell", "--target", "cpu-object", "-o", "a.o", "--solver", "stepped"}, 2, "step by step (sequential)"},
      {{"gru.cell", "--target", "cuda-source", "-o", "a.o", "--solver", "relaxation"},
       2,
       "wait for nothing; leave the choice to auto"},
      {{"gru.cell", "--target", "cuda-source", "-o", "a.o", "--solver", "stepped"},
       2,
       "are not built ahead of time; leave the choice to auto"},
      {{"gru.cell", "--target", "cuda-source", "-o", "a.o", "--solver", "segmented"}, 2, "run step by step on a GPU"},
      {{example("01_para_gru.cell"), "--target", "cuda-source", "-o", "a.o", "--solver", "scan"},
       2,
       "--solver scan: the stage {h} is neither linear nor"},
      {{"gru.cell", "--target", "cuda-source", "-o", "a.o", "--solver", "persistent"},
       2,
       "are not built ahead of time"},
      {{"gru.cell", "--target", "cuda-source", "-o", "a.o", "--dim", "q=3"}, 2, "no axis 'q'"},
  };
  for (const Case& c : cases) {
    std::vector<std::string> arguments = c.arguments;
    arguments.insert(arguments.begin(), "build");
    const Outcome outcome = cellc(arguments);
    EXPECT_EQ(outcome.status, c.status) << outcome.err;
    EXPECT_HAS(outcome.err, c.message);
    EXPECT_FALSE(std::filesystem::exists(path("a.o")));
  }
  const Outcome run =
      cellc({"run", "gru.cell", "--cpu", "abacus", "--random", "1", "--length", "2", "--dim", "d=2", "--dim", "m=2"});
  EXPECT_EQ(run.status, 2);
  EXPECT_HAS(run.err, "--cpu abacus: LLVM knows no processor of that name");
  // No NVRTC in sight.
  ProcessOptions without;
  without.environment["CELLC_NVRTC"] = path("none");
  for (const char* target : {"ptx", "cubin"}) {
    const Outcome missing = cellc({"build", "gru.cell", "--target", target, "-o", "a.o"}, without);
    EXPECT_EQ(missing.status, 4);
    EXPECT_HAS(missing.err, "--target cuda-source needs none");
    EXPECT_FALSE(std::filesystem::exists(path("a.o")));
  }
  // The cell's own file is not what anybody wants to lose.
  write("gru.h", kGru);
  for (const auto& [file, out] : {std::pair("gru.cell", "gru.cell"), {"gru.cell", "./gru.cell"}, {"gru.h", "gru.o"}}) {
    const Outcome outcome = cellc({"build", file, "--target", "cpu-object", "-o", out});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_HAS(outcome.err, "is the cell file itself");
    EXPECT_EQ(bytes(file), kGru);
  }
  // No linker in sight.
  std::filesystem::create_directory(path("empty"));
  ProcessOptions nowhere;
  nowhere.environment["PATH"] = path("empty");
  const Outcome outcome = cellc({"build", "gru.cell", "--target", "cpu-shared", "-o", "a.so"}, nowhere);
  EXPECT_EQ(outcome.status, 4);
  EXPECT_HAS(outcome.err, "there is no linker");
  EXPECT_HAS(outcome.err, "--target cpu-object");
}

}  // namespace
}  // namespace cellc
