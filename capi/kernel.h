#pragma once
// What the handles of the C API stand for. Private to capi/.
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "capi/cellc.h"
#include "capi/on_gpu.h"
#include "compiler/front_end.h"
#include "runtime/build/compile_driver.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/bind.h"

namespace cellc::capi {

/// Shared by a kernel's handle and its prepared calls, so that either may be freed first. Does not move.
struct CompiledCell {
  AnalysedCell analysed;
  CompileOptions compile;
  SolveOptions solve;
  int threads = 0;
  CallLayout layout;
  std::map<AxisId, std::int64_t> least;  ///< lengths of header axes

  std::optional<GpuKernel> on_gpu;  ///< unless it runs on the CPU

  std::mutex mutex;                                     ///< guards what follows
  std::vector<std::unique_ptr<Solver>> idle;            ///< one for each call that was under way at a time
  std::map<std::string, std::vector<StagePlan>> tuned;  ///< by shape_range(); empty: nothing was measured
  std::optional<CompiledDriver> driver;
  std::optional<std::string> text, json;

  /// A solver that nobody else uses meanwhile. Another one compiles once more, in the place of waiting.
  std::unique_ptr<Solver> take_solver();
  void give_solver(std::unique_ptr<Solver> solver);
  /// How a run goes: as was asked for, by the plan that `cellc tune` found where the choice is ours.
  SolveOptions solve_for(const Binding& binding);

  const CellGraph& cell() const { return analysed.cell; }
  Dtype dtype_of(const CallField& field) const { return cellc::dtype_of(field.kind, compile.dtype); }
};

/// A shape that was found right.
using Shape = CallShape;
Shape read_shape(const CompiledCell& kernel, const cellc_shape* shape);

/// What an array of a call must be.
struct Expected {
  std::int64_t part = 0, all = 0;
  cellc_dtype dtype = CELLC_F32;
  bool rows = false, required = false;
};
std::vector<Expected> expected_arrays(const CompiledCell& kernel, const Shape& shape);
/// Throws nothing. Whether all arrays are so; otherwise the thread's last error says which is not. Does not allocate
/// where all is right.
cellc_status check_arrays(const CompiledCell& kernel, const Shape& shape, const std::vector<Expected>& expected,
                          const cellc_array* arrays, int count);

cellc_dtype c_dtype(Dtype dtype);

}  // namespace cellc::capi

struct cellc_kernel {
  std::shared_ptr<cellc::capi::CompiledCell> kernel;
};
