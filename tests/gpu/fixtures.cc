#include "tests/gpu/fixtures.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>

#include "runtime/cuda/device/gpu_driver.h"
#include "runtime/cuda/device/nvrtc.h"

namespace cellc {

namespace fs = std::filesystem;

Scratch::Scratch() {
  path_ = testing::TempDir() + "/cellc_gpu_XXXXXX";
  if (!mkdtemp(path_.data())) throw std::runtime_error("no directory for a test: " + path_);
}

Scratch::~Scratch() {
  for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved) {
    if (saved->second) {
      setenv(saved->first.c_str(), saved->second->c_str(), 1);
    } else {
      unsetenv(saved->first.c_str());
    }
  }
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void Scratch::set(const std::string& variable, const std::string& value) {
  const char* before = std::getenv(variable.c_str());
  saved_.push_back({variable, before ? std::optional<std::string>(before) : std::nullopt});
  setenv(variable.c_str(), value.c_str(), 1);
}

void put_fake_nvrtc(const std::string& directory, const std::string& version) {
  for (const char* name : {"/libnvrtc.so.", "/libnvrtc-builtins.so."})
    fs::copy_file(CELLC_FAKE_NVRTC, directory + name + version);
}

std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

testing::AssertionResult starts(const std::string& text, const std::string& part) {
  if (text.starts_with(part)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not at the start of: " << text;
}

bool is_one_line(const std::string& text) { return !text.empty() && text.find('\n') == std::string::npos; }

void WithNvrtc::SetUp() {
  std::string reason;
  if (!nvrtc_version(reason).empty()) return;
  if (std::getenv("CELLC_REQUIRE_NVRTC")) FAIL() << reason;
  GTEST_SKIP() << reason;
}

GpuSource quick(GpuSource source) {
  std::string reason;
  if (std::atoi(nvrtc_version(reason).c_str()) >= 13) source.options.push_back("--Ofast-compile=max");
  return source;
}

void WithGpu::SetUp() {
  std::string reason;
  gpu = open_gpu("", reason);
  if (!gpu) GTEST_SKIP() << reason;
}

void WithFakeDriver::SetUp() {
  put_fake_nvrtc(scratch.path(), "13.0");
  scratch.set("CELLC_NVRTC", scratch.path());
  void* library = dlopen(CELLC_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  driver = static_cast<FakeDriverState*>(dlsym(library, "fake_driver_state"));
  ASSERT_NE(driver, nullptr);
  *driver = FakeDriverState();
}

std::unique_ptr<Gpu> WithFakeDriver::open(std::string& reason, const std::string& cache_directory) {
  auto fake = Driver::open_file(CELLC_FAKE_DRIVER, reason);
  return fake ? open_gpu(std::move(fake), cache_directory, reason) : nullptr;
}

std::unique_ptr<Gpu> WithFakeDriver::open() {
  std::string reason;
  auto gpu = open(reason);
  EXPECT_NE(gpu, nullptr) << reason;
  return gpu;
}

}  // namespace cellc
