#pragma once
// Copies between a caller's arrays and the kernels' own, queued on a stream
// (kernels-templates/sequential/strided_copy.cuh).
#include <cstdint>
#include <map>
#include <string>

#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/launch/device_arrays.h"
#include "runtime/data/array.h"

namespace cellc {

class StridedCopies {
 public:
  /// Compiles nothing yet. Arrays hold `storage`, or arithmetic precision where that is another type.
  StridedCopies(Gpu& gpu, Dtype storage) : gpu_(gpu), storage_(storage) {}

  /// `sequences` times `steps` rows of `entries`.
  void move(const PlacedRows& to, Dtype to_type, const PlacedRows& from, Dtype from_type, std::int64_t sequences,
            std::int64_t steps, std::int64_t entries, GpuStream stream);

  struct History {
    GpuAddress to = 0, before = 0;  ///< [sequences, depth, entries] of storage; before 0: zeros
    PlacedRows rows;                ///< batch 0: packed
    GpuAddress offsets = 0;
    std::int64_t sequences = 0, depth = 0, entries = 0;
    bool reverse = false;
  };
  void move_history(const History& history, GpuStream stream);

  /// From a run without repair: 1 for each sequence with a bad step, else 0. `adds`: 1 also where it is
  /// already.
  void status(GpuAddress status, GpuAddress first_bad, std::int64_t sequences, bool adds, GpuStream stream);

 private:
  void launch(const char* kernel, std::int64_t threads, void** arguments, GpuStream stream);

  Gpu& gpu_;
  const Dtype storage_;
  GpuModule module_;
  std::map<std::string, GpuFunction> kernels_;
};

}  // namespace cellc
