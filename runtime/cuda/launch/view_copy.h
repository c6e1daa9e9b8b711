#pragma once
// Copies between arrays with any stride on every axis, queued on a stream
// (kernels-templates/sequential/view_copy.cuh).
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/device/gpu.h"
#include "runtime/data/array.h"

namespace cellc {

/// Axes that are longer than 1, at most.
constexpr std::size_t kMostViewAxes = 16;

/// The strides of an array without gaps.
std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& lengths);

class ViewCopies {
 public:
  explicit ViewCopies(Gpu& gpu) : gpu_(gpu) {}

  struct Place {
    GpuAddress data = 0;  ///< of the entry whose indices are all 0
    Dtype dtype = Dtype::F32;
    const std::vector<std::int64_t>& strides;  ///< in entries
  };
  /// Types are the same, or `from` is of 16 bits and `to` is not.
  void copy(const Place& to, const Place& from, const std::vector<std::int64_t>& lengths, GpuStream stream);
  /// Whether a copy between such types was made before, so that another only queues its kernel.
  bool knows(Dtype to, Dtype from) const;

 private:
  Gpu& gpu_;
  GpuModule module_;
  std::map<std::string, GpuFunction> kernels_;
};

}  // namespace cellc
