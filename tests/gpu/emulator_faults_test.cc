// What the emulator must find: barriers that are missing or missed, deadlocks, memory that is not there,
// launches that do not fit, sources that do not compile. Each with the place.
#include <cmath>
#include <filesystem>

#include "tests/gpu/emulated.h"

namespace cellc {
namespace {

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

TEST(Emulator, AGridBarrierWithoutACooperativeLaunchIsADeadlock) {
  EmulatorOptions options;
  options.patience = 2000;
  options.interleave = false;
  const auto gpu = open_emulator(options);
  const auto kernel = compile(*gpu, kGridBarrier);
  const GpuBuffer values(*gpu, 30 * sizeof(float)), arrived(*gpu, sizeof(unsigned));
  gpu->zero(arrived.address(), 4, 0);
  const auto error = error_of([&] { launch(*gpu, kernel, shape(10, 64), values.address(), arrived.address(), 3); });
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

TEST(Emulator, BlocksOfAClusterWriteToEachOtherWhileTheyAreThere) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, R"(
extern "C" __global__ void kernel(float* out, int how) {
  CELLC_DYNAMIC_SHARED(float, mine);
  const auto& services = *cellc_emulator::services;
  const unsigned rank = cellc_emulator::current->cluster_rank;
  if (how == 1 && rank == 1) return;
  if (how == 1) for (int i = 0; i < 100; ++i) cellc_emulator::yield();
  if (how == 3 && rank == 0) *static_cast<float*>(services.of_block(out, 1)) = 1;
  if (threadIdx.x == 0) *static_cast<float*>(services.of_block(mine, how == 2 ? 2 : 1 - rank)) = 10.f + blockIdx.x;
  services.cluster_arrive();
  services.cluster_wait();
  __syncthreads();
  if (threadIdx.x == 1) out[blockIdx.x] = mine[0];
})");
  const GpuBuffer out(*gpu, 24);
  const auto run = [&](int how, unsigned blocks = 6) {
    GpuLaunch clusters = shape(blocks, 32, 64);
    clusters.cluster = 2;
    launch(*gpu, kernel, clusters, out.address(), how);
  };
  run(0);
  EXPECT_EQ(download<float>(*gpu, out), (std::vector<float>{11, 10, 13, 12, 15, 14}));
  EXPECT_CONTAINS(error_of([&] { run(1); }), "a block of the cluster that has ended");
  EXPECT_CONTAINS(error_of([&] { run(2); }), "a block that its cluster does not have");
  EXPECT_CONTAINS(error_of([&] { run(3); }), "outside of the block's dynamic shared memory");
  EXPECT_CONTAINS(error_of([&] { run(0, 5); }), "whole ones");
}

// A thread that has ended counts as arrived, whether it came to the barrier before or not.
TEST(Emulator, ThreadsOfAClusterMayEndWhereOthersWait) {
  const auto gpu = open_emulator();
  const auto kernel = compile(*gpu, R"(
extern "C" __global__ void kernel(unsigned* out, int how) {
  const auto& services = *cellc_emulator::services;
  const unsigned rank = cellc_emulator::current->cluster_rank;
  if (how == 1) services.cluster_wait();
  services.cluster_arrive();
  if (how == 2) services.cluster_arrive();
  services.cluster_wait();
  if (rank == 1 && threadIdx.x == 1) for (int i = 0; i < 500; ++i) cellc_emulator::yield();
  atomicAdd(out, 1u);
  services.cluster_arrive();
  if (rank == 1 || threadIdx.x != 3) return;
  services.cluster_wait();
  out[1] = out[0];
})");
  const GpuBuffer out(*gpu, 8);
  const auto run = [&](int how) {
    gpu->zero(out.address(), 8, 0);
    GpuLaunch two = shape(2, 32);
    two.cluster = 2;
    launch(*gpu, kernel, two, out.address(), how);
  };
  run(0);
  EXPECT_EQ(download<unsigned>(*gpu, out), (std::vector<unsigned>{64, 64}));
  EXPECT_CONTAINS(error_of([&] { run(1); }), "without having arrived");
  EXPECT_CONTAINS(error_of([&] { run(2); }), "without having waited");
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
      "misaligned", "index outside", "division by zero", "__trap()", "assertion failed: zero == 1", "stack_bytes"};
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

TEST(Emulator, ACompileErrorIsOneLineThatNamesThePlace) {
  const auto gpu = open_emulator();
  const auto error = error_of([&] {
    gpu->load(
        {"broken.cu", "\n#line 7 \"my.cell\"\nextern \"C\" __global__ void f(float* a) { a[0] = nowhere; }\n", {}});
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

}  // namespace
}  // namespace cellc
