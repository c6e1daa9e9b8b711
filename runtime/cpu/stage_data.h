#pragma once
// The arrays of a run as seen by the lanes of one stage, and its segments.
#include <cstdint>
#include <vector>

#include "compiler/derive/stage_cells.h"
#include "runtime/cpu/engine.h"
#include "runtime/cpu/lagged_rows.h"
#include "runtime/cpu/lane_kernel.h"

namespace cellc {

/// Everything a derived cell may read, by source.
struct RunArrays {
  const CellGraph* cell = nullptr;
  const BoundRun* run = nullptr;  ///< arithmetic precision throughout
  /// By position in updates: [rows, a…]. Without memory where a run leaves out what nobody wants (StageOuts).
  std::vector<Array> trajectories;
  std::vector<Array> outs{};  ///< by out, of those that lanes make
};

/// Consecutive steps of one sequence.
struct Segment {
  std::int32_t sequence;
  std::int64_t first, steps;  ///< in steps of the sequence
  std::int64_t row;           ///< of the first step
};

/// One stage of one run: its arrays laid out for lanes.
class StageData {
 public:
  StageData(const StageCells& stage, RunArrays& arrays, std::vector<Array> before, std::vector<Array> once);
  /// Other lanes over what was computed before those of `made`.
  StageData(const StageCells& stage, RunArrays& arrays, const StageData& made)
      : StageData(stage, arrays, made.before_, made.once_) {}

  std::int64_t channels() const { return channels_; }
  std::int64_t rows() const { return run_.offsets.back(); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(run_.offsets.size()) - 1; }
  std::int64_t steps(std::int64_t sequence) const { return run_.offsets[sequence + 1] - run_.offsets[sequence]; }
  std::int64_t row(std::int64_t sequence, std::int64_t step) const {
    return run_.reverse ? run_.offsets[sequence + 1] - 1 - step : run_.offsets[sequence] + step;
  }
  std::int64_t states() const { return static_cast<std::int64_t>(stage_.states.size()); }
  std::int64_t mixed(int state) const { return static_cast<std::int64_t>(lanes_.symbols[state].mixed.size()); }
  Dtype dtype() const { return dtype_; }
  const StageCells& stage() const { return stage_; }
  const BoundRun& run() const { return run_; }
  const CellGraph& cell() const { return *arrays_.cell; }  ///< the whole

  /// For the lane cell itself.
  const LaneData& lanes() const { return lanes_; }
  /// For a cell derived from it: further states are carried only; further inputs are filled in by the
  /// caller.
  LaneData extended(const CellGraph& cell) const;
  /// A state's array, another of its shape, as an input read one step earlier (before the first: the
  /// start) or as it stands.
  LaneArray as_input(int state, const Array& trajectory, bool shifted) const;

  /// Zeroed values of a cell's states for so many segments.
  SegmentStates make_states(const CellGraph& cell, std::int64_t segments) const;
  /// The start of the segment's sequence, for the states of the lane cell.
  void put_start(SegmentStates& to, std::int64_t segment, std::int64_t sequence) const;
  /// The state after a row.
  void put_row(SegmentStates& to, std::int64_t segment, std::int64_t row) const;
  Array& trajectory(int state) { return arrays_.trajectories[stage_.states[state]]; }
  const Array& trajectory(int state) const { return arrays_.trajectories[stage_.states[state]]; }
  /// Whether the stage's states have no rows.
  bool has_no_rows() const { return rows() > 0 && !trajectory(0).data(); }
  void use_trajectory(int state, Array array);
  /// Copies that lag, from the rows of their states.
  void write_lags() { LaggingStates(cell()).write(stage_.states, run_, arrays_.trajectories); }

  /// Segments of `length` steps, the last of a sequence shorter.
  std::vector<Segment> cut(std::int64_t length) const;

 private:
  std::int64_t length(AxisId axis) const;
  LaneArray layout(const std::vector<AxisId>& axes, const std::vector<int>& channel_of_place) const;

  const StageCells& stage_;
  RunArrays& arrays_;
  const BoundRun& run_;
  std::vector<Array> before_, once_;
  Dtype dtype_;
  std::int64_t channels_ = 1;
  LaneData lanes_;
};

}  // namespace cellc
