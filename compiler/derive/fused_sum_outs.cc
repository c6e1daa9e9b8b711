#include "compiler/derive/fused_sum_outs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "compiler/derive/derivations.h"
#include "compiler/derive/lane_fusion.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/axes.h"

namespace cellc::derivation {

namespace {

/// One out as g*sum + b, both nodes of the lane cell.
struct Affine {
  NodeId factor = kNoNode;  ///< none: 1
  NodeId base = kNoNode;    ///< none: 0
};

class SumOut {
 public:
  /// `channel_of`: of the axes of what is left of the sum.
  SumOut(LaneFusion& lanes, StageCells& to, NodeId sum, std::map<AxisId, int> channel_of)
      : lanes_(lanes), to_(to), sum_(sum), channel_of_(std::move(channel_of)) {}

  std::optional<Affine> of(NodeId id) {
    if (id == sum_) return Affine{};
    const Node& n = lanes_.node(id);
    std::vector<bool> has;
    for (const NodeId a : n.args) has.push_back(contains_sum(a));
    if (std::count(has.begin(), has.end(), true) != 1) return std::nullopt;
    const std::size_t with = has[0] ? 0 : 1;
    Graph& graph = to_.lanes.cell.graph;
    const auto made = [&](Op op, std::vector<NodeId> args) { return graph.op(op, std::move(args), n.span); };
    const auto negative = [&](NodeId value) { return made(Op::Neg, {value}); };
    if (n.op != Op::Add && n.op != Op::Sub && n.op != Op::Mul && n.op != Op::Neg) return std::nullopt;
    std::optional<Affine> result = of(n.args[with]);
    if (!result) return std::nullopt;
    auto& [factor, base] = *result;
    if (n.op == Op::Neg || (n.op == Op::Sub && with == 1)) {
      factor = factor == kNoNode ? graph.constant(-1, n.span) : negative(factor);
      if (base != kNoNode) base = negative(base);
    }
    if (n.op == Op::Neg) return result;
    const std::optional<NodeId> other = of_inputs(n.args[1 - with]);
    if (!other) return std::nullopt;
    if (n.op == Op::Mul) {
      factor = factor == kNoNode ? *other : made(Op::Mul, {factor, *other});
      if (base != kNoNode) base = made(Op::Mul, {base, *other});
    } else {
      const NodeId added = n.op == Op::Sub && with == 0 ? negative(*other) : *other;
      base = base == kNoNode ? added : made(Op::Add, {base, added});
    }
    return result;
  }

 private:
  bool contains_sum(NodeId id) const {
    const std::vector<NodeId> all = reachable(lanes_.after().cell.graph, {id});
    return std::find(all.begin(), all.end(), sum_) != all.end();
  }
  /// What a step's inputs and params make, as lanes do. What would have to be copied for them first is left.
  std::optional<NodeId> of_inputs(NodeId id) {
    const std::optional<LaneValue> value = lanes_.find_along(id, channel_of_);
    if (!value || std::any_of(value->cut.begin(), value->cut.end(), [&](NodeId c) { return lanes_.varies(c); }))
      return std::nullopt;
    return lanes_.term(to_, *value);
  }

  LaneFusion& lanes_;
  StageCells& to_;
  const NodeId sum_;
  const std::map<AxisId, int> channel_of_;
};

/// The out that has the sum in it, if it is one; -1.
int only_out_of(const DerivedCell& after, NodeId sum) {
  int found = -1;
  for (std::size_t o = 0; o < after.cell.outs.size(); ++o) {
    const std::vector<NodeId> all = reachable(after.cell.graph, {after.cell.outs[o].value});
    if (std::find(all.begin(), all.end(), sum) == all.end()) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(o);
  }
  return found;
}

}  // namespace

std::optional<StageCells> fuse_sum_outs(const CellGraph& cell, const Structure& structure, int stage) {
  const StagedCell staged = split_stages(cell, structure, true);
  if (staged.stages[static_cast<std::size_t>(stage)].channels.size() < 2) return std::nullopt;
  std::optional<FusedStage> summed = fuse_reductions(staged, stage, std::nullopt);
  if (!summed) return std::nullopt;
  StageCells fused = std::move(summed->stage);
  const std::size_t states = fused.states.size(), sums = fused.sums.size();
  if (fused.lanes.cell.updates.size() != states + sums) return std::nullopt;
  LaneFusion lanes(staged, stage, false, true);
  const std::vector<Out>& outs = staged.after.cell.outs;
  std::vector<StateUpdate> bases;
  std::vector<ArraySink> sinks;
  std::set<int> met;
  for (std::size_t i = 0; i < sums; ++i) {
    const int o = only_out_of(staged.after, summed->sums[i]);
    if (o < 0 || !met.insert(o).second) return std::nullopt;
    const Out& out = outs[static_cast<std::size_t>(o)];
    const int number = staged.after.sinks[static_cast<std::size_t>(o)].id;
    StateUpdate& term = fused.lanes.cell.updates[states + i];
    // The sum's axes, and which channel each of them is.
    std::map<AxisId, int> channel_of;
    LaneLayout& layout = fused.layouts[static_cast<std::size_t>(term.symbol)];
    const std::vector<AxisId>& axes = lanes.node(summed->sums[i]).axes;
    for (std::size_t a = 0; a < axes.size(); ++a) channel_of[axes[a]] = layout.channel_of_place[a];
    if (out.index.size() != axes.size()) return std::nullopt;
    layout.channel_of_place.clear();
    for (const AxisId a : out.index) {
      if (!channel_of.contains(a)) return std::nullopt;
      layout.channel_of_place.push_back(channel_of.at(a));
    }
    const std::optional<Affine> made = SumOut(lanes, fused, summed->sums[i], channel_of).of(out.value);
    if (!made) return std::nullopt;
    Graph& graph = fused.lanes.cell.graph;
    if (made->factor != kNoNode) term.value = graph.op(Op::Mul, {term.value, made->factor}, out.span);
    const auto to = static_cast<std::size_t>(term.symbol);
    fused.lanes.sources[to] = {ArraySource::Kind::Out, number};
    fused.lanes.sinks[states + i] = {ArraySink::Kind::Out, number};
    const LaneLayout same = fused.layouts[to];
    fused.layouts.push_back(same);
    // Updates are in the order of their symbols: bases are where sums were, and sums behind all else.
    std::vector<Symbol>& symbols = fused.lanes.cell.symbols;
    symbols[to].name = "base" + std::to_string(number);
    symbols.push_back(lanes.of_lanes("sum" + std::to_string(number), SymbolKind::State, true, out.span));
    fused.lanes.sources.push_back({ArraySource::Kind::Out, number});
    bases.push_back({term.symbol, made->base == kNoNode ? graph.constant(0, out.span) : made->base, out.span});
    term.symbol = static_cast<int>(symbols.size()) - 1;
    sinks.push_back({ArraySink::Kind::Out, number});
    fused.sum_outs.push_back(number);
  }
  const auto behind = static_cast<std::ptrdiff_t>(states);
  fused.lanes.cell.updates.insert(fused.lanes.cell.updates.begin() + behind, bases.begin(), bases.end());
  fused.lanes.sinks.insert(fused.lanes.sinks.begin() + behind, sinks.begin(), sinks.end());
  fused.lanes.role = Role::OutLanes;
  return fused;
}

}  // namespace cellc::derivation
