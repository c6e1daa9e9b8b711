#pragma once
// The decisions from which structure.cc assembles the result, one file each. Each takes the *structural*
// Jacobian (jacobian.h, SlopeRule::Structural), in which a step counts as a dependence.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/simplify.h"

namespace cellc {

/// What the classifiers share about the stage at hand.
struct StageView {
  CellGraph& cell;
  const Jacobian& jacobian;  ///< structural
  Simplifier& simplifier;
  std::vector<int> states;           ///< positions in updates, ascending
  std::vector<AxisId> channel_axes;  ///< index variables of the states
  bool contains(int update) const;
  bool is_channel(AxisId axis) const;
};

// structure_stages.cc
/// Updates by stage, each ascending, in an order in which the stages can run.
std::vector<std::vector<int>> stages_of(const CellGraph& cell);
/// The stage that is the most work: by its class, then by its block, then by its entries.
int widest_stage(const CellGraph& cell, const std::vector<Stage>& stages);

// structure_reads.cc
/// Which stages' states a value reads. Values may be added to the graph as questions come up, such as
/// coefficients: every node is looked at once.
class StageReads {
 public:
  /// `stage_of` is by update.
  StageReads(const CellGraph& cell, std::vector<int> stage_of);
  /// The last stage whose states it reads; -1: none.
  int last_stage(NodeId node);
  /// Does it read more than params?
  bool varies(NodeId node);
  /// What of the formulas depends on the states of stage `number`, ascending. It reads no later ones, so that is
  /// what the stage is the last one of.
  std::vector<NodeId> own_part(const std::vector<NodeId>& roots, int number);

 private:
  void look_at_all();
  const CellGraph& cell_;
  std::vector<int> update_of_;   ///< by symbol; -1: no state
  std::vector<int> stage_of_;    ///< by update
  std::vector<int> last_stage_;  ///< by node
  std::vector<bool> varies_;     ///< by node
};

// structure_reasons.cc
/// "a, b and c": of positions in updates.
std::string state_names(const CellGraph& cell, const std::vector<int>& states);
/// The innermost places where the states of stage `number` stop entering affinely.
void blame_nonlinear(const StageView& stage, int number, StageReads& reads, std::vector<Reason>& why);
/// Contractions and reductions in the source whose body reads the stage's states on a bound axis; `kind` is what they
/// make of it.
void blame_mixing(const StageView& stage, int number, const std::string& kind, StageReads& reads,
                  std::vector<Reason>& why);

// structure_lowrank.cc
struct LowRank {
  bool applies = false;
  bool diagonal = false;  ///< there is more than outer products
  bool uniform = false;   ///< the diagonal is constant along the mixed axes
  SizeExpression rank;
  LowRankForm form;
  Reason why_not;
};
LowRank classify_low_rank(const StageView& stage);

// structure_scannable.cc: closed under composition though not affine
struct ScanForm {
  std::optional<ClipMap> clip;
  std::optional<MoebiusMap> moebius;
};
ScanForm classify_scannable(const StageView& stage);
/// The update of `state` (a symbol) after the clip `start` of some other value: clip ∘ start, which is a clip of that
/// value again. Without `start`, the update's own clip. nullopt where it is none.
std::optional<ClipMap> clip_map(Graph& graph, Simplifier& simplifier, NodeId update, int state,
                                const ClipMap* start = nullptr);
/// s' = (a·s + b)/(c·s + d) with coefficients free of s, if the update of `state` (a symbol) is one.
std::optional<MoebiusMap> moebius_map(Graph& graph, Simplifier& simplifier, NodeId update, int state);

// structure_semiring.cc
/// Of the updates `rows` (positions) as maps of their own states over a semiring; nullopt where they are none.
/// `proved`: of a cell that this one is derived of, whose ranges showed that no factor of an exponential is negative.
std::optional<SemiringMap> semiring_map(CellGraph& cell, Simplifier& simplifier, const std::vector<int>& rows,
                                        Scannable kind, bool proved);
struct SemiringForm {
  Scannable kind = Scannable::No;
  SemiringMap map;
};
std::optional<SemiringForm> classify_semiring(const StageView& stage);

// interval.cc
class IntervalEvaluator;
class NormBounds {
 public:
  explicit NormBounds(const CellGraph& cell);
  ~NormBounds();
  /// Bound on the infinity norm of the stage's block of the *true* Jacobian under the ranges that
  /// the cell states; nullopt where no finite bound follows.
  std::optional<double> of(const StageView& stage, const Jacobian& true_jacobian);

 private:
  std::unique_ptr<IntervalEvaluator> intervals_;
};

}  // namespace cellc
