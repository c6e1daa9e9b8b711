#pragma once
// Structure: what is proved of a cell, stage by stage. Each fact names the source text that shows it.
// Follows differentiate; precedes plan. No fact comes from trying numbers.
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/normal_form.h"
#include "compiler/graph/graph.h"

namespace cellc {

enum class StructureClass { Diagonal, BlockDiagonal, LowRank, IdentityPlusLowRank, DiagonalPlusLowRank, Dense };
/// Kinds of scans. The last three are linear over a semiring: sums are maxima, minima or logs of summed exponentials,
/// products are sums.
enum class Scannable { No, Affine, Clip, Moebius, MaxPlus, MinPlus, LogPlus };

const char* to_string(StructureClass c);
/// As `inspect` and `# expect:` lines name it: affine, clip, moebius, max-plus, min-plus, log-plus; "no".
const char* to_string(Scannable scannable);
inline bool is_semiring(Scannable s) {
  return s == Scannable::MaxPlus || s == Scannable::MinPlus || s == Scannable::LogPlus;
}
/// "(max, +)"
const char* semiring_text(Scannable s);

/// A reason: a place in the source and a sentence about it.
struct Reason {
  Span span;
  std::string text;
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
  SizeExpression block;                ///< N, the number of coupled entries
  std::optional<SizeExpression> rank;  ///< of `low_rank`
  std::vector<AxisId> channel_axes;
  std::vector<AxisId> coupled_axes;
  Mask mask;
  std::vector<AxisId> coefficient_axes;
  bool rotation = false;             ///< a 2x2 block that is a scaled rotation
  std::optional<double> norm_bound;  ///< interval bound on the block's infinity norm under stated ranges
  // Normal forms, where the stage has one.
  std::optional<LowRankForm> low_rank;  ///< of low rank, with a diagonal or without
  std::optional<ClipMap> clip;          ///< of Scannable::Clip
  std::optional<MoebiusMap> moebius;    ///< of Scannable::Moebius
  std::optional<SemiringMap> semiring;  ///< of Scannable::MaxPlus, MinPlus, LogPlus
  std::vector<NodeId> hoisted;          ///< maximal values that need only inputs, params and earlier stages
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
