#include "compiler/plan/step_dependencies.h"

#include <algorithm>

#include "compiler/graph/graph_walk.h"

namespace cellc {
namespace {

StageSet stage_bit(int stage) { return StageSet{1} << std::min(stage, 63); }

}  // namespace

std::vector<NodeId> step_roots(const CellGraph& cell) {
  std::vector<NodeId> all;
  for (const StateUpdate& u : cell.updates) all.push_back(u.value);
  for (const Out& o : cell.outs) all.push_back(o.value);
  return all;
}

std::vector<char> needed_for(const Graph& graph, const std::vector<NodeId>& roots) {
  std::vector<char> seen(graph.size(), 0);
  for (const NodeId id : reachable(graph, roots)) seen[id] = 1;
  return seen;
}

StepDependencies step_dependencies(const CellGraph& cell, const std::vector<int>& stage_of,
                                   const std::vector<int>& position_of_symbol) {
  const std::size_t count = cell.graph.size();
  StepDependencies of;
  of.needed = needed_for(cell.graph, step_roots(cell));
  of.once.assign(count, 0);
  of.reads.assign(count, 0);
  of.feeds.assign(count, 0);
  for (NodeId id = 0; id < count; ++id) {
    if (!of.needed[id]) continue;
    const Node& n = cell.graph[id];
    of.once[id] = 1;
    if (n.op == Op::Read) {
      const SymbolKind kind = cell.symbols[n.symbol].kind;
      of.once[id] = kind == SymbolKind::Param;
      if (kind == SymbolKind::State) of.reads[id] = stage_bit(stage_of[position_of_symbol.at(n.symbol)]);
    }
    for (const NodeId a : n.args) {
      of.once[id] = of.once[id] && of.once[a];
      of.reads[id] |= of.reads[a];
    }
  }
  for (std::size_t i = 0; i < cell.updates.size(); ++i) {
    of.feeds[cell.updates[i].value] |= stage_bit(stage_of[i]);
  }
  for (NodeId id = static_cast<NodeId>(count); id-- > 0;) {
    if (!of.needed[id]) continue;
    for (const NodeId a : cell.graph[id].args) of.feeds[a] |= of.feeds[id];
  }
  return of;
}

}  // namespace cellc
