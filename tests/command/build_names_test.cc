// `build`: names in C. Several builds of a cell in one program, headers of another build, and names of users that mean
// something in C.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include "build_fixture.h"

namespace cellc {
namespace {

const char* const kLeaky = "cell leaky[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x\n}\n";

// One program, four builds: none answers for another.
TEST_F(CommandBuild, BuildsOfACellHaveNamesOfTheirOwn) {
  write("leaky.cell", kLeaky);
  const auto made = [&](const std::string& file, std::vector<std::string> more) {
    more.insert(more.begin(), {"leaky.cell", "--target", "cpu-object", "-o", file});
    return build(more)["functions"][1].get<std::string>();
  };
  EXPECT_EQ(made("plain.o", {}), "leaky_forward");
  EXPECT_EQ(made("wide.o", {"--dtype", "f64"}), "leaky_f64_forward");
  EXPECT_EQ(made("fixed.o", {"--dim", "d=1", "--length", "3"}), "leaky_d1_steps3_forward");
  EXPECT_EQ(made("named.o", {"--dtype", "f64", "--name", "mine"}), "mine_forward");
  write("use.c", R"(#include "plain.h"
#include "wide.h"
#include "fixed.h"
#include "mine.h"
static float x[3] = {1, 0, 0}, h[3];
static double wide_x[3] = {1, 0, 0}, wide_h[3];
static double room[512];
#define CALL(P, X, H)                                              \
  P##_lengths lengths;                                             \
  P##_arrays arrays;                                               \
  int64_t bytes = 0;                                               \
  memset(&lengths, 0, sizeof lengths);                             \
  memset(&arrays, 0, sizeof arrays);                               \
  SET;                                                             \
  lengths.sequences = 1, lengths.steps = 3;                        \
  arrays.x = X, arrays.h = H, H[2] = 0;                            \
  if (P##_workspace(&lengths, &bytes) || bytes > (int64_t)sizeof room) return 1; \
  if (P##_forward(&lengths, &arrays, room, bytes, 0)) return 2;    \
  if (H[2] != 0.25) return 3;
#include <string.h>
#define SET lengths.d = 1
static int plain(void) { CALL(leaky, x, h) return 0; }
static int wide(void) { CALL(leaky_f64, wide_x, wide_h) return 0; }
static int mine(void) { CALL(mine, wide_x, wide_h) return 0; }
#undef SET
#define SET (void)0
static int fixed(void) { CALL(leaky_d1_steps3, x, h) return 0; }
int main(void) { return plain() + 10 * wide() + 100 * mine() + 1000 * fixed(); }
)");
  EXPECT_EQ(shell(kCc + "use.c plain.o wide.o fixed.o named.o -o use && ./use"), "");
  EXPECT_EQ(shell(kCpp + "-x c++ use.c -x none plain.o wide.o fixed.o named.o -o use && ./use"), "");
}

// A library is built anew, of another dtype or shape; the program is not.
TEST_F(CommandBuild, AHeaderOfAnotherBuildIsRefused) {
  write("leaky.cell", kLeaky);
  build({"leaky.cell", "--target", "cpu-shared", "-o", "libleaky.so"});
  write("use.c", R"(#include "libleaky.h"
#include <stdio.h>
int main(void) {
  leaky_lengths lengths = {0};
  leaky_arrays arrays = {0};
  int64_t bytes = -1;
  const int asked = leaky_workspace(&lengths, &bytes);
  const int ran = leaky_forward(&lengths, &arrays, &bytes, 8, 0);
  printf("%d %d %s\n", asked == CELLC_OTHER_LAYOUT, ran == CELLC_OTHER_LAYOUT, leaky_message(ran));
  return 0;
}
)");
  shell(kCc + "use.c -L. -lleaky -Wl,-rpath,. -o use");
  EXPECT_HAS(shell("./use"), "0 0 ");
  write("leaky.cell", "cell leaky[d] {\n  state h[d], g[d]\n  input x[d]\n  h' = 0.5*h + x\n  g' = 0.5*g + h\n}\n");
  for (const std::vector<std::string>& other : std::vector<std::vector<std::string>>{
           {}, {"--dtype", "f64", "--name", "leaky"}, {"--dim", "d=4", "--name", "leaky"}}) {
    std::vector<std::string> arguments = {"leaky.cell", "--target", "cpu-shared", "-o", "libleaky.so"};
    arguments.insert(arguments.end(), other.begin(), other.end());
    build(arguments);
    EXPECT_EQ(shell("./use"), "1 1 the program was compiled with the header of another build of this cell\n");
  }
}

TEST_F(CommandBuild, NamesThatCannotStandInCAreRefused) {
  write("leaky.cell", kLeaky);
  for (const char* name : {"2x", "a-b", "int", "cellc", "cellc_x", "_x", "RAND_MAX"}) {
    const Outcome outcome = cellc({"build", "leaky.cell", "--target", "cpu-object", "-o", "a.o", "--name", name});
    EXPECT_EQ(outcome.status, 2) << name;
    EXPECT_HAS(outcome.err, std::string("--name ") + name);
    EXPECT_FALSE(std::filesystem::exists(path("a.o")));
  }
}

// What belongs to one file is not replaced by what belongs to another; what is built anew is.
TEST_F(CommandBuild, AHeaderBelongsToOneFile) {
  write("leaky.cell", kLeaky);
  build({"leaky.cell", "--target", "cpu-object", "-o", "g.o"});
  build({"leaky.cell", "--target", "cpu-shared", "-o", "g.so"});
  build({"leaky.cell", "--target", "cpu-object", "-o", "g.o", "--dtype", "f64"});
  const std::string header = bytes("g.h");
  const Outcome outcome = cellc({"build", "leaky.cell", "--target", "cuda-source", "-o", "g.cu"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_HAS(outcome.err, "--out g.cu: g.h is the header of g.");
  EXPECT_FALSE(std::filesystem::exists(path("g.cu")));
  EXPECT_EQ(bytes("g.h"), header);
  build({"leaky.cell", "--target", "cuda-source", "-o", "g.cu", "--name", "leaky_on_gpus"});
  EXPECT_HAS(bytes("leaky_on_gpus.h"), "leaky_on_gpus_forward_as");
  build({"leaky.cell", "--target", "cuda-source", "-o", "k.cu"});
  EXPECT_EQ(cellc({"build", "leaky.cell", "--target", "cpu-object", "-o", "k.o"}).status, 2);
  std::filesystem::remove(path("k.cu"));
  build({"leaky.cell", "--target", "cpu-object", "-o", "k.o"});
}

// Linkers read options from a file behind an @, and what a device is called is no name of a file.
TEST_F(CommandBuild, NamesOfFilesThatMeanMore) {
  write("leaky.cell", kLeaky);
  write("options", "--no-such-option\n");
  build({"leaky.cell", "--target", "cpu-shared", "-o", "@options"});
  EXPECT_HAS(shell("readelf -d ./@options"), "[@options]");
  const Outcome device = cellc({"build", "leaky.cell", "--target", "cpu-object", "-o", "/dev/null"});
  EXPECT_EQ(device.status, 4);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_FALSE(std::filesystem::exists("/dev/null.h"));
}

// Places in arrays that nobody can have would wrap.
TEST_F(CommandBuild, LengthsWhoseProductOverflowsAreRefused) {
  write("leaky.cell", kLeaky);
  build({"leaky.cell", "--target", "cpu-object", "-o", "leaky.o"});
  write("use.c", R"(#include "leaky.h"
#include <string.h>
static float x[64], h[64];
static double room[4096];
static int call(int64_t d, int64_t sequences, int64_t steps) {
  leaky_lengths lengths;
  leaky_arrays arrays;
  memset(&lengths, 0, sizeof lengths);
  memset(&arrays, 0, sizeof arrays);
  lengths.d = d, lengths.sequences = sequences, lengths.steps = steps;
  arrays.x = x, arrays.h = h;
  return leaky_forward(&lengths, &arrays, room, sizeof room, 0);
}
int main(void) {
  const int64_t big = INT64_C(1) << 32;
  if (call(1, 1, 64) || call(1, 64, 1)) return 1;
  if (call(1, big, big) != CELLC_TOO_LARGE || call(1, big, big / 4) != CELLC_TOO_LARGE) return 2;
  if (call(1, 1, INT64_MAX) != CELLC_TOO_LARGE || call(1, INT64_MAX, 1) != CELLC_TOO_LARGE) return 3;
  if (call(64, big, big / 64) != CELLC_TOO_LARGE || call(1, INT64_MAX, 0) != CELLC_TOO_LARGE) return 4;
  return 0;
}
)");
  EXPECT_EQ(shell(kCc + "use.c leaky.o -o use && ./use"), "");
}

/// Macros without arguments that a unit has after `includes`, by their names.
std::vector<std::string> macros_of(const std::string& listed) {
  std::vector<std::string> names;
  std::istringstream lines(listed);
  for (std::string define, name; lines >> define >> name; std::getline(lines, define))
    if (define == "#define" && name.find('(') == std::string::npos) names.push_back(name);
  return names;
}

// Every macro that compilers and the C library have may be a name in a cell, and a cell's own.
TEST_F(CommandBuild, EveryMacroMayBeAName) {
  std::string includes;
  for (const char* header :
       {"assert", "complex", "ctype",  "errno",  "fenv",     "float",  "inttypes", "iso646", "limits",
        "locale", "math",    "setjmp", "signal", "stdalign", "stdarg", "stdbool",  "stddef", "stdint",
        "stdio",  "stdlib",  "string", "tgmath", "time",     "wchar",  "wctype"})
    includes += std::string("#include <") + header + ".h>\n";
  write("all.c", includes);
  const std::vector<std::string> macros =
      macros_of(shell("cc -std=gnu99 -D_GNU_SOURCE -dM -E all.c && c++ -x c++ -dM -E /dev/null"));
  ASSERT_GT(macros.size(), 500u);
  const std::set<std::string> words = {"true", "false", "and", "or", "not", "e", "pi"};
  std::set<std::string> names;
  for (const std::string& name : macros)
    if (!words.contains(name)) names.insert(name);
  std::string params;
  int count = 0;
  for (const std::string& name : names) {
    // One rule is for all that begin with an underscore.
    if (name[0] == '_' && ++count % 40 != 0) continue;
    params += "  param " + name + "[d] = 1\n";
  }
  write("names.cell", "cell names[d] {\n  state h[d]\n  input x[d]\n" + params + "  h' = 0.5*h + x\n}\n");
  // The quickest of targets: headers of all have their names from one place.
  build({"names.cell", "--target", "cuda-source", "-o", "source.cu"});
  write("after.c", includes + "#include \"source.h\"\n");
  EXPECT_EQ(shell("cc -std=gnu99 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only after.c"), "");
  EXPECT_EQ(shell("c++ -x c++ -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only after.c"), "");
}

}  // namespace
}  // namespace cellc
