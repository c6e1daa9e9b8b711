// docs/embedding.md does what it says: its files are written, its commands run, in their order.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/capi/shell.h"

namespace {

const std::string kSource = CELLC_SOURCE_DIR, kBuild = CELLC_BINARY_DIR;

/// Blocks: ```LANGUAGE NAME is a file, ```sh is run, ```output is what the last of those printed.
TEST(Embedding, PageRuns) {
  if (const char* why = not_to_be_loaded()) GTEST_SKIP() << why;
  std::string folder = testing::TempDir() + "/cellc_embedding_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  // As if it were installed, and without what a compiler would only warn of.
  const std::string installed = "cd " + folder + "; set -e; export CPATH=" + kSource + "/capi LIBRARY_PATH=" + kBuild +
                                " LD_LIBRARY_PATH=" + kBuild + " PYTHONPATH=" + kSource + "/examples" +
                                " PYTHONDONTWRITEBYTECODE=1 PATH=" + kBuild +
                                ":$PATH; cc() { command cc -Wall -Wextra -pedantic -Werror \"$@\"; }"
                                "; c++() { command c++ -Wall -Wextra -pedantic -Werror \"$@\"; }\n";
  std::string python = "";
  for (const char* candidate : {"python3", "/usr/bin/python3"})
    if (python.empty() && shell(std::string(candidate) + " -c 'import numpy'").status == 0) python = candidate;
  const bool rust = shell("rustc --version").status == 0 && std::filesystem::exists(kBuild + "/cellc");
  std::ifstream page(kSource + "/docs/embedding.md");
  ASSERT_TRUE(page);
  int files = 0, commands = 0, outputs = 0;
  Outcome last{0, ""};
  bool skipped = false;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("```")) continue;
    std::istringstream head(line.substr(3));
    std::string kind, name, body;
    head >> kind >> name;
    while (std::getline(page, line) && line != "```") body += line + "\n";
    if (!name.empty()) {
      ++files;
      std::ofstream(folder + "/" + name) << body;
    } else if (kind == "sh") {
      ++commands;
      skipped = (body.starts_with("python3") && python.empty()) || (body.find("rustc ") != std::string::npos && !rust);
      if (skipped) continue;
      last = shell("bash <<'EOF'\n" + installed + "python3() { " + (python.empty() ? "false" : "command " + python) +
                   " \"$@\"; }\n" + body + "EOF");
      EXPECT_EQ(last.status, 0) << body << last.text;
    } else if (kind == "output") {
      ++outputs;
      if (!skipped) {
        EXPECT_EQ(last.text, body);
      }
    } else {
      ADD_FAILURE() << "a block of no known kind: " << kind;
    }
  }
  EXPECT_EQ(files, 5);
  EXPECT_EQ(commands, 4);
  EXPECT_EQ(outputs, 4);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace
