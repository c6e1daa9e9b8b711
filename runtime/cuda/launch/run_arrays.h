#pragma once
// The arrays of one run on a GPU: those that are copied there, those that are written there, and those that lie
// there already as the caller's own. It also hands them to the kernels of a run, of lanes and of whole steps.
// Memory is kept from run to run.
#include "compiler/derive/fused_reductions.h"
#include "compiler/derive/relaxed_cell.h"
#include "compiler/derive/stage_cells.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/launch/device_arrays.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/cuda/launch/stage_program.h"
#include "runtime/data/run.h"

namespace cellc {

struct CudaRunArrays {
  Gpu& gpu;
  const CellGraph& cell;
  const Dtype arithmetic;
  Dtype storage = Dtype::F32;  ///< on the device
  BoundRun bound;              ///< without data, but starts and shapes
  std::int64_t rows = 0, sequences = 0, longest = 0;
  bool uniform = true;
  DeviceArrays placed;  ///< what is the caller's

  /// `cell` must outlive it.
  CudaRunArrays(Gpu& gpu, const CellGraph& cell, Dtype arithmetic) : gpu(gpu), cell(cell), arithmetic(arithmetic) {}

  // To the device, in this order.

  /// The shape of a run. Nothing is the caller's any more.
  void begin(const BoundRun& run);
  /// What the run has data for, rows in `storage`.
  void copy_in(const BoundRun& run, Dtype storage);
  /// Memory for what is written and is not the caller's. `unwritten`: by update. `outs`: by out, those that are
  /// written. `drops`: memory of earlier runs, too, of what is not written now; no graph was captured with it.
  void reserve_written(const std::vector<bool>& unwritten, const std::vector<bool>& outs, bool drops);
  /// Memory for what stages read and the kernels before them write; null: that stage has neither.
  void reserve_between(const std::vector<const StageCells*>& stages);
  /// Memory for new values that are made again, by update, of all states of these stages; others are read where their
  /// trajectories are.
  void reserve_remade(const std::vector<bool>& updates, const std::vector<bool>& states);
  /// Memory for outs of `fixed`, sums that a stage reads and does not change, and of `mixing`, terms of a relaxed one.
  void reserve_fixed(int stage, const DerivedCell& fixed);
  void reserve_mixing(int stage, const DerivedCell& mixing);
  /// Memory for sums that lanes make, in arithmetic precision: of `summed` stages, in so many parts each, 0 for none.
  /// Those along the outermost channels are made in `outer_parts`, asked for once all that a stage reads has its place,
  /// and added up in the place of the first.
  void reserve_sums(const std::vector<std::optional<FusedStage>>& summed, const std::vector<int>& parts,
                    const std::function<std::int64_t(int)>& outer_parts);
  /// Memory for what lanes add up of an out, in so many parts.
  void reserve_accumulated(int out, std::int64_t parts);
  /// Memory for rows of these axes, in `storage`.
  void reserve_rows(GpuBuffer& buffer, const std::vector<AxisId>& axes);

  /// All memory goes back. No kernel may still run.
  void drop();

  // Where things lie.

  std::vector<std::int64_t> shape_of(std::int64_t first, const std::vector<AxisId>& axes) const;
  PlacedRows trajectory_of(int update) const;
  PlacedRows new_values_of(int update) const;  ///< as later stages read them: made again, or the trajectory
  GpuAddress final_of(std::size_t update) const {
    return placed.finals[update] ? placed.finals[update] : finals_[update].address();
  }
  GpuAddress out_of(std::size_t out) const { return placed.outs[out] ? placed.outs[out] : outs_[out].address(); }

  std::size_t bytes_of_rows(const std::vector<AxisId>& axes) const;
  GpuAddress offsets() const { return offsets_.address(); }  ///< int64 [N+1]
  /// Where those cells write them.
  std::vector<GpuAddress> fixed_sums(int stage, const DerivedCell& fixed) const;
  std::vector<GpuAddress> mixing_terms(int stage, const DerivedCell& mixing) const;

  /// What lanes have added up of an out: [parts, a…].
  struct Accumulated {
    GpuBuffer buffer;
    std::int64_t parts = 0;
  };
  std::size_t accumulated_bytes(int out) const;
  const Accumulated& accumulated(int out) const { return accumulated_[static_cast<std::size_t>(out)]; }

  // As kernels are given them.

  /// Every array of the cell.
  NestRun whole_run() const;
  /// A cell without states over `sources`; what it writes is left to the caller. `k`: the stage that it
  /// belongs to.
  NestRun rows_run(const std::vector<ArraySource>& sources, int k) const;
  NestRun once_run(const StageCells& stage, int k) const;
  NestRun before_run(const StageCells& stage, int k) const;
  NestRun after_run(const DerivedCell& after) const;
  NestRun remade_run(const DerivedCell& pass, int k) const;
  /// The stage's lanes over single steps, each from the states before it: these new values are made again.
  StageRun single_steps(const StageCells& stage, int k, const std::vector<int>& updates) const;
  StageRun stage_run(const StageCells& stage, int k) const;

  // And back.

  Array fetch_trajectory(std::size_t update, GpuStream stream) const;
  Array fetch_rows(GpuAddress from, const std::vector<AxisId>& axes, GpuStream stream) const;
  /// All that was written and is wanted, in `dtype`.
  RunOutput download(Dtype dtype, const Wanted& wanted, GpuStream stream) const;

 private:
  std::int64_t entries(const std::vector<AxisId>& axes) const;
  void reserve(GpuBuffer& buffer, std::size_t bytes) const;
  void reserve_outs(std::vector<std::vector<GpuBuffer>>& of, int stage, const DerivedCell& derived);
  void put(GpuBuffer& buffer, const Array& array, Dtype as) const;
  Array fetch(GpuAddress from, Dtype type, const std::vector<std::int64_t>& shape, GpuStream stream) const;
  PlacedRows rows_of(const PlacedRows& given, const GpuBuffer& own, const std::vector<AxisId>& axes) const;
  PlacedRows input_rows_of(int symbol) const;
  GpuAddress value_of(int symbol) const {
    return placed.values[symbol] ? placed.values[symbol] : symbols_[symbol].address();
  }
  PlacedRows rows_of_line(int symbol) const;
  /// An input, param or start as row kernels read it.
  NestArray input_rows(int symbol) const;
  NestRun empty_run() const;
  DeviceArray device_array(GpuAddress data, const std::vector<AxisId>& axes) const;

  std::vector<GpuBuffer> symbols_, histories_, trajectories_, finals_, outs_, remade_, befores_;
  std::vector<bool> is_remade_;  ///< by update
  std::vector<std::vector<GpuBuffer>> before_, once_, sums_, mixing_;
  std::vector<Accumulated> accumulated_;  ///< by out
  std::vector<GpuAddress> parts_;         ///< of sums, as `after` numbers them
  GpuBuffer offsets_;
};

}  // namespace cellc
