#include "compiler/derive/relaxed_cell.h"

#include <map>
#include <set>

#include "compiler/derive/derivations.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/axes.h"

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

namespace derivation {

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
  std::vector<NodeId> terms, sums;
  walk_down(g, roots, [&](NodeId id) {
    if (mixes(id)) {
      term.emplace(id, static_cast<int>(terms.size()));
      terms.push_back(id);
      return Visit::Stop;
    }
    if (!own[id] && reduces(g[id].op)) {
      fixed.emplace(id, static_cast<int>(sums.size()));
      sums.push_back(id);
      return Visit::Stop;
    }
    return Visit::Descend;
  });
  if (terms.empty()) return std::nullopt;

  RelaxedCell result;
  {
    // The terms as they stand in the cell, from trajectories alone.
    Graph mixing = cell.graph.without_nodes();
    KnownStates known(cell, table, g, mixing, until, until);
    std::vector<Out> mixed;
    for (std::size_t i = 0; i < terms.size(); ++i)
      mixed.push_back({"mixing" + std::to_string(i), g[terms[i]].axes, known(terms[i]), g[terms[i]].span});
    result.mixing = stateless(Role::Mixing, cell, symbols, mixing, std::move(mixed),
                              numbered(ArraySink::Kind::Mixing, terms.size()));
    std::vector<Out> once;
    for (std::size_t i = 0; i < sums.size(); ++i)
      once.push_back({"fixed" + std::to_string(i), g[sums[i]].axes, sums[i], g[sums[i]].span});
    result.fixed =
        stateless(Role::Fixed, cell, symbols, g, std::move(once), numbered(ArraySink::Kind::Before, sums.size()));
    Graph step = cell.graph.without_nodes();
    KnownStates about(cell, table, cell.graph, step, earlier, until);
    std::vector<Out> values;
    std::vector<ArraySink> sinks;
    for (int u : states) {
      values.push_back({cell.symbols[cell.updates[u].symbol].name, cell.symbols[cell.updates[u].symbol].index,
                        about(cell.updates[u].value), cell.updates[u].span});
      sinks.push_back({ArraySink::Kind::Step, u});
    }
    result.step = stateless(Role::Step, cell, symbols, step, std::move(values), std::move(sinks));
  }

  // The stage's own cell: states first, then what it reads.
  CellGraph relaxed = without_contents(cell);
  std::map<int, int> number;
  const auto add = [&](Symbol s, ArraySource source) {
    relaxed.symbols.push_back(std::move(s));
    result.relaxed.sources.push_back(source);
    return static_cast<int>(relaxed.symbols.size()) - 1;
  };
  for (int u : states) {
    const int symbol = cell.updates[u].symbol;
    Symbol s = cell.symbols[symbol];
    s.initial = kNoNode;
    s.lag_of = s.line_of = -1;
    s.lag = 0;
    s.max_lag = 0;
    number[symbol] = add(std::move(s), {ArraySource::Kind::Trajectory, u});
  }
  // A value made outside of it, read as an input.
  const auto made_outside = [&](const Node& n, const char* stem, ArraySource source) {
    Symbol s;
    s.name = stem + std::to_string(source.id);
    s.kind = SymbolKind::Input;
    for (AxisId a : n.axes) s.axes.push_back(g.axis(a).extent_of);
    s.index = distinct_axes(relaxed.graph, s.axes);  // the value may be over renamed axes
    return relaxed.graph.read(add(std::move(s), source), plain_index(n.axes), n.span);
  };
  RewriteRules rules;
  rules.ends = [&](NodeId id) { return term.contains(id) || fixed.contains(id); };
  rules.replace = [&](NodeId id, const Node& n) {
    if (const auto at = term.find(id); at != term.end())
      return made_outside(n, "mixing", {ArraySource::Kind::Mixing, at->second});
    if (const auto at = fixed.find(id); at != fixed.end())
      return made_outside(n, "fixed", {ArraySource::Kind::Before, at->second});
    return kNoNode;
  };
  rules.symbol = [&](int symbol) {
    auto [it, fresh] = number.emplace(symbol, -1);
    if (fresh) {
      Symbol s = symbols[symbol];
      s.initial = kNoNode;
      it->second = add(std::move(s), source_of(cell, symbol));
    }
    return it->second;
  };
  const std::vector<NodeId> values = Rewriter(g, relaxed.graph, std::move(rules))(roots);
  for (std::size_t i = 0; i < values.size(); ++i) {
    relaxed.updates.push_back({static_cast<int>(i), values[i], cell.updates[states[i]].span});
    result.relaxed.sinks.push_back({ArraySink::Kind::Trajectory, states[i]});
  }
  result.relaxed.cell = std::move(relaxed);
  result.relaxed.role = Role::Relaxed;
  return result;
}

}  // namespace derivation

}  // namespace cellc
