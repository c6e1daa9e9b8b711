#pragma once
// Gradients on a GPU: the adjoint cell through CudaSolver, rows of other steps and params' sums by kernels of their own
// (kernels-templates/gradient). Everything is queued on one stream; nothing returns to the host to decide.
#include <memory>
#include <vector>

#include "kernels-templates/gradient/gradient_arguments.cuh"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/launch/step_sums.h"
#include "runtime/gradient/adjoint_run.h"

namespace cellc {

/// Addresses on the device. Arrays have no gaps and are in arithmetic precision: f64 for f64 storage, else f32.
struct BackwardArrays {
  std::vector<GpuAddress> symbols;               ///< by symbol, as the forward run had them: inputs, params, starts
  std::vector<GpuAddress> histories;             ///< by symbol: of lagged inputs
  std::vector<GpuAddress> trajectories;          ///< by update: what the forward run wrote
  std::vector<GpuAddress> states, finals, outs;  ///< cotangents, by update and by out; of finals 0: zeros
  /// By symbol; 0: memory of its own. Companions of lagged states have the gradient of their start like any state.
  std::vector<GpuAddress> gradients, history_gradients;
};

class BackwardOnGpu {
 public:
  /// `adjoint` must outlive it. `arithmetic`: F32 or F64.
  BackwardOnGpu(Gpu& gpu, const CellGraph& cell, const AdjointRun& adjoint, Dtype arithmetic,
                const DeriveHooks& derive = {});

  /// For forward runs of this shape: sizes, offsets, reverse, and shapes of histories are read, no data. Nothing is
  /// relaxed then: whoever asks for that has it forward.
  void prepare(const BoundRun& forward, const SolveOptions& options) { prepare(forward, options, false, {}); }
  void place(const BackwardArrays& arrays);
  /// Queues everything; waits for nothing, but for iterations where upload() brought a run that is relaxed, and
  /// allocates nothing once it has run.
  void launch(GpuStream stream);
  void report(SolveReport& report, GpuStream stream) { solver_.report(report, stream); }
  /// After launch() of what upload() brought: the report of it; what relaxation left off is launched again step by
  /// step. Waits.
  void settle(SolveReport& report);

  GpuAddress gradient(int symbol) const;
  /// Of a lagged input or a delay line.
  GpuAddress history_gradient(int symbol) const;

  /// From host arrays to host arrays. Throws as CudaSolver::run.
  Gradients run(const BoundRun& forward, const RunOutput& output, const Cotangents& cotangents,
                const SolveOptions& options, SolveReport& report);
  // The same in parts, for whoever times or repeats it.
  void upload(const BoundRun& forward, const RunOutput& output, const Cotangents& cotangents,
              const SolveOptions& options);
  Gradients download(const BoundRun& forward);
  /// Why stage `stage` of the adjoint does not admit `strategy`; nullopt where it does.
  std::optional<std::string> refusal(int stage, Strategy strategy, const BoundRun& forward) {
    return solver_.refusal(stage, strategy, forward, true);
  }
  double run_ms() const { return run_ms_; }  ///< of run(): the device's part

 private:
  void prepare(const BoundRun& forward, const SolveOptions& options, bool waits, const std::string& unrelaxed);
  AccumulatedOuts summands() const;
  bool assigned_by_sum(int symbol) const;
  bool reads_in_place(std::size_t symbol) const;
  void sum_over_steps(GpuStream stream);
  std::int64_t entries(const std::vector<AxisId>& axes) const;
  GpuAddress reserve(GpuBuffer& buffer, std::int64_t count);
  std::int64_t gradient_entries(const Symbol& symbol) const;
  std::int64_t history_entries(std::size_t symbol) const;
  void reserve_gradients();
  GpuAddress cotangent(std::size_t symbol, GpuAddress data, std::int64_t count);
  void scale(const char* kernel, GpuAddress from, GpuAddress to, std::int64_t count, bool inverse, GpuStream stream);
  bool multiplies() const;
  void scale_cotangents(GpuStream stream);
  void scale_gradients(GpuStream stream);
  bool left_the_range(GpuStream stream);
  RowsOfRun rows_of_run() const;
  LaggedRows lagged(std::size_t number) const;  ///< its shape, without arrays
  void shift_rows(GpuStream stream);
  void add_lagged(GpuStream stream);
  void add_under_way(
      GpuStream stream);  ///< to histories: what delay lines would have brought to steps before the first

  Gpu& gpu_;
  const CellGraph& cell_;
  const AdjointRun& adjoint_;
  GradientKernels kernels_;
  CudaSolver solver_;
  BoundRun shape_;  ///< of the forward run
  SolveOptions options_;
  bool uniform_ = true;
  bool scales_ = false;  ///< products are of f16, so cotangents are scaled into its range
  bool left_ = false;    ///< which a run left all the same: later ones multiply by TF32
  struct Scaled {
    GpuAddress from, to;
    std::int64_t count;
  };
  std::vector<Scaled> scaled_;             ///< cotangents
  std::vector<GpuBuffer> scaled_buffers_;  ///< by symbol of the adjoint
  GpuBuffer found_;                        ///< words of scaled_cotangents.cuh
  BackwardArrays placed_;
  std::vector<GpuAddress> placed_inputs_, placed_outs_, placed_starts_;  ///< of the adjoint; its states come first
  std::vector<bool> in_place_;  ///< by symbol of the adjoint: the trajectory itself is read, one step later
  std::vector<GpuBuffer> uploaded_;
  GpuBuffer offsets_;
  std::vector<GpuBuffer>
      shifted_;  ///< by symbol of the adjoint: states before each step, earlier steps of inputs; zeros
  std::vector<GpuBuffer> starts_;  ///< by update: zeros, where finals have no cotangent
  std::vector<GpuBuffer> outs_;    ///< by out of the adjoint: factors and lagged gradients
  std::vector<GpuBuffer> gradients_, history_gradients_;
  struct Sum {
    std::int64_t rows = 0;  ///< that it was made for
    std::unique_ptr<StepSumOnGpu> on_gpu;
  };
  std::vector<std::vector<Sum>> sums_;  ///< by param gradient and product
  double run_ms_ = 0;
};

}  // namespace cellc
