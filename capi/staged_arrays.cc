#include "capi/staged_arrays.h"

#include <bit>

namespace cellc::capi {
namespace {

constexpr std::size_t kAlignment = 256;  // as memory that a GPU allocates, so that calls take one form of kernels

}  // namespace

StagedArrays::StagedArrays(GpuKernel& gpu, const DirectedCall& call, const Shape& shape, Dtype storage,
                           const cellc_array* arrays, std::int32_t* status, GpuStream stream)
    : gpu_(gpu), stream_(stream), on_gpu_(arrays, arrays + call.fields.size()), has_status_(status != nullptr) {
  std::vector<std::size_t> staged;
  for (std::size_t i = 0; i < on_gpu_.size(); ++i) {
    const DirectedField& field = call.fields[i];
    const Dtype own = dtype_of(field, storage);
    if (!arrays[i].data || arrays[i].dtype != c_dtype(own)) continue;
    staged.push_back(i);
    add(arrays[i].data, all_entries(field.of, shape), size_of(own), field.written);
  }
  if (status) add(status, shape.sequences, sizeof *status, true);
  memory_ = gpu.take_block(bytes_);
  for (std::size_t k = 0; k < staged.size(); ++k)
    on_gpu_[staged[k]].data = std::bit_cast<void*>(memory_->address() + copies_[k].at);
}

StagedArrays::~StagedArrays() {
  try {
    if (queued_) gpu_.gpu().synchronize(stream_);
  } catch (...) {
    // A device that is lost says so at the next call.
  }
  gpu_.give_block(std::move(memory_));
}

void StagedArrays::add(void* host, std::int64_t entries, std::size_t size, bool written) {
  copies_.push_back({host, bytes_, static_cast<std::size_t>(entries) * size, written});
  bytes_ += (copies_.back().bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void StagedArrays::upload() {
  queued_ = true;
  for (const Copy& c : copies_)
    if (!c.written && c.bytes > 0) gpu_.gpu().copy_in(memory_->address() + c.at, c.host, c.bytes, stream_);
}

void StagedArrays::download() {
  for (const Copy& c : copies_)
    if (c.written && c.bytes > 0) gpu_.gpu().copy_out(c.host, memory_->address() + c.at, c.bytes, stream_);
  gpu_.gpu().synchronize(stream_);
  queued_ = false;
}

std::int32_t* StagedArrays::status() const {
  return has_status_ ? std::bit_cast<std::int32_t*>(memory_->address() + copies_.back().at) : nullptr;
}

}  // namespace cellc::capi
