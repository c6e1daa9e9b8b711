#pragma once
// The arrays of a call on a GPU, on the host: for calls whose work is done there in part. Private to capi/.
#include <vector>

#include "capi/kernel.h"

namespace cellc::capi {

class FetchedArrays {
 public:
  /// Copies what the call reads, after what is queued on the legacy default stream. Arrays are as they are expected;
  /// all must outlive it. Throws RequestError unless every one, and `status`, lies where kernels of the GPU can use
  /// it.
  FetchedArrays(const CompiledCell& kernel, GpuKernel& gpu, const DirectedCall& call, const Shape& shape,
                const std::vector<Expected>& expected, const cellc_array* arrays, const std::int32_t* status = nullptr);
  /// The same arrays without gaps, of which the written ones are to be filled.
  const cellc_array* arrays() const { return on_host_.data(); }
  /// What was written, to where it belongs; gaps between rows are left alone. Waits.
  void write_back();

 private:
  GpuKernel& gpu_;
  const DirectedCall& call_;
  const Shape& shape_;
  const Dtype storage_;
  std::vector<CallArray> places_;
  std::vector<Array> memory_;
  std::vector<cellc_array> on_host_;
};

/// [sequences] on the GPU, or null, as the host has it. Waits.
std::vector<std::int32_t> fetched_status(Gpu& gpu, const std::int32_t* status, const Shape& shape, GpuStream stream);

}  // namespace cellc::capi
