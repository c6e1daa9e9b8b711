#include "compiler/derive/relaxed_cell.h"

#include <map>
#include <set>

#include "compiler/derive/substitute_states.h"
#include "compiler/graph/simplify.h"

namespace cellc {

namespace {

bool reduces(Op op) { return op == Op::ReduceSum || op == Op::ReduceMax || op == Op::Softmax || op == Op::MaxShare; }

/// Is it read at other places than its own?
bool elsewhere(const Symbol& symbol, const Node& read) {
  for (std::size_t p = 0; p < read.index.size(); ++p)
    if (!read.index[p].is_axis() || read.index[p].axis != symbol.index[p]) return true;
  return false;
}

// Is there anything in the stage that could be a mixing term? Of thousands of stages most have none, and
// looking costs less than rewriting.
bool may_mix(const CellGraph& cell, const std::vector<int>& states) {
  std::vector<NodeId> roots;
  for (int u : states) roots.push_back(cell.updates[u].value);
  for (NodeId id : reachable(cell.graph, roots)) {
    const Node& n = cell.graph[id];
    if (reduces(n.op) || n.op == Op::Reindex ||
        (n.op == Op::Read && cell.symbols[n.symbol].kind == SymbolKind::State && elsewhere(cell.symbols[n.symbol], n)))
      return true;
  }
  return false;
}

}  // namespace

std::optional<RelaxedCell> relax(const CellGraph& cell, const Structure& structure, int stage) {
  const std::vector<int>& states = structure.stages[stage].states;
  const auto earlier = [&](int u) { return structure.stage_of[u] < stage; };
  const auto until = [&](int u) { return structure.stage_of[u] <= stage; };
  if (!may_mix(cell, states)) return std::nullopt;
  const std::vector<Symbol> symbols = with_trajectories(cell);
  const UpdateTable table(cell);

  Graph g = cell.graph;
  std::vector<NodeId> roots;
  {
    KnownStates known(cell, table, g, g, earlier, earlier);
    for (int u : states) roots.push_back(known(cell.updates[u].value));
  }
  std::map<NodeId, char> own;
  std::set<int> own_symbols;
  for (int u : states) own_symbols.insert(cell.updates[u].symbol);
  const std::vector<NodeId> order = reachable(g, roots);
  for (NodeId id : order) {
    const Node& n = g[id];
    bool here = n.op == Op::Read && own_symbols.count(n.symbol);
    for (NodeId a : n.args) here |= own[a] != 0;
    own[id] = here;
  }
  const auto mixes = [&](NodeId id) {
    const Node& n = g[id];
    if (!own[id]) return false;
    if (reduces(n.op) || n.op == Op::Reindex) return true;
    return n.op == Op::Read && elsewhere(cell.symbols[n.symbol], n);
  };
  // From the top: the largest value that mixes is one term.
  std::map<NodeId, int> term, fixed;
  std::vector<NodeId> terms, sums, stack = roots;
  std::set<NodeId> seen;
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    if (!seen.insert(id).second) continue;
    if (mixes(id)) {
      term.emplace(id, static_cast<int>(terms.size()));
      terms.push_back(id);
      continue;
    }
    if (!own[id] && reduces(g[id].op)) {
      fixed.emplace(id, static_cast<int>(sums.size()));
      sums.push_back(id);
      continue;
    }
    for (NodeId a : g[id].args) stack.push_back(a);
  }
  if (terms.empty()) return std::nullopt;

  RelaxedCell result;
  {
    // The terms as they stand in the cell, from trajectories alone.
    Graph mixing = cell.graph.without_nodes();
    KnownStates known(cell, table, g, mixing, until, until);
    std::vector<Out> mixed;
    for (std::size_t i = 0; i < terms.size(); ++i)
      mixed.push_back({"mixing" + std::to_string(i), g[terms[i]].axes, known(terms[i]), g[terms[i]].span});
    result.mixing = stateless(cell, symbols, mixing, std::move(mixed));
    std::vector<Out> once;
    for (std::size_t i = 0; i < sums.size(); ++i)
      once.push_back({"fixed" + std::to_string(i), g[sums[i]].axes, sums[i], g[sums[i]].span});
    result.fixed = stateless(cell, symbols, g, std::move(once));
    Graph step = cell.graph.without_nodes();
    KnownStates about(cell, table, cell.graph, step, earlier, until);
    std::vector<Out> values;
    for (int u : states)
      values.push_back({cell.symbols[cell.updates[u].symbol].name, cell.symbols[cell.updates[u].symbol].index,
                        about(cell.updates[u].value), cell.updates[u].span});
    result.step = stateless(cell, symbols, step, std::move(values));
  }

  // The stage's own cell: states first, then what it reads.
  CellGraph relaxed = without_contents(cell);
  std::map<int, int> number;
  const auto add = [&](Symbol s, ArraySource source) {
    relaxed.symbols.push_back(std::move(s));
    result.sources.push_back(source);
    return static_cast<int>(relaxed.symbols.size()) - 1;
  };
  for (int u : states) {
    const int symbol = cell.updates[u].symbol;
    Symbol s = cell.symbols[symbol];
    s.initial = kNoNode;
    s.lag_of = -1;
    s.lag = 0;
    s.max_lag = 0;
    number[symbol] = add(std::move(s), {ArraySource::Kind::Trajectory, u});
  }
  std::map<NodeId, NodeId> image;
  for (NodeId id : seen) {
    Node n = g[id];
    const auto mixed = term.find(id), kept = fixed.find(id);
    if (mixed != term.end() || kept != fixed.end()) {
      const bool mixes = mixed != term.end();
      const int at = mixes ? mixed->second : kept->second;
      Symbol s;
      s.name = (mixes ? "mixing" : "fixed") + std::to_string(at);
      s.kind = SymbolKind::Input;
      std::vector<Index> index;
      for (AxisId a : n.axes) {
        s.axes.push_back(g.axis(a).extent_of);
        s.index.push_back(a);
        index.push_back({a, 0});
      }
      const int symbol = add(std::move(s), {mixes ? ArraySource::Kind::Mixing : ArraySource::Kind::Before, at});
      image[id] = relaxed.graph.read(symbol, std::move(index), n.span);
      continue;
    }
    if (n.op == Op::Read) {
      const int trajectory = n.symbol - static_cast<int>(cell.symbols.size());
      auto [it, fresh] = number.emplace(n.symbol, -1);
      if (fresh) {
        Symbol s = symbols[n.symbol];
        s.initial = kNoNode;
        it->second = add(std::move(s), trajectory < 0 ? ArraySource{ArraySource::Kind::Symbol, n.symbol}
                                                      : ArraySource{ArraySource::Kind::Trajectory, trajectory});
      }
      n.symbol = it->second;
    }
    std::vector<NodeId> args;
    for (NodeId a : n.args) args.push_back(image.at(a));
    image[id] = relaxed.graph.rebuild(n, std::move(args));
  }
  for (std::size_t i = 0; i < roots.size(); ++i)
    relaxed.updates.push_back({static_cast<int>(i), image.at(roots[i]), cell.updates[states[i]].span});
  result.cell = std::move(relaxed);
  return result;
}

}  // namespace cellc
