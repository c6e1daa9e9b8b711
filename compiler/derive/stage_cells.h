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
//   after    the outs, once all states are known
//   step     the whole step about the trajectories; it checks the stages against each other
//
// In the lane cell every input is read at its own step only. The lane is the last axis of every
// state and input, so that neighbours in a vector are neighbours in memory.
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"

namespace cellc {

/// Which array a derived cell's symbol stands for.
struct ArraySource {
  enum class Kind : std::uint8_t {
    Symbol,      ///< id: the cell's own input or param
    Trajectory,  ///< id: position in updates; all steps of that state, as an input; its history is the start
    Before,      ///< id: out of the stage's `before`
    Once,        ///< id: out of the stage's `once`
    Mixing,      ///< id: mixing term of a relaxed stage (relaxed_cell.h)
    Sum,         ///< id: sum of the stage, or, read by `after`, a part of one (fused_reductions.h)
  };
  Kind kind = Kind::Symbol;
  int id = -1;
  bool operator==(const ArraySource&) const = default;
};

/// A cell without states: `outs` from arrays.
struct StatelessCell {
  CellGraph cell;
  std::vector<ArraySource> sources;  ///< by symbol
};

/// How a symbol of a lane cell lies in its array: which place is which channel axis.
struct LaneSymbol {
  ArraySource source;
  std::vector<int> channel_of_place;  ///< by place of the array: index into StageCells::channels, -1: kept
  bool has_lane = true;               ///< params without channel axes have none: they are read as they are
};

struct StageCells {
  std::vector<int> states;       ///< positions in the cell's updates = the lane cell's updates, in order
  std::vector<AxisId> channels;  ///< index variables; empty: a lane is a whole block
  StatelessCell once, before;
  CellGraph lanes;
  AxisId lane = kNoAxis;            ///< header axis of `lanes`
  std::vector<LaneSymbol> symbols;  ///< by symbol of `lanes`
  // Of FusedStage; else none. Behind the updates of `states` the lane cell has one for each sum: its term.
  std::vector<std::vector<AxisId>> sums;  ///< axes of what is left
  int summed = 0;                         ///< innermost channels that they run along
};

struct StagedCell {
  std::vector<StageCells> stages;
  StatelessCell after;
  StatelessCell step;  ///< outs: f of every state, from all trajectories: what a whole step's residual is taken of
};

StagedCell split_stages(const CellGraph& cell, const Structure& structure);

/// `inspect --stage lanes`: the graphs of all derived cells, by stage.
std::string print_staged(const StagedCell& staged);

}  // namespace cellc
