#pragma once
// Compiles a lane cell (compiler/derive/stage_cells.h) and runs many lanes of it in vectors: any channels
// of any segments of any sequences. Lanes are gathered into tiles that lie in cache, or run in place where a tile
// is one segment whose channels are neighbours already.
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "runtime/build/compile_plan.h"

namespace cellc {

/// An array as lanes see it. Entry (row, mixed m, channel c) lies at
/// row * row_entries + mixed[m] + channel[c].
struct LaneArray {
  std::byte* data = nullptr;        ///< null: a state that is not written
  std::int64_t row_entries = 0;     ///< 0: a param
  std::vector<std::int64_t> mixed;  ///< offsets in entries
  std::vector<std::int64_t> channel;
  bool in_place = false;             ///< one mixed entry, and channel[c] == c
  bool shifted = false;              ///< rows are read one step earlier; a first step reads `first`
  const std::byte* first = nullptr;  ///< [sequence, mixed, channel] as an array of the same layout
};

/// The steps of one channel of one segment.
struct Lane {
  std::int32_t segment;  ///< selects the row of starts and ends
  std::int32_t channel;
  std::int64_t row;  ///< row of the first step
  std::int64_t steps;
  std::int32_t sequence;  ///< for `first`
  bool at_start;          ///< the first step is the sequence's first
};

/// Values of the states of some segments: [segment, mixed, channel], arithmetic precision.
struct SegmentStates {
  std::vector<Array> arrays;  ///< by state of the kernel's cell
};

/// What a lane cell is run on.
struct LaneData {
  std::vector<LaneArray> symbols;  ///< by symbol of the cell; for states: the array that is written
  std::int64_t channels = 1;
  std::int64_t rows = 0;
  std::int64_t direction = 1;  ///< -1: time runs backwards through the rows
  std::map<AxisId, std::int64_t> sizes;
};

class LaneKernel {
 public:
  /// Throws DeviceError. `cell` has a header axis `lane`; its states are its first symbols.
  static LaneKernel compile(const CellGraph& cell, AxisId lane, const CompileOptions& options);

  /// Lanes that one tile takes where they have to be gathered.
  static constexpr std::int64_t kTileLanes = 64;

  /// Runs every lane from `from` for its steps; where it is then goes to `to` (which may be `from`).
  /// With `write`, states that have an array are written. Lanes are cut among `threads`.
  void run(const LaneData& data, const std::vector<Lane>& lanes, const SegmentStates& from, SegmentStates& to,
           bool write, int threads) const;

  /// A scan that reads its inputs once: tile by tile in the order of time, a sweep with transitions from
  /// `from` to `swept`, then `compose(segment, one past)`, which is called in that order and fills
  /// `starts`, then the steps themselves over the gathered inputs, writing. Inputs have the same
  /// numbers in both cells.
  struct ScanKernels {
    const LaneKernel* transitions;
    const LaneData* carried;
    const LaneKernel* step;
    const LaneData* data;
  };
  static void scan(const ScanKernels& kernels, const SegmentStates& from, SegmentStates& swept,
                   const SegmentStates& starts, SegmentStates& ends, const std::vector<Lane>& lanes,
                   std::int64_t tile_lanes, int threads,
                   const std::function<void(std::int64_t, std::int64_t)>& compose);

  const CellGraph& cell() const { return compiled_.plan.cell; }
  /// What transitions of a contraction are run with (flush_to_zero.h).
  void flush_to_zero() { flushes_ = true; }

  double compile_ms() const { return compiled_.compile_ms; }
  CacheState cache() const { return compiled_.module->cache; }

 private:
  friend class TileRunner;
  friend class StepsAsLanes;
  friend class LaneArguments;
  CompiledPlan compiled_;
  AxisId lane_ = kNoAxis;
  int kernel_ = -1;
  bool flushes_ = false;
};

}  // namespace cellc
