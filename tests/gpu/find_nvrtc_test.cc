// Where NVRTC is looked for, and what is said where none serves. Needs no NVRTC.
#include "runtime/cuda/device/find_nvrtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "runtime/cuda/device/nvrtc.h"
#include "tests/gpu/fixtures.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

using Version = std::optional<std::vector<int>>;

void touch(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << path;
}

TEST(NvrtcFiles, VersionsOfNames) {
  EXPECT_EQ(nvrtc_file_version("libnvrtc.so.13.0.88"), (Version{{13, 0, 88}}));
  EXPECT_EQ(nvrtc_file_version("libnvrtc.so.12"), Version{{12}});
  EXPECT_EQ(nvrtc_file_version("libnvrtc.so"), Version{std::in_place});
  for (const char* other :
       {"libnvrtc.alt.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc.so.", "libnvrtc.so.13.", "nvrtc",
        "libnvrtc.so.13-old", "libnvrtc.so.-1", "libnvrtc.so.99999999999", "libnvrtc_static.a"}) {
    EXPECT_EQ(nvrtc_file_version(other), std::nullopt) << other;
  }
}

TEST(NvrtcFiles, TheNewestFirstAndEachOnce) {
  const Scratch scratch;
  EXPECT_TRUE(nvrtc_files_in(scratch.path()).empty());
  EXPECT_TRUE(nvrtc_files_in(scratch / "missing").empty());
  for (const char* name : {"libnvrtc.so.12.9.86", "libnvrtc.so.12.10.1", "libnvrtc.so.13.0.88", "libnvrtc.alt.so.13"})
    touch(scratch / name);
  fs::create_symlink("libnvrtc.so.13.0.88", scratch / "libnvrtc.so.13");
  fs::create_symlink("libnvrtc.so.13", scratch / "libnvrtc.so");
  fs::create_symlink("gone", scratch / "libnvrtc.so.14");
  EXPECT_EQ(nvrtc_files_in(scratch.path()),
            (std::vector<std::string>{scratch / "libnvrtc.so.13.0.88", scratch / "libnvrtc.so.12.10.1",
                                      scratch / "libnvrtc.so.12.9.86"}));
}

TEST(NvrtcFiles, AsToolkitsAndWheelsLayThemOut) {
  const Scratch scratch;
  touch(scratch / "lib64/libnvrtc.so.12");
  touch(scratch / "nvidia/cu13/lib/libnvrtc.so.13");
  touch(scratch / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  touch(scratch / "nvidia/cudnn/lib/libcudnn.so.9");
  EXPECT_EQ(
      nvrtc_files_below(scratch.path()),
      (std::vector<std::string>{scratch / "lib64/libnvrtc.so.12", scratch / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
                                scratch / "nvidia/cu13/lib/libnvrtc.so.13"}));
}

TEST(NvrtcFiles, OrderOfPlaces) {
  Scratch scratch;
  touch(scratch / "home/lib64/libnvrtc.so.12");
  touch(scratch / "path/targets/x86_64-linux/lib/libnvrtc.so.13");
  touch(scratch / "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  scratch.set("CUDA_HOME", scratch / "home");
  scratch.set("CUDA_PATH", scratch / "path");
  scratch.set("VIRTUAL_ENV", scratch / "venv");
  const std::vector<std::string> all = nvrtc_candidates();
  const auto place = [&](const std::string& file) { return std::find(all.begin(), all.end(), file) - all.begin(); };
  EXPECT_LT(place(scratch / "home/lib64/libnvrtc.so.12"),
            place(scratch / "path/targets/x86_64-linux/lib/libnvrtc.so.13"));
  EXPECT_LT(place(scratch / "path/targets/x86_64-linux/lib/libnvrtc.so.13"), place("libnvrtc.so.13"));
  EXPECT_LT(place("libnvrtc.so.13"), place("libnvrtc.so.12"));
  EXPECT_LT(place("libnvrtc.so.12"),
            place(scratch / "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13"));
  EXPECT_LT(place(scratch / "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13"), std::ssize(all));
}

// tests/command/find_compiler_test.cc looks at the order: what other tests have loaded is before these.
TEST(NvrtcFiles, BesideALibrary) {
  const Scratch scratch;
  touch(scratch / "cellc/nvrtc/lib64/libnvrtc.so.13");
  touch(scratch / "nvidia/cu13/lib/libnvrtc.so.13");
  touch(scratch / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  touch(scratch / "lib64/libnvrtc.so.12");  // of no wheel: as far as /usr/lib64 for what lies in /usr/bin
  EXPECT_EQ(nvrtc_files_beside(scratch / "cellc"),
            (std::vector<std::string>{scratch / "cellc/nvrtc/lib64/libnvrtc.so.13",
                                      scratch / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
                                      scratch / "nvidia/cu13/lib/libnvrtc.so.13"}));
}

// What $CELLC_NVRTC names is the only one, and why it does not serve is one line.
class NamedNvrtc : public testing::Test {
 protected:
  std::string reason_of(const std::string& named, int latest_major = 0) {
    scratch.set("CELLC_NVRTC", named);
    std::string reason;
    EXPECT_EQ(Nvrtc::find(latest_major, reason), nullptr) << named;
    EXPECT_TRUE(is_one_line(reason)) << reason;
    EXPECT_TRUE(has(reason, named));
    return reason;
  }
  std::string found(int latest_major) {
    scratch.set("CELLC_NVRTC", scratch.path());
    std::string reason;
    const auto nvrtc = Nvrtc::find(latest_major, reason);
    return nvrtc ? to_string(nvrtc->version()) : reason;
  }
  void put_fake(const std::string& version) { put_fake_nvrtc(scratch.path(), version); }
  Scratch scratch;
};

TEST_F(NamedNvrtc, NotThere) {
  EXPECT_TRUE(has(reason_of(scratch.path()), "no libnvrtc.so lies there"));
  EXPECT_TRUE(has(reason_of(scratch / "missing.so"), "No such file"));
  EXPECT_THROW(compile_cuda({"a.cu", "", {}}, "sm_90"), DeviceError);
  std::string reason;
  EXPECT_EQ(nvrtc_version(reason), "");
}

TEST_F(NamedNvrtc, NotALibrary) {
  touch(scratch / "libnvrtc.so.13");
  EXPECT_TRUE(has(reason_of(scratch.path()), "libnvrtc.so.13"));
}

TEST_F(NamedNvrtc, AnotherLibrary) { EXPECT_TRUE(has(reason_of("libm.so.6"), "no NVRTC")); }

TEST_F(NamedNvrtc, TooOld) {
  put_fake("12.4");
  EXPECT_TRUE(has(reason_of(scratch.path()), "NVRTC 12.4"));
  EXPECT_TRUE(has(reason_of(scratch.path()), "needs 12.8 or newer"));
}

TEST_F(NamedNvrtc, WithoutTheBuiltinsOfItsVersion) {
  put_fake("13.77");
  fs::remove(scratch / "libnvrtc-builtins.so.13.77");
  EXPECT_TRUE(has(reason_of(scratch.path()), "NVRTC 13.77"));
  EXPECT_TRUE(has(reason_of(scratch.path()), "cannot compile: libnvrtc-builtins.so.13.77 is missing beside it"));
  touch(scratch / "libnvrtc-builtins.so.13.78");
  EXPECT_TRUE(has(reason_of(scratch.path()), "13.77 is missing beside it (libnvrtc-builtins.so.13.78 is there)"));
  touch(scratch / "libnvrtc-builtins.so.13.77");
  EXPECT_TRUE(has(reason_of(scratch.path()), "libnvrtc-builtins.so.13.77: file too short"));
}

// The next that serves is taken.
TEST_F(NamedNvrtc, OneWithoutBuiltinsIsPassedOver) {
  put_fake("13.76");
  put_fake("13.75");
  fs::remove(scratch / "libnvrtc-builtins.so.13.76");
  EXPECT_EQ(found(0), "13.75");
}

TEST_F(NamedNvrtc, NotOfALaterMajorVersionThanTheDriver) {
  put_fake("13.1");
  EXPECT_TRUE(has(reason_of(scratch.path(), 12), "later major version than the driver, CUDA 12"));
  put_fake("12.9");
  EXPECT_EQ(found(12), "12.9");
  EXPECT_EQ(found(13), "13.1");
  EXPECT_EQ(found(0), "13.1");
}

}  // namespace
}  // namespace cellc
