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

/// Cuts a stage at its mixing terms.
class Relaxer {
 public:
  Relaxer(const CellGraph& cell, const Structure& structure, int stage)
      : cell_(cell),
        structure_(structure),
        stage_(stage),
        states_(structure.stages[stage].states),
        symbols_(with_trajectories(cell)),
        table_(cell),
        graph_(cell.graph) {}

  /// nullopt: nothing in the stage mixes.
  std::optional<RelaxedCell> run() {
    find_terms();
    if (terms_.empty()) return std::nullopt;
    RelaxedCell result;
    result.mixing = mixing();
    result.fixed = fixed();
    result.step = step();
    result.relaxed = relaxed();
    return result;
  }

 private:
  bool is_earlier(int update) const { return structure_.stage_of[update] < stage_; }
  bool is_known(int update) const { return structure_.stage_of[update] <= stage_; }

  void find_terms() {
    const auto earlier = [&](int u) { return is_earlier(u); };
    KnownStates known(cell_, table_, graph_, graph_, earlier, earlier, may_be_remade(structure_, stage_));
    for (int u : states_) roots_.push_back(known(cell_.updates[u].value));
    std::map<NodeId, char> own;
    std::set<int> own_symbols;
    for (int u : states_) own_symbols.insert(cell_.updates[u].symbol);
    for (NodeId id : reachable(graph_, roots_)) {
      const Node& n = graph_[id];
      bool here = n.op == Op::Read && own_symbols.count(n.symbol);
      for (NodeId a : n.args) here |= own[a] != 0;
      own[id] = here;
    }
    const auto mixes = [&](NodeId id) {
      const Node& n = graph_[id];
      if (!own[id]) return false;
      if (reduces(n.op) || n.op == Op::Reindex) return true;
      return n.op == Op::Read && elsewhere(cell_.symbols[n.symbol], n);
    };
    // From the top: the largest value that mixes is one term.
    walk_down(graph_, roots_, [&](NodeId id) {
      if (mixes(id)) {
        number_of_term_.emplace(id, static_cast<int>(terms_.size()));
        terms_.push_back(id);
        return Visit::Stop;
      }
      if (!own[id] && reduces(graph_[id].op)) {
        number_of_sum_.emplace(id, static_cast<int>(sums_.size()));
        sums_.push_back(id);
        return Visit::Stop;
      }
      return Visit::Descend;
    });
  }

  /// The terms as they stand in the cell, from trajectories alone.
  DerivedCell mixing() {
    Graph mixing = cell_.graph.without_nodes();
    const auto until = [&](int u) { return is_known(u); };
    KnownStates known(cell_, table_, graph_, mixing, until, until, may_be_remade(structure_, stage_));
    std::vector<Out> mixed;
    for (std::size_t i = 0; i < terms_.size(); ++i)
      mixed.push_back({"mixing" + std::to_string(i), graph_[terms_[i]].axes, known(terms_[i]), graph_[terms_[i]].span});
    return stateless(Role::Mixing, cell_, symbols_, mixing, std::move(mixed),
                     numbered(ArraySink::Kind::Mixing, terms_.size()));
  }

  /// Reductions of what does not change while the stage is relaxed.
  DerivedCell fixed() {
    std::vector<Out> once;
    for (std::size_t i = 0; i < sums_.size(); ++i)
      once.push_back({"fixed" + std::to_string(i), graph_[sums_[i]].axes, sums_[i], graph_[sums_[i]].span});
    return stateless(Role::Fixed, cell_, symbols_, graph_, std::move(once),
                     numbered(ArraySink::Kind::Before, sums_.size()));
  }

  /// The step as it is, from trajectories: what the result is checked by.
  DerivedCell step() {
    Graph step = cell_.graph.without_nodes();
    KnownStates about(
        cell_, table_, cell_.graph, step, [&](int u) { return is_earlier(u); }, [&](int u) { return is_known(u); },
        may_be_remade(structure_, stage_));
    std::vector<Out> values;
    std::vector<ArraySink> sinks;
    for (int u : states_) {
      const Symbol& symbol = cell_.symbol_of(cell_.updates[u]);
      values.push_back({symbol.name, symbol.index, about(cell_.updates[u].value), cell_.updates[u].span});
      sinks.push_back({ArraySink::Kind::Step, u});
    }
    return stateless(Role::Step, cell_, symbols_, step, std::move(values), std::move(sinks));
  }

  /// The stage's own cell: states first, then what it reads.
  DerivedCell relaxed() {
    DerivedCell result;
    CellGraph relaxed = without_contents(cell_);
    std::map<int, int> number;
    const auto add = [&](Symbol s, ArraySource source) {
      relaxed.symbols.push_back(std::move(s));
      result.sources.push_back(source);
      return static_cast<int>(relaxed.symbols.size()) - 1;
    };
    for (int u : states_) {
      const int symbol = cell_.updates[u].symbol;
      Symbol s = cell_.symbols[symbol];
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
      for (AxisId a : n.axes) s.axes.push_back(graph_.axis(a).extent_of);
      s.index = distinct_axes(relaxed.graph, s.axes);  // the value may be over renamed axes
      return relaxed.graph.read(add(std::move(s), source), plain_index(n.axes), n.span);
    };
    RewriteRules rules;
    rules.ends = [&](NodeId id) { return number_of_term_.contains(id) || number_of_sum_.contains(id); };
    rules.replace = [&](NodeId id, const Node& n) {
      if (const auto at = number_of_term_.find(id); at != number_of_term_.end())
        return made_outside(n, "mixing", {ArraySource::Kind::Mixing, at->second});
      if (const auto at = number_of_sum_.find(id); at != number_of_sum_.end())
        return made_outside(n, "fixed", {ArraySource::Kind::Before, at->second});
      return kNoNode;
    };
    rules.symbol = [&](int symbol) {
      auto [it, fresh] = number.emplace(symbol, -1);
      if (fresh) {
        Symbol s = symbols_[symbol];
        s.initial = kNoNode;
        it->second = add(std::move(s), source_of(cell_, symbol));
      }
      return it->second;
    };
    const std::vector<NodeId> values = Rewriter(graph_, relaxed.graph, std::move(rules))(roots_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      relaxed.updates.push_back({static_cast<int>(i), values[i], cell_.updates[states_[i]].span});
      result.sinks.push_back({ArraySink::Kind::Trajectory, states_[i]});
    }
    result.cell = std::move(relaxed);
    result.role = Role::Relaxed;
    return result;
  }

  const CellGraph& cell_;
  const Structure& structure_;
  const int stage_;
  const std::vector<int>& states_;
  const std::vector<Symbol> symbols_;
  const UpdateTable table_;
  Graph graph_;                ///< the cell's, and the formulas with all earlier states known
  std::vector<NodeId> roots_;  ///< those formulas
  std::vector<NodeId> terms_, sums_;
  std::map<NodeId, int> number_of_term_, number_of_sum_;
};

}  // namespace

namespace derivation {

std::optional<RelaxedCell> relax(const CellGraph& cell, const Structure& structure, int stage) {
  if (!may_mix(cell, structure.stages[stage].states)) return std::nullopt;
  return Relaxer(cell, structure, stage).run();
}

}  // namespace derivation

}  // namespace cellc
