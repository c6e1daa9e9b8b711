#include "compiler/derive/default_cells.h"

#include <algorithm>

#include "compiler/derive/derivations.h"
#include "compiler/derive/substitute_states.h"

namespace cellc {

namespace derivation {

DerivedCell defaults_of(const CellGraph& cell, const std::vector<int>& symbols, Role role) {
  std::vector<Out> outs;
  std::vector<ArraySink> sinks;
  for (const int s : symbols) {
    const Symbol& symbol = cell.symbols[s];
    outs.push_back({symbol.name, symbol.index, symbol.initial, symbol.span});
    sinks.push_back({ArraySink::Kind::Default, s});
  }
  return stateless(role, cell, cell.symbols, cell.graph, std::move(outs), std::move(sinks));
}

}  // namespace derivation

std::vector<int> symbols_with_defaults(const CellGraph& cell, SymbolKind kind) {
  std::vector<int> symbols;
  for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.kind == kind && symbol.lag_of < 0 && symbol.initial != kNoNode) symbols.push_back(s);
  }
  return symbols;
}

void each_picked_entry(const CellGraph& cell,
                       const std::function<void(AxisId, std::int64_t, const std::string&)>& visit) {
  const Graph& graph = cell.graph;
  const auto look_at = [&](AxisId axis, const Index& index, const std::string& of) {
    if (!index.is_axis()) visit(graph.axis(axis).extent_of, index.literal, of);
  };
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    if (node.op == Op::Read) {
      const Symbol& symbol = cell.symbols[node.symbol];
      for (std::size_t i = 0; i < node.index.size(); ++i) look_at(symbol.axes[i], node.index[i], " of " + symbol.name);
    } else if (node.op == Op::OneHot) {
      look_at(node.index[0].axis, node.index[1], " of eye");
    }
    for (const auto& [axis, index] : node.map) look_at(axis, index, "");
  }
}

std::map<AxisId, std::int64_t> least_lengths(const CellGraph& cell) {
  std::map<AxisId, std::int64_t> least;
  for (const AxisId a : cell.header) least[a] = 1;
  each_picked_entry(cell, [&](AxisId header, std::int64_t entry, const std::string&) {
    least[header] = std::max(least[header], entry + 1);
  });
  return least;
}

}  // namespace cellc
