// The examples as their readers build them: outside of the build tree, by a C99 compiler alone or with CMake.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/capi/shell.h"

namespace {

namespace fs = std::filesystem;

class Examples : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = not_to_be_loaded()) GTEST_SKIP() << why;
    std::string pattern = testing::TempDir() + "/cellc_example_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  /// What a command prints, with errors; it must succeed.
  std::string shell(const std::string& command) const {
    FILE* pipe = popen(("cd " + folder_ + " && { " + command + "; } 2>&1").c_str(), "r");
    std::string text;
    char buffer[4096];
    for (std::size_t n; pipe && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    const int status = pclose(pipe);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command << "\n" << text;
    return without_sanitizers_warnings(text);
  }
  std::string folder_;
};

const std::string kSource = CELLC_SOURCE_DIR, kBuild = CELLC_BINARY_DIR;

// decay 0.5 and 0.875 over 1, 1, -1, -1, 1, 1, -1, -1, by hand.
const char* const kOutput =
    "0  +0.500000  +0.875000\n"
    "1  +0.250000  +0.765625\n"
    "2  -0.875000  -1.080078\n"
    "3  -0.437500  -0.945068\n"
    "4  +0.781250  +0.923065\n"
    "5  +0.390625  +0.807682\n"
    "6  -0.804688  -1.043278\n"
    "7  -0.402344  -0.912868\n";

TEST_F(Examples, C99CompilerAlone) {
  const std::string warnings = shell("cc -std=c99 -Wall -Wextra -pedantic -Werror -I" + kSource + "/capi " + kSource +
                                     "/examples/run_cell.c -o run_cell -L" + kBuild + " -lcellc -Wl,-rpath," + kBuild);
  EXPECT_EQ(warnings, "");
  EXPECT_EQ(shell("./run_cell"), kOutput);
}

TEST_F(Examples, HeaderInCAndCpp) {
  shell(
      "printf '#include <cellc.h>\\nint main(void) { return cellc_api_version() != CELLC_API_VERSION; }\\n' "
      "> a.c");
  shell("cp a.c a.cc");
  shell("cc -std=c99 -Wall -Wextra -pedantic -Werror -I" + kSource + "/capi a.c -o a -L" + kBuild +
        " -lcellc -Wl,-rpath," + kBuild + " && ./a");
  shell("c++ -std=c++11 -Wall -Wextra -pedantic -Werror -I" + kSource + "/capi a.cc -o b -L" + kBuild +
        " -lcellc -Wl,-rpath," + kBuild + " && ./b");
}

TEST_F(Examples, InstalledPackage) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "programs of others do not link static libraries that have a sanitizer";
#endif
  // Without what else the build tree holds: the program, the library and their files.
  shell("cmake --install " + kBuild + " --prefix installed");
  shell("cmake -S " + kSource +
        "/examples -B build -DCMAKE_PREFIX_PATH=$PWD/installed -DCMAKE_C_FLAGS='-Wall -Wextra -pedantic "
        "-Werror' && cmake --build build");
  EXPECT_EQ(shell("build/run_cell"), kOutput);
  // 0.5 up and 0.125 down, by hand.
  EXPECT_EQ(shell("build/decode"),
            "0  0.500000  1.000000\n"
            "1  0.437500  0.875000\n"
            "2  0.382812  0.937500\n"
            "3  0.691406  0.820312\n"
            "4  0.604980  0.717773\n"
            "5  0.529358  1.858887\n");
  EXPECT_EQ(shell("ldd build/decode").find("cellc"), std::string::npos);
  shell("installed/bin/cellc --version");
  // Without CMake.
  shell("! command -v pkg-config > /dev/null || cc -std=c99 " + kSource +
        "/examples/run_cell.c -o run_cell $(PKG_CONFIG_PATH=installed/lib/pkgconfig:$(echo installed/lib/*/pkgconfig) "
        "pkg-config --cflags --libs cellc)");
  // The compiler alone needs no LLVM; cells of a project's own, several builds of one.
  shell("mkdir project && cp " + kSource + "/examples/follower.cell project");
  std::ofstream(folder_ + "/project/CMakeLists.txt") << R"(cmake_minimum_required(VERSION 3.25)
project(uses_cellc LANGUAGES C CXX)
find_package(cellc REQUIRED COMPONENTS compiler)
if(TARGET cellc::cellc OR LLVM_FOUND)
  message(FATAL_ERROR "more than was asked for")
endif()
cellc_add_cell(slow follower.cell)
cellc_add_cell(precise follower.cell DTYPE f64 DIM d=2 LENGTH 3 CPU x86-64-v3)
add_executable(use use.cc)
target_link_libraries(use PRIVATE cellc::compiler slow precise)
)";
  std::ofstream(folder_ + "/project/use.cc") << R"(#include <cstdio>
#include "compiler/plan/call_layout.h"
#include "precise.h"
#include "slow.h"
int main() {
  std::printf("%s\n%s\n%s\n", cellc::c_prefix("cellc").c_str(), slow_about(), precise_about());
  return precise_workspace(nullptr, nullptr) != CELLC_NO_BYTES || slow_workspace(nullptr, nullptr) != CELLC_NO_BYTES;
}
)";
  shell("cmake -S project -B build-project -DCMAKE_PREFIX_PATH=$PWD/installed && cmake --build build-project");
  const std::string said = shell("build-project/use");
  EXPECT_EQ(said.find("cellc_\ncell follower, f32, for x86-64-v3, "), 0u) << said;
  EXPECT_NE(said.find("cell follower, f64, for x86-64-v3"), std::string::npos) << said;
}

}  // namespace
