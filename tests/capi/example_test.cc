// The examples as their readers build them: outside of the build tree, by a C99 compiler alone or with CMake.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

namespace fs = std::filesystem;

class Examples : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "a sanitized library cannot be loaded by a program that is not";
#endif
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
    return text;
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
}

}  // namespace
