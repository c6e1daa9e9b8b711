#include "compiler/known_states.h"

#include <algorithm>
#include <set>

#include "compiler/simplify.h"

namespace cellc {

CellGraph with_trajectories(const CellGraph& cell) {
  CellGraph base = cell;
  base.named.clear();
  for (const StateUpdate& u : cell.updates) {
    Symbol s = cell.symbols[u.symbol];
    s.kind = SymbolKind::Input;
    s.lag_of = -1;
    s.lag = 0;
    s.max_lag = 1;
    base.symbols.push_back(std::move(s));
  }
  return base;
}

StatelessCell stateless(CellGraph cell, std::size_t originals) {
  StatelessCell result;
  cell.updates.clear();
  std::vector<NodeId> roots;
  for (const Out& o : cell.outs) roots.push_back(o.value);
  std::vector<Symbol> kept;
  std::vector<int> number(cell.symbols.size(), -1);
  std::map<NodeId, NodeId> image;
  for (NodeId id : reachable(cell.graph, roots)) {
    Node n = cell.graph[id];
    if (n.op == Op::Read) {
      int& to = number[n.symbol];
      if (to < 0) {
        to = static_cast<int>(kept.size());
        Symbol s = cell.symbols[n.symbol];
        s.initial = kNoNode;
        kept.push_back(std::move(s));
        const auto i = static_cast<std::size_t>(n.symbol);
        if (i < originals) result.sources.push_back({ArraySource::Kind::Symbol, n.symbol});
        else result.sources.push_back({ArraySource::Kind::Trajectory, static_cast<int>(i - originals)});
      }
      n.symbol = to;
    }
    std::vector<NodeId> args;
    for (NodeId a : n.args) args.push_back(image.at(a));
    image[id] = cell.graph.rebuild(n, std::move(args));
  }
  for (Out& o : cell.outs) o.value = image.at(o.value);
  cell.symbols = std::move(kept);
  result.cell = std::move(cell);
  return result;
}

std::vector<Index> index_of(const CellGraph& cell, int update) {
  std::vector<Index> index;
  for (AxisId a : cell.symbols[cell.updates[update].symbol].index) index.push_back({a, 0});
  return index;
}

int update_of(const CellGraph& cell, int symbol) {
  for (std::size_t u = 0; u < cell.updates.size(); ++u)
    if (cell.updates[u].symbol == symbol) return static_cast<int>(u);
  return -1;
}

KnownStates::KnownStates(const CellGraph& cell, Graph& graph, Predicate values, Predicate reads)
    : cell_(cell), graph_(graph), reads_(std::move(reads)) {
  for (int u = 0; u < static_cast<int>(cell.updates.size()); ++u) {
    const StateUpdate& update = cell.updates[u];
    std::vector<AxisId> axes = cell.symbols[update.symbol].index;
    std::sort(axes.begin(), axes.end());
    const Node& n = graph[update.value];
    // Short values are sooner computed again than read; one with fewer axes than its state repeats.
    if (values(u) && !n.args.empty() && n.axes == axes) value_of_.emplace(update.value, u);
  }
}

NodeId KnownStates::operator()(NodeId root) {
  // Down to what is known …
  std::set<NodeId> needed;
  std::vector<NodeId> work{root};
  while (!work.empty()) {
    const NodeId id = work.back();
    work.pop_back();
    if (image_.count(id) || !needed.insert(id).second || value_of_.count(id)) continue;
    for (NodeId a : graph_[id].args) work.push_back(a);
  }
  // … and up again.
  const auto trajectory = [&](int update, std::vector<Index> index, int lag, Span span) {
    return graph_.read(static_cast<int>(cell_.symbols.size()) + update, std::move(index), span, lag);
  };
  for (NodeId id : needed) {
    const Node n = graph_[id];
    if (auto it = value_of_.find(id); it != value_of_.end()) {
      image_[id] = trajectory(it->second, index_of(cell_, it->second), 0, n.span);
      continue;
    }
    if (n.op == Op::Read && static_cast<std::size_t>(n.symbol) < cell_.symbols.size() &&
        cell_.symbols[n.symbol].kind == SymbolKind::State) {
      if (const int u = update_of(cell_, n.symbol); reads_(u)) {
        image_[id] = trajectory(u, n.index, 1, n.span);
        continue;
      }
    }
    std::vector<NodeId> args;
    for (NodeId a : n.args) args.push_back(image_.at(a));
    image_[id] = args == n.args ? id : graph_.rebuild(n, std::move(args));
  }
  return image_.at(root);
}

}  // namespace cellc
