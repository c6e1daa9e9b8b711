#include "compiler/derive/stepped_cell.h"

#include <algorithm>
#include <map>

#include "compiler/derive/derivations.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/axes.h"

namespace cellc {

namespace {

bool reduces(Op op) { return op == Op::ReduceSum || op == Op::ReduceMax || op == Op::Softmax || op == Op::MaxShare; }

class Stepper {
 public:
  Stepper(const CellGraph& cell, const Structure& structure, int stage)
      : cell_(cell),
        structure_(structure),
        stage_(stage),
        states_(structure.stages[static_cast<std::size_t>(stage)].states),
        symbols_(with_trajectories(cell)),
        graph_(cell.graph.without_nodes()) {}

  SteppedCell run() {
    const UpdateTable table(cell_);
    const auto stage_of = [&](int u) { return structure_.stage_of[static_cast<std::size_t>(u)]; };
    KnownStates known(
        cell_, table, cell_.graph, graph_, [&](int u) { return stage_of(u) < stage_; },
        [&](int u) { return stage_of(u) <= stage_; }, may_be_remade(structure_, stage_));
    for (const int u : states_) roots_.push_back(known(cell_.updates[static_cast<std::size_t>(u)].value));
    find_sums();
    SteppedCell result;
    std::vector<Out> fixed;
    for (std::size_t i = 0; i < sums_.size(); ++i)
      fixed.push_back({"fixed" + std::to_string(i), graph_[sums_[i]].axes, sums_[i], graph_[sums_[i]].span});
    result.fixed = stateless(Role::Fixed, cell_, symbols_, graph_, std::move(fixed),
                             numbered(ArraySink::Kind::Before, sums_.size()));
    result.step = step();
    return result;
  }

 private:
  /// From the top: the largest sums that no step of the stage changes, but those of params alone, which a plan makes
  /// once for all rows.
  void find_sums() {
    enum { kNothing = 0, kRows = 1, kOwn = 2 };
    std::map<NodeId, int> reads;
    for (const NodeId id : reachable(graph_, roots_)) {
      const Node& n = graph_[id];
      int all = kNothing;
      for (const NodeId a : n.args) all |= reads[a];
      if (n.op == Op::Read) {
        const int update = n.symbol - static_cast<int>(cell_.symbols.size());
        if (update >= 0 && std::find(states_.begin(), states_.end(), update) != states_.end()) all |= kOwn;
        if (symbols_[static_cast<std::size_t>(n.symbol)].kind == SymbolKind::Input) all |= kRows;
      }
      reads[id] = all;
    }
    walk_down(graph_, roots_, [&](NodeId id) {
      if ((reads[id] & kOwn) || !reduces(graph_[id].op)) return Visit::Descend;
      if (reads[id] & kRows) {
        number_of_sum_.emplace(id, static_cast<int>(sums_.size()));
        sums_.push_back(id);
      }
      return Visit::Stop;
    });
  }

  DerivedCell step() {
    DerivedCell result;
    result.role = Role::OneStep;
    result.cell = without_contents(cell_);
    std::map<int, int> number;
    const auto add = [&](Symbol s, ArraySource source) {
      s.initial = kNoNode;
      result.cell.symbols.push_back(std::move(s));
      result.sources.push_back(source);
      return static_cast<int>(result.cell.symbols.size()) - 1;
    };
    RewriteRules rules;
    rules.ends = [&](NodeId id) { return number_of_sum_.contains(id); };
    rules.replace = [&](NodeId id, const Node& n) {
      const auto at = number_of_sum_.find(id);
      if (at == number_of_sum_.end()) return kNoNode;
      Symbol s;
      s.name = "fixed" + std::to_string(at->second);
      s.kind = SymbolKind::Input;
      for (const AxisId a : n.axes) s.axes.push_back(graph_.axis(a).extent_of);
      s.index = distinct_axes(result.cell.graph, s.axes);  // the value may be over renamed axes
      return result.cell.graph.read(add(std::move(s), {ArraySource::Kind::Before, at->second}), plain_index(n.axes),
                                    n.span);
    };
    rules.symbol = [&](int symbol) {
      const auto [it, fresh] = number.emplace(symbol, -1);
      if (fresh) it->second = add(symbols_[static_cast<std::size_t>(symbol)], source_of(cell_, symbol));
      return it->second;
    };
    const std::vector<NodeId> values = Rewriter(graph_, result.cell.graph, std::move(rules))(roots_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const StateUpdate& update = cell_.updates[static_cast<std::size_t>(states_[i])];
      const Symbol& symbol = cell_.symbol_of(update);
      result.cell.outs.push_back({symbol.name, symbol.index, values[i], update.span});
      result.sinks.push_back({ArraySink::Kind::Step, states_[i]});
    }
    return result;
  }

  const CellGraph& cell_;
  const Structure& structure_;
  const int stage_;
  const std::vector<int>& states_;
  const std::vector<Symbol> symbols_;
  Graph graph_;                ///< of the formulas, with all states known
  std::vector<NodeId> roots_;  ///< those formulas
  std::vector<NodeId> sums_;
  std::map<NodeId, int> number_of_sum_;
};

}  // namespace

namespace derivation {

SteppedCell step_of(const CellGraph& cell, const Structure& structure, int stage) {
  return Stepper(cell, structure, stage).run();
}

}  // namespace derivation

}  // namespace cellc
