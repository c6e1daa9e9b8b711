#include "capi/host_arrays.h"

#include <cstring>

#include "capi/call_settings.h"
#include "runtime/gradient/name_gradients.h"

namespace cellc::capi {
namespace {

/// Visits rows as (number of the row, offset in the caller's memory in entries).
template <typename Visit>
void each_row(const cellc_array& a, const CallField& field, const Shape& shape, Visit visit) {
  const cellc_strides full = strides_of(field, shape, {a.sequence_stride, a.step_stride});
  const std::int64_t steps = shape.packed() ? shape.rows : shape.steps;
  for (std::int64_t r = 0; r < shape.rows; ++r) visit(r, r / steps * full.sequence + r % steps * full.step);
}

}  // namespace

Array HostArrays::given(std::size_t i) const {
  const Expected& e = expected_[i];
  const cellc_array& a = arrays_[i];
  if (!a.data || !e.rows || is_dense(i)) return Array::view(e.type, array_shape(*e.field, shape_), a.data);
  Array copy = Array::uninitialised(e.type, array_shape(*e.field, shape_));
  const auto size = static_cast<std::int64_t>(size_of(e.type)), part = e.part * size;
  each_row(a, *e.field, shape_, [&](std::int64_t row, std::int64_t offset) {
    std::memcpy(static_cast<std::byte*>(copy.data()) + row * part,
                static_cast<const std::byte*>(a.data) + offset * size, static_cast<std::size_t>(part));
  });
  return copy;
}

Array HostArrays::rows(std::size_t i) const {
  std::vector<std::int64_t> shape = array_shape(*expected_[i].field, shape_);
  if (!shape_.packed()) shape.erase(shape.begin());
  shape[0] = shape_.rows;
  return given(i).with_shape(std::move(shape));
}

void HostArrays::put(std::size_t i, const Array& from) const {
  const Expected& e = expected_[i];
  const cellc_array& to = arrays_[i];
  if (from.data() == to.data) return;
  const Array converted = convert(from, e.type);
  const auto size = static_cast<std::int64_t>(size_of(e.type)), part = e.part * size;
  const auto* bytes = static_cast<const std::byte*>(converted.data());
  auto* data = static_cast<std::byte*>(to.data);
  if (!e.rows || is_dense(i)) {
    if (e.all > 0) std::memmove(data, bytes, static_cast<std::size_t>(e.all * size));
    return;
  }
  each_row(to, *e.field, shape_, [&](std::int64_t row, std::int64_t offset) {
    std::memcpy(data + offset * size, bytes + row * part, static_cast<std::size_t>(part));
  });
}

Wanted HostArrays::wanted() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < expected_.size(); ++i)
    if (expected_[i].field->is_written() && is_given(i)) names.push_back(expected_[i].field->file);
  return wanted_results(kernel_.cell(), names);
}

HostArrays::Bound HostArrays::bound() const {
  const CellGraph& cell = kernel_.cell();
  BindRequest request;
  request.dtype = kernel_.compile.dtype;
  const CallSettings* const settings = call_settings();
  request.threads = settings && settings->threads ? *settings->threads : kernel_.threads;
  request.reverse = shape_.reverse;
  for (std::size_t a = 0; a < cell.header.size(); ++a)
    request.dims[cell.graph.axis(cell.header[a]).name] = shape_.lengths[a];
  if (shape_.packed()) {
    auto* offsets = const_cast<std::int64_t*>(shape_.offsets.data());
    request.offsets = GivenArray{"offsets", Array::view(Dtype::I64, {shape_.sequences + 1}, offsets)};
  } else {
    request.batch = shape_.sequences;
    request.length = shape_.steps;
  }
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    const Expected& e = expected_[i];
    if (e.field->is_written() || e.derivative) continue;
    // Without steps an input may be null, and where nobody reads it.
    if (!is_given(i) && !e.field->required()) continue;
    const FieldOwner owner = e.field->traits().owner;
    auto& of_kind = owner == FieldOwner::Input   ? request.inputs
                    : owner == FieldOwner::Param ? request.params
                                                 : request.states;
    of_kind[e.field->file] = {e.name, given(i)};
  }
  request.params_unrounded = true;
  Bound result;
  result.binding = bind(cell, kernel_.layout, request);
  result.given = given_symbols(cell, request, result.binding);
  return result;
}

}  // namespace cellc::capi
