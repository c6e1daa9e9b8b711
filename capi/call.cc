// Whole sequences by the solver, and prepared calls of the driver.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <new>
#include <optional>

#include "capi/call_settings.h"
#include "capi/guard.h"
#include "capi/host_arrays.h"
#include "capi/kernel.h"
#include "capi/views.h"
#include "runtime/evaluate/reference.h"

namespace cellc::capi {
namespace {

/// Memory of one call of the driver at a time: its workspace, and the struct of arrays before it.
using Scratch = std::uint64_t*;
constexpr std::size_t kScratchAlignment = 64;

constexpr const char* kNoWorkspace = "the call is of a kernel of a GPU, which keeps its workspaces there";
constexpr const char* kNotAllConverged = "some sequences have not converged, and repair is switched off";

/// A run on a GPU, on the caller's memory and stream. Whether all is well, as far as anyone waited to see.
bool run_on_gpu(GpuKernel& kernel, const CompiledCell& cell, CallPool& pool, const Shape& shape,
                const cellc_array* arrays, void* stream, std::int32_t* status, cellc_report* report) {
  thread_local std::vector<CallArray> places;  // a repeated call allocates nothing
  places.clear();
  for (std::size_t i = 0; i < cell.layout.fields.size(); ++i)
    places.push_back({std::bit_cast<GpuAddress>(arrays[i].data), arrays[i].sequence_stride, arrays[i].step_stride});
  const auto on_device = std::bit_cast<GpuAddress>(status);
  check_on_device(kernel.gpu(), cell.forward, shape, cell.compile.dtype, places, on_device);
  const auto on = std::bit_cast<GpuStream>(stream);
  if (!report) {
    pool.run(places, on, on_device, nullptr);
    return true;
  }
  SolveReport solved;
  const auto start = std::chrono::steady_clock::now();
  pool.run(places, on, on_device, &solved);
  fill(*report, solved, shape,
       std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  return solved.converged || cell.solve.repair;
}

/// A run by the solver on the caller's memory.
class ForwardCall {
 public:
  ForwardCall(CompiledCell& kernel, const Shape& shape, const std::vector<Expected>& expected,
              const cellc_array* arrays)
      : kernel_(kernel), cell_(kernel.cell()), shape_(shape), arrays_(kernel, shape, expected, arrays) {}

  void operator()(cellc_report* report) {
    Binding binding = arrays_.bound().binding;
    binding.run.wanted = arrays_.wanted();
    RunOutput reuse = outputs();
    SolveReport solved;
    const CallSettings* const settings = call_settings();
    const SolveOptions solve = settings && !settings->as_kernel ? settings->solve : kernel_.solve_for(binding);
    std::unique_ptr<Solver> solver = kernel_.take_solver();
    const RunOutput output = solver->run(binding.run, solve, solved, std::move(reuse));
    kernel_.give_solver(std::move(solver));
    if (report) fill(*report, solved, shape_, output.run_ms);
    if (settings && settings->verify) {
      if (!report || report->size <= offsetof(cellc_report, verified))
        throw Misuse("verify: there is no report that says what was found");
      report->verified = compare(cell_, binding.run, output, reference_run(cell_, binding.run)).error;
    }
    write(binding, output);
    converged = solved.converged || (solve.repair && !solve.fixed_iterations);
  }

  bool converged = false;

 private:
  /// The caller's memory to be written in place, where it can be. Finals are copied: they may be the starts.
  RunOutput outputs() const {
    RunOutput output;
    const auto rows = [&](FieldKind kind, int id) {
      const CallField* field = kernel_.layout.find(kind, id);
      if (!field) return Array();  // a lagged copy
      const auto i = static_cast<std::size_t>(field - kernel_.layout.fields.data());
      return arrays_.is_given(i) && arrays_.is_dense(i) ? arrays_.rows(i) : Array();
    };
    for (const StateUpdate& u : cell_.updates) output.states.push_back(rows(FieldKind::State, u.symbol));
    for (int o = 0; o < static_cast<int>(cell_.outs.size()); ++o) output.outs.push_back(rows(FieldKind::Out, o));
    return output;
  }

  void write(const Binding& binding, const RunOutput& output) const {
    const auto written = written_arrays(cell_, binding, output);
    for (std::size_t i = 0; i < kernel_.layout.fields.size(); ++i) {
      const CallField& field = kernel_.layout.fields[i];
      if (!field.is_written() || !arrays_.is_given(i)) continue;
      const auto found =
          std::find_if(written.begin(), written.end(), [&](const auto& w) { return w.first == field.file; });
      if (found == written.end()) throw std::logic_error("no result is called " + field.file);
      arrays_.put(i, found->second);
    }
  }

  CompiledCell& kernel_;
  const CellGraph& cell_;
  const Shape& shape_;
  const HostArrays arrays_;
};

/// All that a call needs but its pointers. Not written after it was made, apart from the pool.
struct PreparedCall {
  std::shared_ptr<CompiledCell> kernel;
  std::shared_ptr<CallPool> on_gpu;        ///< else null, and all but shape and expected is of the CPU's driver
  const CompiledDriver* driver = nullptr;  ///< of the kernel
  const DirectedCall* directed = nullptr;  ///< of the kernel; whose arrays the call takes
  Shape shape;
  std::vector<Expected> expected;
  std::vector<int> words;              ///< by array: where it stands in the struct of arrays
  std::vector<std::uint64_t> lengths;  ///< the driver's struct of lengths
  std::int64_t workspace_bytes = 0;
  std::size_t array_words = 0;                  ///< the workspace begins after so many words of the scratch
  std::array<std::atomic<Scratch>, 64> idle{};  ///< what earlier calls left for later ones

  std::size_t bytes() const { return array_words * 8 + static_cast<std::size_t>(workspace_bytes); }
  Scratch allocate() const {
    if (const HostMemory* own = kernel->own_memory())
      return static_cast<Scratch>(own->allocate(own->context, bytes(), kScratchAlignment));
    return static_cast<Scratch>(::operator new(bytes(), std::align_val_t(kScratchAlignment), std::nothrow));
  }
  void free(Scratch scratch) const {
    if (const HostMemory* own = kernel->own_memory()) return own->release(own->context, scratch, bytes());
    ::operator delete(scratch, std::align_val_t(kScratchAlignment));
  }

  Scratch take() {
    for (auto& place : idle)
      if (place.load(std::memory_order_relaxed))
        if (Scratch scratch = place.exchange(nullptr, std::memory_order_acquire)) return scratch;
    return allocate();
  }
  void give(Scratch scratch) {
    for (auto& place : idle) {
      Scratch none = nullptr;
      if (!place.load(std::memory_order_relaxed) &&
          place.compare_exchange_strong(none, scratch, std::memory_order_release, std::memory_order_relaxed))
        return;
    }
    free(scratch);
  }
  void trim() {
    for (auto& place : idle)
      if (Scratch scratch = place.exchange(nullptr, std::memory_order_acquire)) free(scratch);
  }
  ~PreparedCall() { trim(); }
};

}  // namespace
}  // namespace cellc::capi

using namespace cellc;
using namespace cellc::capi;

struct cellc_call {
  bool open = true;  ///< was not freed
  std::optional<PreparedCall> body{std::in_place};
};

namespace cellc::capi {
namespace {

cellc_status check_call(const cellc_call* call) {
  if (!call) return failed(CELLC_WRONG_USAGE, "the call is a null pointer");
  return call->open ? CELLC_OK : failed(CELLC_WRONG_USAGE, kCallFreed);
}

/// A run of the driver on arrays that are right.
cellc_status run_in(const PreparedCall& call, const cellc_array* arrays, Scratch scratch) {
  for (std::size_t i = 0; i < call.words.size(); ++i) {
    const int word = call.words[i];
    scratch[word] = std::bit_cast<std::uint64_t>(arrays[i].data);
    if (!call.expected[i].rows) continue;
    scratch[word + 1] = static_cast<std::uint64_t>(arrays[i].sequence_stride);
    scratch[word + 2] = static_cast<std::uint64_t>(arrays[i].step_stride);
  }
  const int result =
      call.driver->forward(call.lengths.data(), scratch, scratch + call.array_words, call.workspace_bytes, nullptr);
  if (result == 0) return CELLC_OK;
  return guarded([&] { throw Misuse(call.driver->message(result)); });
}

/// The driver's lengths and workspace for the call's shape.
void make_ready(PreparedCall& call) {
  const CompiledCell& k = *call.kernel;
  const CallLayout& layout = call.driver->module.layout;
  for (const CallField& field : layout.fields) call.words.push_back(field.word);
  for (std::size_t a = 0; a < k.cell().header.size(); ++a)
    if (!k.cell().graph.axis(k.cell().header[a]).fixed)
      call.lengths.push_back(static_cast<std::uint64_t>(call.shape.lengths[a]));
  call.lengths.push_back(static_cast<std::uint64_t>(call.shape.sequences));
  call.lengths.push_back(static_cast<std::uint64_t>(call.shape.steps));
  call.lengths.push_back(call.shape.packed() ? std::bit_cast<std::uint64_t>(call.shape.offsets.data()) : 0);
  call.lengths.push_back(call.shape.reverse);
  if (const int wrong = call.driver->workspace(call.lengths.data(), &call.workspace_bytes))
    throw Misuse(call.driver->message(wrong));
  call.array_words = (static_cast<std::size_t>(layout.words) + 7) / 8 * 8;
  const Scratch first = call.allocate();
  if (!first) throw std::bad_alloc();
  call.give(first);
}

/// What a backward call of the driver takes. Everything with a default is given, as in shipped code.
std::vector<Expected> expected_by_driver(const CompiledCell& k, const PreparedCall& call) {
  std::vector<Expected> all;
  for (std::size_t i = 0; i < call.directed->fields.size(); ++i) {
    const CallField& field = call.driver->module.layout.fields[i];
    Expected e;
    e.field = &field;
    e.name = call.directed->fields[i].name.c_str();
    e.part = part_entries(field, call.shape);
    e.all = all_entries(field, call.shape);
    e.type = dtype_of(call.directed->fields[i], k.compile.dtype);
    e.dtype = c_dtype(e.type);
    e.rows = field.is_rows();
    e.required = field.required() && (!e.rows || e.all > 0);
    all.push_back(e);
  }
  return all;
}

}  // namespace
}  // namespace cellc::capi

extern "C" {

cellc_status cellc_forward(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                           cellc_report* report) {
  if (kernel && kernel->open && kernel->body->on_gpu)
    return cellc_forward_on(kernel, shape, arrays, count, nullptr, nullptr, report);
  cellc_status status = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    CompiledCell& k = opened(kernel);
    const UseHostMemory memory(k.own_memory());
    check_report(report);
    const Shape found = read_shape(k, shape);
    const std::vector<Expected> expected = expected_arrays(k, found);
    status = check_arrays(found, expected, arrays, count);
    if (status != CELLC_OK) return;
    ForwardCall call(k, found, expected, arrays);
    call(report);
    if (!call.converged) status = failed(CELLC_NOT_CONVERGED, kNotAllConverged);
  });
  return outcome == CELLC_OK ? status : outcome;
}

cellc_status cellc_forward_on(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays, int count,
                              void* stream, int32_t* status, cellc_report* report) {
  cellc_status result = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    CompiledCell& k = opened(kernel);
    check_report(report);
    if (!k.on_gpu) throw Misuse(kNoStreams);
    const Shape found = read_shape(k, shape);
    result = check_arrays(found, expected_arrays(k, found), arrays, count);
    if (result != CELLC_OK) return;
    if (!run_on_gpu(*k.on_gpu, k, *k.on_gpu->kept(found), found, arrays, stream, status, report))
      result = failed(CELLC_NOT_CONVERGED, kNotAllConverged);
  });
  return outcome == CELLC_OK ? result : outcome;
}

cellc_status cellc_prepare(cellc_kernel* kernel, const cellc_shape* given, cellc_call** result) {
  return guarded([&] {
    if (!result) throw Misuse("the place for the call is a null pointer");
    *result = nullptr;
    CompiledCell& k = opened(kernel);
    auto handle = std::make_unique<cellc_call>();
    PreparedCall* const call = &*handle->body;
    call->kernel = kernel->body;
    call->shape = read_shape(k, given);
    call->expected = expected_arrays(k, call->shape);
    call->directed = &k.forward;
    if (k.on_gpu) {
      call->on_gpu = k.on_gpu->prepare(call->shape);
      *result = handle.release();
      return;
    }
    call->driver = &k.own_driver();
    make_ready(*call);
    *result = handle.release();
  });
}

cellc_status cellc_prepare_backward(cellc_kernel* kernel, const cellc_shape* given, cellc_call** result) {
  return guarded([&] {
    if (!result) throw Misuse("the place for the call is a null pointer");
    *result = nullptr;
    CompiledCell& k = opened(kernel);
    if (k.on_gpu) throw Misuse("on a GPU cellc_backward_on keeps what its calls need; nothing is to be prepared");
    auto handle = std::make_unique<cellc_call>();
    PreparedCall* const call = &*handle->body;
    call->kernel = kernel->body;
    call->shape = read_shape(k, given);
    call->directed = &k.call(CallDirection::Backward);
    {
      const std::lock_guard lock(k.mutex);
      try {
        if (!k.backward_driver) k.backward_driver.emplace(compile_backward_driver(k.cell(), k.compile));
      } catch (const std::invalid_argument& e) {
        throw Misuse(e.what());
      }
    }
    call->driver = &*k.backward_driver;
    call->expected = expected_by_driver(k, *call);
    make_ready(*call);
    *result = handle.release();
  });
}

cellc_status cellc_run_on(cellc_call* handle, const cellc_array* arrays, int count, void* stream, int32_t* status,
                          cellc_report* report) {
  const cellc_status unusable = check_call(handle);
  if (unusable != CELLC_OK) return unusable;
  PreparedCall& call = *handle->body;
  if (!call.on_gpu) return failed(CELLC_WRONG_USAGE, kNoStreams);
  if (const cellc_status wrong = check_arrays(call.shape, call.expected, arrays, count)) return wrong;
  bool converged = true;
  const cellc_status outcome = guarded([&] {
    check_report(report);
    converged =
        run_on_gpu(*call.kernel->on_gpu, *call.kernel, *call.on_gpu, call.shape, arrays, stream, status, report);
  });
  return outcome != CELLC_OK || converged ? outcome : failed(CELLC_NOT_CONVERGED, kNotAllConverged);
}

cellc_status cellc_run(cellc_call* handle, const cellc_array* arrays, int count) {
  const cellc_status unusable = check_call(handle);
  if (unusable != CELLC_OK) return unusable;
  PreparedCall& call = *handle->body;
  if (call.on_gpu) return cellc_run_on(handle, arrays, count, nullptr, nullptr, nullptr);
  if (const cellc_status wrong = check_arrays(call.shape, call.expected, arrays, count)) return wrong;
  const Scratch scratch = call.take();
  if (!scratch) return failed(CELLC_DEVICE_FAILED, "out of memory for a workspace");
  const cellc_status status = run_in(call, arrays, scratch);
  call.give(scratch);
  return status;
}

cellc_status cellc_run_views(cellc_call* handle, const cellc_view* arrays, int count) {
  const cellc_status unusable = check_call(handle);
  if (unusable != CELLC_OK) return unusable;
  const PreparedCall& call = *handle->body;
  thread_local ViewedArrays views;  // keeps its room from call to call
  cellc_status status = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    const CompiledCell& k = *call.kernel;
    const UseHostMemory memory(k.own_memory());
    views.read(*call.directed, call.shape, k.compile.dtype, arrays, count, call.on_gpu != nullptr);
    status = cellc_run(handle, views.arrays(), views.count());
    if (status == CELLC_OK) views.write_back();
    views.clear();
  });
  return outcome == CELLC_OK ? status : outcome;
}

cellc_status cellc_call_workspace(cellc_call* handle, int64_t* bytes) {
  const cellc_status unusable = check_call(handle);
  if (unusable != CELLC_OK) return unusable;
  if (!bytes) return failed(CELLC_WRONG_USAGE, "the place for the number is a null pointer");
  if (handle->body->on_gpu) return failed(CELLC_WRONG_USAGE, kNoWorkspace);
  *bytes = static_cast<std::int64_t>(handle->body->bytes());
  return CELLC_OK;
}

cellc_status cellc_run_in(cellc_call* handle, const cellc_array* arrays, int count, void* workspace, int64_t bytes) {
  const cellc_status unusable = check_call(handle);
  if (unusable != CELLC_OK) return unusable;
  PreparedCall& call = *handle->body;
  if (call.on_gpu) return failed(CELLC_WRONG_USAGE, kNoWorkspace);
  if (!workspace || bytes < static_cast<std::int64_t>(call.bytes()) ||
      std::bit_cast<std::uintptr_t>(workspace) % kScratchAlignment != 0)
    return failed(CELLC_WRONG_USAGE,
                  "the workspace is null, less than cellc_call_workspace says, or not aligned to 64");
  if (const cellc_status wrong = check_arrays(call.shape, call.expected, arrays, count)) return wrong;
  return run_in(call, arrays, static_cast<Scratch>(workspace));
}

cellc_status cellc_call_trim(cellc_call* call) {
  const cellc_status unusable = check_call(call);
  if (unusable == CELLC_OK) call->body->trim();
  return unusable;
}

void cellc_call_free(cellc_call* call) {
  if (!call) return;
  guarded([&] {
    if (!retire(call)) throw Misuse(kCallFreed);
  });
}

}  // extern "C"
