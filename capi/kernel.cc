// Compiling, inspecting, and what a call needs.
#include "capi/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "capi/call_settings.h"
#include "capi/callers_device_memory.h"
#include "capi/guard.h"
#include "compiler/derive/default_cells.h"
#include "compiler/inspect.h"
#include "compiler/syntax/parse.h"
#include "runtime/build/compile_orc.h"
#include "runtime/cpu/timed_cpu.h"
#include "runtime/data/offsets.h"
#include "runtime/data/read_text.h"
#include "runtime/data/sha256.h"
#include "runtime/strategy/tuned_plans.h"
#include "runtime/strategy/written_plan.h"

namespace cellc::capi {
namespace {

constexpr cellc_options kDefaultOptions = {sizeof(cellc_options),
                                           nullptr,
                                           CELLC_F32,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           0,
                                           nullptr,
                                           0,
                                           0,
                                           0,
                                           0,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           nullptr,
                                           0,
                                           0,
                                           nullptr};
constexpr cellc_shape kDefaultShape = {sizeof(cellc_shape), nullptr, 1, 1, nullptr, 0};
constexpr std::size_t kFirstOptions = offsetof(cellc_options, plan);

Dtype dtype_named(cellc_dtype dtype) {
  switch (dtype) {
    case CELLC_F32:
      return Dtype::F32;
    case CELLC_F64:
      return Dtype::F64;
    case CELLC_F16:
      return Dtype::F16;
    case CELLC_BF16:
      return Dtype::BF16;
  }
  throw Misuse(fmt::format("dtype {}: there is none of that number", static_cast<int>(dtype)));
}

void keep_options(CompiledCell& kernel, const cellc_options& given) {
  kernel.options = given;
  kernel.options.size = sizeof(cellc_options);
  for (const char** text :
       {&kernel.options.cell, &kernel.options.device, &kernel.options.cpu, &kernel.options.solver,
        &kernel.options.cache_dir, &kernel.options.plan, &kernel.options.products, &kernel.options.absolute_tolerance})
    if (*text) *text = kernel.texts.emplace_back(*text).c_str();
  if (!given.allocate != !given.release) throw Misuse("options: allocate and release are needed both, or neither");
  if (!given.allocate_on_device != !given.release_on_device)
    throw Misuse("options: allocate_on_device and release_on_device are needed both, or neither");
  if (given.allocate) kernel.memory = HostMemory{given.allocate, given.release, given.allocator};
}

void take_absolute_tolerances(const std::string& list, const CellGraph& cell, SolveOptions& solve) {
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t end = std::min(list.find(',', from), list.size());
    try {
      take_absolute_tolerance(list.substr(from, end - from), cell, solve);
    } catch (const RequestError& e) {
      throw Misuse(fmt::format("options.absolute_tolerance '{}': {}", list, e.what()));
    }
    from = end + 1;
  }
}

std::string hash_of(std::string_view text) {
  Sha256 hash;
  hash.add(text.data(), text.size());
  std::string digits;
  for (const std::uint8_t byte : hash.finish()) digits += fmt::format("{:02x}", byte);
  return digits;
}

std::shared_ptr<CompiledCell> compile(SourceText source, const cellc_options* given) {
  const cellc_options options = read_options(given);
  auto kernel = std::make_shared<CompiledCell>();
  keep_options(*kernel, options);
  kernel->compile.dtype = dtype_named(options.dtype);
  const std::string& device = kernel->device = options.device ? options.device : "cpu";
  if (options.cpu) {
    kernel->compile.cpu = options.cpu;
    kernel->compile.own_products = kernel->compile.cpu != "native";
  }
  if (options.cache_dir) kernel->compile.cache_directory = options.cache_dir;
  if (options.solver) {
    const auto strategy = strategy_named(options.solver);
    if (!strategy) throw Misuse(fmt::format("solver '{}': expected {}", options.solver, strategy_names()));
    kernel->solve.solver = *strategy;
  }
  if (options.products) {
    const auto products = products_named(options.products);
    if (!products) throw Misuse(fmt::format("products '{}': expected {}", options.products, products_names()));
    kernel->solve.products = *products;
  }
  if (options.threads < 0) throw Misuse(fmt::format("{} threads: expected 0 (all cores) or more", options.threads));
  kernel->threads = options.threads;
  // Everything is within a tolerance of infinity, and nothing within one that is no number.
  if (!std::isfinite(options.tolerance))
    throw Misuse(fmt::format("a tolerance of {}: expected a number, or 0 for the dtype's default", options.tolerance));
  if (options.has_tolerance && options.tolerance < 0)
    throw Misuse(fmt::format("a tolerance of {}: expected a number from 0 on", options.tolerance));
  if (options.has_tolerance || options.tolerance > 0) kernel->solve.tolerance = options.tolerance;
  if (options.max_iterations > 0) kernel->solve.max_iterations = options.max_iterations;
  kernel->solve.repair = options.no_repair == 0;
  kernel->solve.check_scans = options.trust_scans == 0;
  kernel->solve.repeat_bits = options.deterministic != 0;
  if (device == "cpu") host_vector_bits(kernel->compile.cpu);  // a processor that cannot be compiled for is refused now
  kernel->analysed = analyse_text(std::move(source), options.cell ? options.cell : "");
  kernel->hash = hash_of(kernel->analysed.source.text());
  if (options.absolute_tolerance) take_absolute_tolerances(options.absolute_tolerance, kernel->cell(), kernel->solve);
  if (options.plan)
    kernel->solve.plan = read_plan(options.plan, "options.plan", kernel->analysed.structure.stages.size());
  kernel->layout = call_layout(kernel->cell());
  kernel->forward = directed_call(kernel->cell(), kernel->layout, CallDirection::Forward);
  kernel->backward = directed_call(kernel->cell(), kernel->layout, CallDirection::Backward);
  kernel->tangent = directed_call(kernel->cell(), kernel->layout, CallDirection::Tangent);
  kernel->derivatives.emplace(kernel->cell(), kernel->backward, kernel->tangent, device != "cpu");
  kernel->least = least_lengths(kernel->cell());
  if (device == "cpu" && options.allocate_on_device)
    throw Misuse("options: allocate_on_device is for kernels of a GPU; on the CPU arrays are of `allocate`");
  if (device != "cpu") {
    if (options.cpu)
      throw Misuse(fmt::format("the kernel is for device '{}' and names a processor, '{}'", device, options.cpu));
    std::shared_ptr<Gpu> gpu = gpu_named(device, kernel->compile.cache_directory);
    if (options.allocate_on_device)
      gpu = std::make_shared<CallersDeviceMemory>(
          std::move(gpu), HostMemory{options.allocate_on_device, options.release_on_device, options.allocator});
    kernel->on_gpu.emplace(std::move(gpu), kernel->analysed, kernel->compile.dtype, kernel->solve);
  }
  return kernel;
}

template <typename Source>
cellc_status compiled(const void* text, cellc_kernel** kernel, const cellc_options* options, Source source) {
  return guarded([&] {
    if (!kernel) throw Misuse("the place for the kernel is a null pointer");
    *kernel = nullptr;
    if (!text) throw Misuse("the text or path is a null pointer");
    auto handle = std::make_unique<cellc_kernel>();
    handle->body = compile(source(), options);
    *kernel = handle.release();
  });
}

const char* inspected(cellc_kernel* handle, std::optional<std::string> CompiledCell::*kept,
                      std::string (*inspect)(CellGraph&, const Jacobian&, const Structure&, const SourceText&)) {
  const char* result = nullptr;
  guarded([&] {
    CompiledCell& kernel = opened(handle);
    const std::lock_guard lock(kernel.mutex);
    if (!(kernel.*kept)) {
      CellGraph cell = kernel.analysed.cell;  // printing adds nodes
      kernel.*kept = inspect(cell, kernel.analysed.jacobian, kernel.analysed.structure, kernel.analysed.source);
    }
    result = (kernel.*kept)->c_str();
  });
  return result;
}

}  // namespace

cellc_options read_options(const cellc_options* given) {
  return given ? sized(given, kDefaultOptions, kFirstOptions, "options") : kDefaultOptions;
}

std::unique_ptr<Solver> CompiledCell::take_solver() {
  {
    const std::lock_guard lock(mutex);
    if (!idle.empty()) {
      std::unique_ptr<Solver> solver = std::move(idle.back());
      idle.pop_back();
      return solver;
    }
  }
  return std::make_unique<Solver>(analysed.cell, analysed.structure, compile);
}

SolveOptions CompiledCell::solve_for(const Binding& binding) {
  SolveOptions result = solve;
  const CallSettings* const settings = call_settings();
  if (settings && settings->tolerance) result.tolerance = settings->tolerance;
  const bool free = solve.solver == Strategy::Auto && solve.plan.empty() && solve.repair && compile.cpu == "native" &&
                    solve.max_iterations == SolveOptions{}.max_iterations;
  if (!free || compile.cache_directory.empty()) return result;
  // What was measured holds for a tolerance and a number of threads.
  const std::string range = fmt::format("{};{};{}", shape_range(analysed.cell, analysed.structure, binding.run),
                                        binding.run.threads, result.tolerance.value_or(0));
  const std::lock_guard lock(mutex);
  const auto [entry, fresh] = tuned.try_emplace(range);
  if (fresh)
    if (const auto plan = TunedPlans(compile.cache_directory)
                              .find(tuned_for(analysed.cell, analysed.structure, binding, "cpu",
                                              cpu_and_threads(binding.run.threads), result.tolerance),
                                    analysed.structure.stages.size()))
      entry->second = plan->stages;
  result.plan = entry->second;
  return result;
}

const CompiledDriver& CompiledCell::own_driver(CallDirection direction, const CallShape& shape) {
  const bool backward = direction == CallDirection::Backward;
  // What a call never needs it does not compile.
  const bool side_by_side = may_lie_side_by_side(cell(), shape.lengths, shape.sequences, shape.rows);
  const std::lock_guard lock(mutex);
  const auto made = [&](bool with) -> std::shared_ptr<const CompiledDriver>& {
    std::shared_ptr<const CompiledDriver>& driver = drivers[{backward, with}];
    if (!driver)
      driver = std::make_shared<CompiledDriver>(backward ? compile_backward_driver(cell(), compile, with)
                                                         : compile_driver(cell(), analysed.structure, compile, with));
    return driver;
  };
  std::shared_ptr<const CompiledDriver>& driver = drivers[{backward, side_by_side}];
  if (!driver) driver = made(side_by_side && has_side_by_side(cell(), backward));
  return *driver;
}

void CompiledCell::trim() {
  std::vector<std::unique_ptr<Solver>> gone;
  {
    const std::lock_guard lock(mutex);
    gone.swap(idle);
  }
  derivatives->trim();
  if (on_gpu) on_gpu->trim();
}

void CompiledCell::give_solver(std::unique_ptr<Solver> solver) {
  const std::lock_guard lock(mutex);
  idle.push_back(std::move(solver));
}

cellc_dtype c_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::F64:
      return CELLC_F64;
    case Dtype::F16:
      return CELLC_F16;
    case Dtype::BF16:
      return CELLC_BF16;
    default:
      return CELLC_F32;
  }
}

cellc_layout c_layout(const CallField& field) {
  switch (field.traits().layout) {
    case FieldLayout::Once:
      return CELLC_ONCE;
    case FieldLayout::Rows:
      return CELLC_CONTIGUOUS;
    case FieldLayout::Sequences:
      return CELLC_SEQUENCES;
    case FieldLayout::History:
      return CELLC_HISTORY;
  }
  throw std::logic_error("no such layout of an array");
}

Shape read_shape(const CompiledCell& kernel, const cellc_shape* given) {
  const cellc_shape from = sized(given, kDefaultShape, sizeof(cellc_shape), "the shape");
  const Graph& graph = kernel.cell().graph;
  Shape shape;
  for (std::size_t a = 0; a < kernel.cell().header.size(); ++a) {
    const Axis& axis = graph.axis(kernel.cell().header[a]);
    if (!from.lengths && !axis.fixed)
      throw Misuse(fmt::format("the shape has no lengths; the cell leaves that of axis {} open", axis.name));
    const std::int64_t length = from.lengths ? from.lengths[a] : *axis.fixed;
    if (const std::int64_t least = kernel.least.at(kernel.cell().header[a]); length < least)
      throw Misuse(fmt::format("axis {} has length {}; expected {} or more", axis.name, length, least));
    if (axis.fixed && length != *axis.fixed)
      throw Misuse(fmt::format("axis {} has length {}; the cell fixes {}", axis.name, length, *axis.fixed));
    shape.lengths.push_back(length);
  }
  shape.sequences = from.sequences;
  shape.reverse = from.reverse != 0;
  if (shape.sequences < 0) throw Misuse(fmt::format("{} sequences: expected 0 or more", shape.sequences));
  if (from.offsets) {
    if (const auto fault = fault_of_offsets({from.offsets, static_cast<std::size_t>(shape.sequences) + 1}))
      throw Misuse(*fault);
    shape.offsets.assign(from.offsets, from.offsets + shape.sequences + 1);
    shape.rows = shape.offsets.back();
  } else {
    shape.steps = from.steps;
    if (shape.steps < 0) throw Misuse(fmt::format("{} steps: expected 0 or more", shape.steps));
    shape.rows = cellc_times(shape.sequences, shape.steps);
  }
  std::int64_t most = shape.rows;
  for (const CallField& field : kernel.layout.fields)
    most = std::max({most, part_entries(field, shape), all_entries(field, shape)});
  if (most >= CELLC_MOST_BYTES) throw Misuse("the shape is too large for any memory");
  return shape;
}

std::vector<Expected> expected_arrays(const CompiledCell& kernel, const Shape& shape) {
  std::vector<Expected> all;
  for (const CallField& field : kernel.layout.fields) {
    Expected e;
    e.field = &field;
    e.name = field.name.c_str();
    e.part = part_entries(field, shape);
    e.all = all_entries(field, shape);
    e.type = kernel.dtype_of(field);
    e.dtype = c_dtype(e.type);
    e.rows = field.is_rows();
    e.required = field.required() && (!e.rows || e.all > 0);
    all.push_back(e);
  }
  return all;
}

bool rows_fit(const cellc_array& a, std::int64_t part, const Shape& shape) {
  const std::int64_t steps = shape.packed() ? shape.rows : shape.steps,
                     sequences = shape.packed() ? 1 : shape.sequences;
  const cellc_strides full = cellc_strides_of({a.sequence_stride, a.step_stride}, part, steps, shape.packed());
  if (full.step < part || full.sequence < part) return false;
  const std::int64_t whole = cellc_times(full.step, steps), all = cellc_times(full.sequence, sequences);
  if (whole >= CELLC_MOST_BYTES || all >= CELLC_MOST_BYTES || (full.sequence < whole && full.step < all)) return false;
  return whole - full.step + all - full.sequence + part <= a.entries;
}

const char* name_of(cellc_dtype dtype) {
  switch (dtype) {
    case CELLC_F32:
      return "f32";
    case CELLC_F64:
      return "f64";
    case CELLC_F16:
      return "f16";
    case CELLC_BF16:
      return "bf16";
  }
  return "that there is none of";
}

namespace {

std::string what_is_wrong(const cellc_array& a, const Expected& e, const Shape& shape) {
  if (!a.data && e.field->kind == FieldKind::State)
    return "is a null pointer, but derivatives read every step of it: give the forward run an array for it, and keep "
           "that";
  if (!a.data) return "is a null pointer, but has no default";
  if (a.dtype != e.dtype) return fmt::format("has the dtype {}; expected {}", name_of(a.dtype), name_of(e.dtype));
  if (!e.rows) {
    if (a.step_stride != 0 || a.sequence_stride != 0) return "has strides; only rows have";
    return fmt::format("has {} entries; expected {} or more", a.entries, e.all);
  }
  return fmt::format(
      "has {} entries with strides {} (step) and {} (sequence); expected {} rows of {} entries that do not "
      "overlap and lie within it",
      a.entries, a.step_stride, a.sequence_stride, shape.rows, e.part);
}

/// Allocates; what is right does not come here.
cellc_status refused(const cellc_array& a, const Expected& e, const Shape& shape) {
  return guarded([&] { throw RequestError(fmt::format("array {}: {}", e.name, what_is_wrong(a, e, shape))); });
}

}  // namespace

bool is_as_expected(const cellc_array& a, const Expected& e, const Shape& shape) {
  if (!a.data) return !e.required;
  if (a.dtype != e.dtype) return false;
  if (a.step_stride == 0 && a.sequence_stride == 0) return a.entries >= e.all;
  return e.rows && (e.all == 0 || rows_fit(a, e.part, shape));
}

cellc_status check_count(std::size_t expected, const cellc_array* arrays, int count) {
  if (!arrays && count > 0) return failed(CELLC_WRONG_USAGE, "the arrays are a null pointer");
  if (static_cast<std::size_t>(count) != expected)
    return failed(CELLC_WRONG_USAGE,
                  "the number of arrays is not that of the kernel (cellc_array_count, cellc_call_array_count)");
  return CELLC_OK;
}

cellc_status check_arrays(const Shape& shape, const std::vector<Expected>& expected, const cellc_array* arrays,
                          int count) {
  if (const cellc_status wrong = check_count(expected.size(), arrays, count)) return wrong;
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!is_as_expected(arrays[i], expected[i], shape)) return refused(arrays[i], expected[i], shape);
  return CELLC_OK;
}

}  // namespace cellc::capi

using namespace cellc;
using namespace cellc::capi;

extern "C" {

// The functions of these names write the structs of the first version, whoever looked them up.
#undef cellc_options_init
#undef cellc_shape_init

void cellc_options_init_sized(cellc_options* options, size_t size) { initialise(options, kDefaultOptions, size); }
void cellc_shape_init_sized(cellc_shape* shape, size_t size) { initialise(shape, kDefaultShape, size); }
void cellc_options_init(cellc_options* options) { cellc_options_init_sized(options, kFirstOptions); }
void cellc_shape_init(cellc_shape* shape) { cellc_shape_init_sized(shape, sizeof *shape); }

cellc_status cellc_compile_text(const char* text, size_t length, const cellc_options* options, cellc_kernel** kernel) {
  return compiled(text, kernel, options, [&] {
    if (length > kMaxFileBytes)
      throw RequestError(fmt::format("the text has {} bytes; a cell file has at most {}", length, kMaxFileBytes));
    return SourceText("text", std::string(text, length));
  });
}

cellc_status cellc_compile_file(const char* path, const cellc_options* options, cellc_kernel** kernel) {
  return compiled(path, kernel, options, [&] { return read_text(path); });
}

void cellc_kernel_free(cellc_kernel* kernel) {
  if (!kernel) return;
  guarded([&] {
    if (!retire(kernel)) throw Misuse(kKernelFreed);
  });
}

cellc_status cellc_kernel_trim(cellc_kernel* kernel) {
  return guarded([&] { opened(kernel).trim(); });
}

const char* cellc_inspect_text(cellc_kernel* kernel) { return inspected(kernel, &CompiledCell::text, inspect_text); }
const char* cellc_inspect_json(cellc_kernel* kernel) { return inspected(kernel, &CompiledCell::json, inspect_json); }

int cellc_axis_count(const cellc_kernel* kernel) {
  return kernel && kernel->open ? static_cast<int>(kernel->body->cell().header.size()) : -1;
}
int cellc_array_count(const cellc_kernel* kernel) {
  return kernel && kernel->open ? static_cast<int>(kernel->body->layout.fields.size()) : -1;
}

cellc_status cellc_axis_describe(const cellc_kernel* kernel, int number, cellc_axis* axis) {
  return guarded([&] {
    const CellGraph& cell = opened(kernel).cell();
    if (!axis) throw Misuse("the axis is a null pointer");
    if (number < 0 || number >= cellc_axis_count(kernel))
      throw Misuse(fmt::format("there is no axis number {}", number));
    const Axis& from = cell.graph.axis(cell.header[static_cast<std::size_t>(number)]);
    *axis = {sizeof(cellc_axis), from.name.c_str(), from.fixed.value_or(-1)};
  });
}

cellc_status cellc_array_describe(const cellc_kernel* kernel, int number, cellc_array_info* info) {
  return guarded([&] {
    const CompiledCell& k = opened(kernel);
    if (!info) throw Misuse("the description is a null pointer");
    if (number < 0 || number >= cellc_array_count(kernel))
      throw Misuse(fmt::format("there is no array number {}", number));
    const auto i = static_cast<std::size_t>(number);
    const CallField& field = k.layout.fields[i];
    *info = {sizeof(cellc_array_info),
             field.name.c_str(),
             c_layout(field),
             c_dtype(k.dtype_of(field)),
             field.is_written(),
             field.required(),
             static_cast<int>(field.axes.size()),
             field.axes.data()};
  });
}

int cellc_axis_find(const cellc_kernel* kernel, const char* name) {
  if (!kernel || !kernel->open || !name) return -1;
  const CellGraph& cell = kernel->body->cell();
  for (std::size_t a = 0; a < cell.header.size(); ++a)
    if (cell.graph.axis(cell.header[a]).name == name) return static_cast<int>(a);
  return -1;
}

int cellc_array_find(const cellc_kernel* kernel, const char* name) {
  if (!kernel || !kernel->open || !name) return -1;
  const auto& fields = kernel->body->layout.fields;
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (fields[i].name == name) return static_cast<int>(i);
  return -1;
}

cellc_status cellc_array_entries(const cellc_kernel* kernel, const cellc_shape* shape, int number, int64_t* entries) {
  return guarded([&] {
    const CompiledCell& k = opened(kernel);
    if (!entries) throw Misuse("the place for the number is a null pointer");
    if (number < 0 || number >= cellc_array_count(kernel))
      throw Misuse(fmt::format("there is no array number {}", number));
    *entries = all_entries(k.layout.fields[static_cast<std::size_t>(number)], read_shape(k, shape));
  });
}

}  // extern "C"
