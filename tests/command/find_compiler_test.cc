// Which NVRTC a process takes where no variable names one. Fakes say who they are in what they make of a source.
#include <gtest/gtest.h>

#include <filesystem>

#include "harness.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

class CommandCompiler : public CommandTest {
 protected:
  /// `cellc` in `directory`, as the library lies in site-packages/cellc.
  ProcessOptions installed(const std::string& directory) const {
    fs::create_directories(path(directory));
    fs::copy_file(CELLC_BINARY_DIR "/cellc", path(directory + "/cellc"));
    ProcessOptions options;
    options.program = path(directory + "/cellc");
    for (const char* name : {"CELLC_NVRTC", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"})
      options.environment[name] = "";
    return options;
  }
  void put(const std::string& directory, const std::string& version, const char* file, bool builtins = true) const {
    fs::create_directories(path(directory));
    fs::copy_file(file, path(directory + "/libnvrtc.so." + version));
    if (builtins) fs::copy_file(file, path(directory + "/libnvrtc-builtins.so." + version));
  }
  Outcome ptx(const ProcessOptions& options) const {
    return cellc({"inspect", example("01_para_gru.cell"), "--stage", "ptx", "--cache-dir", ""}, options);
  }
};

TEST_F(CommandCompiler, IsTheWheelNextToTheLibraryInNoActiveEnvironment) {
  for (const char* wheel : {"cu13", "cuda_nvrtc"}) {
    const std::string site = std::string("of_") + wheel + "/site-packages";
    const ProcessOptions options = installed(site + "/cellc");
    put(site + "/nvidia/" + wheel + "/lib", "13.71", CELLC_FAKE_NVRTC);
    const Outcome outcome = ptx(options);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_HAS(outcome.out, "// fake NVRTC 13.71\n");
  }
}

TEST_F(CommandCompiler, IsFirstWhatTheProcessHasLoaded) {
  ProcessOptions options = installed("site-packages/cellc");
  put("site-packages/nvidia/cu13/lib", "13.71", CELLC_FAKE_NVRTC);
  put("another", "13.72", CELLC_FAKE_LOADED_NVRTC);
  options.environment["LD_PRELOAD"] = path("another/libnvrtc.so.13.72");
  EXPECT_HAS(ptx(options).out, "// fake NVRTC 13.72\n");
  // One that serves comes before a loaded one that does not.
  fs::remove(path("another/libnvrtc-builtins.so.13.72"));
  EXPECT_HAS(ptx(options).out, "// fake NVRTC 13.71\n");
  // A variable comes before both.
  put("named", "13.73", CELLC_FAKE_NVRTC);
  options.environment["CELLC_NVRTC"] = path("named");
  EXPECT_HAS(ptx(options).out, "// fake NVRTC 13.73\n");
}

TEST_F(CommandCompiler, WithoutItsBuiltinsIsNamedWithThem) {
  put("named", "13.74", CELLC_FAKE_NVRTC, false);
  ProcessOptions options;
  options.environment["CELLC_NVRTC"] = path("named");
  const Outcome outcome = ptx(options);
  EXPECT_EQ(outcome.status, 4);
  EXPECT_HAS(outcome.err,
             path("named/libnvrtc.so.13.74") + ") cannot compile: libnvrtc-builtins.so.13.74 is missing beside it");
}

}  // namespace
}  // namespace cellc
