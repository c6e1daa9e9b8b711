// Views of arrays, and calls on them.
#include "capi/views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "capi/by_sequence.h"
#include "capi/call_settings.h"
#include "capi/gpu_call.h"
#include "capi/guard.h"
#include "capi/report.h"
#include "capi/staged_arrays.h"

namespace cellc::capi {
namespace {

using Lengths = std::vector<std::int64_t>;

/// Copies entries of Size bytes; strides in entries.
template <std::size_t Size>
void copy_of_size(const Lengths& lengths, std::byte* to, const Lengths& to_strides, const std::byte* from,
                  const Lengths& from_strides, std::size_t axis) {
  if (axis == lengths.size()) {
    std::memcpy(to, from, Size);
    return;
  }
  const std::int64_t to_step = to_strides[axis] * std::int64_t{Size},
                     from_step = from_strides[axis] * std::int64_t{Size};
  if (axis + 1 == lengths.size()) {
    for (std::int64_t i = 0; i < lengths[axis]; ++i) std::memcpy(to + i * to_step, from + i * from_step, Size);
    return;
  }
  for (std::int64_t i = 0; i < lengths[axis]; ++i)
    copy_of_size<Size>(lengths, to + i * to_step, to_strides, from + i * from_step, from_strides, axis + 1);
}

}  // namespace

void copy_entries(Dtype dtype, const Lengths& lengths, void* to, const Lengths& to_strides, const void* from,
                  const Lengths& from_strides) {
  const auto run = size_of(dtype) == 8 ? copy_of_size<8> : size_of(dtype) == 4 ? copy_of_size<4> : copy_of_size<2>;
  run(lengths, static_cast<std::byte*>(to), to_strides, static_cast<const std::byte*>(from), from_strides, 0);
}

namespace {

thread_local const std::vector<std::optional<CallView>>* device_views = nullptr;

/// One view against the array that the call has in its place.
struct ViewOf {
  const DirectedField& field;
  const Shape& shape;
  Dtype dtype;
  Lengths lengths;

  [[noreturn]] void refuse(const std::string& why) const {
    throw RequestError(fmt::format("array {}: {}", field.name, why));
  }

  /// The strides in full, where the view is of this array; those of axes of length 1 stand for nothing.
  Lengths strides(const cellc_view& view) const {
    Lengths dense = dense_strides(lengths);
    if (!view.lengths && !view.strides) return dense;
    const auto rank = static_cast<std::size_t>(std::max(view.rank, 0));
    if (view.rank != static_cast<int>(lengths.size()))
      refuse(fmt::format("has {} axes; expected {}, [{}]", view.rank, lengths.size(), fmt::join(lengths, ", ")));
    if (view.lengths && !std::equal(lengths.begin(), lengths.end(), view.lengths))
      refuse(fmt::format("has the lengths [{}]; expected [{}]", fmt::join(view.lengths, view.lengths + rank, ", "),
                         fmt::join(lengths, ", ")));
    if (!view.strides) return dense;
    std::int64_t reach = 1;
    for (std::size_t i = 0; i < rank; ++i) {
      if (lengths[i] <= 1) continue;
      dense[i] = view.strides[i];
      if (dense[i] <= -CELLC_MOST_BYTES || dense[i] >= CELLC_MOST_BYTES)
        refuse(fmt::format("has a stride of {}, which reaches beyond any memory", dense[i]));
      reach = std::min(CELLC_MOST_BYTES, reach + cellc_times(std::abs(dense[i]), lengths[i] - 1));
    }
    if (reach >= CELLC_MOST_BYTES / static_cast<std::int64_t>(size_of(dtype)))
      refuse(fmt::format("has strides [{}], which reach beyond any memory",
                         fmt::join(view.strides, view.strides + rank, ", ")));
    return dense;
  }

  /// Whether kernels that copy can take it.
  void check_for_device(const cellc_view& view) const {
    const auto axes = std::count_if(lengths.begin(), lengths.end(), [](std::int64_t n) { return n > 1; });
    if (axes > static_cast<std::ptrdiff_t>(kMostViewAxes))
      refuse(fmt::format("has {} axes; with such strides a call on a GPU takes {}", axes, kMostViewAxes));
    const std::size_t size = view.dtype == CELLC_F64 ? 8 : view.dtype == CELLC_F32 ? 4 : 2;
    if (std::bit_cast<std::uintptr_t>(view.data) % size != 0)
      refuse(fmt::format("is not aligned to the {} bytes of an entry", size));
  }

  /// The same where it has no gaps.
  bool as_dense(const cellc_view& view, const Lengths& strides, cellc_array& array) const {
    array = {view.data, all_entries(field.of, shape), view.dtype, 0, 0};
    return array.entries == 0 || strides == dense_strides(lengths);
  }

  /// The array as a call takes it; false: only a copy will do.
  bool as_array(const cellc_view& view, const Lengths& strides, cellc_array& array) const {
    array = {view.data, all_entries(field.of, shape), view.dtype, 0, 0};
    if (array.entries == 0) return true;
    if (std::bit_cast<std::uintptr_t>(view.data) % size_of(dtype) != 0) return false;
    const Lengths dense = dense_strides(lengths);
    const std::size_t leading = field.of.is_rows() ? lengths.size() - field.of.axes.size() : 0;
    if (!std::equal(strides.begin() + static_cast<std::ptrdiff_t>(leading), strides.end(),
                    dense.begin() + static_cast<std::ptrdiff_t>(leading)))
      return false;
    if (std::equal(strides.begin(), strides.end(), dense.begin())) return true;
    array.step_stride = strides[leading - 1];
    if (leading == 2) array.sequence_stride = strides[0];
    if (leading == 2 && lengths[0] == 1) array.sequence_stride = cellc_times(array.step_stride, lengths[1]);
    if (leading == 2 && lengths[1] == 1) array.step_stride = part_entries(field.of, shape);
    array.entries = CELLC_MOST_BYTES;  // whether rows overlap, not how far they reach
    return array.step_stride > 0 && (leading == 1 || array.sequence_stride > 0) &&
           rows_fit(array, part_entries(field.of, shape), shape);
  }
};

}  // namespace

bool overlaps_itself(const Lengths& lengths, const Lengths& strides) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) return false;
    if (lengths[i] > 1) axes.emplace_back(std::abs(strides[i]), lengths[i]);
  }
  std::sort(axes.begin(), axes.end());
  std::int64_t reach = 1;
  for (const auto& [stride, length] : axes) {
    if (stride < reach) return true;
    reach += stride * (length - 1);
  }
  return false;
}

std::vector<std::int64_t> strides_in_full(const DirectedField& field, const Shape& shape, Dtype dtype,
                                          const std::vector<std::int64_t>& lengths, const cellc_view& view) {
  return ViewOf{field, shape, dtype, lengths}.strides(view);
}

namespace {

bool is_widened(const DirectedField& field, Dtype own, cellc_dtype given) {
  return (given == CELLC_F16 || given == CELLC_BF16) && field.of.kind == FieldKind::Param &&
         field.quantity == Quantity::Value && c_dtype(own) != given;
}

}  // namespace

bool takes_dtype(const DirectedField& field, Dtype storage, cellc_dtype given) {
  const Dtype own = dtype_of(field, storage);
  return given == c_dtype(own) || is_widened(field, own, given);
}

void ViewedArrays::read(const DirectedCall& call, const Shape& shape, Dtype storage, const cellc_view* views, int count,
                        Views where) {
  arrays_.clear();
  clear();
  if (!views && count > 0) throw Misuse("the arrays are a null pointer");
  if (count != static_cast<int>(call.fields.size()))
    throw Misuse("the number of arrays is not that of the kernel (cellc_call_array_count)");
  const CallSettings* const settings = call_settings();
  const bool reads = !settings || !settings->ahead;
  for (std::size_t i = 0; i < call.fields.size(); ++i) {
    const cellc_view& view = views[i];
    const DirectedField& field = call.fields[i];
    arrays_.push_back({view.data, 0, view.dtype, 0, 0});
    const ViewOf of{field, shape, dtype_of(field, storage), array_shape(field.of, shape)};
    const bool widened = view.data && is_widened(field, of.dtype, view.dtype);
    if (!view.data || (view.dtype != c_dtype(of.dtype) && !widened)) continue;  // the call itself looks at both
    Lengths strides = of.strides(view);
    if (!widened && (where == Views::Staged ? of.as_dense(view, strides, arrays_.back())
                                            : of.as_array(view, strides, arrays_.back())))
      continue;
    if (field.written && overlaps_itself(of.lengths, strides)) of.refuse("is written, and overlaps itself");
    const Dtype given = !widened ? of.dtype : view.dtype == CELLC_F16 ? Dtype::F16 : Dtype::BF16;
    if (where == Views::OnGpu) {
      of.check_for_device(view);
      on_device_.resize(call.fields.size());
      on_device_[i] = CallView{of.lengths, std::move(strides), given, of.dtype, field.written};
      arrays_.back() = {view.data, all_entries(field.of, shape), c_dtype(of.dtype), 0, 0};
      continue;
    }
    if (widened) {
      // Arithmetic has each of its numbers.
      Array dense = Array::uninitialised(given, of.lengths);
      if (reads) copy_entries(given, of.lengths, dense.data(), dense_strides(of.lengths), view.data, strides);
      copies_.push_back({false, convert(dense, of.dtype), nullptr, {}});
    } else {
      Copy made{field.written, Array::uninitialised(of.dtype, of.lengths), view.data, std::move(strides)};
      if (!field.written && reads)
        copy_entries(of.dtype, of.lengths, made.memory.data(), dense_strides(of.lengths), view.data, made.strides);
      copies_.push_back(std::move(made));
    }
    arrays_.back() = {copies_.back().memory.data(), copies_.back().memory.count(), c_dtype(of.dtype), 0, 0};
  }
}

const std::vector<CallArray>& placed_arrays(const cellc_array* arrays, std::size_t count) {
  thread_local std::vector<CallArray> places;  // a repeated call allocates nothing
  places.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const bool viewed = device_views && i < device_views->size() && (*device_views)[i];
    places.push_back({std::bit_cast<GpuAddress>(arrays[i].data), arrays[i].sequence_stride, arrays[i].step_stride,
                      viewed ? &*(*device_views)[i] : nullptr});
  }
  return places;
}

CallView view_of(const DirectedField& field, Dtype storage, const Shape& shape, const CallArray& array) {
  if (array.view) return *array.view;
  const Dtype own = dtype_of(field, storage);
  CallView rows{array_shape(field.of, shape), {}, own, own, field.written};
  rows.strides = dense_strides(rows.lengths);
  if (field.of.is_rows() && shape.rows > 0) {
    const cellc_strides full = strides_of(field.of, shape, {array.sequence_stride, array.step_stride});
    if (!shape.packed()) rows.strides[0] = full.sequence;
    rows.strides[shape.packed() ? 0 : 1] = full.step;
  }
  return rows;
}

Array on_host(Gpu& gpu, GpuStream stream, const DirectedField& field, Dtype storage, const Shape& shape,
              const CallArray& array) {
  const CallView view = view_of(field, storage, shape, array);
  const ViewSpan span = span_of(view);
  Array dense = Array::uninitialised(view.given, view.lengths),
        memory = Array::uninitialised(view.given, {span.entries});
  const auto size = static_cast<std::int64_t>(size_of(view.given));
  if (span.entries > 0)
    gpu.copy_out(memory.data(), array.data + static_cast<GpuAddress>(span.first * size),
                 static_cast<std::size_t>(span.entries * size), stream);
  copy_entries(view.given, view.lengths, dense.data(), dense_strides(view.lengths),
               static_cast<const std::byte*>(memory.data()) - span.first * size, view.strides);
  return convert(dense, view.kept);
}

UseDeviceViews::UseDeviceViews(const ViewedArrays& views) : before_(device_views) { device_views = &views.on_device(); }
UseDeviceViews::~UseDeviceViews() { device_views = before_; }

void ViewedArrays::write_back() const {
  for (const Copy& c : copies_)
    if (c.written)
      copy_entries(c.memory.dtype(), c.memory.shape(), c.data, c.strides, c.memory.data(),
                   dense_strides(c.memory.shape()));
}

namespace {

cellc_status call_on(cellc_kernel* kernel, const cellc_request& r, const cellc_array* arrays, int count) {
  switch (r.direction) {
    case CELLC_BACKWARD:
      return r.on_stream ? cellc_backward_on(kernel, r.shape, arrays, count, r.stream, r.forward_status, r.report)
                         : cellc_backward(kernel, r.shape, arrays, count, r.forward_status, r.report);
    case CELLC_TANGENT:
      return r.on_stream ? cellc_tangent_on(kernel, r.shape, arrays, count, r.stream, r.forward_status, r.report)
                         : cellc_tangent(kernel, r.shape, arrays, count, r.forward_status, r.report);
    default:
      return r.on_stream ? cellc_forward_on(kernel, r.shape, arrays, count, r.stream, r.status, r.report)
                         : cellc_forward(kernel, r.shape, arrays, count, r.report);
  }
}

/// Whether a call with that status has written its results.
bool has_results(cellc_status status, cellc_direction direction) {
  return status == CELLC_OK || (status == CELLC_NOT_CONVERGED && direction == CELLC_FORWARD);
}

/// The same on arrays of the host, of a kernel of a GPU.
cellc_status call_on_copies(cellc_kernel* kernel, cellc_request r, const DirectedCall& call, const Shape& shape,
                            const ViewedArrays& views) {
  CompiledCell& k = opened(kernel);
  const auto stream = std::bit_cast<GpuStream>(r.stream);
  if (k.on_gpu->gpu().capturing(stream))
    throw Misuse("a call on arrays of the host waits, which a graph cannot capture");
  const bool forward = r.direction == CELLC_FORWARD;
  if (!forward) check_converged(r.forward_status, shape);
  StagedArrays staged(*k.on_gpu, call, shape, k.compile.dtype, views.arrays(), forward ? r.status : nullptr, stream);
  const CallSettings* const settings = call_settings();
  const bool ahead = settings && settings->ahead;
  r.forward_status = nullptr;
  r.status = staged.status();
  // Whoever waits is told whether all has converged, as on a CPU.
  cellc_report own;
  cellc_report_init_sized(&own, sizeof own);
  const SolveOptions& solve = solve_on_gpu(k);
  if (forward && !r.report && !ahead && (!solve.repair || solve.fixed_iterations)) r.report = &own;
  if (!ahead) staged.upload();
  const cellc_status found = call_on(kernel, r, staged.arrays(), views.count());
  if (has_results(found, r.direction) && !ahead) staged.download();
  return found;
}

}  // namespace

cellc_status apply(cellc_kernel* kernel, const cellc_request& given, const CallSettings* settings) {
  CompiledCell& k = opened(kernel);
  const UseCallSettings use(settings);
  const UseHostMemory memory(k.own_memory());
  cellc_request r = given;
  if (r.on_host && !r.on_stream) r.on_stream = 1, r.stream = nullptr;
  const DirectedCall& call = k.call(direction_named(r.direction));
  const Shape shape = read_shape(k, r.shape);
  const bool staged = r.on_host && k.on_gpu;
  const auto apply_one = [&](const cellc_request& one, const Shape& of) {
    ViewedArrays views;
    views.read(call, of, k.compile.dtype, one.arrays, one.count,
               staged     ? Views::Staged
               : k.on_gpu ? Views::OnGpu
                          : Views::OnHost);
    const UseDeviceViews use_views(views);
    const cellc_status found =
        staged ? call_on_copies(kernel, one, call, of, views) : call_on(kernel, one, views.arrays(), views.count());
    if (has_results(found, one.direction)) views.write_back();
    return found;
  };
  if (!has_params_by_sequence(call, r)) return apply_one(r, shape);
  check_report(r.report);
  RequestsBySequence requests(k, shape, r);
  if (const cellc_status missing = requests.check_given(k)) return missing;
  const PartsOfOneCall parts(std::max<std::int64_t>(1, requests.shapes()));
  for (std::int64_t s = 0; s < shape.sequences; ++s) {
    const cellc_request& one = requests.of(s);
    if (!requests.take(apply_one(one, read_shape(k, one.shape)))) break;
  }
  return requests.finish();
}

}  // namespace cellc::capi

using namespace cellc;
using namespace cellc::capi;

extern "C" {

#undef cellc_request_init  // the function of this name writes the struct of the first version
void cellc_request_init_sized(cellc_request* request, size_t size) { initialise(request, {}, size); }
void cellc_request_init(cellc_request* request) { cellc_request_init_sized(request, sizeof *request); }

cellc_status cellc_apply(cellc_kernel* kernel, const cellc_request* request) {
  cellc_status status = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    const cellc_request r = sized(request, cellc_request{}, offsetof(cellc_request, options), "the request");
    const CompiledCell& k = opened(kernel);
    std::optional<CallSettings> settings;
    if (r.options) settings.emplace(read_call_options(r.options), k, r.direction == CELLC_FORWARD, r.report);
    status = apply(kernel, r, settings ? &*settings : nullptr);
  });
  return outcome == CELLC_OK ? status : outcome;
}

}  // extern "C"
