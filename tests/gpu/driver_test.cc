// A GPU through the driver: without one, with a fake one that fails as it is told, and on a real card.
#include "runtime/cuda/device/driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>

#include "runtime/cuda/device/gpu_driver.h"
#include "runtime/data/errors.h"
#include "tests/gpu/fixtures.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const DeviceError& e) {
    EXPECT_TRUE(is_one_line(e.what())) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(NoDriver, IsNoGpuAndOneLine) {
  std::string reason;
  if (Driver::open(reason)) GTEST_SKIP() << "this machine has an NVIDIA driver";
  EXPECT_EQ(open_gpu("", reason), nullptr);
  EXPECT_TRUE(is_one_line(reason)) << reason;
  EXPECT_TRUE(has(reason, "driver") || has(reason, "GPU")) << reason;
}

TEST(NoDriver, FileThatIsMissing) {
  std::string reason;
  EXPECT_EQ(Driver::open_file("/missing/libcuda.so.1", reason), nullptr);
  EXPECT_TRUE(starts(reason, "no NVIDIA driver: /missing/libcuda.so.1: "));
}

TEST(NoDriver, LibraryThatLacksAFunction) {
  std::string reason;
  EXPECT_EQ(Driver::open_file("libm.so.6", reason), nullptr);
  EXPECT_TRUE(has(reason, "too old: it has no cuInit"));
}

TEST(NoDriver, AStubIsNotUsed) {
  const Scratch scratch;
  fs::create_directory(scratch / "stubs");
  fs::copy_file(CELLC_FAKE_DRIVER, scratch / "stubs/libcuda.so.1");
  std::string reason;
  EXPECT_EQ(Driver::open_file(scratch / "stubs/libcuda.so.1", reason), nullptr);
  EXPECT_TRUE(has(reason, "stub, not a driver"));
}

TEST(DriverErrors, ThoseThatLoseTheContext) {
  for (const int lost : {4, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999})
    EXPECT_TRUE(loses_context(lost)) << lost;
  for (const int harmless : {0, 1, 2, 100, 200, 209, 218, 222, 500, 701, 720, 801})
    EXPECT_FALSE(loses_context(harmless)) << harmless;
}

TEST_F(WithFakeDriver, WhyThereIsNoGpu) {
  const auto reason_when = [&](auto change) {
    *driver = FakeDriverState();
    change();
    std::string reason;
    EXPECT_EQ(open(reason), nullptr);
    EXPECT_TRUE(is_one_line(reason)) << reason;
    EXPECT_EQ(driver->contexts, 0);
    return reason;
  };
  EXPECT_TRUE(starts(reason_when([&] { driver->init_result = 100; }), "no GPU: "));
  EXPECT_TRUE(has(reason_when([&] { driver->init_result = 34; }), "is a stub"));
  EXPECT_TRUE(has(reason_when([&] { driver->init_result = 803; }), "does not start: CUDA error 803"));
  EXPECT_TRUE(starts(reason_when([&] { driver->devices = 0; }), "no GPU: "));
  EXPECT_TRUE(has(reason_when([&] { driver->version = 11080; }), "serves CUDA 11.8, cellc needs 12.0"));
  EXPECT_TRUE(has(reason_when([&] { driver->version = 12040; }), "later major version than the driver, CUDA 12"));
  EXPECT_TRUE(has(reason_when([&] { driver->major = 7, driver->minor = 5; }), "compute capability 7.5"));
  EXPECT_TRUE(has(reason_when([&] { driver->fail["cuDevicePrimaryCtxRetain"] = 46; }), "no context"));
}

TEST_F(WithFakeDriver, Facts) {
  const auto gpu = open();
  ASSERT_TRUE(gpu);
  EXPECT_EQ(gpu->facts().name, "Fake H1");
  EXPECT_EQ(gpu->facts().architecture(), "sm_90");
  EXPECT_EQ(gpu->facts().multiprocessors, 132);
  EXPECT_EQ(gpu->facts().shared_per_block, 227 << 10);
  EXPECT_EQ(gpu->facts().memory_bytes, std::int64_t{1} << 30);
}

TEST_F(WithFakeDriver, CodeIsOfTheCardOrOfTheLatestArchitectureBelow) {
  open()->load({"a.cu", "text of a", {}});
  EXPECT_TRUE(has(driver->images.back(), "-arch=sm_90 "));
  EXPECT_TRUE(has(driver->images.back(), "text of a"));
  driver->major = 12;
  open()->load({"a.cu", "text of a", {}});
  EXPECT_TRUE(has(driver->images.back(), "-arch=compute_100 "));
}

TEST_F(WithFakeDriver, KernelsBeginEarlyWhereTheirCodeWaits) {
  const auto begins_early = [&] {
    const auto gpu = open();
    const GpuFunction function = gpu->function(gpu->load({"a.cu", "text", {}}), "kernel");
    gpu->launch(function, {.grid = {1}, .block = {32}, .early = true}, nullptr);
    return driver->launches.back().early;
  };
  EXPECT_TRUE(begins_early());
  driver->major = 8;
  EXPECT_FALSE(begins_early());
  driver->major = 12;  // as PTX for compute_100
  EXPECT_TRUE(begins_early());
}

TEST_F(WithFakeDriver, GraphsTakeWhatBeginsEarlyFromCuda123On) {
  fs::remove(scratch / "libnvrtc.so.13.0");
  put_fake_nvrtc(scratch.path(), "12.8");
  const auto begins_early = [&](int version) {
    driver->version = version;
    const auto gpu = open();
    const GpuFunction function = gpu->function(gpu->load({"a.cu", "text", {}}), "kernel");
    gpu->launch(function, {.grid = {1}, .block = {32}, .early = true}, nullptr);
    return driver->launches.back().early;
  };
  EXPECT_FALSE(begins_early(12020));
  EXPECT_TRUE(begins_early(12030));
}

TEST_F(WithFakeDriver, NothingBeginsEarlyWhereTheDriverDoesNotKnowIt) {
  driver->has_early_launch = false;
  const auto gpu = open();
  const GpuFunction function = gpu->function(gpu->load({"a.cu", "text", {}}), "kernel");
  gpu->launch(function, {.grid = {132}, .block = {32}, .cooperative = true, .early = true}, nullptr);
  ASSERT_EQ(driver->launches.size(), 1u);
  EXPECT_TRUE(driver->launches[0].cooperative);
  EXPECT_FALSE(driver->launches[0].early);
  // Once is enough to find out.
  driver->has_early_launch = true;
  gpu->launch(function, {.grid = {1}, .block = {32}, .early = true}, nullptr);
  EXPECT_FALSE(driver->launches[1].early);
  // What is refused for another reason is refused.
  driver->fail["cuLaunchKernelEx"] = 1;
  EXPECT_TRUE(has(error_of([&] { gpu->launch(function, {.grid = {1}, .block = {32}, .early = true}, nullptr); }),
                  "launching 1x1x1 blocks"));
}

TEST_F(WithFakeDriver, ModulesComeFromTheCache) {
  std::string reason;
  const auto gpu = open(reason, scratch / "cache");
  EXPECT_EQ(gpu->load({"a.cu", "text", {}}).cache, CacheState::Miss);
  const GpuModule again = gpu->load({"a.cu", "text", {}});
  EXPECT_EQ(again.cache, CacheState::Hit);
  EXPECT_EQ(again.compile_ms, 0);
  EXPECT_EQ(driver->images[0], driver->images[1]);
}

TEST_F(WithFakeDriver, EverythingIsGivenBackAndNoContextStaysCurrent) {
  {
    GpuFunction kept;
    {
      auto gpu = open();
      const GpuModule module = gpu->load({"a.cu", "text", {}});
      kept = gpu->function(module, "kernel");
      const GpuBuffer buffer(*gpu, 100);
      EXPECT_EQ(buffer.address() % 256, 0u);
      gpu->record(7, 0);
      EXPECT_EQ(driver->current, nullptr);
      EXPECT_TRUE(has(error_of([&] { gpu->function(module, "missing"); }), "finding the kernel missing"));
      EXPECT_EQ(driver->current, nullptr);
    }
    EXPECT_EQ(driver->allocations, 0);
    EXPECT_EQ(driver->events, 0);
    EXPECT_EQ(driver->modules, 1) << "a function holds its module";
    EXPECT_EQ(driver->contexts, 1) << "and the module the context";
  }
  EXPECT_EQ(driver->modules, 0);
  EXPECT_EQ(driver->contexts, 0);
}

TEST_F(WithFakeDriver, LaunchesSayWhatTheyWereAskedFor) {
  const auto gpu = open();
  const GpuModule module = gpu->load({"a.cu", "text", {}});
  const GpuFunction function = gpu->function(module, "kernel");
  int number = 5;
  void* arguments[] = {&number};
  gpu->launch(function, {.grid = {4, 3, 2}, .block = {64, 2, 1}, .shared_bytes = 1000, .stream = 77}, arguments);
  gpu->launch(function, {.grid = {132}, .block = {256}, .cooperative = true}, arguments);
  gpu->launch(function, {.grid = {132}, .block = {256}, .cooperative = true, .early = true}, arguments);
  ASSERT_EQ(driver->launches.size(), 3u);
  const auto& first = driver->launches[0];
  EXPECT_EQ(first.grid, (std::array{4u, 3u, 2u}));
  EXPECT_EQ(first.block, (std::array{64u, 2u, 1u}));
  EXPECT_EQ(first.shared_bytes, 1000u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.stream), 77u);
  EXPECT_EQ(first.arguments, arguments);
  EXPECT_FALSE(first.cooperative);
  EXPECT_FALSE(first.early);
  EXPECT_TRUE(driver->launches[1].cooperative);
  EXPECT_FALSE(driver->launches[1].early);
  EXPECT_TRUE(driver->launches[2].cooperative);
  EXPECT_TRUE(driver->launches[2].early);
  EXPECT_EQ(gpu->facts(function).registers, 40);
  EXPECT_EQ(gpu->facts(function).max_threads, 1024);
}

TEST_F(WithFakeDriver, MuchSharedMemoryIsAskedForOnce) {
  const auto gpu = open();
  const GpuModule module = gpu->load({"a.cu", "text", {}});
  const GpuFunction function = gpu->function(module, "kernel");
  const auto launch = [&](std::int64_t bytes) { gpu->launch(function, {.shared_bytes = bytes}, nullptr); };
  launch(47 << 10);  // with 1 KiB of its own that is what every kernel may have
  EXPECT_TRUE(driver->function_attributes.empty());
  launch(48 << 10);
  launch(100 << 10);
  launch(90 << 10);
  EXPECT_EQ(driver->function_attributes, (std::vector{std::pair(8, 48 << 10), std::pair(8, 100 << 10)}));
  EXPECT_EQ(gpu->resident_blocks(function, 512, 120 << 10), 4);
  EXPECT_EQ(driver->function_attributes.back(), std::pair(8, 120 << 10));
  EXPECT_EQ(gpu->resident_blocks(function, 512, 227 << 10), 0) << "its own 1 KiB is too much";
  EXPECT_TRUE(
      has(error_of([&] { launch(228 << 10); }), "233472 bytes of shared memory a block; the card gives 232448"));
}

TEST_F(WithFakeDriver, ClustersAreCountedAndAskedFor) {
  auto gpu = open();
  GpuFunction function = gpu->function(gpu->load({"a.cu", "text", {}}), "kernel");
  EXPECT_EQ(gpu->resident_clusters(function, 128, 0, 8), 132 * 16 / 8);
  EXPECT_TRUE(driver->function_attributes.empty());
  EXPECT_EQ(gpu->resident_clusters(function, 128, 0, 16), 132 * 16 / 16);
  gpu->launch(function, {.grid = {64}, .block = {128}, .cluster = 16, .early = true}, nullptr);
  EXPECT_EQ(driver->function_attributes, (std::vector{std::pair(14, 1)})) << "asked for once: more than 8 blocks";
  EXPECT_EQ(driver->launches.back().cluster, 16u);
  EXPECT_TRUE(driver->launches.back().early);
  gpu->launch(function, {.grid = {64}, .block = {128}}, nullptr);
  EXPECT_EQ(driver->launches.back().cluster, 1u);
  // A card whose clusters are smaller, and one that has none.
  driver->largest_cluster = 8;
  EXPECT_EQ(gpu->resident_clusters(function, 128, 0, 16), 0);
  EXPECT_EQ(gpu->resident_clusters(function, 128, 0, 8), 132 * 16 / 8);
  gpu.reset();
  driver->major = 8;
  gpu = open();
  function = gpu->function(gpu->load({"a.cu", "text", {}}), "kernel");
  EXPECT_EQ(gpu->resident_clusters(function, 128, 0, 8), 0);
  driver->major = 9;
  gpu.reset();
  gpu = open();
  function = gpu->function(gpu->load({"a.cu", "text", {}}), "kernel");
  driver->fail["cuLaunchKernelEx"] = 912;
  EXPECT_TRUE(has(error_of([&] { gpu->launch(function, {.grid = {64}, .block = {128}, .cluster = 8}, nullptr); }),
                  "launching 64x1x1 blocks of 128x1x1 threads with 0 bytes of shared memory, in clusters of 8: "));
}

TEST_F(WithFakeDriver, AnErrorLeavesTheDeviceUsable) {
  const auto gpu = open();
  const GpuFunction function = gpu->function(gpu->load({"a.cu", "text", {}}), "kernel");
  driver->fail["cuLaunchKernelEx"] = 720;
  EXPECT_TRUE(has(error_of([&] { gpu->launch(function, {.grid = {9999}, .cooperative = true}, nullptr); }),
                  "launching 9999x1x1 blocks of 1x1x1 threads with 0 bytes of shared memory, all resident: "
                  "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE (as the fake driver was told)"));
  driver->fail.clear();
  EXPECT_NO_THROW(gpu->launch(function, {}, nullptr));
  driver->fail["cuMemAlloc_v2"] = 2;
  EXPECT_TRUE(has(error_of([&] { gpu->allocate(123000000); }), "no memory for 123.0 MB: 5.0 of 80.0 MB are free"));
  driver->fail.clear();
  EXPECT_NO_THROW(gpu->synchronize(0));
}

TEST_F(WithFakeDriver, ALostContextIsSaidOnceAndForAll) {
  std::string reason;
  auto gpu = open();
  const GpuFunction function = gpu->function(gpu->load({"a.cu", "text", {}}), "kernel");
  {
    GpuBuffer buffer(*gpu, 100);
    driver->fail["cuStreamSynchronize"] = 700;
    EXPECT_TRUE(has(error_of([&] { gpu->synchronize(0); }),
                    "CUDA_ERROR_ILLEGAL_ADDRESS (as the fake driver was told); a "
                    "kernel before it may be the cause. The context is lost"));
    driver->fail.clear();
    EXPECT_TRUE(has(error_of([&] { gpu->launch(function, {}, nullptr); }), "the context was lost by an earlier error"));
    EXPECT_TRUE(has(error_of([&] { gpu->allocate(1); }), "the context was lost"));
    EXPECT_TRUE(has(error_of([&] { gpu->record(1, 0); }), "the context was lost"));
  }
  EXPECT_NO_THROW(gpu.reset());
  EXPECT_EQ(driver->allocations, 0);
  EXPECT_TRUE(driver->launches.empty());
}

TEST_F(WithFakeDriver, CopiesAndTimes) {
  const auto gpu = open();
  std::vector<int> numbers(100), back(100, -1);
  std::iota(numbers.begin(), numbers.end(), 0);
  const GpuBuffer a(*gpu, 400), b(*gpu, 400);
  gpu->copy_in(a.address(), numbers.data(), 400, 0);
  gpu->copy(b.address(), a.address(), 400, 0);
  gpu->zero(b.address(), 8, 0);
  gpu->copy_out(back.data(), b.address(), 400, 0);
  numbers[1] = 0;
  EXPECT_EQ(back, numbers);
  gpu->record(1, 0);
  gpu->record(2, 0);
  EXPECT_EQ(gpu->elapsed_ms(1, 2), 2.5);
  EXPECT_EQ(driver->events, 2);
  EXPECT_THROW(gpu->elapsed_ms(1, 3), std::logic_error);
}

// On a real card ------------------------------------------------------------------------------------

const GpuSource kKernels{"kernels.cu",
                         R"(
extern "C" __global__ void add(float* x, const float* y, float factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += factor * y[i];
}
extern "C" __global__ void reverse(int* x, int n) {  // through dynamic shared memory
  extern __shared__ int held[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) held[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = held[n - 1 - i];
}
extern "C" __global__ void meet(unsigned* count, unsigned blocks) {  // ends only if all blocks are resident
  if (threadIdx.x > 0) return;
  atomicAdd(count, 1u);
  while (atomicAdd(count, 0u) < blocks) {}
}
extern "C" __global__ void fault() { *(volatile int*)8 = 1; }
)",
                         {}};

class GpuTest : public WithGpu {
 protected:
  void SetUp() override {
    WithGpu::SetUp();
    if (gpu) module = gpu->load(kKernels);
  }
  GpuModule module;
};

TEST_F(GpuTest, ComputesAndTimes) {
  const int n = 100003;
  std::vector<float> x(n), y(n), back(n);
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i), y[i] = static_cast<float>(i % 7);
  const GpuBuffer a(*gpu, n * 4), b(*gpu, n * 4);
  gpu->copy_in(a.address(), x.data(), n * 4, 0);
  gpu->copy_in(b.address(), y.data(), n * 4, 0);
  GpuAddress to = a.address(), from = b.address();
  float factor = 0.5f;
  int count = n;
  void* arguments[] = {&to, &from, &factor, &count};
  gpu->record(0, 0);
  gpu->launch(gpu->function(module, "add"), {.grid = {(n + 255u) / 256}, .block = {256}}, arguments);
  gpu->record(1, 0);
  gpu->copy_out(back.data(), a.address(), n * 4, 0);
  for (int i = 0; i < n; ++i) ASSERT_EQ(back[i], x[i] + 0.5f * y[i]) << i;
  EXPECT_GT(gpu->elapsed_ms(0, 1), 0);
  EXPECT_GT(gpu->facts(gpu->function(module, "add")).registers, 0);
}

TEST_F(GpuTest, UsesAllSharedMemoryOfABlock) {
  const GpuFunction function = gpu->function(module, "reverse");
  const std::int64_t bytes = gpu->facts().shared_per_block;
  int n = static_cast<int>(bytes / 4);
  std::vector<int> x(n), back(n);
  std::iota(x.begin(), x.end(), 0);
  const GpuBuffer buffer(*gpu, bytes);
  gpu->copy_in(buffer.address(), x.data(), bytes, 0);
  GpuAddress address = buffer.address();
  void* arguments[] = {&address, &n};
  EXPECT_EQ(gpu->resident_blocks(function, 256, bytes), 1);
  gpu->launch(function, {.block = {256}, .shared_bytes = bytes}, arguments);
  gpu->copy_out(back.data(), buffer.address(), bytes, 0);
  std::reverse(back.begin(), back.end());
  EXPECT_EQ(back, x);
}

TEST_F(GpuTest, CooperativeBlocksAreResidentOrRefused) {
  const GpuFunction function = gpu->function(module, "meet");
  unsigned blocks = static_cast<unsigned>(gpu->resident_blocks(function, 1024, 0) * gpu->facts().multiprocessors);
  const GpuBuffer count(*gpu, 4);
  gpu->zero(count.address(), 4, 0);
  GpuAddress address = count.address();
  void* arguments[] = {&address, &blocks};
  gpu->launch(function, {.grid = {blocks}, .block = {1024}, .cooperative = true}, arguments);
  unsigned met = 0;
  gpu->copy_out(&met, count.address(), 4, 0);
  EXPECT_EQ(met, blocks);
  EXPECT_TRUE(has(
      error_of([&] { gpu->launch(function, {.grid = {blocks + 1}, .block = {1024}, .cooperative = true}, arguments); }),
      "COOPERATIVE_LAUNCH_TOO_LARGE"));
  EXPECT_NO_THROW(gpu->synchronize(0));
}

TEST_F(GpuTest, NoMemory) {
  EXPECT_TRUE(
      has(error_of([&] { gpu->allocate(static_cast<std::size_t>(gpu->facts().memory_bytes) * 2); }), "no memory for"));
  EXPECT_NO_THROW(GpuBuffer(*gpu, 1000));
}

// Exits with 0 if the process outlived its context. In a process of its own: the others go on with theirs.
void outlive_the_context(std::unique_ptr<Gpu> gpu, const GpuModule& module) {
  gpu->launch(gpu->function(module, "fault"), {}, nullptr);
  const std::string first = error_of([&] { gpu->synchronize(0); });
  const std::string then = error_of([&] { gpu->allocate(1); });
  gpu.reset();
  std::exit(has(first, "The context is lost") && has(then, "the context was lost") ? 0 : 1);
}

TEST_F(GpuTest, AFaultyKernelLosesTheContextAndTheProcessLives) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(outlive_the_context(std::move(gpu), module), testing::ExitedWithCode(0), "");
}

TEST_F(WithFakeDriver, PointersAreLookedAt) {
  const auto gpu = open();
  driver->memory = {{1 << 20, {2, 0}}, {2 << 20, {2, 0}}, {8 << 20, {1, 0}}, {16 << 20, {2, 1}}};
  EXPECT_EQ(gpu->pointer_fault(1 << 20, 100), std::nullopt);
  EXPECT_EQ(gpu->pointer_fault((1 << 20) + 8, 1 << 20), std::nullopt) << "mapped in two pieces";
  EXPECT_TRUE(has(gpu->pointer_fault((2 << 20) + 8, 1 << 20).value(),
                  "takes 1048576 bytes; the memory of the GPU there has 1048568"));
  EXPECT_TRUE(has(gpu->pointer_fault(8 << 20, 4).value(), "is memory of the host; expected memory of the GPU"));
  EXPECT_TRUE(has(gpu->pointer_fault(16 << 20, 4).value(), "is memory of GPU 1; the kernel is for GPU 0"));
  EXPECT_TRUE(has(gpu->pointer_fault(4 << 20, 4).value(), "is memory of the host, or of nobody"));
}

TEST_F(WithFakeDriver, CaptureIsSeenAndAllocatingIsAllowedInIt) {
  const auto gpu = open();
  EXPECT_EQ(gpu->capturing(8), 0u);
  driver->captured = 3;
  EXPECT_EQ(gpu->capturing(8), 3u);
  EXPECT_EQ(gpu->capturing(0), 0u) << "the legacy stream cannot be captured";
  gpu->allow_in_capture(true);
  EXPECT_EQ(driver->capture_mode, 2) << "relaxed";
  gpu->allow_in_capture(true);
  gpu->allow_in_capture(false);
  EXPECT_EQ(driver->capture_mode, 2);
  gpu->allow_in_capture(false);
  EXPECT_EQ(driver->capture_mode, 0);
}

TEST_F(WithFakeDriver, GraphsOfOurOwn) {
  const auto gpu = open();
  const GpuStream stream = gpu->make_stream();
  ASSERT_TRUE(gpu->begin_capture(stream));
  EXPECT_EQ(driver->begun_in, 2) << "relaxed";
  EXPECT_EQ(driver->capture_mode, 0) << "as it was";
  const GpuGraph graph = gpu->end_capture(stream);
  ASSERT_NE(graph, 0u);
  EXPECT_EQ(driver->graphs, 0) << "what is ready needs it no more";
  EXPECT_EQ(driver->ready_graphs, 1);
  gpu->launch_graph(graph, 8);
  ASSERT_EQ(driver->graph_runs.size(), 1u);
  EXPECT_EQ(driver->graph_runs[0].second, reinterpret_cast<void*>(8));
  gpu->release_graph(graph);
  gpu->release_graph(0);
  EXPECT_EQ(driver->ready_graphs, 0);
  // A device that cannot says so; what goes wrong is told, and leaves nothing.
  driver->fail["cuStreamBeginCapture_v2"] = 801;
  EXPECT_FALSE(gpu->begin_capture(stream));
  driver->fail.clear();
  for (const char* function : {"cuStreamEndCapture", "cuGraphInstantiateWithFlags"}) {
    ASSERT_TRUE(gpu->begin_capture(stream));
    driver->fail[function] = 1;
    EXPECT_THROW(gpu->end_capture(stream), DeviceError) << function;
    driver->fail.clear();
    EXPECT_EQ(driver->graphs + driver->ready_graphs, 0) << function;
  }
  driver->fail["cuGraphLaunch"] = 1;
  EXPECT_THROW(gpu->launch_graph(graph, 8), DeviceError);
}

TEST_F(WithFakeDriver, OtherGpusThanTheFirst) {
  std::string reason;
  auto fake = Driver::open_file(CELLC_FAKE_DRIVER, reason);
  ASSERT_NE(fake, nullptr) << reason;
  EXPECT_EQ(open_gpu(fake, "", reason, 1), nullptr);
  EXPECT_EQ(reason, "no GPU 1: this process may use 1, numbered from 0");
  EXPECT_TRUE(is_gpu_missing(reason));
  driver->devices = 2;
  const auto second = open_gpu(fake, "", reason, 1);
  ASSERT_NE(second, nullptr) << reason;
  driver->memory = {{1 << 20, {2, 0}}};
  EXPECT_TRUE(has(second->pointer_fault(1 << 20, 4).value(), "is memory of GPU 0; the kernel is for GPU 1"));
}

TEST_F(WithFakeDriver, StreamsAndFencesAreGivenBack) {
  const auto gpu = open();
  const GpuStream stream = gpu->make_stream();
  const GpuFence fence = gpu->make_fence();
  EXPECT_EQ(driver->streams, 1);
  gpu->signal(fence, stream);
  EXPECT_TRUE(gpu->passed(fence));
  driver->fail["cuEventQuery"] = 600;
  EXPECT_FALSE(gpu->passed(fence));
  gpu->wait(fence, stream);
  driver->fail["cuEventQuery"] = 700;
  EXPECT_TRUE(has(error_of([&] { gpu->passed(fence); }), "looking at a fence: CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_TRUE(has(error_of([&] { gpu->pointer_fault(8, 4); }), "only a new process helps"));
  gpu->release_fence(fence);
  gpu->release_stream(stream);
  EXPECT_EQ(driver->streams, 0);
  EXPECT_EQ(driver->events, 0);
}
}  // namespace
}  // namespace cellc
