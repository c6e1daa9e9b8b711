#include "runtime/cuda/call/queued_call.h"

#include <fmt/format.h>

#include "runtime/data/errors.h"

namespace cellc {

CallForm form_of(std::span<const CallArray> arrays) {
  CallForm form;
  for (const CallArray& a : arrays) {
    form.push_back(a.data ? 1 + static_cast<std::int64_t>(a.data % 16) : 0);
    form.push_back(a.sequence_stride);
    form.push_back(a.step_stride);
  }
  return form;
}

ViewSpan span_of(const CallView& view) {
  ViewSpan span{0, 1};
  for (std::size_t i = 0; i < view.lengths.size(); ++i) {
    if (view.lengths[i] == 0) return {0, 0};
    const std::int64_t reach = view.strides[i] * (view.lengths[i] - 1);
    if (reach < 0) span.first += reach;
    span.entries += reach < 0 ? -reach : reach;
  }
  return span;
}

void check_on_device(Gpu& gpu, const DirectedCall& call, const CallShape& shape, Dtype dtype,
                     std::span<const CallArray> arrays, GpuAddress status) {
  const auto look_at = [&](const std::string& name, GpuAddress data, std::int64_t entries, std::size_t size) {
    if (!data || entries == 0) return;
    std::optional<std::string> fault;
    if (data % size)
      fault = fmt::format("is not aligned to the {} bytes of an entry", size);
    else
      fault = gpu.pointer_fault(data, static_cast<std::size_t>(entries) * size);
    if (fault) throw RequestError(fmt::format("array {}: its address {:#x} {}", name, data, *fault));
  };
  for (std::size_t i = 0; i < call.fields.size(); ++i) {
    const CallField& field = call.fields[i].of;
    if (!arrays[i].data) continue;
    const std::string& name = call.direction == CallDirection::Forward ? field.name : call.fields[i].name;
    if (const CallView* view = arrays[i].view) {
      const ViewSpan span = span_of(*view);
      const auto size = static_cast<GpuAddress>(size_of(view->given));
      look_at(name, arrays[i].data + static_cast<GpuAddress>(span.first) * size, span.entries, size);
      continue;
    }
    std::int64_t entries = all_entries(field, shape);
    if (field.is_rows() && shape.rows > 0) {
      const cellc_strides full = strides_of(field, shape, {arrays[i].sequence_stride, arrays[i].step_stride});
      const std::int64_t sequences = shape.packed() ? 1 : shape.sequences;
      const std::int64_t steps = shape.packed() ? shape.rows : shape.steps;
      entries = (sequences - 1) * full.sequence + (steps - 1) * full.step + part_entries(field, shape);
    }
    look_at(name, arrays[i].data, entries, size_of(dtype_of(call.fields[i], dtype)));
  }
  look_at("status", status, shape.sequences, 4);
}

}  // namespace cellc
