#pragma once
// What a backward or tangent call reads of a forward run, on the device: rows without gaps in arithmetic precision,
// defaults, and the trajectories of copies that lag a state, which are made of the state's own.
#include <map>
#include <span>
#include <vector>

#include "compiler/plan/call_directions.h"
#include "kernels-templates/gradient/gradient_arguments.cuh"
#include "runtime/cuda/call/absent_arrays.h"
#include "runtime/cuda/call/call_gpu.h"
#include "runtime/cuda/call/line_histories.h"
#include "runtime/cuda/launch/step_sums.h"
#include "runtime/cuda/launch/strided_copy.h"
#include "runtime/data/call_shape.h"
#include "runtime/data/run.h"

namespace cellc {

class DerivativeValues {
 public:
  /// All must outlive it. Made in a rehearsal.
  DerivativeValues(CallGpu& gpu, const CellGraph& cell, const DirectedCall& call, const CallShape& shape, Dtype dtype,
                   const std::vector<bool>& reads);

  /// Queues what has to be moved. The addresses below hold from then on, until the next time.
  void place(std::span<const CallArray> arrays, GpuStream stream);
  std::vector<GpuAddress> symbols;       ///< by symbol: inputs, params, starts
  std::vector<GpuAddress> histories;     ///< by symbol: of inputs and delay lines
  std::vector<GpuAddress> trajectories;  ///< by update; 0 where nobody reads it

  /// Array `number`, rows or not: in arithmetic precision, without gaps, aligned to 16 bytes.
  GpuAddress read(std::size_t number, const CallArray& array, GpuStream stream);
  /// Where array `number` is to be written so: in the caller's memory, or in memory that write() moves from.
  GpuAddress written(std::size_t number, const CallArray& array);
  void write(std::size_t number, const CallArray& array, GpuStream stream);
  /// Part `lag` - 1 of a history of a state, [sequences, depth, a…], to or from an array of its own.
  void take_lag(GpuAddress to, GpuAddress history, const Symbol& copy, GpuStream stream);
  void put_lag(GpuAddress history, GpuAddress from, const Symbol& copy, GpuStream stream);
  LineHistories& lines() { return lines_; }
  /// into += from
  void add(GpuAddress into, GpuAddress from, std::int64_t count, GpuStream stream);

  std::size_t update_of(int symbol) const;
  std::int64_t entries(const std::vector<AxisId>& axes) const;
  RowsOfRun rows_of_run() const;
  /// The shape of the run, without data.
  const BoundRun& run() const { return run_; }
  Dtype arithmetic() const { return arithmetic_; }
  const CallShape& shape() const { return shape_; }
  GradientKernels& kernels() { return kernels_; }
  StridedCopies& moves() { return moves_; }
  void reserve(GpuBuffer& buffer, std::int64_t entries) {
    gpu_.reserve(buffer, static_cast<std::size_t>(entries) * size_of(arithmetic_));
  }
  /// Zeros, of the largest number of entries that was ever asked for; to be asked for in a rehearsal.
  GpuAddress zeros(std::int64_t entries);

 private:
  bool direct(std::size_t number, const CallArray& array) const;
  void move(std::size_t number, const CallArray& array, GpuAddress dense, bool out, GpuStream stream);
  void start_copies(std::span<const CallArray> arrays, GpuStream stream);
  void start_lines(std::span<const CallArray> arrays, GpuStream stream);
  void lag_trajectories(GpuStream stream);

  CallGpu& gpu_;
  const CellGraph& cell_;
  const DirectedCall& call_;
  const CallShape& shape_;
  const Dtype dtype_, arithmetic_;
  const CallLayout layout_;
  const std::map<AxisId, std::int64_t> sizes_;
  const std::vector<bool> reads_;
  BoundRun run_;
  StridedCopies moves_;
  GradientKernels kernels_;
  AbsentArrays absent_;
  GpuBuffer offsets_, zeros_;
  std::int64_t zeroed_ = 0;
  std::vector<GpuBuffer> staged_;                                 ///< by array
  std::vector<GpuBuffer> copies_, copied_rows_, copy_histories_;  ///< by update: of copies that lag
  LineHistories lines_;
  std::vector<GpuBuffer> narrow_histories_;  ///< by line
  std::vector<CallArray> by_field_;          ///< of the layout
};

}  // namespace cellc
