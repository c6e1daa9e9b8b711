#pragma once
// What follows a stage, made by the stage's own lanes instead: shared by fused_reductions and fused_outs, which say
// what is worth it. A value can be moved there if a lane has all that it takes: its own states when its step is done,
// its inputs, and what can be made before the stage.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/derive/stage_cells.h"

namespace cellc {

/// A value of `after` that lanes can make.
struct LaneValue {
  NodeId root = kNoNode;             ///< what each lane makes
  std::map<AxisId, int> channel_of;  ///< of the axes that it has
  std::set<NodeId> own;              ///< of its body: what depends on the stage's states
  std::set<NodeId> cut;  ///< and what is made before the stage instead, as what steps read of other channels is
};

class LaneFusion {
 public:
  /// `reads_before`: values may read states of the step before, which a lane still has. `repeats_innermost`: as
  /// split_stages has it.
  LaneFusion(const StagedCell& staged, int stage, bool reads_before, bool repeats_innermost = false);

  const DerivedCell& after() const { return after_; }
  const StageCells& stage() const { return stage_; }
  const Node& node(NodeId id) const { return after_.cell.graph[id]; }

  /// nullopt: a lane has not all that it takes, or it does not depend on the stage's states. `of_others`: it need not.
  std::optional<LaneValue> find(NodeId root, bool of_others = false) const;
  /// A value without states of the stage, of axes that are these channels.
  std::optional<LaneValue> find_along(NodeId root, const std::map<AxisId, int>& channel_of) const;
  /// Whether it changes from step to step.
  bool varies(NodeId id) const;

  /// The value as the lanes of `stage` make it: a node of their graph. What is made before the stage for it is added to
  /// `stage`, too. `stage` has the lanes' own updates first.
  NodeId term(StageCells& stage, const LaneValue& value);
  /// A symbol of lanes.
  Symbol of_lanes(const std::string& name, SymbolKind kind, bool has_lane, Span span) const;

 private:
  /// As the stage's lanes read it, too: a new value of an earlier stage as it was made again.
  ArraySource source(const Node& read) const;
  int own_state(const ArraySource& s) const;
  bool is_of_a_lane(NodeId id, LaneValue& value, std::set<NodeId>& met) const;
  bool is_natural(const Node& n, const LaneValue& value, int most_lag) const;
  bool is_known(NodeId id) const;
  bool is_shared(NodeId id, const LaneValue& value) const;
  int append(DerivedCell& to, NodeId root, Role role, ArraySink::Kind sink) const;
  NodeId read(StageCells& s, const LaneValue& value, const ArraySource& from, SymbolKind kind, const std::string& name,
              const std::vector<Index>& places, Span span) const;

  const DerivedCell& after_;
  const StageCells& stage_;
  const bool reads_before_, repeats_innermost_;
  std::set<int> known_;                ///< updates of earlier stages: their trajectories are there
  std::map<NodeId, ArraySource> cut_;  ///< what has been made before the stage
};

}  // namespace cellc
