#include "capi/by_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>
#include <set>

#include "capi/fetched_arrays.h"
#include "capi/report.h"
#include "capi/views.h"
#include "runtime/cuda/call/queued_call.h"

namespace cellc::capi {
namespace {

/// What has no sequences of its own: a param, and what is derived of it.
bool is_of_param(const DirectedField& field) { return field.of.traits().layout == FieldLayout::Once; }

/// Throws unless so many entries of that size lie where kernels of the GPU can use them.
void check_place(Gpu& gpu, const std::string& name, GpuAddress first, std::int64_t entries, std::int64_t size) {
  if (!first || entries == 0) return;
  std::optional<std::string> fault;
  if (first % static_cast<GpuAddress>(size) != 0)
    fault = fmt::format("is not aligned to the {} bytes of an entry", size);
  else
    fault = gpu.pointer_fault(first, static_cast<std::size_t>(entries * size));
  if (fault) throw RequestError(fmt::format("array {}: its address {:#x} {}", name, first, *fault));
}

bool is_by_sequence(const DirectedField& field, const cellc_view& view) {
  return is_of_param(field) && view.data && (view.lengths || view.strides) &&
         view.rank == static_cast<int>(field.of.axes.size()) + 1;
}

}  // namespace

bool has_params_by_sequence(const DirectedCall& call, const cellc_request& request) {
  if (!request.arrays || request.count != static_cast<int>(call.fields.size())) return false;
  for (std::size_t i = 0; i < call.fields.size(); ++i)
    if (is_by_sequence(call.fields[i], request.arrays[i])) return true;
  return false;
}

RequestsBySequence::RequestsBySequence(CompiledCell& kernel, const Shape& shape, const cellc_request& request)
    : shape_(shape), all_(request), views_(request.arrays, request.arrays + request.count), request_(request) {
  const DirectedCall& call = kernel.call(direction_named(request.direction));
  for (std::size_t i = 0; i < call.fields.size(); ++i) {
    const DirectedField& field = call.fields[i];
    const cellc_view& view = request.arrays[i];
    Viewed v{array_shape(field.of, shape), {}, is_by_sequence(field, view), is_of_param(field), field.of.is_rows(), 0};
    if (v.by_sequence) v.lengths.insert(v.lengths.begin(), shape.sequences);
    const Dtype dtype = view.dtype == CELLC_F64 ? Dtype::F64 : view.dtype == CELLC_F32 ? Dtype::F32 : Dtype::BF16;
    v.size = static_cast<std::int64_t>(size_of(dtype));
    if (view.data) {
      // Also where there are no sequences, and so no calls that look.
      if (!takes_dtype(field, kernel.compile.dtype, view.dtype))
        throw RequestError(fmt::format("array {}: has the dtype {}; expected {}", field.name, name_of(view.dtype),
                                       name_of(c_dtype(dtype_of(field, kernel.compile.dtype)))));
      v.strides = strides_in_full(field, shape, dtype, v.lengths, view);
      if (field.written && is_of_param(field) && !v.by_sequence)
        throw RequestError(fmt::format(
            "array {}: params differ by sequence, and their gradients have sequences as their first axis", field.name));
      if (field.written && overlaps_itself(v.lengths, v.strides))
        throw RequestError(fmt::format("array {}: is written, and overlaps itself", field.name));
    }
    if (view.data && kernel.on_gpu && !request.on_host) check_on_device(kernel.on_gpu->gpu(), field.name, view, v);
    if (v.by_sequence) v.lengths.erase(v.lengths.begin());
    viewed_.push_back(std::move(v));
  }
  check_status(kernel);
  one_ = *request.shape;  // which was found right
  one_.sequences = 1;
  request_.arrays = views_.data();
  request_.shape = &one_;
  cellc_report_init_sized(&sum_, sizeof sum_);
  sum_.converged = 1;
}

/// All of it, before anything is queued.
void RequestsBySequence::check_on_device(Gpu& gpu, const std::string& name, const cellc_view& view,
                                         const Viewed& viewed) {
  const ViewSpan span = span_of({viewed.lengths, viewed.strides, Dtype::F32, Dtype::F32, false});
  check_place(gpu, name, std::bit_cast<GpuAddress>(view.data) + static_cast<GpuAddress>(span.first * viewed.size),
              span.entries, viewed.size);
}

cellc_status RequestsBySequence::check_given(CompiledCell& kernel) const {
  if (shape_.sequences == 0) return CELLC_OK;
  const CallDirection direction = direction_named(all_.direction);
  const DirectedCall& call = kernel.call(direction);
  std::vector<bool> given, reads(call.fields.size(), true);
  for (std::size_t i = 0; i < call.fields.size(); ++i) given.push_back(all_.arrays[i].data != nullptr);
  if (direction == CallDirection::Backward) reads = kernel.derivatives->adjoint(given).reads;
  if (direction == CallDirection::Tangent) reads = kernel.derivatives->tangent(given).reads;
  std::vector<Expected> missing;
  for (std::size_t i = 0; i < call.fields.size(); ++i) {
    const DirectedField& field = call.fields[i];
    if (given[i] || !is_required(field, reads[i]) || (field.of.is_rows() && shape_.rows == 0)) continue;
    Expected& e = missing.emplace_back();
    e.field = &field.of;
    e.name = direction == CallDirection::Forward ? field.of.name.c_str() : field.name.c_str();
    e.required = true;
  }
  const std::vector<cellc_array> none(missing.size());
  return check_arrays(shape_, missing, none.data(), static_cast<int>(none.size()));
}

std::int64_t RequestsBySequence::shapes() const {
  if (!shape_.packed()) return 1;
  std::set<std::int64_t> lengths;
  for (std::size_t s = 0; s + 1 < shape_.offsets.size(); ++s) lengths.insert(shape_.offsets[s + 1] - shape_.offsets[s]);
  return static_cast<std::int64_t>(lengths.size());
}

/// As of a call of all: on a GPU nobody waits for that of a forward run unless a report is asked for.
void RequestsBySequence::check_status(CompiledCell& kernel) {
  request_.forward_status = nullptr;
  const bool forward = all_.direction == CELLC_FORWARD;
  if (!kernel.on_gpu || all_.on_host) return forward ? void() : check_converged(all_.forward_status, shape_);
  Gpu& gpu = kernel.on_gpu->gpu();
  check_place(gpu, "status", std::bit_cast<GpuAddress>(forward ? all_.status : all_.forward_status), shape_.sequences,
              4);
  if (forward || !all_.forward_status) return;
  const GpuStream stream = all_.on_stream ? std::bit_cast<GpuStream>(all_.stream) : 0;
  if (!all_.report || gpu.capturing(stream) || shape_.sequences == 0) return;
  check_converged(fetched_status(gpu, all_.forward_status, shape_, stream).data(), shape_);
}

const cellc_request& RequestsBySequence::of(std::int64_t s) {
  const std::int64_t begin = shape_.packed() ? shape_.offsets[static_cast<std::size_t>(s)] : 0;
  if (shape_.packed()) {
    offsets_[1] = shape_.offsets[static_cast<std::size_t>(s) + 1] - begin;
    one_.offsets = offsets_;
  }
  for (std::size_t i = 0; i < views_.size(); ++i) {
    const cellc_view& from = all_.arrays[i];
    Viewed& v = viewed_[i];
    if (!from.data) continue;
    std::int64_t* strides = v.strides.data();
    std::int64_t first = 0;
    if (v.by_sequence) {
      first = s * *strides++;
    } else if (v.rows && shape_.packed()) {
      first = begin * strides[0];
      v.lengths[0] = offsets_[1];
    } else if (!v.shared) {
      first = s * strides[0];
      v.lengths[0] = 1;
    }
    views_[i] = {static_cast<std::byte*>(from.data) + first * v.size, from.dtype, static_cast<int>(v.lengths.size()),
                 v.lengths.data(), strides};
  }
  if (all_.status) request_.status = all_.status + s;
  if (all_.report) {
    cellc_report_init_sized(&report_, sizeof report_);
    report_.status = all_.report->status ? all_.report->status + s : nullptr;
    const auto part = [&](std::int64_t* cellc_report::*steps) {
      return has(*all_.report, steps) && all_.report->*steps ? all_.report->*steps + s : nullptr;
    };
    report_.first_bad = part(&cellc_report::first_bad);
    report_.first_non_finite = part(&cellc_report::first_non_finite);
    request_.report = &report_;
  }
  return request_;
}

bool RequestsBySequence::take(cellc_status status) {
  if (status != CELLC_OK && status != CELLC_NOT_CONVERGED) {
    status_ = status;
    return false;
  }
  if (status != CELLC_OK) status_ = status;
  if (!all_.report) return true;
  sum_.converged &= report_.converged;
  sum_.max_residual = std::max(sum_.max_residual, report_.max_residual);
  sum_.error_estimate = std::max(sum_.error_estimate, report_.error_estimate);
  sum_.repaired += report_.repaired;
  sum_.unconverged += report_.unconverged;
  sum_.iterations = std::max(sum_.iterations, report_.iterations);
  sum_.compile_ms = std::max(sum_.compile_ms, report_.compile_ms);
  sum_.run_ms += report_.run_ms;
  sum_.plan = report_.plan;
  sum_.cache = sum_.cache == CELLC_CACHE_MISS ? sum_.cache : report_.cache;
  add_stages();
  sum_.verified = std::max(sum_.verified, report_.verified);
  return true;
}

void RequestsBySequence::add_stages() {
  const std::vector<StageReport>& own = last_stages();
  if (stages_.size() != own.size()) stages_.assign(own.size(), {});
  for (std::size_t i = 0; i < own.size(); ++i) {
    StageReport& sum = stages_[i];
    sum.plan = own[i].plan;
    sum.iterations = std::max(sum.iterations, own[i].iterations);
    sum.max_residual = std::max(sum.max_residual, own[i].max_residual);
    sum.error_estimate = std::max(sum.error_estimate, own[i].error_estimate);
    sum.repaired += own[i].repaired;
  }
}

cellc_status RequestsBySequence::finish() const {
  if (!all_.report || (status_ != CELLC_OK && status_ != CELLC_NOT_CONVERGED)) return status_;
  last_stages() = stages_;
  cellc_report whole = sum_;
  whole.status = all_.report->status;
  whole.stages = static_cast<int>(stages_.size());
  if (has(*all_.report, &cellc_report::first_bad)) whole.first_bad = all_.report->first_bad;
  if (has(*all_.report, &cellc_report::first_non_finite)) whole.first_non_finite = all_.report->first_non_finite;
  whole.size = all_.report->size;
  std::memcpy(all_.report, &whole, std::min(whole.size, sizeof whole));
  return status_;
}

}  // namespace cellc::capi
