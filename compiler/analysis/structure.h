#pragma once
// Structure: what is proved of a cell, stage by stage. Each fact names the source text that shows it.
// Follows differentiate; precedes plan. No fact comes from trying numbers.
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/jacobian.h"
#include "compiler/graph/graph.h"

namespace cellc {

enum class StructureClass { Diagonal, BlockDiagonal, IdentityPlusLowRank, DiagonalPlusLowRank, Dense };
enum class Scannable { No, Affine, Clip, Moebius };

const char* to_string(StructureClass c);

/// A reason: a place in the source and a sentence about it.
struct Reason {
  Span span;
  std::string text;
};

/// N, the number of coupled entries: a number where all mixed axes have fixed lengths.
struct BlockSize {
  std::optional<std::int64_t> number;
  std::string text;  ///< "1", "2", "d", "2*d", "4*k", "k + 1"
};

struct StageInput {
  int stage;
  StructureClass kind;
};

struct Stage {
  std::vector<int> states;  ///< positions in CellGraph::updates, declared order
  bool linear = false;
  bool time_invariant = false;
  Scannable scannable = Scannable::No;
  std::vector<StageInput> inputs_from;
  StructureClass kind = StructureClass::Diagonal;
  BlockSize block;
  std::optional<std::string> rank;  ///< "1", "2", "r"
  std::vector<AxisId> channel_axes;
  std::vector<AxisId> coupled_axes;
  std::vector<std::string> mask;  ///< one string a state: 0 proved zero, d identity on shared axes, F mixes
  std::vector<AxisId> coefficient_axes;
  bool rotation = false;             ///< a 2x2 block that is a scaled rotation
  std::optional<double> norm_bound;  ///< interval bound on the block's infinity norm under stated ranges
  std::vector<NodeId> hoisted;       ///< maximal values that need only inputs, params and earlier stages
};

struct Structure {
  std::vector<Stage> stages;   ///< in the order in which they run
  int widest = 0;              ///< index of the stage that names the cell's structure
  std::vector<int> stage_of;   ///< by position in CellGraph::updates
  std::vector<int> out_stage;  ///< per out: the last stage it needs (-1: none)
  bool linear = false;         ///< every stage is
  std::vector<Reason> why;
};

/// Proves the structure of `cell`. Adds nodes to its graph (coefficients), changes no update.
Structure analyse(CellGraph& cell, const Jacobian& jacobian);

}  // namespace cellc
