#include "tests/engines/host_code.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace cellc {

HostCode::HostCode(const std::string& text, const std::string& options) {
  folder_ = testing::TempDir() + "cellc_host_XXXXXX";
  if (!mkdtemp(folder_.data())) throw std::runtime_error("no folder " + folder_);
  const std::string source = folder_ + "/unit.cc", code = folder_ + "/unit.so", log = folder_ + "/log";
  std::ofstream(source) << text;
  const std::string command =
      fmt::format("'{}' -shared -fPIC {} -o '{}' '{}' > '{}' 2>&1", CELLC_HOST_COMPILER, options, code, source, log);
  if (std::system(command.c_str()) != 0) {
    std::ifstream in(log);
    std::stringstream messages;
    messages << in.rdbuf();
    throw std::runtime_error(command + "\n" + messages.str());
  }
  library_ = dlopen(code.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library_) throw std::runtime_error(dlerror());
}

HostCode::~HostCode() {
  if (library_) dlclose(library_);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void* HostCode::find(const std::string& name) const {
  void* found = dlsym(library_, name.c_str());
  if (!found) throw std::runtime_error("no symbol " + name);
  return found;
}

}  // namespace cellc
