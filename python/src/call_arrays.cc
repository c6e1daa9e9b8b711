#include "call_arrays.h"

#include "faults.h"

namespace cellc::python {
namespace {

std::string place(int device) {
  return device == kHost ? "cpu" : device == kElsewhere ? "another device" : "cuda:" + std::to_string(device);
}

/// Whether the last axes, from `first` on, lie one after another without gaps.
bool is_dense(const View& view, int first) {
  std::int64_t next = 1;
  for (int i = view.rank - 1; i >= first; --i) {
    if (view.shape[i] > 1 && view.strides[i] != next) return false;
    next *= view.shape[i];
  }
  return true;
}

std::int64_t entries_of(const View& view) {
  std::int64_t entries = 1;
  for (int i = 0; i < view.rank; ++i) entries *= view.shape[i];
  return entries;
}

bool is_shape(const View& view, const std::vector<std::int64_t>& expected, std::size_t from) {
  if (view.rank != static_cast<int>(expected.size() - from)) return false;
  for (int i = 0; i < view.rank; ++i)
    if (view.shape[i] != expected[from + static_cast<std::size_t>(i)]) return false;
  return true;
}

}  // namespace

CallArrays::CallArrays(const Kernel& kernel, const CallSizes& sizes, cellc_direction direction, ArrayMaker maker,
                       bool on_host)
    : kernel_(kernel),
      sizes_(sizes),
      maker_(std::move(maker)),
      on_host_(on_host),
      arrays_(kernel.arrays(direction).size()) {
  for (const ArrayInfo& info : kernel.arrays(direction)) {
    cellc_array& array = arrays_[static_cast<std::size_t>(info.number)];
    array = {nullptr, 0, static_cast<cellc_dtype>(info.dtype), 0, 0};
  }
  kept_.reserve(arrays_.size());
}

bool CallArrays::in_place(const ArrayInfo& info, const View& view, cellc_array& array) const {
  array.data = view.data;
  array.sequence_stride = array.step_stride = 0;
  array.entries = entries_of(view);
  if (array.entries == 0) return true;
  if (reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(size_of(info.dtype)) != 0) return false;
  if (is_dense(view, 0)) return true;
  if (info.layout != CELLC_CONTIGUOUS || on_host_) return false;
  const int first = view.rank - static_cast<int>(info.axes.size());
  if (!is_dense(view, first)) return false;
  const std::int64_t part = sizes_.part(info), steps = view.shape[first - 1];
  const std::int64_t sequences = first > 1 ? view.shape[0] : 1;
  // Of one step or one sequence the stride is never used, and may be anything.
  std::int64_t step = steps > 1 ? view.strides[first - 1] : part;
  std::int64_t sequence = first > 1 && sequences > 1 ? view.strides[0] : step * steps;
  if (steps == 1 && sequence >= part) step = part;
  if (step < part || sequence < part || (sequence < step * steps && step < sequence * sequences)) return false;
  array.step_stride = step;
  array.sequence_stride = sequence;
  array.entries = (steps - 1) * step + (sequences - 1) * sequence + part;
  return true;
}

void CallArrays::make_fit(Given& given, const std::vector<std::int64_t>& expected) {
  const ArrayInfo& info = *given.info;
  const View& view = given.held.view;
  if (given.is_scalar) {
    given.object = maker_.attr("spread")(given.object, shape_tuple(expected), info.dtype);
    given.held.take(given.object);
    return;
  }
  const int here = kernel_.on_gpu() && !on_host_ ? kernel_.gpu() : kHost;
  if (view.device != here)
    throw ArgumentFault{"DeviceMismatchError", info.key,
                        info.label() + " is on " + place(view.device) +
                            (on_host_ ? "; the call copies arrays of the CPU: cellc.torch.function runs on tensors"
                                      : "; the kernel runs on " + place(here))};
  // What is stored in 16 bits is computed in 32: params and starts may be given as either.
  const bool widened =
      (view.dtype == CELLC_F16 || view.dtype == CELLC_BF16) && info.dtype == CELLC_F32 && kernel_.dtype() == view.dtype;
  if (view.dtype != info.dtype && !widened)
    throw ArgumentFault{"DTypeError", info.key,
                        info.label() + " is " + (view.dtype < 0 ? view.other : name_of(view.dtype)) + "; expected " +
                            name_of(info.dtype)};
  const bool right = is_shape(view, expected, 0);
  const bool spread = !right && (view.rank == 0 || (sizes_.has_batch(info) && is_shape(view, expected, 1)));
  if (!right && !spread)
    throw ArgumentFault{"ShapeError", info.key,
                        info.label() + " has shape " + shape_text(view.shape, view.rank) + "; expected " +
                            sizes_.names(info) + " = " +
                            shape_text(expected.data(), static_cast<int>(expected.size()))};
  if (right && !widened) return;
  given.refitted = true;
  given.object = spread ? maker_.attr("spread")(given.object, shape_tuple(expected), info.dtype)
                        : maker_.attr("convert")(given.object, info.dtype);
  given.held.take(given.object);
}

void CallArrays::read(Given& given) {
  const ArrayInfo& info = *given.info;
  cellc_array& array = arrays_[static_cast<std::size_t>(info.number)];
  make_fit(given, sizes_.expected(info));
  if (in_place(info, given.held.view, array)) return;
  given.object = maker_.attr("convert")(given.object, info.dtype);
  given.held.take(given.object);
  if (!in_place(info, given.held.view, array)) throw std::logic_error("an array that was made is not contiguous");
}

nb::object CallArrays::write(const ArrayInfo& info) {
  const nb::object result = maker_.attr("empty")(shape_tuple(sizes_.expected(info)), info.dtype);
  HeldArray held;
  held.take(result);
  in_place(info, held.view, arrays_[static_cast<std::size_t>(info.number)]);
  kept_.push_back(std::move(held));
  return result;
}

}  // namespace cellc::python
