#pragma once
// One cell -> cells that run alone, stage after stage. The strategies in time are built from them.
// Follows structure. Each derived cell is an ordinary CellGraph, so it can be printed, verified,
// planned and emitted like the one that the user wrote.
//
//   once     values of params that need other channels                  W@W, softmax[d](a)
//   before   values for all steps that do not depend on the stage's     W@x, sum[k](x^2), lag(x, 3)
//            states; also costly values that several channels share     softplus(dt[d]) beside h[d,n]
//   lanes    the stage itself, one channel at a time: its channel axes are one axis, `lane`, along
//            which nothing moves. A lane may be any channel of any segment of any sequence.
//   remade   the states before each step, from which lanes make the new values again that later stages read
//   after    the outs, once all states are known
//   step     the whole step about the trajectories; it checks the stages against each other
//
// A scan rounds: the first row of each of its parts may differ from what the row before gives, by no more than the
// tolerance. What a later stage makes of that difference may be any multiple of it (sin(1000*g')), so that its own step
// would not follow from the rows that were written. Later stages therefore read new values of stages that can be
// scanned (and copies of theirs that lag) under a source of its own, ArraySource::Kind::Remade. Whoever looks at whole
// steps afterwards, or walks, gives it the trajectory; where nobody looks, `remade` and the lanes over single steps
// follow a scan.
//
// In the lane cell every input is read at its own step only. The lane is the last axis of every
// state and input, so that neighbours in a vector are neighbours in memory.
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/derive/derived_cell.h"
#include "compiler/graph/graph.h"

namespace cellc {

/// How the array of a lane cell's symbol lies: which place is which channel axis.
struct LaneLayout {
  std::vector<int> channel_of_place;  ///< by place of the array: index into StageCells::channels, -1: kept
  bool has_lane = true;               ///< params without channel axes have none: they are read as they are
};

/// An out of the whole cell that lanes make (fused_outs.h).
struct LaneOut {
  int out = -1;
  bool accumulated = false;  ///< added up over all steps, and not written
};

struct StageCells {
  std::vector<int> states;       ///< positions in the cell's updates = the lane cell's updates, in order
  std::vector<AxisId> channels;  ///< index variables; empty: a lane is a whole block
  DerivedCell once, before, lanes;
  /// One after the other, before the lanes go over single steps; none where no later stage reads these. Copies that lag
  /// are new values themselves (ArraySink::Step); the last one makes the states before each step (Default).
  std::vector<DerivedCell> remade;
  AxisId lane = kNoAxis;            ///< header axis of `lanes`
  std::vector<LaneLayout> layouts;  ///< by symbol of `lanes`
  // Of FusedStage; else none. Behind the updates of `states` the lane cell has one for each sum: its term.
  std::vector<std::vector<AxisId>> sums;  ///< axes of what is left
  int summed = 0;                         ///< innermost channels that they run along
  int outer = 0, outer_summed = 0;        ///< the last so many of the sums run along so many outermost channels instead
  /// Of a stage whose sums are outs (fused_sum_outs.h): by sum, which. Before the terms the lane cell then has an
  /// update for each, what its sum begins with.
  std::vector<int> sum_outs;
  // Of a stage with fused outs; else none. Behind the updates of `states` the lane cell has one for each, those that
  // are accumulated last; their symbols are its last.
  std::vector<LaneOut> outs;
};

struct StagedCell {
  std::vector<StageCells> stages;
  DerivedCell after;
  DerivedCell step;  ///< outs: f of every state, from all trajectories: what a whole step's residual is taken of
};

/// `inspect --stage lanes`: the graphs of all derived cells, by stage.
std::string print_staged(const StagedCell& staged);

}  // namespace cellc
