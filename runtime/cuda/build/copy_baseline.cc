#include "runtime/cuda/build/copy_baseline.h"

#include <algorithm>
#include <vector>

namespace cellc {

namespace {

constexpr std::int64_t kWord = 16;
constexpr unsigned kThreads = 256;

/// Word i of the output takes up words i, i + writes, i + 2 writes … of the input; where more is written than
/// read, words are written several times over and read once.
const char* const kSource = R"(
struct alignas(16) Word {
  unsigned long long low, high;
};
extern "C" __global__ void copy_baseline(const Word* x, Word* y, long long reads, long long writes) {
  const long long all = (long long)gridDim.x * blockDim.x, first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (writes == 0) {
    Word sum{0, 0};
    for (long long i = first; i < reads; i += all) {
      const Word v = x[i];
      sum.low ^= v.low; sum.high ^= v.high;
    }
    // Hardly ever so, but the compiler cannot know: without it nothing would be read.
    if (sum.low == 0x5a17c0de0ddba11full && sum.high == 1) y[0] = sum;
    return;
  }
  const long long span = reads > 0 && reads < writes ? reads : writes;
  for (long long i = first; i < span; i += all) {
    Word sum{0, 0};
    for (long long j = i; j < reads; j += writes) {
      const Word v = x[j];
      sum.low ^= v.low; sum.high ^= v.high;
    }
    for (long long j = i; j < writes; j += span) y[j] = sum;
  }
}
)";

/// Keeps a stream busy for about so many microseconds.
const char* const kHold = R"(
extern "C" __global__ void hold(int microseconds) {
  for (int i = 0; i < microseconds; ++i) __nanosleep(1000);
}
)";
/// A call that takes less than that may be over before the next one has been queued.
constexpr double kShortMs = 0.05;
constexpr int kQueueingUs = 10;  ///< of a call, on a slow host

}  // namespace

FloorCopy::FloorCopy(Gpu& gpu)
    : gpu_(gpu),
      module_(gpu.load({"copy_baseline.cu", kSource, {}})),
      function_(gpu.function(module_, "copy_baseline")) {}

void FloorCopy::launch(GpuAddress from, std::int64_t read, GpuAddress to, std::int64_t written,
                       int blocks_a_multiprocessor) {
  long long reads = (read + kWord - 1) / kWord, writes = (written + kWord - 1) / kWord;
  void* arguments[] = {&from, &to, &reads, &writes};
  GpuLaunch launch;
  const std::int64_t words = std::max<std::int64_t>(1, std::max(reads, writes));
  launch.grid.x = static_cast<unsigned>(std::min<std::int64_t>(
      (words + kThreads - 1) / kThreads, std::int64_t{gpu_.facts().multiprocessors} * blocks_a_multiprocessor));
  launch.block.x = kThreads;
  gpu_.launch(function_, launch, arguments);
}

double FloorCopy::ms(GpuAddress from, std::int64_t read, GpuAddress to, std::int64_t written, int calls) {
  double best = 1e300;
  for (const int blocks : {8, 16})
    best = std::min(best, ms_a_call(gpu_, calls, [&] { launch(from, read, to, written, blocks); }));
  return best;
}

double ms_a_call(Gpu& gpu, int calls, const std::function<void()>& call) {
  GpuModule module;
  GpuFunction hold;
  const auto row = [&](int count) {
    if (hold) {
      int microseconds = count * kQueueingUs;
      void* arguments[] = {&microseconds};
      gpu.launch(hold, GpuLaunch{}, arguments);
    }
    gpu.record(0, 0);
    for (int i = 0; i < count; ++i) call();
    gpu.record(1, 0);
    return gpu.elapsed_ms(0, 1) / count;
  };
  call();
  const double once = row(1);
  if (once < kShortMs) {
    module = gpu.load({"hold.cu", kHold, {}});
    hold = gpu.function(module, "hold");
  }
  int rows = 7;
  if (calls <= 0) {
    calls = static_cast<int>(std::clamp(70 / std::max(once, 1e-3), 1.0, 50.0));
    if (once > 70) rows = 3;
  }
  std::vector<double> times;
  for (int r = 0; r < rows; ++r) times.push_back(row(calls));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace cellc
