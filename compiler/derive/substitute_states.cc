#include "compiler/derive/substitute_states.h"

#include <algorithm>
#include <map>

#include "compiler/graph/axes.h"

namespace cellc {

std::vector<Symbol> with_trajectories(const CellGraph& cell) {
  std::vector<Symbol> symbols = cell.symbols;
  for (Symbol& s : symbols) s.line_of = -1;  // whoever runs a part of the cell gives it the rows as an input's
  for (const StateUpdate& u : cell.updates) {
    Symbol s = cell.symbols[u.symbol];
    s.kind = SymbolKind::Input;
    s.lag_of = s.line_of = -1;
    s.lag = 0;
    s.max_lag = 1;
    symbols.push_back(std::move(s));
  }
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    symbols.push_back(symbols[cell.symbols.size() + u]);
    symbols.back().name += "'";
  }
  return symbols;
}

CellGraph without_contents(const CellGraph& cell) {
  CellGraph result;
  result.name = cell.name;
  result.span = cell.span;
  result.graph = cell.graph.without_nodes();
  result.header = cell.header;
  return result;
}

std::vector<ArraySink> numbered(ArraySink::Kind kind, std::size_t count) {
  std::vector<ArraySink> sinks;
  for (std::size_t i = 0; i < count; ++i) sinks.push_back({kind, static_cast<int>(i)});
  return sinks;
}

DerivedCell stateless(Role role, const CellGraph& cell, const std::vector<Symbol>& symbols, const Graph& graph,
                      std::vector<Out> outs, std::vector<ArraySink> sinks) {
  DerivedCell result;
  if (outs.empty()) return result;
  result.role = role;
  result.sinks = std::move(sinks);
  result.cell = without_contents(cell);
  std::vector<NodeId> roots;
  for (const Out& o : outs) roots.push_back(o.value);
  std::map<int, int> number;
  const auto symbol = [&](int s) {
    const auto [it, fresh] = number.emplace(s, static_cast<int>(result.sources.size()));
    if (fresh) {
      result.cell.symbols.push_back(symbols[s]);
      result.cell.symbols.back().initial = kNoNode;
      result.sources.push_back(source_of(cell, s));
    }
    return it->second;
  };
  const std::vector<NodeId> images = Rewriter(graph, result.cell.graph, {.symbol = symbol})(roots);
  for (std::size_t o = 0; o < outs.size(); ++o) outs[o].value = images[o];
  result.cell.outs = std::move(outs);
  return result;
}

ArraySource source_of(const CellGraph& cell, int symbol) {
  const int trajectory = symbol - static_cast<int>(cell.symbols.size()),
            remade = trajectory - static_cast<int>(cell.updates.size());
  if (remade >= 0) return {ArraySource::Kind::Remade, remade};
  return trajectory < 0 ? ArraySource{ArraySource::Kind::Symbol, symbol}
                        : ArraySource{ArraySource::Kind::Trajectory, trajectory};
}

std::vector<Index> index_of(const CellGraph& cell, int update) {
  return plain_index(cell.symbols[cell.updates[update].symbol].index);
}

std::vector<AxisId> distinct_axes(Graph& graph, const std::vector<AxisId>& axes) {
  std::vector<AxisId> index;
  for (const AxisId a : axes) {
    AxisId i = a;
    for (int n = 1; std::find(index.begin(), index.end(), i) != index.end(); ++n) i = graph.copy_axis(a, n);
    index.push_back(i);
  }
  return index;
}

UpdateTable::UpdateTable(const CellGraph& cell) : of_symbol_(cell.symbols.size(), -1) {
  for (int u = 0; u < static_cast<int>(cell.updates.size()); ++u) {
    const StateUpdate& update = cell.updates[u];
    of_symbol_[update.symbol] = u;
    std::vector<AxisId> axes = cell.symbols[update.symbol].index;
    std::sort(axes.begin(), axes.end());
    const Node& n = cell.graph[update.value];
    // Short values are sooner computed again than read; one with fewer axes than its state repeats.
    if (!n.args.empty() && n.axes == axes) of_value_[update.value].push_back(u);
  }
}

const std::vector<int>& UpdateTable::of_value(NodeId value) const {
  static const std::vector<int> none;
  const auto it = of_value_.find(value);
  return it == of_value_.end() ? none : it->second;
}

KnownStates::KnownStates(const CellGraph& cell, const UpdateTable& table, const Graph& from, Graph& to,
                         Predicate values, Predicate reads, Predicate remade)
    : cell_(cell),
      table_(table),
      to_(to),
      values_(std::move(values)),
      reads_(std::move(reads)),
      remade_(std::move(remade)),
      rewriter_(from, to,
                {.ends = [this](NodeId id) { return known_value(id) >= 0; },
                 .replace = [this](NodeId id, const Node& node) { return known(id, node); }}) {}

int KnownStates::known_value(NodeId value) const {
  for (const int u : table_.of_value(value))
    if (values_(u)) return u;
  return -1;
}

NodeId KnownStates::known(NodeId id, const Node& node) {
  const auto rows = [&](bool remade, int update, std::vector<Index> index, int lag) {
    const std::size_t behind = cell_.symbols.size() + (remade ? cell_.updates.size() : 0);
    return to_.read(static_cast<int>(behind) + update, std::move(index), node.span, lag);
  };
  if (const int u = known_value(id); u >= 0) return rows(remade_(u), u, index_of(cell_, u), 0);
  if (node.op != Op::Read || static_cast<std::size_t>(node.symbol) >= cell_.symbols.size()) return kNoNode;
  const int u = table_.of_symbol(node.symbol);
  if (u < 0 || !reads_(u)) return kNoNode;
  return rows(cell_.symbols[static_cast<std::size_t>(node.symbol)].lag_of >= 0 && remade_(u), u, node.index, 1);
}

KnownStates::Predicate may_be_remade(const Structure& structure, int stage) {
  return [&structure, stage](int update) {
    const int of = structure.stage_of[static_cast<std::size_t>(update)];
    const Stage& by = structure.stages[static_cast<std::size_t>(of)];
    return of < stage && (by.linear || by.scannable != Scannable::No);
  };
}

}  // namespace cellc
