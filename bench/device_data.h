#pragma once
// Data of the benchmarks on a GPU: drawn there and compared there; and the time of single calls.
#include <cstdint>
#include <functional>

#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/array.h"

namespace cellc {

/// Rows of `width` random numbers.
struct Drawn {
  float low, high;
  unsigned seed, second;  ///< a second seed makes them triangular; 0: uniform
  std::int64_t width;
  std::int64_t channels;  ///< the first ones of a row, of which every `every`-th is moved by `offset`
  int every;
  float offset;
};

class DeviceData {
 public:
  /// For numbers of `dtype`: f32, f64 or bf16.
  DeviceData(Gpu& gpu, Dtype dtype);

  void fill(GpuAddress to, std::int64_t count, const Drawn& drawn) const;
  /// The largest |a - b|/(1 + |b|) of the first `states` states, each of `count` numbers.
  double difference(const CudaSolver& a, const CudaSolver& b, std::int64_t states, std::int64_t count) const;
  /// The error that `share` of the lanes (a channel of a sequence) stay below at all steps: of the first state in f32,
  /// beside the same in f64.
  double error_of_most(const CudaSolver& of, const CudaSolver& exact, std::int64_t sequences, std::int64_t steps,
                       std::int64_t channels, double share) const;
  /// Keeps the device busy while the host prepares what is to be timed.
  void hold(double ms) const;

 private:
  Gpu& gpu_;
  GpuModule module_;
};

/// The median of `calls` calls, each timed by itself, in ms.
double median_call_ms(Gpu& gpu, int calls, const std::function<void()>& call);

}  // namespace cellc
