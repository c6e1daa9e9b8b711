#include "compiler/derive/substitute_states.h"

#include <algorithm>
#include <set>

#include "compiler/graph/simplify.h"

namespace cellc {

std::vector<Symbol> with_trajectories(const CellGraph& cell) {
  std::vector<Symbol> symbols = cell.symbols;
  for (const StateUpdate& u : cell.updates) {
    Symbol s = cell.symbols[u.symbol];
    s.kind = SymbolKind::Input;
    s.lag_of = -1;
    s.lag = 0;
    s.max_lag = 1;
    symbols.push_back(std::move(s));
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

StatelessCell stateless(const CellGraph& cell, const std::vector<Symbol>& symbols, const Graph& graph,
                        std::vector<Out> outs) {
  StatelessCell result;
  if (outs.empty()) return result;
  result.cell = without_contents(cell);
  std::vector<NodeId> roots;
  for (const Out& o : outs) roots.push_back(o.value);
  std::map<int, int> number;
  std::map<NodeId, NodeId> image;
  for (NodeId id : reachable(graph, roots)) {
    Node n = graph[id];
    if (n.op == Op::Read) {
      const auto [it, fresh] = number.emplace(n.symbol, static_cast<int>(result.sources.size()));
      if (fresh) {
        result.cell.symbols.push_back(symbols[n.symbol]);
        result.cell.symbols.back().initial = kNoNode;
        const int trajectory = n.symbol - static_cast<int>(cell.symbols.size());
        result.sources.push_back(trajectory < 0 ? ArraySource{ArraySource::Kind::Symbol, n.symbol}
                                                : ArraySource{ArraySource::Kind::Trajectory, trajectory});
      }
      n.symbol = it->second;
    }
    std::vector<NodeId> args;
    for (NodeId a : n.args) args.push_back(image.at(a));
    image[id] = result.cell.graph.rebuild(n, std::move(args));
  }
  for (Out& o : outs) o.value = image.at(o.value);
  result.cell.outs = std::move(outs);
  return result;
}

std::vector<Index> index_of(const CellGraph& cell, int update) {
  std::vector<Index> index;
  for (AxisId a : cell.symbols[cell.updates[update].symbol].index) index.push_back({a, 0});
  return index;
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
                         Predicate values, Predicate reads)
    : cell_(cell), table_(table), from_(from), to_(to), values_(std::move(values)), reads_(std::move(reads)) {}

int KnownStates::known_value(NodeId value) const {
  for (const int u : table_.of_value(value))
    if (values_(u)) return u;
  return -1;
}

NodeId KnownStates::operator()(NodeId root) {
  // Down to what is known …
  std::set<NodeId> needed;
  std::vector<NodeId> work{root};
  while (!work.empty()) {
    const NodeId id = work.back();
    work.pop_back();
    if (image_.count(id) || !needed.insert(id).second || known_value(id) >= 0) continue;
    for (NodeId a : from_[id].args) work.push_back(a);
  }
  // … and up again.
  const auto trajectory = [&](int update, std::vector<Index> index, int lag, Span span) {
    return to_.read(static_cast<int>(cell_.symbols.size()) + update, std::move(index), span, lag);
  };
  for (NodeId id : needed) {
    const Node n = from_[id];
    if (const int u = known_value(id); u >= 0) {
      image_[id] = trajectory(u, index_of(cell_, u), 0, n.span);
      continue;
    }
    if (n.op == Op::Read && static_cast<std::size_t>(n.symbol) < cell_.symbols.size()) {
      if (const int u = table_.of_symbol(n.symbol); u >= 0 && reads_(u)) {
        image_[id] = trajectory(u, n.index, 1, n.span);
        continue;
      }
    }
    std::vector<NodeId> args;
    for (NodeId a : n.args) args.push_back(image_.at(a));
    image_[id] = &from_ == &to_ && args == n.args ? id : to_.rebuild(n, std::move(args));
  }
  return image_.at(root);
}

}  // namespace cellc
