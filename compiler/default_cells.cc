#include "compiler/default_cells.h"

#include <algorithm>

#include "compiler/known_states.h"

namespace cellc {

Defaults defaults_of(const CellGraph& cell, SymbolKind kind) {
  Defaults result;
  std::vector<Out> outs;
  for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.kind != kind || symbol.lag_of >= 0 || symbol.initial == kNoNode) continue;
    outs.push_back({symbol.name, symbol.index, symbol.initial, symbol.span});
    result.symbols.push_back(s);
  }
  result.cell = stateless(cell, cell.symbols, cell.graph, std::move(outs));
  return result;
}

std::map<AxisId, std::int64_t> least_lengths(const CellGraph& cell) {
  std::map<AxisId, std::int64_t> least;
  for (const AxisId a : cell.header) least[a] = 1;
  const Graph& graph = cell.graph;
  const auto need = [&](AxisId axis, const Index& index) {
    if (index.is_axis()) return;
    std::int64_t& n = least[graph.axis(axis).extent_of];
    n = std::max(n, index.literal + 1);
  };
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    if (node.op == Op::Read)
      for (std::size_t i = 0; i < node.index.size(); ++i)
        need(cell.symbols[node.symbol].axes[i], node.index[i]);
    if (node.op == Op::OneHot) need(node.index[0].axis, node.index[1]);
    for (const auto& [axis, index] : node.map) need(axis, index);
  }
  return least;
}

}  // namespace cellc
