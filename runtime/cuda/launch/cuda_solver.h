#pragma once
// Runs a cell over whole sequences on a GPU, stage after stage, and checks the answers there: the CUDA
// counterpart of Solver. Stages whose lanes fit a thread run by their strategies (stage_program). What
// lies before, between and after them runs as kernels of loop nests (nest_program). A cell with a stage that
// couples too much for one thread runs as such kernels altogether.
#include <memory>
#include <optional>

#include "compiler/analysis/structure.h"
#include "compiler/derive/fused_outs.h"
#include "compiler/syntax/source.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/launch/device_arrays.h"
#include "runtime/data/run.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class CudaSolver {
 public:
  /// `cell`, `structure` and `source` (null: no #line) must outlive it. `outs_in_lanes`: calls whose arrays all lie on
  /// the device may have outs made by lanes, and those that are named added up instead of written. Compiles nothing
  /// yet.
  CudaSolver(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
             const SourceText* source = nullptr, const DeriveHooks& derive = {},
             const std::optional<AccumulatedOuts>& outs_in_lanes = std::nullopt);
  ~CudaSolver();
  CudaSolver(CudaSolver&&) noexcept;

  /// Of derivatives: the same bits in every run, as SolveOptions::repeat_bits has it of others. Of an adjoint
  /// (`outs_in_lanes`) that goes without saying. Before all else.
  void repeat_bits();

  /// From host arrays to host arrays: upload, launch, report, download. Throws as Solver::run. What is timed
  /// is the device's part.
  RunOutput run(const BoundRun& run, const SolveOptions& options, SolveReport& report);

  // The same in parts, for whoever times or repeats a run. Inputs of `run` without data are given by place().
  void upload(const BoundRun& run, const SolveOptions& options);
  /// An input that is on the device already: rows at data + row*row_stride entries, of storage(). After
  /// upload.
  void place(int symbol, GpuAddress data, std::int64_t row_stride);
  /// For arrays that all lie on the device: shapes and the depth of histories are read, no data. What place_all()
  /// leaves out is the solver's own. Nobody looks at the whole step afterwards, so a stage that later ones read is
  /// then run in a way that leaves no residual.
  /// `waits`: of whoever launches and then waits, so that stages may be relaxed; `unrelaxed`: why none is any more.
  void prepare(const BoundRun& shape, const SolveOptions& options, bool waits = false,
               const std::string& unrelaxed = {});
  void place_all(const DeviceArrays& arrays);
  /// Storage on the device, after prepare: arithmetic precision where several kernels read what others wrote.
  Dtype storage() const;
  /// Whether rows of this symbol, an input or a state, are read or written by lanes alone, so that any strides will do.
  bool any_strides(int symbol) const;
  /// Whether an input may be placed with PlacedRows::last: nobody but lanes reads it, by the plan of prepare().
  bool shifts(int symbol) const;
  /// Whether finals may be written while starts are still read.
  bool overlaps_starts() const;
  /// By stage of a run without repair, the first bad step of each sequence, ~0 for none, in 64 bits.
  std::vector<GpuAddress> first_bad_steps() const;
  /// Other options for what upload() brought; what report() saw since counts. Whether the plan is another one now.
  bool replan(const SolveOptions& options);
  /// Of the plan as it is: the cell goes step by step; some stage is relaxed. Only run() relaxes unasked, since only it
  /// goes step by step where that does not converge.
  bool runs_stepwise() const;
  /// Whether what upload() brought is as this plan wants it; else it must be brought again.
  bool is_stored_as_planned() const;
  bool relaxes() const;
  /// Where a state is written: [rows, a…]; its final.
  GpuAddress trajectory(int update) const;
  GpuAddress final_state(int update) const;
  /// The rows of a state, as the last run wrote them.
  PlacedRows written_rows(int update) const;
  /// Queues everything; waits for nothing, and allocates nothing once it has run.
  void launch(GpuStream stream);
  /// Whether an out is added up by the plan of prepare(), so that no memory for its rows is needed.
  bool adds_up(int out) const;
  /// What was launched has left of it: [parts, a…], to be summed over parts.
  struct Parts {
    GpuAddress data = 0;
    std::int64_t parts = 0;
  };
  Parts parts_of(int out) const;
  void report(SolveReport& report, GpuStream stream);
  /// After report(), of a run with relaxed stages all of whose trajectories are the solver's own: whole steps, where a
  /// later stage may have amplified what such a stage left. Waits.
  void look_at_whole_steps(SolveReport& report, GpuStream stream);
  RunOutput download(GpuStream stream);

  /// `waits`: as prepare() has it.
  std::optional<std::string> refusal(int stage, Strategy strategy, const BoundRun& run, bool waits = false);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cellc
