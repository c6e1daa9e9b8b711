#pragma once
// What the tests of the GPU stand on.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/device/gpu.h"
#include "tests/gpu/fake/fake_driver.h"

namespace cellc {

/// A directory that goes with its test, and environment variables that are put back.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void set(const std::string& variable, const std::string& value);

 private:
  std::string path_;
  std::vector<std::pair<std::string, std::optional<std::string>>> saved_;
};

/// The NVRTC of tests/gpu/fake in a directory, with what stands for its builtins.
void put_fake_nvrtc(const std::string& directory, const std::string& version);

std::string text_of(const std::string& path);
testing::AssertionResult has(const std::string& text, const std::string& part);
testing::AssertionResult starts(const std::string& text, const std::string& part);
bool is_one_line(const std::string& text);

/// Skipped, with the reason, where there is no NVRTC; a failure where CELLC_REQUIRE_NVRTC is set.
class WithNvrtc : public testing::Test {
 protected:
  void SetUp() override;
};

/// The source, to be compiled by NVRTC as fast as it can: it remarks on and refuses the same, and optimising is four
/// fifths of its time. Versions before 13.0 know no such option.
GpuSource quick(GpuSource source);

/// Skipped, with the reason, where there is no GPU.
class WithGpu : public testing::Test {
 protected:
  void SetUp() override;
  std::unique_ptr<Gpu> gpu;
};

/// The driver and the NVRTC of tests/gpu/fake.
class WithFakeDriver : public testing::Test {
 protected:
  void SetUp() override;
  std::unique_ptr<Gpu> open(std::string& reason, const std::string& cache_directory = "");
  std::unique_ptr<Gpu> open();

  Scratch scratch;
  FakeDriverState* driver = nullptr;
};

}  // namespace cellc
