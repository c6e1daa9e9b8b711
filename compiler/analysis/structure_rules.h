#pragma once
// The decisions from which structure.cc assembles the result, one file each. Each takes the *structural*
// Jacobian (jacobian.h, SlopeRule::Structural), in which a step counts as a dependence.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
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

/// Does the value of `node` depend on one of these state symbols?
bool depends_on(const Graph& graph, NodeId node, const std::set<int>& symbols);

// structure_stages.cc
/// Updates by stage, each ascending, in an order in which the stages can run.
std::vector<std::vector<int>> stages_of(const CellGraph& cell);

// structure_lowrank.cc
struct LowRank {
  bool applies = false;
  bool uniform = false;  ///< the diagonal is constant along the mixed axes
  std::string rank;
  Reason why_not;
};
LowRank classify_low_rank(const StageView& stage);

// structure_scannable.cc: closed under composition though not affine
Scannable classify_scannable(const StageView& stage);
/// s' = (a·s + b)/(c·s + d) with coefficients free of s, if the update of `state` (a symbol) is one.
struct MoebiusMap {
  NodeId a, b, c, d;
};
std::optional<MoebiusMap> moebius_map(Graph& graph, Simplifier& simplifier, NodeId update, int state);

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
