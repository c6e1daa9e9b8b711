// The emulator that the other tests of this folder run kernels on: what it runs, and what it must find.
#include "tests/emulator/emulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/engine.h"

namespace cellc {
namespace {

template <class T>
GpuBuffer upload(Gpu& gpu, const std::vector<T>& values) {
  GpuBuffer buffer(gpu, values.size() * sizeof(T));
  gpu.copy_in(buffer.address(), values.data(), buffer.bytes(), 0);
  return buffer;
}

template <class T>
std::vector<T> download(Gpu& gpu, const GpuBuffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  gpu.copy_out(values.data(), buffer.address(), buffer.bytes(), 0);
  return values;
}

GpuFunction compile(Gpu& gpu, const std::string& text, const std::string& name = "kernel") {
  return gpu.function(gpu.load({"test.cu", text, {}}), name);
}

template <class... A>
void launch(Gpu& gpu, const GpuFunction& function, const GpuLaunch& shape, A... arguments) {
  void* pointers[] = {&arguments..., nullptr};
  gpu.launch(function, shape, pointers);
}

GpuLaunch shape(unsigned blocks, unsigned threads, std::int64_t shared = 0, bool cooperative = false) {
  GpuLaunch launch;
  launch.grid.x = blocks;
  launch.block.x = threads;
  launch.shared_bytes = shared;
  launch.cooperative = cooperative;
  return launch;
}

/// The message of the DeviceError that `action` throws; empty if it throws none.
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

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

constexpr const char* kBlockSum = R"(
template <int N>
__device__ __forceinline__ float block_sum(float value) {
  __shared__ alignas(16) float partial[N];  // in a template: one for each block all the same
  partial[threadIdx.x] = value;
  __syncthreads();
  for (int half = N / 2; half; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    BARRIER
  }
  return partial[0];
}
namespace nested {
extern "C" __global__ void kernel(const float* in, float* out) {
  const float sum = block_sum<128>(in[blockIdx.x * 128 + threadIdx.x]);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
})";

TEST(Emulator, ReducesInSharedMemoryUnderEverySchedule) {
  std::vector<float> in(7 * 128);
  std::iota(in.begin(), in.end(), 0.0f);
  for (const auto& options : schedules()) {
    const auto gpu = open_emulator(options);
    const auto kernel =
        gpu->function(gpu->load({"sum.cu", kBlockSum, {"-DBARRIER=__syncthreads();"}}), "kernel");
    EXPECT_GE(gpu->facts(kernel).static_shared, 512);
    const auto din = upload(*gpu, in);
    const GpuBuffer out(*gpu, 7 * sizeof(float));
    launch(*gpu, kernel, shape(7, 128), din.address(), out.address());
    const auto result = download<float>(*gpu, out);
    for (int i = 0; i < 7; ++i) EXPECT_EQ(result[i], 128 * (128 * i + 63.5f)) << "seed " << options.seed;
  }
}

TEST(Emulator, AMissingBarrierShowsUnderAShuffledSchedule) {
  std::vector<float> in(7 * 128, 1.0f);
  int wrong = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    EmulatorOptions options;
    options.seed = seed;
    const auto gpu = open_emulator(options);
    const auto kernel = gpu->function(gpu->load({"sum.cu", kBlockSum, {"-DBARRIER="}}), "kernel");
    const auto din = upload(*gpu, in);
    const GpuBuffer out(*gpu, 7 * sizeof(float));
    launch(*gpu, kernel, shape(7, 128), din.address(), out.address());
    for (const float sum : download<float>(*gpu, out)) wrong += !(sum == 128.0f);
  }
  EXPECT_GE(wrong, 30) << "of 35";
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

constexpr const char* kGridBarrier = R"(
extern "C" __global__ void kernel(float* values, unsigned* arrived, int rounds) {
  __shared__ float mine;  // survives while other blocks run
  const int n = gridDim.x;
  if (threadIdx.x == 0) mine = blockIdx.x;
  for (int round = 0; round < rounds; ++round) {
    if (threadIdx.x == 0) values[(round & 1) * n + blockIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(arrived, 1u);
      while (atomicAdd(arrived, 0u) < (round + 1) * n) {}
    }
    __syncthreads();
    const float right = values[(round & 1) * n + (blockIdx.x + 1) % n];
    if (threadIdx.x == 0) mine = right;
  }
  if (threadIdx.x == 0) values[2 * n + blockIdx.x] = mine;
})";

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

TEST(Emulator, AGridBarrierWithoutACooperativeLaunchIsADeadlock) {
  EmulatorOptions options;
  options.patience = 2000;
  const auto gpu = open_emulator(options);
  const auto kernel = compile(*gpu, kGridBarrier);
  const GpuBuffer values(*gpu, 30 * sizeof(float)), arrived(*gpu, sizeof(unsigned));
  gpu->zero(arrived.address(), 4, 0);
  const auto error =
      error_of([&] { launch(*gpu, kernel, shape(10, 64), values.address(), arrived.address(), 3); });
  EXPECT_CONTAINS(error, "kernel kernel: deadlock");
  EXPECT_CONTAINS(error, "block (0, 0, 0)");
  EXPECT_CONTAINS(error, "1 thread at an atomic that changes nothing");
  // And the device goes on.
  gpu->zero(arrived.address(), 4, 0);
  launch(*gpu, kernel, shape(10, 64, 0, true), values.address(), arrived.address(), 3);
  EXPECT_EQ(download<float>(*gpu, values)[20], 3.0f);
}

TEST(Emulator, ALoopAroundABarrierThatWaitsForeverIsADeadlock) {
  EmulatorOptions options;
  options.patience = 500;
  const auto gpu = open_emulator(options);
  const auto kernel = compile(*gpu, R"(
extern "C" __global__ void kernel(unsigned* flag) {
  while (!__syncthreads_or(threadIdx.x == 0 && cellc_emulator::load_acquire(flag) == 1u)) {}
})");
  const GpuBuffer flag(*gpu, 4);
  EXPECT_CONTAINS(error_of([&] { launch(*gpu, kernel, shape(1, 32), flag.address()); }), "deadlock");
}

TEST(Emulator, CooperativeLaunchesThatDoNotFitAreRefused) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, "extern \"C\" __global__ void kernel() {}");
  const int resident = 4 * gpu->resident_blocks(kernel, 256, 100 << 10);
  EXPECT_EQ(resident, 8);
  launch(*gpu, kernel, shape(8, 256, 100 << 10, true));
  EXPECT_CONTAINS(error_of([&] { launch(*gpu, kernel, shape(9, 256, 100 << 10, true)); }), "resident");
  launch(*gpu, kernel, shape(9, 256, 100 << 10));
  EXPECT_CONTAINS(error_of([&] { launch(*gpu, kernel, shape(1, 32, 228 << 10)); }), "shared memory");
  EXPECT_CONTAINS(error_of([&] { launch(*gpu, kernel, shape(1, 1025)); }), "1 to 1024");
  EXPECT_CONTAINS(error_of([&] { launch(*gpu, kernel, shape(0, 32)); }), "grid");
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

TEST(Emulator, CopiesMustBeAlignedAndGoToSharedMemory) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, R"(
extern "C" __global__ void kernel(const float* in, float* out, int how) {
  __shared__ alignas(16) float tile[8];
  if (how == 0) cellc_emulator::cp_async(tile + 1, in, 16);
  if (how == 1) cellc_emulator::cp_async(out, in, 16);
  if (how == 2) cellc_emulator::cp_async(tile, in, 12);
})");
  const GpuBuffer in(*gpu, 64), out(*gpu, 64);
  const char* const expected[] = {"misaligned", "shared memory", "4, 8 or 16"};
  for (int how = 0; how < 3; ++how)
    EXPECT_CONTAINS(error_of([&] { launch(*gpu, kernel, shape(1, 1), in.address(), out.address(), how); }),
                    expected[how]);
}

TEST(Emulator, WritesOutsideOfABufferAreFound) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, R"(
extern "C" __global__ void kernel(float* out, int offset) { out[offset + int(threadIdx.x)] = 0.0f; })");
  const GpuBuffer out(*gpu, 50 * sizeof(float));
  launch(*gpu, kernel, shape(1, 50), out.address(), 0);
  EXPECT_CONTAINS(error_of([&] { launch(*gpu, kernel, shape(1, 51), out.address(), 0); }),
                  "kernel kernel: wrote memory from 0 bytes past the end of a device buffer of 200 bytes");
  EXPECT_CONTAINS(error_of([&] { launch(*gpu, kernel, shape(1, 50), out.address(), -3); }),
                  "wrote memory up to 12 bytes before a device buffer of 200 bytes");
  launch(*gpu, kernel, shape(1, 50), out.address(), 0);
  // Far outside, the host's own protection is what finds it.
  EXPECT_CONTAINS(error_of([&] { launch(*gpu, kernel, shape(1, 1), GpuAddress{0}, 3); }),
                  "block (0, 0, 0), thread (0, 0, 0): access to the null pointer or near it");
}

TEST(Emulator, RequestsOutsideOfABufferAreRefused) {
  const auto gpu = open_emulator();
  const GpuBuffer buffer(*gpu, 100);
  char bytes[200] = {};
  EXPECT_CONTAINS(error_of([&] { gpu->copy_in(buffer.address() + 4, bytes, 97, 0); }), "runs past the end");
  EXPECT_CONTAINS(error_of([&] { gpu->copy_out(bytes, buffer.address() - 1, 1, 0); }), "in no device buffer");
  EXPECT_CONTAINS(error_of([&] { gpu->zero(buffer.address(), 101, 0); }), "zero of 101 bytes");
  EXPECT_CONTAINS(error_of([&] { gpu->allocate(std::size_t{5} << 30); }), "out of device memory");
  gpu->release(12345);
  EXPECT_CONTAINS(error_of([&] { gpu->synchronize(0); }), "release()");
  gpu->synchronize(0);
  EXPECT_EQ(gpu->counts().live_bytes, 100);
}

TEST(Emulator, WhatNobodyWroteIsNotANumber) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, R"(
extern "C" __global__ void kernel(const float* in, float* out) {
  CELLC_DYNAMIC_SHARED(float, dynamic);
  __shared__ float fixed[32];
  out[0] = in[threadIdx.x];
  out[1] = dynamic[threadIdx.x];
  out[2] = fixed[threadIdx.x];
  fixed[threadIdx.x] = dynamic[threadIdx.x] = 1.0f;
})");
  const GpuBuffer in(*gpu, 4), out(*gpu, 12);
  for (int turn = 0; turn < 2; ++turn) {  // nor does a launch see what the one before left
    launch(*gpu, kernel, shape(3, 1, 128), in.address(), out.address());
    for (const float value : download<float>(*gpu, out)) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Emulator, ThreadsThatMissABarrierAreFound) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, R"(
extern "C" __global__ void kernel(int how) {
  if (how == 0 && threadIdx.x == 5) return;
  if (how == 1 && threadIdx.x == 63) return;
  if (how == 2) {
    if (threadIdx.x == 5) return;
    __syncwarp();
  }
  if (how == 3 && threadIdx.x < 32) __shfl_sync(0xffffu, 1, 0);
  if (how == 4) {
    if (threadIdx.x % 2) __syncwarp(); else __syncthreads();
  }
  if (how == 5) {
    if (threadIdx.x % 2) __syncwarp(); else __ballot_sync(0xffffffffu, 1);
  }
  if (how != 2) __syncthreads();
})");
  launch(*gpu, kernel, shape(2, 64), 9);
  const char* const expected[] = {"__syncthreads",
                                  "wait at __syncthreads",
                                  "lane 5, which has ended|lane 0 waits for it",
                                  "lacks its own lane",
                                  "deadlock, no thread of a block can go on",
                                  "with another mask or at"};
  for (int how = 0; how < 6; ++how) {
    const auto error = error_of([&] { launch(*gpu, kernel, shape(2, 64), how); });
    const std::string all = expected[how];
    const auto bar = all.find('|');
    EXPECT_TRUE(error.find(all.substr(0, bar)) != std::string::npos ||
                (bar != std::string::npos && error.find(all.substr(bar + 1)) != std::string::npos))
        << how << ": " << error;
    EXPECT_CONTAINS(error, "kernel kernel");
  }
  launch(*gpu, kernel, shape(2, 64), 9);
}

TEST(Emulator, FaultsNameTheThread) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, R"(
__device__ __noinline__ void fills_the_stack() {
  volatile char large[400000];
  large[399999] = large[0] = 1;
}
extern "C" __global__ void kernel(float* data, int how, int zero) {
  __shared__ float tile[4];
  if (threadIdx.x != 3) return;
  if (how == 0) data[0] = ((float4*)(data + 1))->y;
  if (how == 1) tile[4 + zero] = 1.0f;
  if (how == 2) data[0] = 7 / zero;
  if (how == 3) __trap();
  if (how == 4) assert(zero == 1);
  if (how == 5) fills_the_stack();
})");
  const GpuBuffer data(*gpu, 64);
  const char* const expected[] = {
      "misaligned", "index outside", "division by zero", "__trap()", "assertion failed: zero == 1",
      "stack_bytes"};
  for (int how = 0; how < 6; ++how) {
    const auto error = error_of([&] { launch(*gpu, kernel, shape(1, 4), data.address(), how, 0); });
    EXPECT_CONTAINS(error, "kernel kernel, block (0, 0, 0), thread (3, 0, 0)");
    EXPECT_CONTAINS(error, expected[how]);
  }
}

TEST(Emulator, ErrorsNameTheLinesThatLedToThem) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, R"(
#line 10 "inner.cuh"
__device__ __forceinline__ void wait(int how) {
  if (how == 0) __syncthreads();
  if (how == 1) __syncwarp();
}
__device__ __forceinline__ void write(float* to) {
  to[threadIdx.x] = 1.0f;
}
#line 50 "outer.cuh"
extern "C" __global__ void kernel(
    float* out, int how) {
  if (how == 2) write(out);
  else if (threadIdx.x % 2) wait(0);
  else wait(1);
})");
  // Both places are known where threads wait for each other. (The compiler may merge inlined copies.)
  const auto deadlock = error_of([&] { launch(*gpu, kernel, shape(1, 64), GpuAddress{0}, 0); });
  EXPECT_CONTAINS(deadlock, "32 threads at __syncwarp, at inner.cuh:12, from outer.cuh:54");
  EXPECT_CONTAINS(deadlock, "32 threads at __syncthreads, at inner.cuh:11, from outer.cuh:53");
  EXPECT_CONTAINS(error_of([&] { launch(*gpu, kernel, shape(1, 1), GpuAddress{0}, 2); }),
                  "access to the null pointer or near it, at inner.cuh:15");
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

TEST(Emulator, ACompileErrorIsOneLineThatNamesThePlace) {
  const auto gpu = open_emulator();
  const auto error = error_of([&] {
    gpu->load({"broken.cu",
               "\n#line 7 \"my.cell\"\nextern \"C\" __global__ void f(float* a) { a[0] = nowhere; }\n",
               {}});
  });
  EXPECT_CONTAINS(error, "broken.cu failed: my.cell:7:");
  EXPECT_CONTAINS(error, "nowhere");
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  const auto kept = error.substr(error.find("all of it: ") + 11);
  EXPECT_TRUE(std::filesystem::exists(kept.substr(0, kept.size() - 1))) << error;
  EXPECT_CONTAINS(error_of([&] { compile(*gpu, "extern \"C\" __global__ void other() {}"); }),
                  "test.cu has no kernel extern \"C\" kernel");
  EXPECT_CONTAINS(error_of([&] { compile(*gpu, "__global__ void kernel() {}"); }), "has no kernel");
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
      const auto kernel =
          compile(*gpu, "extern \"C\" __global__ void kernel(int* out) { __shared__ int x; x = " +
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

}  // namespace
}  // namespace cellc
