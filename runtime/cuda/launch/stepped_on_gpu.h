#pragma once
// A stage whose every step is some kernels of their own: products of all sequences by the matrices of params, on tensor
// cores as --products says, and what is left of the step, nest by nest. For stages whose weights fit no block, cluster
// or group of the card, and for cards that have no clusters: the whole card then reads the weights once a step, and not
// each sequence's block for itself (choose_stepped.h decides).
//
// A window of steps is captured as a graph once, and launched again and again: the steps before it are counted on the
// device. Where a caller captures the stream, or the device captures nothing, kernels are queued one by one. Nothing
// waits for the device.
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "compiler/derive/pipeline.h"
#include "runtime/cuda/launch/choose_stepped.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/cuda/launch/run_arrays.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class SteppedOnGpu {
 public:
  /// Compiles nothing yet. What is referred to must outlive it. `arithmetic`: of all rows.
  SteppedOnGpu(Gpu& gpu, const CellGraph& cell, const Structure& structure, int stage, Dtype arithmetic,
               const SourceText* source, const DeriveHooks& derive);
  ~SteppedOnGpu();

  /// What a step takes, for choose_stepped.
  SteppedStage costs(const std::map<AxisId, std::int64_t>& sizes);

  /// Memory for what the stage passes on; the graphs of earlier runs stay as they are.
  void reserve(CudaRunArrays& arrays) const { arrays.reserve_fixed(stage_, cells_.fixed); }
  /// Writes the stage's trajectories and finals, from stages before it that are whole. Throws DeviceError.
  void run(const CudaRunArrays& arrays, ProductFactors factors, WideProducts wide, GpuStream stream);

  /// Whether one of its cells reads rows of this symbol, an input or a state.
  bool reads(int symbol) const;

  double compile_ms() const { return compile_ms_; }
  const std::vector<CacheState>& caches() const { return caches_; }

 private:
  /// A window that was captured, and everything that its launches have as their arguments.
  struct Window {
    std::vector<std::uint64_t> of;
    GpuGraph graph = 0;
    GpuFence done = 0;
  };
  NestProgram& program(std::optional<NestProgram>& program, const DerivedCell& cell);
  NestRun one_step(const CudaRunArrays& arrays) const;
  void count_steps(std::int64_t from, std::int64_t add, GpuStream stream);
  void write_finals(const CudaRunArrays& arrays, GpuStream stream);
  void launch(const char* kernel, std::int64_t threads, void* argument, std::size_t bytes, GpuStream stream);
  void forget_programs();
  Window* window_of(const NestRun& run, std::int64_t steps);

  Gpu& gpu_;
  const CellGraph& cell_;
  const std::vector<int>& states_;
  const int stage_;
  const SteppedCell cells_;
  const Plan plan_;  ///< of a step
  const Dtype arithmetic_;
  const SourceText* source_;
  int kernels_ = 0;  ///< of a step, once costs() has asked
  ProductFactors factors_ = ProductFactors::Tf32x3;
  WideProducts wide_ = WideProducts::WherePaid;
  std::optional<NestProgram> fixed_, step_;
  GpuModule beside_;  ///< step_windows.cuh
  std::map<std::string, GpuFunction> kernels_beside_;
  GpuBuffer counted_;
  GpuStream capturing_ = 0;  ///< a stream of our own
  std::list<Window> windows_;
  double compile_ms_ = 0;
  std::vector<CacheState> caches_;
};

/// Those of a cell, made when they are first asked for.
class SteppedStages {
 public:
  SteppedStages(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype arithmetic, const SourceText* source,
                const DeriveHooks& derive)
      : gpu_(gpu), cell_(cell), structure_(structure), arithmetic_(arithmetic), source_(source), derive_(derive) {}

  SteppedOnGpu& of(std::size_t stage);
  const SteppedOnGpu* made(std::size_t stage) const;  ///< null: nobody has asked for it
  double compile_ms() const;
  std::vector<CacheState> caches() const;

 private:
  Gpu& gpu_;
  const CellGraph& cell_;
  const Structure& structure_;
  const Dtype arithmetic_;
  const SourceText* source_;
  const DeriveHooks& derive_;
  std::map<std::size_t, std::unique_ptr<SteppedOnGpu>> made_;
};

}  // namespace cellc
