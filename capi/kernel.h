#pragma once
// What the handles of the C API stand for. Private to capi/.
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "capi/cellc.h"
#include "capi/derivatives.h"
#include "capi/guard.h"
#include "capi/on_gpu.h"
#include "compiler/front_end.h"
#include "runtime/build/compile_driver.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/bind.h"
#include "runtime/data/host_memory.h"

namespace cellc::capi {

/// Shared by a kernel's handle and its prepared calls, so that either may be freed first. Does not move.
struct CompiledCell {
  AnalysedCell analysed;
  CompileOptions compile;
  std::string device;
  cellc_options options;  ///< as given; what they point at is in `texts`
  std::list<std::string> texts{};
  std::optional<HostMemory> memory{};  ///< for arrays, where the caller has its own
  std::string hash{};
  SolveOptions solve;
  int threads = 0;
  CallLayout layout;
  DirectedCall forward, backward, tangent;
  std::map<AxisId, std::int64_t> least;  ///< lengths of header axes

  std::optional<Derivatives> derivatives;  ///< guards itself
  std::optional<GpuKernel> on_gpu;         ///< unless it runs on the CPU

  std::mutex mutex;                                     ///< guards what follows
  std::vector<std::unique_ptr<Solver>> idle;            ///< one for each call that was under way at a time
  std::map<std::string, std::vector<StagePlan>> tuned;  ///< by shape_range(), threads, tolerance; empty: none
  /// Of prepared calls: whether it is of a backward call, whether it has code for sequences side by side, too.
  std::map<std::pair<bool, bool>, std::shared_ptr<const CompiledDriver>> drivers;
  std::optional<std::string> text, json;
  std::map<int, std::string> declarations;  ///< by symbol

  /// The default of a symbol that has one, as text. Valid as long as this.
  const char* declared(int symbol);

  /// Null: that of the C library.
  const HostMemory* own_memory() const { return memory ? &*memory : nullptr; }
  /// Of prepared calls of this shape, compiled by the first of them. As long as this lives. Of a backward call it
  /// throws what compile_backward_driver does.
  const CompiledDriver& own_driver(CallDirection direction, const CallShape& shape);
  /// Frees what nobody uses now.
  void trim();

  /// A solver that nobody else uses meanwhile. Another one compiles once more, in the place of waiting.
  std::unique_ptr<Solver> take_solver();
  void give_solver(std::unique_ptr<Solver> solver);
  /// How a run goes: as was asked for, by the plan that `cellc tune` found where the choice is ours.
  SolveOptions solve_for(const Binding& binding);

  const CellGraph& cell() const { return analysed.cell; }
  const DirectedCall& call(CallDirection direction) const {
    return direction == CallDirection::Forward ? forward : direction == CallDirection::Backward ? backward : tangent;
  }
  Dtype dtype_of(const CallField& field) const { return cellc::dtype_of(field.kind, compile.dtype); }
};

// Structs of callers, as this version has them.
cellc_options read_options(const cellc_options* given);

/// A shape that was found right.
using Shape = CallShape;
Shape read_shape(const CompiledCell& kernel, const cellc_shape* shape);

/// What an array of a call must be. Field and name are the kernel's.
struct Expected {
  const CallField* field = nullptr;  ///< that it is, or that it is a derivative of
  const char* name = "";
  std::int64_t part = 0, all = 0;
  Dtype type = Dtype::F32;
  cellc_dtype dtype = CELLC_F32;
  bool rows = false, required = false, derivative = false;
};
/// Of a forward call.
std::vector<Expected> expected_arrays(const CompiledCell& kernel, const Shape& shape);
/// Throws nothing. Whether there are as many arrays as that.
cellc_status check_count(std::size_t expected, const cellc_array* arrays, int count);
/// The same, and whether all arrays are so; otherwise the thread's last error says which is not. Does not allocate
/// where all is right.
cellc_status check_arrays(const Shape& shape, const std::vector<Expected>& expected, const cellc_array* arrays,
                          int count);
/// Whether a single one is so.
bool is_as_expected(const cellc_array& array, const Expected& expected, const Shape& shape);

/// `read`: the call reads the value, where it reads it at all.
inline bool is_required(const DirectedField& field, bool read) {
  return field.absent == FieldAbsent::Nothing &&
         (read || (field.of.kind != FieldKind::Input && field.of.kind != FieldKind::State));
}

CallDirection direction_named(cellc_direction direction);
/// Rows of `part` entries lie within the array and none upon another: sequences one after another, or side by side.
bool rows_fit(const cellc_array& a, std::int64_t part, const Shape& shape);

cellc_dtype c_dtype(Dtype dtype);
const char* name_of(cellc_dtype dtype);
cellc_layout c_layout(const CallField& field);

}  // namespace cellc::capi

struct cellc_kernel {
  bool open = true;  ///< was not freed
  std::shared_ptr<cellc::capi::CompiledCell> body{};
};

namespace cellc::capi {

/// Throws Misuse for null, and for one that was freed.
inline CompiledCell& opened(const cellc_kernel* kernel) {
  if (!kernel) throw Misuse("the kernel is a null pointer");
  if (!kernel->open) throw Misuse(kKernelFreed);
  return *kernel->body;
}

/// Frees what a handle holds; false: it was freed before. The handle stays for a while, empty, so that whoever uses it
/// or frees it again is refused.
template <typename Handle>
bool retire(Handle* handle) {
  static std::mutex mutex;
  static auto& kept = *new std::deque<std::unique_ptr<Handle>>;  // outlives handles that static destructors free
  constexpr std::size_t kKept = 1024;
  {
    const std::lock_guard lock(mutex);
    if (!handle->open) return false;
    handle->open = false;
  }
  handle->body.reset();  // may take its time, and call the caller's allocator
  const std::lock_guard lock(mutex);
  kept.emplace_back(handle);
  if (kept.size() > kKept) kept.pop_front();
  return true;
}

}  // namespace cellc::capi
