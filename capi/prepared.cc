// Prepared calls: of the driver on a CPU, of a pool of workspaces on a GPU.
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <new>
#include <optional>

#include "capi/by_sequence.h"
#include "capi/call_settings.h"
#include "capi/gpu_call.h"
#include "capi/guard.h"
#include "capi/kernel.h"
#include "capi/report.h"
#include "capi/verification.h"
#include "capi/views.h"

namespace cellc::capi {
namespace {

/// Memory of one call of the driver at a time: its workspace, and the struct of arrays before it.
using Scratch = std::uint64_t*;
constexpr std::size_t kScratchAlignment = 64;

constexpr const char* kNoWorkspace =
    "the call is of a kernel of a GPU, where a workspace holds what one run leaves for the next: compile the kernel "
    "with "
    "options.allocate_on_device, and all of it is the caller's memory";

/// Where an array stands in the driver's struct of arrays, and what it is if it has no gaps: little, as short calls are
/// mostly this.
struct Place {
  std::int64_t entries;
  int word;
  cellc_dtype dtype;
  bool rows, required;
};

/// All that a call needs but its pointers. Not written after it was made, apart from the pool.
struct PreparedCall {
  std::shared_ptr<CompiledCell> kernel;
  std::shared_ptr<CallPool> on_gpu;        ///< else null, and all but shape and expected is of the CPU's driver
  const CompiledDriver* driver = nullptr;  ///< of the kernel
  const DirectedCall* directed = nullptr;  ///< of the kernel; whose arrays the call takes
  Shape shape;
  std::vector<Expected> expected;
  std::vector<Place> places;           ///< by array
  int count = 0;                       ///< of arrays, on a CPU
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

  /// Memory that a call has taken, and the place that is kept for it meanwhile; null: there was none left.
  struct Taken {
    Scratch scratch;
    std::atomic<Scratch>* place;
  };
  /// What fills the place of what was taken, so that giving it back is a store: one locked instruction a call, not two.
  static Scratch in_use() {
    alignas(8) static std::uint64_t mark;
    return &mark;
  }
  static bool is_memory(Scratch scratch) { return scratch && scratch != in_use(); }

  Taken take() {
    for (auto& place : idle) {
      if (!is_memory(place.load(std::memory_order_relaxed))) continue;
      const Scratch scratch = place.exchange(in_use(), std::memory_order_acquire);
      if (is_memory(scratch)) return {scratch, &place};
      if (!scratch) return fill(&place);  // was freed since; else another call was faster, and its mark is as it was
    }
    return take_place();
  }
  /// Of as many calls at once as never before.
  Taken take_place() {
    for (auto& place : idle) {
      Scratch none = nullptr;
      if (place.compare_exchange_strong(none, in_use(), std::memory_order_relaxed)) return fill(&place);
    }
    return fill(nullptr);
  }
  Taken fill(std::atomic<Scratch>* place) const {
    const Scratch scratch = allocate();
    if (!scratch && place) place->store(nullptr, std::memory_order_relaxed);
    return {scratch, place};
  }
  void give(const Taken& taken) {
    if (taken.place)
      taken.place->store(taken.scratch, std::memory_order_release);
    else
      free(taken.scratch);
  }
  void trim() {
    for (auto& place : idle) {
      Scratch scratch = place.load(std::memory_order_relaxed);
      if (is_memory(scratch) && place.compare_exchange_strong(scratch, nullptr, std::memory_order_acquire))
        free(scratch);
    }
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

/// Writes the struct of arrays. False: some array is not right.
bool place(const PreparedCall& call, const cellc_array* arrays, Scratch scratch) {
  const Place* const first = call.places.data();
  for (const Place *at = first, *end = first + call.places.size(); at != end; ++at, ++arrays) {
    const Place p = *at;
    const cellc_array& a = *arrays;
    const bool usual =
        a.data ? a.dtype == p.dtype && a.entries >= p.entries && (a.step_stride | a.sequence_stride) == 0 : !p.required;
    if (!usual && !is_as_expected(a, call.expected[static_cast<std::size_t>(at - first)], call.shape)) return false;
    std::uint64_t* const words = scratch + p.word;
    words[0] = std::bit_cast<std::uint64_t>(a.data);
    if (!p.rows) continue;
    words[1] = static_cast<std::uint64_t>(a.sequence_stride);
    words[2] = static_cast<std::uint64_t>(a.step_stride);
  }
  return true;
}

/// A run of the driver, of as many arrays as it has.
inline cellc_status run_in(const PreparedCall& call, const cellc_array* arrays, Scratch scratch) {
  if (!place(call, arrays, scratch))
    return check_arrays(call.shape, call.expected, arrays, static_cast<int>(call.expected.size()));
  const int result =
      call.driver->forward(call.lengths.data(), scratch, scratch + call.array_words, call.workspace_bytes, nullptr);
  if (result == 0) return CELLC_OK;
  return guarded([&] { throw Misuse(call.driver->message(result)); });
}

/// The driver's lengths and workspace for the call's shape.
void make_ready(PreparedCall& call) {
  const CompiledCell& k = *call.kernel;
  const CallLayout& layout = call.driver->module.layout;
  for (std::size_t i = 0; i < call.expected.size(); ++i) {
    const Expected& e = call.expected[i];
    call.places.push_back({e.all, layout.fields[i].word, e.dtype, e.rows, e.required});
  }
  for (std::size_t a = 0; a < k.cell().header.size(); ++a)
    if (!k.cell().graph.axis(k.cell().header[a]).fixed)
      call.lengths.push_back(static_cast<std::uint64_t>(call.shape.lengths[a]));
  call.count = static_cast<int>(call.places.size());
  call.lengths.push_back(static_cast<std::uint64_t>(call.shape.sequences));
  call.lengths.push_back(static_cast<std::uint64_t>(call.shape.steps));
  call.lengths.push_back(call.shape.packed() ? std::bit_cast<std::uint64_t>(call.shape.offsets.data()) : 0);
  call.lengths.push_back(call.shape.reverse);
  if (const int wrong = call.driver->workspace(call.lengths.data(), &call.workspace_bytes))
    throw Misuse(call.driver->message(wrong));
  call.array_words = (static_cast<std::size_t>(layout.words) + 7) / 8 * 8;
  const PreparedCall::Taken first = call.take();
  if (!first.scratch) throw std::bad_alloc();
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

/// Runs a call on views, by `run` on arrays.
template <typename Run>
cellc_status on_views(const PreparedCall& call, const cellc_view* arrays, int count, Run run) {
  thread_local ViewedArrays views;  // keeps its room from call to call
  // But no copies, which may be memory of the caller's allocator: also where it is refused.
  const struct Clear {
    ~Clear() { views.clear(); }
  } clear{};
  const CompiledCell& k = *call.kernel;
  const UseHostMemory memory(k.own_memory());
  views.read(*call.directed, call.shape, k.compile.dtype, arrays, count, call.on_gpu ? Views::OnGpu : Views::OnHost);
  const UseDeviceViews use_views(views);
  const cellc_status status = run(views.arrays());
  if (status == CELLC_OK || status == CELLC_NOT_CONVERGED) views.write_back();
  return status;
}

cellc_shape c_shape(const Shape& shape) {
  cellc_shape made;
  cellc_shape_init(&made);
  made.lengths = shape.lengths.data();
  made.sequences = shape.sequences;
  made.steps = shape.steps;
  made.offsets = shape.packed() ? shape.offsets.data() : nullptr;
  made.reverse = shape.reverse;
  return made;
}

/// A run of the driver, and what there is to say of it. `statuses`: by sequence, or null.
cellc_status run_reported(cellc_call* handle, const cellc_array* arrays, int count, std::int32_t* statuses,
                          cellc_report* report, bool verify) {
  const PreparedCall& call = *handle->body;
  std::optional<Verification> verification;
  if (verify) {
    if (const cellc_status wrong = check_arrays(call.shape, call.expected, arrays, count)) return wrong;
    check_verifiable(report);
    verification.emplace(*call.kernel, call.shape, call.expected, arrays);
  }
  const Clock::time_point start = Clock::now();
  const cellc_status status = cellc_run(handle, arrays, count);
  const double run_ms = since(start);
  if (status == CELLC_OK) fill_status(statuses, {}, call.shape);
  if (!report || status != CELLC_OK) return status;
  fill_of_driver(*report, *call.kernel, *call.driver, call.directed->direction, call.shape, run_ms);
  find_non_finite(*report, *call.directed, call.kernel->compile.dtype, call.shape, arrays);
  if (verification) report->verified = verification->error();
  return status;
}

cellc_status apply_prepared(cellc_call* handle, const cellc_request& r) {
  PreparedCall& call = *handle->body;
  CompiledCell& k = *call.kernel;
  check_report(r.report);
  if (!call.on_gpu && r.on_stream && r.stream) throw Misuse(kNoStreams);
  const CallDirection direction = call.directed->direction;
  const bool by_sequence = has_params_by_sequence(*call.directed, r);
  std::optional<CallSettings> settings;
  // On a GPU a call goes as its kernel does; with options in the kernel's workspaces in the place of its own.
  if (r.options || (by_sequence && !call.on_gpu)) {
    settings.emplace(read_call_options(r.options), k, direction == CallDirection::Forward, r.report);
    if (!call.on_gpu) settings->go_step_by_step();
  }
  if (by_sequence || (settings && !settings->by_driver) || (call.on_gpu && r.on_host)) {
    cellc_kernel kernel{true, call.kernel};  // whose own handle may have been freed
    const cellc_shape shape = c_shape(call.shape);
    cellc_request whole = r;
    whole.shape = &shape;
    whole.direction = direction == CallDirection::Forward ? CELLC_FORWARD : CELLC_BACKWARD;
    if (call.on_gpu && !r.on_stream) whole.on_stream = 1, whole.stream = nullptr;
    return apply(&kernel, whole, settings ? &*settings : nullptr);
  }
  if (call.on_gpu)
    return on_views(call, r.arrays, r.count, [&](const cellc_array* arrays) {
      return cellc_run_on(handle, arrays, r.count, r.on_stream ? r.stream : nullptr, r.status, r.report);
    });
  if (direction != CallDirection::Forward) check_converged(r.forward_status, call.shape);
  return on_views(call, r.arrays, r.count, [&](const cellc_array* arrays) {
    return run_reported(handle, arrays, r.count, r.on_stream || r.on_host ? r.status : nullptr, r.report,
                        settings && settings->verify);
  });
}

}  // namespace
}  // namespace cellc::capi

extern "C" {

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
    call->driver = &k.own_driver(CallDirection::Forward, call->shape);
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
    try {
      call->driver = &k.own_driver(CallDirection::Backward, call->shape);
    } catch (const std::invalid_argument& e) {
      throw Misuse(e.what());
    }
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
  if (!call.on_gpu && stream) return failed(CELLC_WRONG_USAGE, kNoStreams);
  if (!call.on_gpu) {
    cellc_status ran = CELLC_OK;
    const cellc_status outcome = guarded([&] {
      check_report(report);
      ran = run_reported(handle, arrays, count, status, report, false);
    });
    return outcome == CELLC_OK ? ran : outcome;
  }
  if (const cellc_status wrong = check_arrays(call.shape, call.expected, arrays, count)) return wrong;
  bool converged = true;
  const cellc_status outcome = guarded([&] {
    check_report(report);
    converged = run_on_gpu(*call.kernel, call.on_gpu, call.shape, call.expected, arrays, stream, status, report);
  });
  return outcome != CELLC_OK || converged ? outcome : failed(CELLC_NOT_CONVERGED, kNotAllConverged);
}

cellc_status cellc_run(cellc_call* handle, const cellc_array* arrays, int count) {
  const cellc_status unusable = check_call(handle);
  if (unusable != CELLC_OK) return unusable;
  PreparedCall& call = *handle->body;
  if (call.on_gpu) return cellc_run_on(handle, arrays, count, nullptr, nullptr, nullptr);
  if (!arrays || count != call.count)
    if (const cellc_status wrong = check_count(call.expected.size(), arrays, count)) return wrong;
  const PreparedCall::Taken taken = call.take();
  if (!taken.scratch) return failed(CELLC_DEVICE_FAILED, "out of memory for a workspace");
  const cellc_status status = run_in(call, arrays, taken.scratch);
  call.give(taken);
  return status;
}

cellc_status cellc_run_views(cellc_call* handle, const cellc_view* arrays, int count) {
  const cellc_status unusable = check_call(handle);
  if (unusable != CELLC_OK) return unusable;
  cellc_status status = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    status = on_views(*handle->body, arrays, count,
                      [&](const cellc_array* as_arrays) { return cellc_run(handle, as_arrays, count); });
  });
  return outcome == CELLC_OK ? status : outcome;
}

cellc_status cellc_apply_prepared(cellc_call* handle, const cellc_request* request) {
  const cellc_status unusable = check_call(handle);
  if (unusable != CELLC_OK) return unusable;
  cellc_status status = CELLC_OK;
  const cellc_status outcome = guarded([&] {
    const cellc_request r = sized(request, cellc_request{}, offsetof(cellc_request, options), "the request");
    status = apply_prepared(handle, r);
  });
  return outcome == CELLC_OK ? status : outcome;
}

cellc_status cellc_call_workspace(cellc_call* handle, int64_t* bytes) {
  const cellc_status unusable = check_call(handle);
  if (unusable != CELLC_OK) return unusable;
  if (!bytes) return failed(CELLC_WRONG_USAGE, "the place for the number is a null pointer");
  PreparedCall& call = *handle->body;
  *bytes = call.on_gpu ? call.on_gpu->held_bytes() : static_cast<std::int64_t>(call.bytes());
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
  if (const cellc_status wrong = check_count(call.expected.size(), arrays, count)) return wrong;
  return run_in(call, arrays, static_cast<Scratch>(workspace));
}

cellc_status cellc_call_trim(cellc_call* call) {
  if (const cellc_status unusable = check_call(call)) return unusable;
  return guarded([&] {
    if (call->body->on_gpu)
      call->body->on_gpu->trim();
    else
      call->body->trim();
  });
}

void cellc_call_free(cellc_call* call) {
  if (!call) return;
  guarded([&] {
    if (!retire(call)) throw Misuse(kCallFreed);
  });
}

}  // extern "C"
