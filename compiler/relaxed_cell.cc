#include "compiler/relaxed_cell.h"

#include <map>
#include <set>

#include "compiler/known_states.h"
#include "compiler/simplify.h"

namespace cellc {

namespace {

bool reduces(Op op) { return op == Op::ReduceSum || op == Op::ReduceMax || op == Op::Softmax || op == Op::MaxShare; }

}  // namespace

std::optional<RelaxedCell> relax(const CellGraph& cell, const Structure& structure, int stage) {
  const std::vector<int>& states = structure.stages[stage].states;
  const std::size_t originals = cell.symbols.size();
  const auto earlier = [&](int u) { return structure.stage_of[u] < stage; };
  const auto until = [&](int u) { return structure.stage_of[u] <= stage; };
  const CellGraph base = with_trajectories(cell);

  CellGraph work = base;
  Graph& g = work.graph;
  std::vector<NodeId> roots;
  {
    KnownStates known(cell, g, earlier, earlier);
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
    if (n.op != Op::Read) return false;
    const std::vector<AxisId>& natural = cell.symbols[n.symbol].index;
    for (std::size_t p = 0; p < n.index.size(); ++p)
      if (!n.index[p].is_axis() || n.index[p].axis != natural[p]) return true;
    return false;
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
    CellGraph mixing = work;
    mixing.outs.clear();
    KnownStates known(cell, mixing.graph, until, until);
    for (std::size_t i = 0; i < terms.size(); ++i)
      mixing.outs.push_back({"mixing" + std::to_string(i), g[terms[i]].axes, known(terms[i]), g[terms[i]].span});
    result.mixing = stateless(std::move(mixing), originals);
    CellGraph once = work;
    once.outs.clear();
    for (std::size_t i = 0; i < sums.size(); ++i)
      once.outs.push_back({"fixed" + std::to_string(i), g[sums[i]].axes, sums[i], g[sums[i]].span});
    result.fixed = stateless(std::move(once), originals);
    CellGraph step = base;
    step.outs.clear();
    KnownStates about(cell, step.graph, earlier, until);
    for (int u : states)
      step.outs.push_back({cell.symbols[cell.updates[u].symbol].name, cell.symbols[cell.updates[u].symbol].index,
                           about(cell.updates[u].value), cell.updates[u].span});
    result.step = stateless(std::move(step), originals);
  }

  // The stage's own cell: states first, then what it reads.
  CellGraph relaxed = work;
  relaxed.symbols.clear();
  relaxed.updates.clear();
  relaxed.outs.clear();
  relaxed.named.clear();
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
    Node n = work.graph[id];
    const auto mixed = term.find(id), kept = fixed.find(id);
    if (mixed != term.end() || kept != fixed.end()) {
      const bool mixes = mixed != term.end();
      const int at = mixes ? mixed->second : kept->second;
      Symbol s;
      s.name = (mixes ? "mixing" : "fixed") + std::to_string(at);
      s.kind = SymbolKind::Input;
      std::vector<Index> index;
      for (AxisId a : n.axes) {
        s.axes.push_back(work.graph.axis(a).extent_of);
        s.index.push_back(a);
        index.push_back({a, 0});
      }
      const int symbol = add(std::move(s), {mixes ? ArraySource::Kind::Mixing : ArraySource::Kind::Before, at});
      image[id] = relaxed.graph.read(symbol, std::move(index), n.span);
      continue;
    }
    if (n.op == Op::Read) {
      const auto i = static_cast<std::size_t>(n.symbol);
      auto [it, fresh] = number.emplace(n.symbol, -1);
      if (fresh) {
        Symbol s = work.symbols[n.symbol];
        s.initial = kNoNode;
        it->second = add(std::move(s), i < originals ? ArraySource{ArraySource::Kind::Symbol, n.symbol}
                                                     : ArraySource{ArraySource::Kind::Trajectory, static_cast<int>(i - originals)});
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
