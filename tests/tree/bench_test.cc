// `./dev bench` runs to its end, and leaves out no program.
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

const std::string kRoot = CELLC_SOURCE_DIR;

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// A folder of programs that stand for those of a build.
class Bench : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/cellc_bench_XXXXXX";
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(directory_); }

  void program(const std::string& name, const std::string& body) const {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }
  /// What is printed; the exit status is in `status`.
  std::string run(const std::string& names = "") {
    const std::string command =
        "python3 '" + kRoot + "/bench/run_all.py' --build '" + directory_ + "' " + names + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    if (!pipe) return "";
    std::string text;
    for (char buffer[4096]; const std::size_t read = fread(buffer, 1, sizeof buffer, pipe);) text.append(buffer, read);
    const int ended = pclose(pipe);
    status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    return text;
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  int status = -1;

 private:
  std::string directory_;
};

TEST_F(Bench, HasArgumentsForEveryProgram) {
  const std::string programs = text_of(kRoot + "/bench/run_all.py"), made = text_of(kRoot + "/bench/CMakeLists.txt");
  const std::regex executable(R"(add_executable\((\w+) )");
  int found = 0;
  for (std::sregex_iterator one(made.begin(), made.end(), executable), end; one != end; ++one, ++found)
    EXPECT_TRUE(has(programs, "(\"" + (*one)[1].str() + "\", ON_")) << (*one)[1].str();
  EXPECT_GT(found, 10);
}

TEST_F(Bench, GoesOnAfterAFailureAndEndsWithIt) {
  program("cellc_bench_capi", "echo capi of $*");
  program("cellc_bench_windows", "exit 3");
  program("math_bench", "echo math");
  const std::string text = run();
  EXPECT_EQ(status, 1) << text;
  EXPECT_TRUE(has(text, "\ncapi of 1024 256\n")) << text;
  EXPECT_TRUE(has(text, "\nmath\n")) << text;
  EXPECT_TRUE(has(text, "dev: bench: cellc_bench_windows: exit status 3\n")) << text;
  EXPECT_TRUE(has(text, "cellc_bench_sequential: skipped: it is not built\n")) << text;
}

TEST_F(Bench, SkipsWhatNeedsACardWithALine) {
  program("cellc", "echo 'cellc: error: no card' >&2; exit 4");
  program("cellc_bench_cases", "echo cases");
  std::string text = run("cases");
  EXPECT_EQ(status, 0) << text;
  EXPECT_EQ(text, "cellc_bench_cases: skipped: cellc: error: no card\n");
  program("cellc", "exit 0");
  EXPECT_EQ(run("cases"), "cellc_bench_cases\ncases\n");
  EXPECT_TRUE(has(run("casess"), "no program has 'casess' in its name: cellc_bench_sequential, ")) << text;
  EXPECT_EQ(status, 2);
}

}  // namespace
