#pragma once
// What the tests of the emulator share: buffers of values, launches with plain arguments, texts of errors,
// and kernels that both run and fail.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/cpu/engine.h"
#include "tests/emulator/emulator.h"

namespace cellc {

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

inline GpuFunction compile(Gpu& gpu, const std::string& text, const std::string& name = "kernel") {
  return gpu.function(gpu.load({"test.cu", text, {}}), name);
}

template <class... A>
void launch(Gpu& gpu, const GpuFunction& function, const GpuLaunch& shape, A... arguments) {
  void* pointers[] = {&arguments..., nullptr};
  gpu.launch(function, shape, pointers);
}

inline GpuLaunch shape(unsigned blocks, unsigned threads, std::int64_t shared = 0, bool cooperative = false) {
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

inline constexpr const char* kBlockSum = R"(
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

inline constexpr const char* kGridBarrier = R"(
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

}  // namespace cellc
