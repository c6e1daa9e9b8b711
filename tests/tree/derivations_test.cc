// Derived cells come through one door, which verifies them: nobody else knows the derivations as they are.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace cellc {
namespace {

namespace fs = std::filesystem;

TEST(Derivations, AreUsedThroughThePipelineOnly) {
  int inside = 0;
  for (const char* top : {"compiler", "runtime", "capi", "cli", "demo", "bench", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(std::string(CELLC_SOURCE_DIR) + "/" + top)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      std::ifstream in(entry.path());
      std::stringstream text;
      text << in.rdbuf();
      if (text.str().find("#include \"compiler/derive/derivations.h\"\n") == std::string::npos) continue;
      EXPECT_EQ(entry.path().parent_path().filename(), "derive") << entry.path() << " goes round pipeline.h";
      ++inside;
    }
  EXPECT_GE(inside, 2);
}

}  // namespace
}  // namespace cellc
