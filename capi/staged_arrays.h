#pragma once
// Arrays of the host for a call on a GPU: memory there, and copies both ways. Private to capi/.
#include <vector>

#include "capi/kernel.h"

namespace cellc::capi {

class StagedArrays {
 public:
  /// `arrays` have no gaps, and those of another dtype than the call's are left for it to refuse. `status`: [sequences]
  /// of the host, or null. All must outlive it.
  StagedArrays(GpuKernel& gpu, const DirectedCall& call, const Shape& shape, Dtype storage, const cellc_array* arrays,
               std::int32_t* status, GpuStream stream);
  /// Waits for all that the stream does with them.
  ~StagedArrays();
  StagedArrays(const StagedArrays&) = delete;
  StagedArrays& operator=(const StagedArrays&) = delete;

  /// Queues copies of what the call reads.
  void upload();
  /// What it wrote. Waits.
  void download();

  const cellc_array* arrays() const { return on_gpu_.data(); }
  std::int32_t* status() const;

 private:
  struct Copy {
    void* host;
    std::size_t at, bytes;
    bool written;
  };
  void add(void* host, std::int64_t entries, std::size_t size, bool written);

  GpuKernel& gpu_;
  const GpuStream stream_;
  std::vector<Copy> copies_;
  std::vector<cellc_array> on_gpu_;
  std::size_t bytes_ = 0;
  bool has_status_ = false, queued_ = false;
  std::unique_ptr<GpuBuffer> memory_;
};

}  // namespace cellc::capi
