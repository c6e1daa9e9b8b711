#pragma once
// Runs whole steps of a cell on a GPU: cells whose entries are coupled too widely for one thread, and the
// cells without states that a stage needs before, after and beside it. The CUDA counterpart of Program;
// compiler/codegen_cuda/emit_cuda_nests.h emits what it runs.
//
// A run is the plan's once kernel and then, for each window of time, the plan's phases. All of it is
// queued on one stream, and nothing waits for the device. Scratch memory is kept: a repeated call of the
// same shape allocates nothing. So two runs of one program must not overlap on different streams.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/codegen_cuda/emit_cuda_nests.h"
#include "compiler/graph/graph.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/data/array.h"
#include "runtime/data/errors.h"
#include "runtime/data/object_cache.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class SourceText;

struct NestOptions {
  /// Arrays held in arithmetic precision although storage is 16 bits wide: inputs by symbol, histories of
  /// inputs by symbol, states by position, outs by out. Empty: none.
  std::vector<char> wide_inputs{}, wide_histories{}, wide_states{}, wide_outs{};
  const SourceText* source = nullptr;  ///< text that spans point into, for #line; needed while compiling only
  std::int64_t chunk_bytes = 0;        ///< memory for hoisted products; 0: a share of the card's
  ProductFactors factors = ProductFactors::Tf32x3;
  WideProducts wide = WideProducts::WherePaid;
  std::function<void(const GpuModule&)> compiled{};  ///< hears of code that a run is the first to need
  std::vector<PersistentCode> persistent{};          ///< kernels that live through all steps (choose_persistent.h)
};

/// An array of the run on the device.
struct NestArray {
  GpuAddress data = 0;
  std::int64_t row_stride = -1;  ///< inputs: entries from row to row; -1: rows lie without gaps
  GpuAddress history = 0;        ///< lagged inputs: [N, depth, a…], entry j is j+1 steps before the start
  std::int64_t history_depth = 0;
};

/// One run, in the layout of BoundRun, on the device. Params, starts and finals are in arithmetic
/// precision; inputs, histories, states and outs in the storage dtype unless NestOptions says else.
struct NestRun {
  std::map<AxisId, std::int64_t> sizes;  ///< by header axis
  std::vector<NestArray> symbols;        ///< by symbol: input, param, or state start (null: zeros)
  std::vector<GpuAddress> states;  ///< by position in updates: [rows, a…], written; null where needs_rows() says no
  std::vector<GpuAddress> finals;  ///< by position: [N, a…], written; the start's own memory will do
  std::vector<GpuAddress> outs;    ///< by out: [rows, a…], written
  std::vector<std::int64_t> offsets;  ///< N+1 row offsets of the sequences …
  GpuAddress device_offsets = 0;      ///< … and the same numbers on the device
  bool reverse = false;
};

/// Of a cell whose rows are stored so.
ProductFactors product_factors(Products products, Dtype storage);

/// How plans are made of what runs so on a GPU.
PlanOptions plan_options(const CellGraph& cell, Dtype storage, ProductFactors factors);

class NestProgram {
 public:
  /// Emits and compiles. `dtype` is the storage. Throws DeviceError, RequestError.
  static NestProgram compile(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                             const NestOptions& options = {});
  ~NestProgram();
  NestProgram(NestProgram&&) noexcept;

  /// Queues the run. Throws RequestError where an array is missing, DeviceError.
  void run(const NestRun& run, GpuStream stream);

  /// Of a cell without states, the same in windows of `steps` of every sequence: what all of them need first, and then
  /// each by the number of its first step. `counted`: a number on the device that is added to that (int64); 0: none.
  /// Windows allocate nothing and compile nothing, so that they may be captured.
  void prepare_windows(const NestRun& run, std::int64_t steps, GpuStream stream);
  void run_window(const NestRun& run, std::int64_t steps, std::int64_t begin, GpuAddress counted, GpuStream stream);
  GpuAddress memory() const;  ///< of its own, which a captured window has the address of
  /// Kernels that a window takes.
  static int kernels_of_window(const CellGraph& cell, Dtype dtype);

  /// Whether a state's rows must have memory: not where only the kernel that has the state writes them.
  bool needs_rows(int update) const;

  /// Clusters or groups of its persistent kernels that the card holds at once, at least; 0: none, so it cannot run.
  int resident_clusters() const;

  double compile_ms() const;
  CacheState cache() const;
  const GpuSource& source() const;  ///< what was compiled

  /// The source alone, for whoever wants to read or keep it.
  static GpuSource emit(const CellGraph& cell, const Structure& structure, Dtype dtype,
                        const NestOptions& options = {});

 private:
  struct Impl;
  explicit NestProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cellc
