#include "capi/fetched_arrays.h"

#include <bit>

#include "capi/views.h"
#include "runtime/cuda/call/queued_call.h"

namespace cellc::capi {

FetchedArrays::FetchedArrays(const CompiledCell& kernel, GpuKernel& gpu, const DirectedCall& call, const Shape& shape,
                             const std::vector<Expected>& expected, const cellc_array* arrays,
                             const std::int32_t* status)
    : gpu_(gpu),
      call_(call),
      shape_(shape),
      storage_(kernel.compile.dtype),
      places_(placed_arrays(arrays, call.fields.size())) {
  check_on_device(gpu.gpu(), call, shape, storage_, places_, std::bit_cast<GpuAddress>(status));
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const DirectedField& field = call.fields[i];
    memory_.push_back(!places_[i].data ? Array()
                      : field.written  ? Array::uninitialised(expected[i].type, array_shape(field.of, shape))
                                       : on_host(gpu.gpu(), 0, field, storage_, shape, places_[i]));
    on_host_.push_back({places_[i].data ? memory_.back().data() : nullptr, expected[i].all, expected[i].dtype, 0, 0});
  }
}

void FetchedArrays::write_back() {
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (places_[i].data && call_.fields[i].written)
      gpu_.write(places_[i].data, view_of(call_.fields[i], storage_, shape_, places_[i]), memory_[i]);
}

std::vector<std::int32_t> fetched_status(Gpu& gpu, const std::int32_t* status, const Shape& shape, GpuStream stream) {
  std::vector<std::int32_t> found(static_cast<std::size_t>(shape.sequences));
  if (!found.empty()) gpu.copy_out(found.data(), std::bit_cast<GpuAddress>(status), found.size() * 4, stream);
  return found;
}

}  // namespace cellc::capi
