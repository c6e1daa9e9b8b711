// The emulator that the other tests of this folder run kernels on: what it runs. What it must find:
// emulator_faults_test.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <thread>

#include "tests/emulator/host_compiler.h"
#include "tests/gpu/emulated.h"

namespace cellc {
namespace {

std::vector<EmulatorOptions> schedules() {
  std::vector<EmulatorOptions> list(2);
  list[1].interleave = true;
  list[0].optimisation = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    list.emplace_back().seed = seed;
    list.back().interleave = seed % 2 == 0;
  }
  return list;
}

TEST(Emulator, AddsVectorsOfAnyLength) {
  const auto gpu = open_emulator();
  const auto add = compile(*gpu, R"(
extern "C" __global__ void __launch_bounds__(128)
kernel(float* __restrict__ sum, const float* __restrict__ a,  // two lines, a comment with ) and {
       const float* b, long long n) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
})");
  for (const long long n : {1LL, 127LL, 128LL, 129LL, 1000LL}) {
    std::vector<float> a(n), b(n);
    std::iota(a.begin(), a.end(), 1.0f);
    std::iota(b.begin(), b.end(), 0.5f);
    const auto da = upload(*gpu, a), db = upload(*gpu, b);
    const GpuBuffer sum(*gpu, n * sizeof(float));
    launch(*gpu, add, shape((n + 127) / 128, 128), sum.address(), da.address(), db.address(), n);
    const auto result = download<float>(*gpu, sum);
    for (long long i = 0; i < n; ++i) ASSERT_EQ(result[i], a[i] + b[i]) << i;
  }
}

TEST(Emulator, ReducesInSharedMemoryUnderEverySchedule) {
  std::vector<float> in(7 * 128);
  std::iota(in.begin(), in.end(), 0.0f);
  for (const auto& options : schedules()) {
    const auto gpu = open_emulator(options);
    const auto kernel = gpu->function(gpu->load({"sum.cu", kBlockSum, {"-DBARRIER=__syncthreads();"}}), "kernel");
    EXPECT_GE(gpu->facts(kernel).static_shared, 512);
    const auto din = upload(*gpu, in);
    const GpuBuffer out(*gpu, 7 * sizeof(float));
    launch(*gpu, kernel, shape(7, 128), din.address(), out.address());
    const auto result = download<float>(*gpu, out);
    for (int i = 0; i < 7; ++i) EXPECT_EQ(result[i], 128 * (128 * i + 63.5f)) << "seed " << options.seed;
  }
}

TEST(Emulator, WarpsExchange) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, R"(
extern "C" __global__ void kernel(double* out, unsigned* votes) {
  const int lane = threadIdx.x % 32;
  double value = lane;
  for (int offset = 1; offset < 32; offset *= 2) {
    const double before = __shfl_up_sync(0xffffffffu, value, offset);
    if (lane >= offset) value += before;
  }
  out[threadIdx.x] = value;
  out[64 + threadIdx.x] = __shfl_down_sync(0xffffffffu, (double)lane, 3, 8);
  out[128 + threadIdx.x] = __shfl_xor_sync(0xffffffffu, (float)lane, 5);
  out[192 + threadIdx.x] = __shfl_sync(0xffffffffu, (long long)lane, 9, 8);
  // Two groups with masks of their own; only one of them loops.
  if (lane < 8) {
    int sum = lane;
    for (int offset = 4; offset; offset /= 2) sum += __shfl_xor_sync(0xffu, sum, offset);
    out[256 + threadIdx.x] = sum;
  } else {
    out[256 + threadIdx.x] = __shfl_sync(0xffffff00u, lane, 31);
  }
  __syncwarp();
  const unsigned odd = __ballot_sync(0xffffffffu, lane & 1);
  if (lane == 0) {
    unsigned* mine = votes + threadIdx.x / 32 * 3;
    mine[0] = odd;
  }
  const int any = __any_sync(0xffffffffu, lane == 7), all = __all_sync(0xffffffffu, lane < 31);
  if (lane == 0) {
    votes[threadIdx.x / 32 * 3 + 1] = any;
    votes[threadIdx.x / 32 * 3 + 2] = all;
  }
})");
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    gpu->set_seed(seed);
    const GpuBuffer out(*gpu, 5 * 64 * sizeof(double)), votes(*gpu, 6 * sizeof(unsigned));
    launch(*gpu, kernel, shape(1, 64), out.address(), votes.address());
    const auto result = download<double>(*gpu, out);
    for (int i = 0; i < 64; ++i) {
      const int lane = i % 32;
      EXPECT_EQ(result[i], lane * (lane + 1) / 2);
      EXPECT_EQ(result[64 + i], lane % 8 + 3 < 8 ? lane + 3 : lane);
      EXPECT_EQ(result[128 + i], lane ^ 5);
      EXPECT_EQ(result[192 + i], lane / 8 * 8 + 1);
      EXPECT_EQ(result[256 + i], lane < 8 ? 28 : 31);
    }
    EXPECT_EQ(download<unsigned>(*gpu, votes), (std::vector<unsigned>{0xaaaaaaaa, 1, 0, 0xaaaaaaaa, 1, 0}));
  }
}

TEST(Emulator, ChainsBlocksByFlags) {
  for (const auto& options : schedules()) {
    const auto gpu = open_emulator(options);
    const auto kernel = compile(*gpu, R"(
extern "C" __global__ void kernel(const int* in, int* prefix, unsigned* flags) {
  __shared__ int before;
  if (threadIdx.x == 0) {
    before = 0;
    if (blockIdx.x > 0) {
      while (cellc_emulator::load_acquire(flags + blockIdx.x - 1) != 1u) {}
      before = prefix[blockIdx.x - 1];
    }
    prefix[blockIdx.x] = before + in[blockIdx.x];
    __threadfence();
    cellc_emulator::store_release(flags + blockIdx.x, 1u);
  }
  __syncthreads();
})");
    std::vector<int> in(100);
    std::iota(in.begin(), in.end(), 1);
    const auto din = upload(*gpu, in);
    const GpuBuffer prefix(*gpu, 100 * sizeof(int)), flags(*gpu, 100 * sizeof(unsigned));
    gpu->zero(flags.address(), flags.bytes(), 0);
    launch(*gpu, kernel, shape(100, 32), din.address(), prefix.address(), flags.address());
    const auto result = download<int>(*gpu, prefix);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(result[i], (i + 1) * (i + 2) / 2) << "seed " << options.seed;
  }
}

TEST(Emulator, CooperativeGridsMeetAtABarrierOfAtomics) {
  for (const auto& options : schedules()) {
    const auto gpu = open_emulator(options);
    const auto kernel = compile(*gpu, kGridBarrier);
    const GpuBuffer values(*gpu, 30 * sizeof(float)), arrived(*gpu, sizeof(unsigned));
    gpu->zero(arrived.address(), 4, 0);
    launch(*gpu, kernel, shape(10, 64, 0, true), values.address(), arrived.address(), 3);
    const auto result = download<float>(*gpu, values);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(result[20 + i], (i + 3) % 10) << "seed " << options.seed;
  }
}

TEST(Emulator, DynamicSharedMemoryIsABlocksOwn) {
  for (const auto& options : schedules()) {
    const auto gpu = open_emulator(options);
    const auto kernel = compile(*gpu, R"(
struct Sizes { int n; double scale; };
extern "C" __global__ void kernel(float* out, const __grid_constant__ Sizes sizes) {
  CELLC_DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x] = blockIdx.x * sizes.n + threadIdx.x;
  __syncthreads();
  out[blockIdx.x * sizes.n + threadIdx.x] = sizes.scale * tile[sizes.n - 1 - threadIdx.x];
})");
    struct Sizes {
      int n;
      double scale;
    };
    const GpuBuffer out(*gpu, 12 * 96 * sizeof(float));
    launch(*gpu, kernel, shape(12, 96, 96 * sizeof(float)), out.address(), Sizes{96, 0.5});
    const auto result = download<float>(*gpu, out);
    for (int block = 0; block < 12; ++block)
      for (int i = 0; i < 96; ++i) ASSERT_EQ(result[block * 96 + i], 0.5f * (block * 96 + 95 - i));
    const auto error = error_of([&] {
      launch(*gpu, kernel, shape(1, 96, 80 * sizeof(float)), out.address(), Sizes{96, 0.5});
    });
    EXPECT_CONTAINS(error, "of 320 bytes of dynamic shared memory");
  }
}

constexpr const char* kCopies = R"(
extern "C" __global__ void kernel(const float4* in, float4* out, int wait) {
  __shared__ float4 tile[2][32];
  cellc_emulator::cp_async(&tile[0][threadIdx.x], in + threadIdx.x, 16);
  cellc_emulator::cp_async_commit();
  cellc_emulator::cp_async(&tile[1][threadIdx.x], in + 32 + threadIdx.x, 16, 8);
  cellc_emulator::cp_async_commit();
  if (wait == 1) cellc_emulator::cp_async_wait(1);
  if (wait == 2) cellc_emulator::cp_async_wait(0);
  __syncthreads();
  out[threadIdx.x] = tile[0][31 - threadIdx.x];
  out[32 + threadIdx.x] = tile[1][31 - threadIdx.x];
})";

TEST(Emulator, CopiesArriveAtTheWaitForTheirGroup) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, kCopies);
  std::vector<float> in(256);
  std::iota(in.begin(), in.end(), 0.0f);
  const auto din = upload(*gpu, in);
  for (int wait = 0; wait <= 2; ++wait) {
    const GpuBuffer out(*gpu, 256 * sizeof(float));
    launch(*gpu, kernel, shape(1, 32), din.address(), out.address(), wait);
    const auto result = download<float>(*gpu, out);
    for (int i = 0; i < 32; ++i)
      for (int k = 0; k < 4; ++k) {
        const float first = result[4 * i + k], second = result[128 + 4 * i + k];
        if (wait >= 1)
          EXPECT_EQ(first, 4 * (31 - i) + k);
        else
          EXPECT_TRUE(std::isnan(first));
        if (wait == 2)
          EXPECT_EQ(second, k < 2 ? 128 + 4 * (31 - i) + k : 0);
        else
          EXPECT_TRUE(std::isnan(second));
      }
  }
}

TEST(Emulator, StacksAreAligned) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, R"(
__device__ __noinline__ void fill(float4* values) {
  for (int i = 0; i < 4; ++i) values[i] = make_float4(i, i, i, i);
}
extern "C" __global__ void kernel(float* out) {
  alignas(16) float4 values[4];
  fill(values);
  out[threadIdx.x] = values[threadIdx.x % 4].z + (reinterpret_cast<unsigned long long>(values) % 16);
})");
  const GpuBuffer out(*gpu, 64 * sizeof(float));
  launch(*gpu, kernel, shape(1, 64), out.address());
  const auto result = download<float>(*gpu, out);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(result[i], i % 4);
}

TEST(Emulator, ModulesHaveVariablesOfTheirOwnAndObjectsAreKept) {
  const auto gpu = open_emulator();
  const std::string text = R"(
__device__ int counter = 0;
template <class T> __global__ void never_by_name(T) {}
extern "C" __global__ void declared(int*);
extern "C" __global__ void kernel(int* out) { *out = ++counter; }
)";
  const auto first = compile(*gpu, text);
  const auto again = gpu->load({"test.cu", text, {}});
  EXPECT_EQ(again.cache, CacheState::Hit);
  EXPECT_EQ(again.compile_ms, 0.0);
  const auto second = gpu->function(again, "kernel");
  const GpuBuffer out(*gpu, 4);
  for (const int expected : {1, 2}) {
    launch(*gpu, first, shape(1, 1), out.address());
    EXPECT_EQ(download<int>(*gpu, out)[0], expected);
  }
  launch(*gpu, second, shape(1, 1), out.address());
  EXPECT_EQ(download<int>(*gpu, out)[0], 1);
}

TEST(Emulator, SourcesCompileAndRunOnSeveralThreads) {
  EmulatorOptions options;
  options.cache_directory = std::string(CELLC_BINARY_DIR) + "/emulator-cache-threads";
  std::filesystem::remove_all(options.cache_directory);
  const auto gpu = open_emulator(options);
  std::vector<std::thread> threads;
  int results[4] = {};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {  // two and two want the same object
      const auto kernel = compile(*gpu, "extern \"C\" __global__ void kernel(int* out) { __shared__ int x; x = " +
                                            std::to_string(i / 2 + 1) + "; __syncthreads(); *out = x; }");
      const GpuBuffer out(*gpu, 4);
      for (int turn = 0; turn < 20; ++turn) launch(*gpu, kernel, shape(3, 64), out.address());
      results[i] = download<int>(*gpu, out)[0];
    });
  for (auto& thread : threads) thread.join();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(results[i], i / 2 + 1);
  // What an object depends on is in its name.
  const GpuSource source{"test.cu", "extern \"C\" __global__ void kernel() {}", {}};
  const GpuSource defined{"test.cu", source.text, {"-DX=1"}};
  EXPECT_EQ(gpu->load(source).cache, CacheState::Miss);
  EXPECT_EQ(gpu->load(source).cache, CacheState::Hit);
  EXPECT_EQ(gpu->load(defined).cache, CacheState::Miss);
  options.optimisation = 0;
  EXPECT_EQ(open_emulator(options)->load(source).cache, CacheState::Miss);
}

TEST(Emulator, ASeedReplaysItsRun) {
  const auto order_of = [](std::uint64_t seed) {
    EmulatorOptions options;
    options.seed = seed;
    options.interleave = true;
    const auto gpu = open_emulator(options);
    const auto kernel = compile(*gpu, R"(
extern "C" __global__ void kernel(unsigned* next, unsigned* order) {
  order[atomicAdd(next, 1u)] = blockIdx.x * blockDim.x + threadIdx.x;
})");
    const GpuBuffer next(*gpu, 4), order(*gpu, 256 * 4);
    gpu->zero(next.address(), 4, 0);
    launch(*gpu, kernel, shape(4, 64), next.address(), order.address());
    return download<unsigned>(*gpu, order);
  };
  const auto first = order_of(3);
  EXPECT_EQ(first, order_of(3));
  EXPECT_NE(first, order_of(4));
  auto sorted = first;
  std::sort(sorted.begin(), sorted.end());
  for (unsigned i = 0; i < 256; ++i) EXPECT_EQ(sorted[i], i);
}

TEST(Emulator, KernelsAreFoundInTheText) {
  const std::string text = R"cu(#define KERNEL(name) extern "C" __global__ void name() {}
// __global__ void in_a_comment() {}
/* __global__ void in_another() { __shared__ alignas(8) int x; } */
const char* words = "\"__global__ void in_a_text() {} __shared__ alignas(8)";
constexpr int thousand = 1'000, quote = '"';
extern "C" __global__ void declared(int n);
template <int N> __global__ void of_a_template(float* a) { __shared__ alignas(16) float x[N]; a[0] = x[1]; }
namespace nested { extern "C" __global__ void __launch_bounds__(256, (1 + 1))
    kernel(const int* a,  // the count
#ifdef SOMETHING
           int* b /* ) { */) { *b = *a; }
#endif
})cu";
  const std::string with = emulator::add_entries(text);
  std::string expected = text;
  const std::string entry =
      "; extern \"C\" __attribute__((visibility(\"default\"))) void cellc_entry_kernel(void** arguments) { "
      "::cellc_emulator::call(&kernel, arguments); } void kernel(const int* a, ";
  // Blanks stand for what is not code, so what follows has some length.
  const std::size_t begin = with.find(entry), end = with.find("{ *b = *a; }");
  ASSERT_NE(begin, std::string::npos) << with;
  ASSERT_NE(end, std::string::npos) << with;
  const std::string added = with.substr(begin, end - begin);
  EXPECT_EQ(added.find('\n'), std::string::npos) << "lines keep their numbers: " << added;
  EXPECT_EQ(added.find("SOMETHING"), std::string::npos) << added;
  EXPECT_CONTAINS(added, "int* b ");
  expected.insert(expected.find("{ *b = *a; }"), added);
  const std::string shared = "__shared__ alignas(16) float x[N]";
  expected.replace(expected.find(shared), shared.size(), "alignas(16) __shared__ float x[N]");
  EXPECT_EQ(with, expected) << "nothing else changes";
}

}  // namespace
}  // namespace cellc
