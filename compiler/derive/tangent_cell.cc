#include "compiler/derive/tangent_cell.h"

#include <map>
#include <set>

#include "compiler/analysis/forward_mode.h"
#include "compiler/derive/derivations.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/rewriter.h"

namespace cellc {

namespace {

class TangentBuilder {
 public:
  TangentBuilder(const CellGraph& cell, const TangentOf& of)
      : cell_(cell), of_(of), step_(cell.graph.without_nodes()), moved_(cell.symbols.size()) {}

  DerivedCell run() {
    copy_step();
    find_moved();
    // Behind the cell's own symbols stand their tangents, in the same order.
    const int own = static_cast<int>(cell_.symbols.size());
    ForwardMode forward(step_, [&](const Node& n) {
      return moved_[static_cast<std::size_t>(n.symbol)] ? step_.read(own + n.symbol, n.index, n.span, n.lag, n.lag_axis)
                                                        : kNoNode;
    });
    return finish(forward(values_));
  }

 private:
  std::size_t states() const { return cell_.updates.size(); }

  /// The step alone, in a graph of its own: the cell's also holds its Jacobian.
  void copy_step() {
    std::vector<NodeId> roots;
    for (const StateUpdate& u : cell_.updates) roots.push_back(u.value);
    for (const Out& o : cell_.outs) roots.push_back(o.value);
    values_ = Rewriter(cell_.graph, step_)(roots);
  }

  /// Symbols whose tangent is not 0 throughout: those that are given one, and states that come of them.
  void find_moved() {
    std::map<NodeId, std::vector<NodeId>> users;
    std::map<NodeId, std::vector<int>> assigned;
    std::map<int, std::vector<NodeId>> reads;
    for (const NodeId id : reachable(step_, values_)) {
      if (step_[id].op == Op::Read) reads[step_[id].symbol].push_back(id);
      for (const NodeId a : step_[id].args) users[a].push_back(id);
    }
    for (std::size_t u = 0; u < states(); ++u) assigned[values_[u]].push_back(cell_.updates[u].symbol);
    std::vector<NodeId> ahead;
    const auto move = [&](int symbol) {
      if (moved_[static_cast<std::size_t>(symbol)]) return;
      for (std::size_t s = 0; s < moved_.size(); ++s) {
        if (static_cast<int>(s) != symbol && cell_.symbols[s].line_of != symbol) continue;
        moved_[s] = true;
        ahead.insert(ahead.end(), reads[static_cast<int>(s)].begin(), reads[static_cast<int>(s)].end());
      }
    };
    for (int s = 0; s < static_cast<int>(moved_.size()); ++s)
      if (of_.symbols.empty() || of_.symbols[static_cast<std::size_t>(s)]) move(s);
    std::set<NodeId> met;
    while (!ahead.empty()) {
      const NodeId id = ahead.back();
      ahead.pop_back();
      if (!met.insert(id).second) continue;
      ahead.insert(ahead.end(), users[id].begin(), users[id].end());
      for (const int symbol : assigned[id]) move(symbol);
    }
  }

  DerivedCell finish(const std::vector<NodeId>& tangents) {
    CellGraph& cell = result_.cell = without_contents(cell_);
    cell.name = cell_.name + ".tangent";
    result_.role = Role::Tangent;
    for (std::size_t u = 0; u < states(); ++u) {  // states first, so that updates and symbols have the same order
      symbol_of_[static_cast<int>(cell_.symbols.size()) + cell_.updates[u].symbol] = static_cast<int>(u);
      add_symbol(tangent_of(cell_.updates[u].symbol), {ArraySource::Kind::Tangent, cell_.updates[u].symbol});
    }
    // Delay lines are the last symbols, so whatever else is read has to have its symbol before.
    const int own = static_cast<int>(cell_.symbols.size());
    for (const bool lines : {false, true})
      for (const NodeId id : cell_.has_lines() ? reachable(step_, tangents) : std::vector<NodeId>())
        if (const Node& n = step_[id];
            n.op == Op::Read &&
            (n.symbol >= own && cell_.symbols[static_cast<std::size_t>(n.symbol - own)].line_of >= 0) == lines)
          symbol_for(n.symbol);
    Rewriter moved(step_, cell.graph, {.symbol = [this](int s) { return symbol_for(s); }});
    moved(tangents);
    for (std::size_t u = 0; u < states(); ++u) {
      cell.updates.push_back({static_cast<int>(u), moved.image(tangents[u]), cell_.updates[u].span});
      result_.sinks.push_back({ArraySink::Kind::Tangent, static_cast<int>(u)});
    }
    for (std::size_t o = 0; o < cell_.outs.size(); ++o) {
      const Out& out = cell_.outs[o];
      cell.outs.push_back({"tangent." + out.name, out.index, moved.image(tangents[states() + o]), out.span});
      result_.sinks.push_back({ArraySink::Kind::OutTangent, static_cast<int>(o)});
    }
    return std::move(result_);
  }

  Symbol tangent_of(int symbol) const {
    Symbol s = cell_.symbols[static_cast<std::size_t>(symbol)];
    s.name = "tangent." + s.name;
    s.range.reset();
    return s;
  }

  void add_symbol(Symbol s, ArraySource source) {
    s.initial = kNoNode;
    s.lag_of = s.line_of = -1;  // a copy that lags is a state like others
    s.lag = 0;
    if (s.kind == SymbolKind::State || source.kind == ArraySource::Kind::Previous) s.max_lag = 0;
    result_.cell.symbols.push_back(std::move(s));
    result_.sources.push_back(source);
  }

  /// The delay line of a state's tangent.
  void add_line(int line) {
    Symbol s = tangent_of(line);
    s.line_of = update_of(s.line_of);
    result_.cell.symbols[static_cast<std::size_t>(s.line_of)].max_lag = s.max_lag - 1;
    result_.cell.symbols.push_back(std::move(s));
    result_.sources.push_back({ArraySource::Kind::Tangent, line});
  }

  /// The result's symbol for what the step or its tangent reads; made when it is first read.
  int symbol_for(int read) {
    const auto [at, fresh] = symbol_of_.emplace(read, static_cast<int>(result_.cell.symbols.size()));
    if (!fresh) return at->second;
    const int own = static_cast<int>(cell_.symbols.size());
    if (read >= own && cell_.symbols[static_cast<std::size_t>(read - own)].line_of >= 0) {
      add_line(read - own);
      return at->second;
    }
    if (read >= own) {
      add_symbol(tangent_of(read - own), {ArraySource::Kind::Tangent, read - own});
      return at->second;
    }
    Symbol s = cell_.symbols[static_cast<std::size_t>(read)];
    ArraySource source{ArraySource::Kind::Symbol, read};
    if (s.kind == SymbolKind::State) {
      s.kind = SymbolKind::Input;
      source = {ArraySource::Kind::Previous, update_of(read)};
    }
    add_symbol(std::move(s), source);
    return at->second;
  }

  int update_of(int symbol) const {
    for (std::size_t u = 0; u < states(); ++u)
      if (cell_.updates[u].symbol == symbol) return static_cast<int>(u);
    return -1;
  }

  const CellGraph& cell_;
  const TangentOf of_;
  Graph step_;
  std::vector<bool> moved_;     ///< by symbol
  std::vector<NodeId> values_;  ///< of updates, then of outs
  std::map<int, int> symbol_of_;
  DerivedCell result_;
};

}  // namespace

namespace derivation {

DerivedCell tangent_of(const CellGraph& cell, const TangentOf& of) { return TangentBuilder(cell, of).run(); }

}  // namespace derivation

}  // namespace cellc
