// The C API can grow: an old program and this library, a program and a library that is another one, structs of other
// lengths, and the list of versioned symbols.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "cellc.h"
#include "tests/capi/shell.h"

namespace {

namespace fs = std::filesystem;

const std::string kSource = CELLC_SOURCE_DIR, kBuild = CELLC_BINARY_DIR;
const std::string kCell = "cell c {\n  state h\n  input x\n  h' = 0.5*h + x\n}\n";

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}
std::vector<std::string> functions_of(const std::string& header) {
  static const std::regex function(R"(CELLC_API [^;]*?\b(cellc_\w+)\()");
  std::vector<std::string> names;
  for (std::sregex_iterator it(header.begin(), header.end(), function), end; it != end; ++it) names.push_back((*it)[1]);
  return names;
}

/// A folder with the old program in it.
class Versions : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = not_to_be_loaded()) GTEST_SKIP() << why;
    std::string pattern = testing::TempDir() + "/cellc_versions_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    const Outcome built = in_folder("cc -std=c99 -Wall -Wextra -pedantic -Werror " + kSource +
                                    "/tests/capi/versions/old_program.c -o old -L" + kBuild + " -lcellc");
    ASSERT_EQ(built.status, 0) << built.text;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Outcome in_folder(const std::string& command) const { return shell("cd " + folder_ + " && " + command); }
  std::string folder_;
};

TEST_F(Versions, AnOldProgramRuns) {
  const Outcome run = in_folder("LD_LIBRARY_PATH=" + kBuild + " ./old");
  EXPECT_EQ(run.status, 0);
  // h is 1, 2.5, 4.25 and 10, 22.5, 35.625 by hand; 2 is CELLC_WRONG_USAGE.
  EXPECT_EQ(run.text, "decay\n2 20 5 45 8.5 71.25\n2 20 5 45 8.5 71.25\n1.75 1.3125 1.5 1.25 1 1\n2\nwhole\n");
}

TEST_F(Versions, ALibraryOfAnotherVersionIsNotLoaded) {
  // A library that has the old functions under the next API version alone.
  std::string source, map = "CELLC_2.0 { global: cellc_*; local: *; };\n";
  for (const std::string& name : functions_of(read(kSource + "/tests/capi/versions/cellc_1_0.h")))
    source += "int " + name + "(void) { return 0; }\n";
  std::ofstream(folder_ + "/next.c") << source;
  std::ofstream(folder_ + "/next.map") << map;
  const Outcome built =
      in_folder("cc -shared -fPIC next.c -o libcellc.so.0 -Wl,-soname,libcellc.so.0 -Wl,--version-script=next.map");
  ASSERT_EQ(built.status, 0) << built.text;
  const Outcome run = in_folder("LD_LIBRARY_PATH=. ./old");
  EXPECT_NE(run.status, 0);
  EXPECT_NE(run.text.find("version `CELLC_1.0' not found"), std::string::npos) << run.text;
}

TEST_F(Versions, ANewProgramIsNotLoadedWithAnOldLibrary) {
  std::ofstream(folder_ + "/new.c")
      << "#include <cellc.h>\nint main(void) { return cellc_apply(0, 0) != CELLC_WRONG_USAGE; }\n";
  const Outcome program = in_folder("cc -std=c99 -I" + kSource + "/capi new.c -o new -L" + kBuild + " -lcellc");
  ASSERT_EQ(program.status, 0) << program.text;
  EXPECT_EQ(in_folder("LD_LIBRARY_PATH=" + kBuild + " ./new").status, 0);
  // A library that has what the first version had.
  std::string source;
  for (const std::string& name : functions_of(read(kSource + "/tests/capi/versions/cellc_1_0.h")))
    source += "int " + name + "(void) { return 0; }\n";
  std::ofstream(folder_ + "/first.c") << source;
  std::ofstream(folder_ + "/first.map") << "CELLC_1.0 { global: cellc_*; local: *; };\n";
  const Outcome built =
      in_folder("cc -shared -fPIC first.c -o libcellc.so.0 -Wl,-soname,libcellc.so.0 -Wl,--version-script=first.map");
  ASSERT_EQ(built.status, 0) << built.text;
  const Outcome run = in_folder("LD_LIBRARY_PATH=. ./new");
  EXPECT_NE(run.status, 0);
  EXPECT_NE(run.text.find("version `CELLC_1.1' not found"), std::string::npos) << run.text;
}

TEST(ApiVersions, EveryFunctionIsInOneVersion) {
  std::map<std::string, std::string> version_of;
  std::string version, word;
  std::istringstream map(std::regex_replace(read(kSource + "/capi/exports.map"), std::regex(R"(/\*[^*]*\*/)"), ""));
  while (map >> word) {
    if (word.starts_with("CELLC_") && !word.ends_with(";")) version = word;
    if (!word.starts_with("cellc_")) continue;
    EXPECT_TRUE(version_of.emplace(word.substr(0, word.size() - 1), version).second) << word;
  }
  const std::vector<std::string> now = functions_of(read(kSource + "/capi/cellc.h"));
  EXPECT_GT(now.size(), 40u);
  for (const std::string& name : now) EXPECT_TRUE(version_of.contains(name)) << name << " is in no version";
  EXPECT_EQ(version_of.size(), now.size());
  for (const std::string& name : functions_of(read(kSource + "/tests/capi/versions/cellc_1_0.h")))
    EXPECT_EQ(version_of[name], "CELLC_1.0") << name;
  const std::string newest = "CELLC_" + std::to_string(CELLC_API_VERSION) + "." + std::to_string(CELLC_API_MINOR);
  EXPECT_EQ(version_of["cellc_apply"], newest);
}

TEST(ApiVersions, AProgramAsksForWhatItNeeds) {
  EXPECT_EQ(cellc_api_require(CELLC_API_VERSION, CELLC_API_MINOR), CELLC_OK);
  EXPECT_EQ(cellc_api_require(1, 0), CELLC_OK);
  EXPECT_EQ(cellc_api_require(CELLC_API_VERSION, CELLC_API_MINOR + 1), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_api_require(CELLC_API_VERSION + 1, 0), CELLC_WRONG_USAGE);
  EXPECT_NE(std::string(cellc_last_error()).find("needs version 2.0 of the C API"), std::string::npos);
}

TEST(ApiVersions, AStructOfAnotherLengthIsRefused) {
  struct {
    cellc_options options;
    void* of_a_later_version;
  } longer;
  cellc_options_init_sized(&longer.options, sizeof longer);
  EXPECT_EQ(longer.options.size, sizeof longer);
  EXPECT_EQ(longer.of_a_later_version, nullptr);
  cellc_kernel* kernel = nullptr;
  EXPECT_EQ(cellc_compile_text(kCell.data(), kCell.size(), &longer.options, &kernel), CELLC_WRONG_USAGE);
  EXPECT_STREQ(cellc_last_error(), "options: its size is that of a later version of cellc");
  EXPECT_EQ(kernel, nullptr);
  longer.options.size = 16;
  EXPECT_EQ(cellc_compile_text(kCell.data(), kCell.size(), &longer.options, &kernel), CELLC_WRONG_USAGE);
  EXPECT_STREQ(cellc_last_error(), "options: its size is not set; call its _init function");
  // Of the first version: what it has not is as by default.
  (cellc_options_init)(&longer.options);
  ASSERT_EQ(cellc_compile_text(kCell.data(), kCell.size(), &longer.options, &kernel), CELLC_OK) << cellc_last_error();

  cellc_shape shape;
  cellc_shape_init(&shape);
  float x = 1, h = 0;
  cellc_array arrays[4] = {};
  arrays[cellc_array_find(kernel, "x")] = {&x, 1, CELLC_F32, 0, 0};
  arrays[cellc_array_find(kernel, "h")] = {&h, 1, CELLC_F32, 0, 0};
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, sizeof shape + 8, SIZE_MAX}) {
    shape.size = size;
    EXPECT_EQ(cellc_forward(kernel, &shape, arrays, 4, nullptr), CELLC_WRONG_USAGE) << size;
  }
  cellc_shape_init(&shape);
  cellc_report report;
  cellc_report_init(&report);
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, sizeof report + 8, SIZE_MAX}) {
    report.size = size;
    EXPECT_EQ(cellc_forward(kernel, &shape, arrays, 4, &report), CELLC_WRONG_USAGE) << size;
  }
  EXPECT_EQ(h, 0);
  cellc_report_init(&report);
  EXPECT_EQ(cellc_forward(kernel, &shape, arrays, 4, &report), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(h, 1);
  cellc_kernel_free(kernel);
}

}  // namespace
