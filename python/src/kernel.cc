#include "kernel.h"

#include "faults.h"

namespace cellc::python {
namespace {

const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string without(const std::string& text, std::string_view end) {
  return ends_with(text, end) ? text.substr(0, text.size() - end.size()) : text;
}

}  // namespace

Kernel::Kernel(const std::string& source, bool is_file, const KernelOptions& given) {
  cellc_options options;
  cellc_options_init(&options);
  options.cell = or_null(given.cell);
  options.dtype = static_cast<cellc_dtype>(given.dtype);
  options.device = or_null(given.device);
  options.cpu = or_null(given.cpu);
  options.solver = or_null(given.solver);
  options.threads = given.threads;
  options.cache_dir = or_null(given.cache);
  options.tolerance = given.tolerance;
  options.max_iterations = given.max_iterations;
  options.no_repair = given.repair ? 0 : 1;
  dtype_ = given.dtype;
  steps_suffice_ = given.solver.empty() || given.solver == "auto" || given.solver == "sequential";
  on_gpu_ = given.device.rfind("cuda", 0) == 0;
  if (given.device.rfind("cuda:", 0) == 0) gpu_ = std::atoi(given.device.c_str() + 5);
  cellc_status status;
  {
    nb::gil_scoped_release others_run;
    status = is_file ? cellc_compile_file(source.c_str(), &options, &handle_)
                     : cellc_compile_text(source.data(), source.size(), &options, &handle_);
  }
  check(status);
  describe();
}

void Kernel::describe() {
  for (int i = 0; i < cellc_axis_count(handle_); ++i) {
    cellc_axis axis;
    check(cellc_axis_describe(handle_, i, &axis));
    axes_.push_back({axis.name, axis.length});
  }
  int states = 0;
  for (int i = 0; i < cellc_array_count(handle_); ++i) {
    cellc_array_info info;
    check(cellc_array_describe(handle_, i, &info));
    ArrayInfo array{i,
                    info.name,
                    info.name,
                    Role::Input,
                    info.layout,
                    info.dtype,
                    info.written != 0,
                    info.required != 0,
                    {info.axes, info.axes + info.axis_count}};
    switch (info.layout) {
      case CELLC_CONTIGUOUS:
        array.role = array.written ? Role::Out : Role::Input;
        break;
      case CELLC_ONCE:
        array.role = Role::Param;
        break;
      case CELLC_SEQUENCES:
        array.role = array.written ? Role::Final : Role::Start;
        array.key = without(array.name, array.written ? "_final" : "_start");
        states += array.written;
        break;
      case CELLC_HISTORY:
        array.role = array.written ? Role::FinalHistory : Role::History;
        array.key = without(array.name, "_final");
        break;
    }
    arrays_.push_back(std::move(array));
  }
  // States stand before outs, and each has a final.
  for (ArrayInfo& array : arrays_)
    if (array.role == Role::Out && states-- > 0) array.role = Role::State;
  for (const ArrayInfo& array : arrays_)
    if (!array.written) given_.emplace(array.key, array.number);
}

int Kernel::find(std::string_view key) const {
  const auto found = given_.find(std::string(key));
  return found == given_.end() ? -1 : found->second;
}

bool Kernel::is_small(const cellc_shape& shape) const {
  // Entries that a call touches, a step at a time: about as many nanoseconds.
  constexpr std::int64_t kMost = 16384;
  if (on_gpu_ || !steps_suffice_ || shape.offsets || shape.sequences > kMost || shape.steps > kMost) return false;
  std::int64_t entries = 0;
  for (const ArrayInfo& info : arrays_) {
    std::int64_t part = 1;
    for (const int axis : info.axes) {
      const std::int64_t length = shape.lengths[axis];
      if (length > kMost) return false;
      part *= length;
      if (part > kMost) return false;
    }
    entries += part;
  }
  return entries * shape.sequences * shape.steps <= kMost;
}

std::shared_ptr<cellc_call> Kernel::prepared(const cellc_shape& shape) const {
  constexpr std::size_t kKept = 16;
  if (!is_small(shape)) return nullptr;
  std::vector<std::int64_t> key(shape.lengths, shape.lengths + axes_.size());
  key.insert(key.end(), {shape.sequences, shape.steps, shape.reverse});
  for (auto it = prepared_.begin(); it != prepared_.end(); ++it) {
    if (it->key != key) continue;
    prepared_.splice(prepared_.begin(), prepared_, it);
    return it->call;
  }
  cellc_call* call = nullptr;
  cellc_status status;
  {
    nb::gil_scoped_release others_run;
    status = cellc_prepare(handle_, &shape, &call);
  }
  check(status);
  std::shared_ptr<cellc_call> result(call, cellc_call_free);
  prepared_.push_front({std::move(key), result});
  if (prepared_.size() > kKept) prepared_.pop_back();
  return result;
}

std::string Kernel::inspect(bool json) const {
  const char* text;
  {
    nb::gil_scoped_release others_run;
    text = json ? cellc_inspect_json(handle_) : cellc_inspect_text(handle_);
  }
  if (!text) throw StatusFault(CELLC_INTERNAL_FAULT);
  return text;
}

}  // namespace cellc::python
