#include "compiler/derive/fused_outs.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/derive/derivations.h"
#include "compiler/derive/lane_fusion.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/axes.h"
#include "compiler/graph/graph_walk.h"

namespace cellc::derivation {

namespace {

/// Over all channels, each once.
bool is_along_channels(const LaneValue& value, const std::vector<AxisId>& index, std::size_t channels) {
  std::set<int> met;
  for (const AxisId a : index) {
    const auto it = value.channel_of.find(a);
    if (it == value.channel_of.end() || !met.insert(it->second).second) return false;
  }
  return met.size() == channels;
}

}  // namespace

void add_outs(LaneFusion& lanes, const AccumulatedOuts& accumulated, StageCells& fused) {
  const DerivedCell& after = lanes.after();
  const std::vector<Out>& outs = after.cell.outs;
  // Those that are written come first.
  for (const bool adds_up : {false, true})
    for (std::size_t o = 0; o < outs.size(); ++o) {
      const int number = after.sinks[o].id;
      const bool is_accumulated =
          static_cast<std::size_t>(number) < accumulated.size() && accumulated[static_cast<std::size_t>(number)];
      if (is_accumulated != adds_up) continue;
      const std::optional<LaneValue> value = lanes.find(outs[o].value);
      if (!value || !is_along_channels(*value, outs[o].index, fused.channels.size())) continue;
      // What would have to be copied for the lanes first is read as well where it lies.
      if (std::any_of(value->cut.begin(), value->cut.end(),
                      [&](NodeId id) { return lanes.node(id).op == Op::Read && lanes.varies(id); }))
        continue;
      const NodeId made = lanes.term(fused, *value);
      fused.outs.push_back({number, is_accumulated});
      fused.lanes.cell.symbols.push_back(
          lanes.of_lanes("out" + std::to_string(number), SymbolKind::State, true, outs[o].span));
      fused.lanes.cell.updates.push_back({static_cast<int>(fused.lanes.cell.symbols.size()) - 1, made, outs[o].span});
      fused.lanes.sources.push_back({ArraySource::Kind::Out, number});
      fused.lanes.sinks.push_back({ArraySink::Kind::Out, number});
      LaneLayout layout;
      for (const AxisId a : outs[o].index) layout.channel_of_place.push_back(value->channel_of.at(a));
      fused.layouts.push_back(std::move(layout));
    }
}

std::optional<StageCells> fuse_outs(const StagedCell& staged, int stage, const AccumulatedOuts& accumulated) {
  LaneFusion lanes(staged, stage, true);
  if (lanes.stage().channels.empty()) return std::nullopt;
  StageCells fused = lanes.stage();
  fused.lanes.role = Role::OutLanes;
  add_outs(lanes, accumulated, fused);
  if (fused.outs.empty()) return std::nullopt;
  return fused;
}

DerivedCell without_outs(const DerivedCell& after, const std::vector<int>& made) {
  DerivedCell result;
  result.cell = without_contents(after.cell);
  result.role = after.role;
  std::vector<NodeId> roots;
  std::vector<std::size_t> left;
  for (std::size_t o = 0; o < after.cell.outs.size(); ++o) {
    if (std::find(made.begin(), made.end(), after.sinks[o].id) != made.end()) continue;
    left.push_back(o);
    roots.push_back(after.cell.outs[o].value);
  }
  if (left.empty()) return {};
  std::map<int, int> symbol_of;
  RewriteRules rules;
  rules.symbol = [&](int symbol) {
    const auto [at, fresh] = symbol_of.emplace(symbol, static_cast<int>(result.cell.symbols.size()));
    if (fresh) {
      result.cell.symbols.push_back(after.cell.symbols[static_cast<std::size_t>(symbol)]);
      result.sources.push_back(after.sources[static_cast<std::size_t>(symbol)]);
    }
    return at->second;
  };
  const std::vector<NodeId> values = Rewriter(after.cell.graph, result.cell.graph, std::move(rules))(roots);
  for (std::size_t i = 0; i < left.size(); ++i) {
    const Out& out = after.cell.outs[left[i]];
    result.cell.outs.push_back({out.name, out.index, values[i], out.span});
    result.sinks.push_back(after.sinks[left[i]]);
  }
  return result;
}

}  // namespace cellc::derivation

namespace cellc {

bool outs_read_states(const StageCells& stage) {
  const CellGraph& cell = stage.lanes.cell;
  const auto made = cell.updates.end() - static_cast<std::ptrdiff_t>(stage.outs.size());
  std::set<NodeId> next;
  for (auto u = cell.updates.begin(); u != made; ++u) next.insert(u->value);
  std::vector<NodeId> outs;
  for (auto u = made; u != cell.updates.end(); ++u) outs.push_back(u->value);
  bool reads = false;
  walk_down(cell.graph, outs, [&](NodeId id) {
    if (next.contains(id)) return Visit::Skip;
    const Node& n = cell.graph[id];
    reads = reads || (n.op == Op::Read && cell.symbols[static_cast<std::size_t>(n.symbol)].kind == SymbolKind::State);
    return Visit::Descend;
  });
  return reads;
}

}  // namespace cellc
