// NVRTC compiles, says what is wrong, and is asked only once. Needs NVRTC, but no GPU.
#include "runtime/cuda/device/nvrtc.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <regex>
#include <thread>

#include "runtime/cuda/device/kernel_cache.h"
#include "tests/gpu/fixtures.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

GpuSource scale(double factor) {
  return {"scale.cu",
          fmt::format("extern \"C\" __global__ void scale(float* x, int n) {{\n"
                      "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                      "  if (i < n) x[i] *= {:.6f}f;\n"
                      "}}\n",
                      factor),
          {}};
}

class NvrtcTest : public WithNvrtc {};

TEST_F(NvrtcTest, CompilesForEveryArchitecture) {
  for (const std::string architecture : {"sm_80", "sm_90", "sm_100"}) {
    const CompiledKernels cubin = compile_cuda(scale(2), architecture);
    EXPECT_TRUE(starts(cubin.code,
                       "\x7f"
                       "ELF"))
        << architecture;
    EXPECT_TRUE(has(cubin.code, "scale")) << architecture;
    EXPECT_EQ(cubin.log, "");
    EXPECT_GT(cubin.compile_ms, 0);
    EXPECT_EQ(cubin.cache, CacheState::Off);
    const CompiledKernels ptx = compile_cuda(scale(2), architecture, CompiledKind::Ptx);
    EXPECT_TRUE(has(ptx.code, ".target " + architecture));
    EXPECT_TRUE(has(ptx.code, ".entry scale"));
    EXPECT_EQ(ptx.code.find('\0'), std::string::npos);
  }
}

TEST_F(NvrtcTest, OptionsReachTheCompiler) {
  GpuSource source{"defined.cu",
                   "#if __cplusplus < 201703L\n#error old\n#endif\nextern \"C\" __global__ void NAME() {}\n",
                   {"-DNAME=called_so"}};
  EXPECT_TRUE(has(compile_cuda(source, "sm_90", CompiledKind::Ptx).code, "called_so"));
}

TEST_F(NvrtcTest, Version) {
  std::string reason;
  EXPECT_TRUE(std::regex_match(nvrtc_version(reason), std::regex("1[2-9]\\.[0-9]+")));
  const auto nvrtc = Nvrtc::find(0, reason);
  ASSERT_NE(nvrtc, nullptr);
  EXPECT_GE(nvrtc->version(), kOldestNvrtc);
  EXPECT_TRUE(std::regex_match(nvrtc->identity(), std::regex("NVRTC 1[2-9]\\.[0-9]+ [0-9a-f]{6,}")));
  const std::vector<int> all = nvrtc->architectures();
  for (const int wanted : {80, 90, 100}) EXPECT_NE(std::find(all.begin(), all.end(), wanted), all.end()) << wanted;
}

TEST_F(NvrtcTest, AFailedCompileSaysWhereAndKeepsWhatItWasGiven) {
  Scratch scratch;
  scratch.set("TMPDIR", scratch.path());
  const GpuSource source{
      "broken.cu",
      "__device__ int unused() { int i; return 1; }\nextern \"C\" __global__ void k() { missing(); }\n",
      {"-DA=1"}};
  std::string message;
  try {
    compile_cuda(source, "sm_90");
  } catch (const DeviceError& e) {
    message = e.what();
  }
  EXPECT_TRUE(is_one_line(message)) << message;
  EXPECT_TRUE(has(message, "does not compile broken.cu for sm_90: "));
  EXPECT_TRUE(has(message, "broken.cu(2): error: identifier \"missing\" is undefined"));
  const std::string directory = message.substr(message.rfind(scratch.path()));
  EXPECT_EQ(text_of(directory + "/broken.cu"), source.text);
  EXPECT_TRUE(has(text_of(directory + "/options.txt"), "-arch=sm_90\n"));
  EXPECT_TRUE(has(text_of(directory + "/options.txt"), "-DA=1\n"));
  EXPECT_TRUE(starts(text_of(directory + "/options.txt"), "NVRTC "));
  EXPECT_TRUE(has(text_of(directory + "/log.txt"), "identifier \"missing\" is undefined"));
}

TEST_F(NvrtcTest, WhatTheAssemblerRefusesIsAnErrorToo) {
  Scratch scratch;
  scratch.set("TMPDIR", scratch.path());
  const std::string warned = "__device__ inline int error_of() { int unused_error; return 1; }\n";
  try {
    compile_cuda({"assembly.cu", warned + "extern \"C\" __global__ void k() { asm(\"nonsense.f32;\"); }\n", {}},
                 "sm_90");
    FAIL() << "it compiled";
  } catch (const DeviceError& e) {
    EXPECT_TRUE(is_one_line(e.what())) << e.what();
    EXPECT_TRUE(has(e.what(), "ptx"));
    EXPECT_FALSE(has(e.what(), "unused_error"));
  }
}

TEST_F(NvrtcTest, QuickSourcesMeetTheSameRefusals) {
  Scratch scratch;
  scratch.set("TMPDIR", scratch.path());
  const auto kernel = [](const std::string& body) {
    return GpuSource{"quick.cu", "extern \"C\" __global__ void k(float* a) {" + body + "}\n", {}};
  };
  for (const char* wrong :
       {"missing();", "asm(\"nonsense.f32;\");", "__shared__ float x[1 << 20]; a[0] = x[threadIdx.x];",
        "asm(\"wgmma.fence.sync.aligned;\");", "int i; asm(\"mov.u32 %0, %1;\" : \"=r\"(i) : \"n\"(a));"})
    for (const GpuSource& source : {kernel(wrong), quick(kernel(wrong))})
      EXPECT_THROW(compile_cuda(source, "sm_80"), DeviceError) << wrong;
  const GpuSource unused = kernel("int never_used; a[0] = 1;");
  const std::string remark = compile_cuda(unused, "sm_80").log;
  EXPECT_TRUE(has(remark, "never_used"));
  EXPECT_EQ(compile_cuda(quick(unused), "sm_80").log, remark);
}

TEST_F(NvrtcTest, AFailedCompileThatCannotBeKeptStillSaysWhy) {
  Scratch scratch;
  scratch.set("TMPDIR", scratch / "missing");
  try {
    compile_cuda({"broken.cu", "#error on purpose\n", {}}, "sm_90");
    FAIL() << "it compiled";
  } catch (const DeviceError& e) {
    EXPECT_TRUE(has(e.what(), "on purpose"));
    EXPECT_TRUE(has(e.what(), "could not be kept"));
  }
}

TEST_F(NvrtcTest, WhatIsNoArchitectureIsRefused) {
  Scratch scratch;
  scratch.set("TMPDIR", scratch.path());
  for (const char* architecture : {"sm_1", "volta", "", "compute_90"}) {
    EXPECT_THROW(compile_cuda(scale(2), architecture), DeviceError) << architecture;
  }
}

TEST_F(NvrtcTest, ThreadsCompileAtOnce) {
  constexpr int kThreads = 4;
  std::vector<std::string> codes(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] { codes[t] = compile_cuda(scale(t + 1), "sm_90", CompiledKind::Ptx).code; });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t)
    EXPECT_EQ(codes[t], compile_cuda(scale(t + 1), "sm_90", CompiledKind::Ptx).code) << t;
  EXPECT_NE(codes[0], codes[1]);
}

class KernelCacheTest : public WithNvrtc {
 protected:
  void SetUp() override {
    WithNvrtc::SetUp();
    std::string reason;
    nvrtc = Nvrtc::find(0, reason);
  }
  CompiledKernels compile(const std::string& directory, const std::function<void(const std::string&)>& use = {}) {
    return cached_or_compiled(
        *nvrtc, scale(3), "sm_90", CompiledKind::Cubin, ObjectCache(directory), use ? use : [](const std::string&) {});
  }
  std::string entry() {
    return ObjectCache(directory).path_of(kernel_key(*nvrtc, scale(3), "sm_90", CompiledKind::Cubin));
  }

  Scratch scratch;
  const std::string directory = scratch / "cache";
  std::shared_ptr<const Nvrtc> nvrtc;
};

TEST_F(KernelCacheTest, TheSecondTimeNothingIsCompiled) {
  const CompiledKernels first = compile(directory), second = compile(directory);
  EXPECT_EQ(first.cache, CacheState::Miss);
  EXPECT_GT(first.compile_ms, 0);
  EXPECT_EQ(second.cache, CacheState::Hit);
  EXPECT_EQ(second.compile_ms, 0);
  EXPECT_EQ(first.code, second.code);
}

TEST_F(KernelCacheTest, ADamagedEntryIsReplaced) {
  const std::string code = compile(directory).code;
  std::string damaged = text_of(entry());
  damaged[damaged.size() / 2] ^= 1;
  std::ofstream(entry(), std::ios::binary) << damaged;
  EXPECT_EQ(compile(directory).cache, CacheState::Miss);
  const CompiledKernels again = compile(directory);
  EXPECT_EQ(again.cache, CacheState::Hit);
  EXPECT_EQ(again.code, code);
}

TEST_F(KernelCacheTest, CodeThatDoesNotLoadIsCompiledAnewAndNotKept) {
  compile(directory);
  int calls = 0;
  EXPECT_EQ(compile(directory,
                    [&](const std::string&) {
                      if (++calls == 1) throw DeviceError("not this");
                    })
                .cache,
            CacheState::Miss);
  EXPECT_EQ(calls, 2);
  fs::remove_all(directory);
  EXPECT_THROW(compile(directory, [](const std::string&) { throw DeviceError("never"); }), DeviceError);
  EXPECT_FALSE(fs::exists(entry()));
}

TEST_F(KernelCacheTest, NoCacheIsNoError) {
  EXPECT_EQ(compile("").cache, CacheState::Off);
  std::ofstream(scratch / "file") << "in the way";
  EXPECT_EQ(compile(scratch / "file/below").cache, CacheState::Off);
}

TEST_F(KernelCacheTest, WhateverTheCodeDependsOnCounts) {
  const ObjectKey key = kernel_key(*nvrtc, scale(3), "sm_90", CompiledKind::Cubin);
  EXPECT_EQ(key, kernel_key(*nvrtc, scale(3), "sm_90", CompiledKind::Cubin));
  EXPECT_NE(key, kernel_key(*nvrtc, scale(4), "sm_90", CompiledKind::Cubin));
  EXPECT_NE(key, kernel_key(*nvrtc, scale(3), "sm_80", CompiledKind::Cubin));
  EXPECT_NE(key, kernel_key(*nvrtc, scale(3), "sm_90", CompiledKind::Ptx));
  GpuSource other = scale(3);
  other.name = "other.cu";
  EXPECT_NE(key, kernel_key(*nvrtc, other, "sm_90", CompiledKind::Cubin));
  other = scale(3);
  other.options = {"-lineinfo"};
  EXPECT_NE(key, kernel_key(*nvrtc, other, "sm_90", CompiledKind::Cubin));
  put_fake_nvrtc(scratch.path(), "13.7");
  std::string reason;
  const auto another = Nvrtc::load(scratch / "libnvrtc.so.13.7", reason);
  ASSERT_NE(another, nullptr) << reason;
  EXPECT_NE(key, kernel_key(*another, scale(3), "sm_90", CompiledKind::Cubin));
}

}  // namespace
}  // namespace cellc
