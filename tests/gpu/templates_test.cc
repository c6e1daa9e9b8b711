// The kernel templates: the library holds them as they stand in the tree, and each compiles with the
// stub cell before it.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>

#include "runtime/cuda/kernel_templates.h"
#include "runtime/cuda/nvrtc.h"
#include "tests/gpu/fixtures.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

TEST(KernelTemplates, AreThoseOfTheTree) {
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(CELLC_SOURCE_DIR "/kernels-templates")) {
    if (entry.path().extension() != ".cuh") continue;
    const std::string name = entry.path().filename();
    files.insert(name);
    EXPECT_EQ(kernel_template(name), text_of(entry.path())) << name;
  }
  EXPECT_EQ(kernel_templates().size(), files.size());
  EXPECT_TRUE(files.contains("stub_cell.cuh"));
  EXPECT_THROW(kernel_template("missing.cuh"), std::logic_error);
}

}  // namespace
}  // namespace cellc
