// docs/shipping.md does what it says: its files are written, its commands run, in their order.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "harness.h"
#include "runtime/cuda/device/gpu.h"

namespace cellc {
namespace {

class CommandShipping : public CommandTest {};

/// Blocks: ```cell NAME and ```c NAME are files, ```sh is run, ```output is what the last of those printed. ```gpu is
/// run as ```sh is where there is a GPU; elsewhere its commands get no further than to say that there is none.
TEST_F(CommandShipping, PageRuns) {
  std::ifstream page(CELLC_SOURCE_DIR "/docs/shipping.md");
  ASSERT_TRUE(page);
  int commands = 0, outputs = 0, on_gpu = 0;
  std::string no_gpu;
  open_gpu("", no_gpu);
  std::string printed;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("```", 0) != 0) continue;
    std::istringstream head(line.substr(3));
    std::string kind, name, body;
    head >> kind >> name;
    while (std::getline(page, line) && line != "```") body += line + "\n";
    if (!name.empty()) {
      write(name, body);
    } else if (kind == "sh" || kind == "gpu") {
      kind == "sh" ? ++commands : ++on_gpu;
      const bool runs = kind == "sh" || no_gpu.empty();
      const std::string script = "export PATH=" CELLC_BINARY_DIR ":$PATH CELLC_CACHE_DIR=" + path("cache") +
                                 (runs ? "; set -e; cd " : "; cd ") + path("") + "\n" + body;
      FILE* pipe = popen(("exec 2>&1\n" + script).c_str(), "r");
      ASSERT_NE(pipe, nullptr);
      printed.clear();
      char buffer[4096];
      for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) printed.append(buffer, n);
      const int status = pclose(pipe);
      if (runs) {
        EXPECT_EQ(status, 0) << body << printed;
      } else {
        EXPECT_HAS(printed, no_gpu);
      }
    } else if (kind == "output") {
      ++outputs;
      EXPECT_EQ(printed, body);
    } else {
      ADD_FAILURE() << "a block of no known kind: " << kind;
    }
  }
  EXPECT_EQ(std::system(
                ("cc -std=c99 -Wall -Werror -fsyntax-only -I" CELLC_SOURCE_DIR "/capi " + path("gradients.c")).c_str()),
            0);
  EXPECT_EQ(commands, 7);
  EXPECT_EQ(on_gpu, 1);
  EXPECT_EQ(outputs, 4);
}

}  // namespace
}  // namespace cellc
