#include "kernel.h"

#include "faults.h"
#include "recipes.h"

namespace cellc::python {
namespace {

const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

/// Where an array of that name is found.
std::string place(cellc_quantity quantity, Group group, std::string_view key) {
  std::string name{static_cast<char>('0' + quantity), static_cast<char>('0' + static_cast<int>(group))};
  return name.append(key);
}

}  // namespace

Kernel::~Kernel() {
  for (auto& kept : prepared_) kept.clear();
  recipes_.reset();  // they hold calls, too
  cellc_kernel_free(handle_);
}

Kernel::Kernel(const std::string& source, bool is_file, const KernelOptions& given)
    : recipes_(std::make_unique<Recipes>()) {
  cellc_options options;
  cellc_options_init(&options);
  options.cell = or_null(given.cell);
  options.dtype = static_cast<cellc_dtype>(given.dtype);
  options.device = or_null(given.device);
  options.cpu = or_null(given.cpu);
  options.solver = or_null(given.solver);
  options.products = or_null(given.products);
  options.threads = given.threads;
  options.cache_dir = or_null(given.cache);
  options.has_tolerance = given.tolerance ? 1 : 0;
  options.tolerance = given.tolerance.value_or(0);
  options.max_iterations = given.max_iterations;
  options.no_repair = given.repair ? 0 : 1;
  options.deterministic = given.deterministic ? 1 : 0;
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
  for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT}) describe(direction);
}

void Kernel::describe(cellc_direction direction) {
  const int count = cellc_call_array_count(handle_, direction);
  for (int i = 0; i < count; ++i) {
    cellc_call_array_info info;
    cellc_call_array_info_init(&info);
    check(cellc_call_array_describe(handle_, direction, i, &info));
    ArrayInfo array{direction,
                    i,
                    info.owner,
                    info.owner,
                    info.role,
                    info.quantity,
                    info.layout,
                    info.dtype,
                    info.written != 0,
                    info.required != 0,
                    info.null == CELLC_NULL_IS_DECLARED,
                    {info.axes, info.axes + info.axis_count}};
    if (info.role == CELLC_ROLE_HISTORY || info.role == CELLC_ROLE_FINAL_HISTORY) array.key += "_lag";
    numbers_[direction].emplace(place(array.quantity, array.group(), array.key), i);
    arrays_[direction].push_back(std::move(array));
  }
}

Group ArrayInfo::group() const {
  switch (role) {
    case CELLC_ROLE_STATE:
    case CELLC_ROLE_OUT:
      return Group::Rows;
    case CELLC_ROLE_FINAL:
    case CELLC_ROLE_FINAL_HISTORY:
      return Group::Finals;
    default:
      return Group::Read;
  }
}

std::string ArrayInfo::label() const {
  static constexpr const char* kinds[] = {"argument", "cotangent", "gradient", "tangent"};
  const bool of_final = quantity != CELLC_IS_VALUE && group() == Group::Finals;
  return std::string(kinds[quantity]) + (of_final ? " of the final '" : " '") + key + "'";
}

const ArrayInfo* Kernel::find(cellc_direction direction, cellc_quantity quantity, Group group,
                              std::string_view key) const {
  const auto found = numbers_[direction].find(place(quantity, group, key));
  return found == numbers_[direction].end() ? nullptr : &arrays_[direction][static_cast<std::size_t>(found->second)];
}

bool Kernel::is_small(cellc_direction direction, const cellc_shape& shape) const {
  // Entries that a call touches, a step at a time: about as many nanoseconds.
  constexpr std::int64_t kMost = 16384;
  if (on_gpu_ || !steps_suffice_ || shape.offsets || shape.sequences > kMost || shape.steps > kMost) return false;
  std::int64_t entries = 0;
  for (const ArrayInfo& info : arrays(direction)) {
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

std::shared_ptr<cellc_call> Kernel::prepared(cellc_direction direction, const cellc_shape& shape) const {
  constexpr std::size_t kKept = 16;
  const bool backward = direction == CELLC_BACKWARD;
  if (!is_small(direction, shape)) return nullptr;
  std::vector<std::int64_t> key(shape.lengths, shape.lengths + axes_.size());
  key.insert(key.end(), {shape.sequences, shape.steps, shape.reverse});
  std::list<Prepared>& kept = prepared_[backward];
  for (auto it = kept.begin(); it != kept.end(); ++it) {
    if (it->key != key) continue;
    kept.splice(kept.begin(), kept, it);
    return it->call;
  }
  cellc_call* call = nullptr;
  cellc_status status;
  {
    nb::gil_scoped_release others_run;
    status = backward ? cellc_prepare_backward(handle_, &shape, &call) : cellc_prepare(handle_, &shape, &call);
  }
  check(status);
  std::shared_ptr<cellc_call> result(call, cellc_call_free);
  kept.push_front({std::move(key), result});
  if (kept.size() > kKept) kept.pop_back();
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
