#include "bench/device_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace cellc {

namespace {

const char* const kKernels = R"(
using Number = NUMBER;
#if NARROW
__device__ float number(Number b) { return __uint_as_float(static_cast<unsigned>(b) << 16); }
__device__ Number stored(float v) { return static_cast<Number>((__float_as_uint(v) + 0x8000u) >> 16); }
#else
__device__ double number(Number v) { return v; }
__device__ Number stored(double v) { return static_cast<Number>(v); }
#endif
__device__ float draw(unsigned long long i, unsigned seed) {
  unsigned long long z = i * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return static_cast<unsigned>(z >> 32) * 2.3283064e-10f;
}
extern "C" __global__ void fill(Number* x, long long count, float low, float high, unsigned seed, unsigned second,
                                long long width, long long channels, int every, float offset) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (long long)blockDim.x) {
    const float u = second ? 0.5f * (draw(i, seed) + draw(i, second)) : draw(i, seed);
    const long long at = i % width;
    x[i] = stored(low + (high - low) * u + (at < channels && at % every == 0 ? offset : 0.f));
  }
}
extern "C" __global__ void compare(const Number* a, const Number* b, long long count, unsigned* worst) {
  float far = 0;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (long long)blockDim.x) {
    const double p = number(a[i]), q = number(b[i]);
    const float d = static_cast<float>((p > q ? p - q : q - p) / (1 + (q < 0 ? -q : q)));
    if (!(d <= far)) far = d == d ? d : 1e30f;
  }
  atomicMax(worst, __float_as_uint(far));
}
extern "C" __global__ void errors(const float* a, const double* exact, long long steps, long long channels, long long lanes,
                                  int parts, unsigned* worst) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < lanes * parts; i += gridDim.x * (long long)blockDim.x) {
    const long long lane = i % lanes, sequence = lane / channels;
    float far = 0;
    for (long long t = i / lanes; t < steps; t += parts) {
      const long long at = (sequence * steps + t) * channels + lane % channels;
      const double d = a[at] > exact[at] ? a[at] - exact[at] : exact[at] - a[at];
      if (!(d <= far)) far = d == d ? static_cast<float>(d) : 1e30f;
    }
    atomicMax(worst + lane, __float_as_uint(far));
  }
}
extern "C" __global__ void wait(long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}
)";

template <typename... Arguments>
void launch(Gpu& gpu, const GpuFunction& function, unsigned blocks, unsigned threads, Arguments... arguments) {
  void* list[] = {&arguments...};
  GpuLaunch shape;
  shape.grid.x = blocks;
  shape.block.x = threads;
  gpu.launch(function, shape, list);
}

constexpr unsigned kBlocks = 2112, kThreads = 256;

}  // namespace

DeviceData::DeviceData(Gpu& gpu, Dtype dtype) : gpu_(gpu) {
  const char* number = dtype == Dtype::F64 ? "double" : dtype == Dtype::F32 ? "float" : "unsigned short";
  module_ =
      gpu.load({"bench.cu",
                fmt::format("#define NUMBER {}\n#define NARROW {}\n{}", number, size_of(dtype) == 2 ? 1 : 0, kKernels),
                {}});
}

void DeviceData::fill(GpuAddress to, std::int64_t count, const Drawn& drawn) const {
  launch(gpu_, gpu_.function(module_, "fill"), kBlocks, kThreads, to, static_cast<long long>(count), drawn.low,
         drawn.high, drawn.seed, drawn.second, static_cast<long long>(drawn.width),
         static_cast<long long>(drawn.channels), drawn.every, drawn.offset);
}

double DeviceData::difference(const CudaSolver& a, const CudaSolver& b, std::int64_t states, std::int64_t count) const {
  const GpuBuffer worst(gpu_, 4);
  gpu_.zero(worst.address(), 4, 0);
  for (int u = 0; u < static_cast<int>(states); ++u)
    launch(gpu_, gpu_.function(module_, "compare"), kBlocks, kThreads, a.trajectory(u), b.trajectory(u),
           static_cast<long long>(count), worst.address());
  float far = 0;
  gpu_.copy_out(&far, worst.address(), 4, 0);
  return far;
}

double DeviceData::error_of_most(const CudaSolver& of, const CudaSolver& exact, std::int64_t sequences,
                                 std::int64_t steps, std::int64_t channels, double share) const {
  const std::int64_t lanes = sequences * channels;
  const int parts = static_cast<int>(std::clamp<std::int64_t>(kBlocks * std::int64_t{kThreads} / lanes, 1, steps));
  const GpuBuffer worst(gpu_, static_cast<std::size_t>(lanes) * 4);
  gpu_.zero(worst.address(), worst.bytes(), 0);
  launch(gpu_, gpu_.function(module_, "errors"), kBlocks, kThreads, of.trajectory(0), exact.trajectory(0),
         static_cast<long long>(steps), static_cast<long long>(channels), static_cast<long long>(lanes), parts,
         worst.address());
  std::vector<float> all(static_cast<std::size_t>(lanes));
  gpu_.copy_out(all.data(), worst.address(), worst.bytes(), 0);
  std::sort(all.begin(), all.end());
  return all[static_cast<std::size_t>(share * static_cast<double>(lanes - 1))];
}

void DeviceData::hold(double ms) const {
  launch(gpu_, gpu_.function(module_, "wait"), 1, 1, static_cast<long long>(ms * 1e6));
}

double median_call_ms(Gpu& gpu, int calls, const std::function<void()>& call) {
  std::vector<double> times;
  for (int r = 0; r < calls; ++r) {
    gpu.record(0, 0);
    call();
    gpu.record(1, 0);
    times.push_back(gpu.elapsed_ms(0, 1));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace cellc
