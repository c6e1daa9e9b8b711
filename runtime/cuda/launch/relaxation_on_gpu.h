#pragma once
// Waveform relaxation of one stage on a GPU: the counterpart of runtime/cpu/relax_stage.h. The mixing terms of all
// steps are products of the last iterate (on tensor cores, as --products says); what is left is a cell of channels,
// which a solver of its own runs; again until nothing moves. Differences and residuals are made on the device, and one
// number a turn comes back: so whoever runs it waits, and calls that must not wait do not have it.
//
// It saves the order of steps: a step of an LSTM of 768 units costs microseconds whatever else the card does, and an
// iteration takes all of them at once. It needs a cell that contracts, as freshly initialised ones do (docs/notes/
// persistent.md has when which is faster).
#include <memory>
#include <optional>
#include <vector>

#include "compiler/derive/pipeline.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/cuda/launch/plan_execution.h"
#include "runtime/cuda/launch/run_arrays.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class RelaxationOnGpu {
 public:
  /// Compiles nothing yet. What is referred to must outlive it. `arithmetic`: of all rows. nullptr: the stage has no
  /// mixing terms.
  static std::unique_ptr<RelaxationOnGpu> make(Gpu& gpu, const CellGraph& cell, const Structure& structure, int stage,
                                               Dtype arithmetic, const SourceText* source, const DeriveHooks& derive);
  ~RelaxationOnGpu();

  /// Writes the stage's trajectories and finals, from stages before it that are whole. `factors`: of products over all
  /// steps. `worth`: iterations after which something else is faster; 0: whatever it takes. Waits for the device.
  /// Throws DeviceError.
  void run(CudaRunArrays& arrays, ProductFactors factors, const SolveOptions& options, double tolerance, int worth,
           GpuStream stream);

  /// Multiplications of a row's mixing terms that are products over all steps.
  double product_entries(const std::map<AxisId, std::int64_t>& sizes) const;

  /// Of the last run, but for its plan.
  const StageReport& report() const { return report_; }
  const std::vector<Unconverged>& unconverged() const { return unconverged_; }

  double compile_ms() const { return compile_ms_ + inner_report_.compile_ms; }
  std::vector<CacheState> caches() const;

 private:
  /// What products of some factors are compiled to.
  struct ProductPrograms {
    std::optional<NestProgram> fixed, mixing, step;
  };
  RelaxationOnGpu(Gpu& gpu, const CellGraph& cell, const std::vector<int>& states, int stage, RelaxedCell relaxed,
                  Dtype arithmetic, const SourceText* source, const DeriveHooks& derive);
  NestProgram& program(std::optional<NestProgram>& program, const DerivedCell& cell, ProductFactors factors);
  ProductPrograms& products() { return factors_ == asked_ ? coarse_ : fine_; }
  bool refine(CudaRunArrays& arrays, GpuStream stream);
  void make_fixed_sums(CudaRunArrays& arrays, GpuStream stream);
  void prepare_inner(const CudaRunArrays& arrays, double tolerance, bool repeats);
  void place_inner(const CudaRunArrays& arrays, const std::vector<GpuAddress>& into);
  void place_first_finals(const CudaRunArrays& arrays, GpuStream stream);
  NestRun reading(const CudaRunArrays& arrays, const DerivedCell& cell, const std::vector<GpuAddress>& iterate) const;
  void start_difference(GpuStream stream);
  void difference(const char* measure, const CudaRunArrays& arrays, int state, GpuAddress from, GpuAddress to,
                  double absolute, GpuStream stream);
  double largest_difference(GpuStream stream);
  double change(const CudaRunArrays& arrays, const std::vector<GpuAddress>& from, const std::vector<GpuAddress>& to,
                GpuStream stream);
  double check(CudaRunArrays& arrays, const std::vector<GpuAddress>& iterate, const SolveOptions& options,
               double tolerance, GpuStream stream);

  Gpu& gpu_;
  const CellGraph& cell_;
  const std::vector<int>& states_;
  const int stage_;
  RelaxedCell relaxed_;
  const Structure structure_;  ///< of what is left
  const Plan mixing_plan_;
  const Dtype arithmetic_;
  const SourceText* source_;
  CudaSolver inner_;
  ProductFactors asked_ = ProductFactors::Tf32x3, factors_ = asked_;  ///< of a run, and of its iteration
  WideProducts wide_ = WideProducts::WherePaid;
  std::optional<NestProgram> first_mixing_;  ///< by TF32, while iterates still move far
  ProductPrograms coarse_, fine_;            ///< by what was asked for, and by what goes on where that stalls
  std::vector<GpuBuffer> others_, made_;     ///< by state: the other iterate; f of an iterate
  GpuBuffer most_, sizes_;                   ///< of row_differences.cuh
  GpuModule differences_;
  std::map<std::string, GpuFunction> kernels_;
  StageReport report_;
  SolveReport inner_report_;
  std::vector<Unconverged> unconverged_;
  double compile_ms_ = 0;
  std::vector<CacheState> caches_;
};

/// Those of a cell, made when they are first asked for.
class Relaxations {
 public:
  Relaxations(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype arithmetic, const SourceText* source,
              const DeriveHooks& derive)
      : gpu_(gpu), cell_(cell), structure_(structure), arithmetic_(arithmetic), source_(source), derive_(derive) {}

  /// nullptr: the stage has nothing to relax.
  RelaxationOnGpu* of(std::size_t stage);
  /// Iterations that are worth trying without being asked to, where stages that no thread can hold go step by step
  /// otherwise; 0: none (choose_relaxation.h).
  int worth(const ExecutionRequest& request, const CudaRunArrays& arrays, ProductFactors factors);
  double compile_ms() const;
  std::vector<CacheState> caches() const;
  /// Their memory goes back. Waits for the device.
  void drop();

 private:
  Gpu& gpu_;
  const CellGraph& cell_;
  const Structure& structure_;
  const Dtype arithmetic_;
  const SourceText* source_;
  const DeriveHooks& derive_;
  std::map<std::size_t, std::unique_ptr<RelaxationOnGpu>> made_;
  double dropped_ms_ = 0;  ///< of those that are there no more; what the caches had for them
  std::vector<CacheState> dropped_;
};

}  // namespace cellc
