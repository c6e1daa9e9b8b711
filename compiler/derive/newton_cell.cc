#include "compiler/derive/newton_cell.h"

#include <limits>
#include <map>
#include <stdexcept>

#include "compiler/analysis/jacobian.h"
#include "compiler/derive/derivations.h"
#include "compiler/graph/rewriter.h"

namespace cellc {

namespace {

/// A copy of the lane cell in which every state has become two inputs.
class AboutTrajectory {
 public:
  AboutTrajectory(const DerivedCell& lanes, Role role) : derived(lanes) {
    derived.role = role;
    const CellGraph& of = lanes.cell;
    for (std::size_t i = 0; i < of.updates.size(); ++i) {
      const int state = of.updates[i].symbol;
      before.push_back(add(as_input("before.", state), {ArraySource::Kind::Guess, static_cast<int>(i)}));
      before_of_[state] = before.back();
    }
  }

  int add(Symbol symbol, ArraySource source) {
    cell.symbols.push_back(std::move(symbol));
    derived.sources.push_back(source);
    return static_cast<int>(cell.symbols.size()) - 1;
  }

  /// The state's own symbol becomes an input: a cell in which no step gives it.
  int read_instead(std::size_t state) {
    const int symbol = cell.updates[state].symbol;
    cell.symbols[symbol] = as_input("value.", symbol);
    derived.sources[symbol] = {ArraySource::Kind::Value, static_cast<int>(state)};
    return symbol;
  }

  /// `root` with the states read from the trajectory.
  NodeId about(NodeId root) {
    const auto symbol = [&](int s) {
      const auto state = before_of_.find(s);
      return state == before_of_.end() ? s : state->second;
    };
    return Rewriter(cell.graph, cell.graph, {.symbol = symbol}, &images_)(root);
  }

  NodeId read(int symbol) {
    std::vector<Index> at;
    for (AxisId a : cell.symbols[symbol].index) at.push_back({a, 0});
    return cell.graph.read(symbol, std::move(at));
  }

  DerivedCell derived;
  CellGraph& cell = derived.cell;
  std::vector<int> before;  ///< by state: symbol of its value in the trajectory

 private:
  Symbol as_input(const char* prefix, int state) const {
    Symbol s = cell.symbols[state];
    s.name = prefix + s.name;
    s.kind = SymbolKind::Input;
    s.initial = kNoNode;
    s.range.reset();
    return s;
  }

  std::map<int, int> before_of_;
  Images images_;
};

}  // namespace

namespace derivation {

DerivedCell linearised(const DerivedCell& derived, AxisId lane) {
  const CellGraph& lanes = derived.cell;
  AboutTrajectory t(derived, Role::Newton);
  Graph& g = t.cell.graph;
  Jacobian jacobian = differentiate(t.cell);
  reuse_step(t.cell, jacobian);
  std::vector<NodeId> values;
  for (std::size_t i = 0; i < lanes.updates.size(); ++i) {
    NodeId total = t.about(lanes.updates[i].value);
    for (const JacobianBlock& b : jacobian.blocks) {
      if (b.row != static_cast<int>(i)) continue;
      const int state = lanes.updates[b.column].symbol;
      const std::vector<AxisId>& places = lanes.symbols[state].index;
      for (const JacobianTerm& term : b.terms) {
        std::vector<Index> at;
        std::vector<AxisId> summed;
        for (std::size_t p = 0; p < places.size(); ++p) {
          AxisId here = b.column_axes[p];
          for (const auto& [place, axis] : term.identities)
            if (place == static_cast<int>(p)) here = axis;
          if (here == b.column_axes[p]) summed.push_back(here);
          if (places[p] == lane && here != lane) throw std::logic_error("newton: a lane reads another lane");
          at.push_back({here, 0});
        }
        const NodeId change = g.op(Op::Sub, {g.read(state, at), g.read(t.before[b.column], at)});
        const NodeId coefficient = t.about(term.coefficient);
        const NodeId product = g.is_constant(coefficient, 1) ? change : g.op(Op::Mul, {coefficient, change});
        total = g.op(Op::Add, {total, summed.empty() ? product : g.reduce_sum(summed, product)});
      }
    }
    values.push_back(total);
  }
  for (std::size_t i = 0; i < values.size(); ++i) t.cell.updates[i].value = values[i];
  return std::move(t.derived);
}

DerivedCell evaluated(const DerivedCell& lanes) {
  AboutTrajectory t(lanes, Role::Guess);
  for (StateUpdate& u : t.cell.updates) u.value = t.about(u.value);
  return std::move(t.derived);
}

DerivedCell residual(const DerivedCell& derived, AxisId lane) {
  const CellGraph& lanes = derived.cell;
  AboutTrajectory t(derived, Role::Residual);
  Graph& g = t.cell.graph;
  std::vector<NodeId> values;
  std::vector<int> own;
  for (std::size_t i = 0; i < lanes.updates.size(); ++i) {
    values.push_back(t.about(lanes.updates[i].value));
    own.push_back(t.read_instead(i));
  }
  const auto add_number = [&](const std::string& name, int which) {
    Symbol number;
    number.name = name;
    number.kind = SymbolKind::Param;
    return t.add(std::move(number), {ArraySource::Kind::Tolerance, which});
  };
  // The relative tolerance, and of each state what is tolerated besides.
  const int tolerance = add_number("tolerance", 0);
  std::vector<int> absolute;
  for (std::size_t i = 0; i < lanes.updates.size(); ++i)
    absolute.push_back(add_number("absolute." + lanes.symbols[lanes.updates[i].symbol].name, static_cast<int>(i) + 1));

  const auto add_state = [&](const char* name) {
    Symbol s;
    s.name = name;
    s.kind = SymbolKind::State;
    s.axes = s.index = {lane};
    return t.add(std::move(s), {ArraySource::Kind::Start});
  };
  const int residual = add_state("residual"), good = add_state("good"), since = add_state("since");
  const NodeId infinite = g.constant(std::numeric_limits<double>::infinity());
  const auto same = [&](NodeId a, NodeId b) { return g.op(Op::Eq, {a, b}); };
  std::vector<StateUpdate> sizes;
  NodeId worst = g.constant(0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const NodeId f = values[i], s = t.read(own[i]);
    // The size of the state in its lane: the largest |s| so far, of what is finite.
    Symbol so_far = t.cell.symbols[own[i]];
    so_far.name = "size." + lanes.symbols[lanes.updates[i].symbol].name;
    so_far.kind = SymbolKind::State;
    const int size_symbol = t.add(std::move(so_far), {ArraySource::Kind::Start});
    const NodeId magnitude = g.op(Op::Abs, {s});
    const NodeId finite = g.op(Op::Where, {g.op(Op::Lt, {magnitude, infinite}), magnitude, g.constant(0)});
    const NodeId size = g.op(Op::Max, {t.read(size_symbol), finite});
    sizes.push_back({size_symbol, size, {}});
    const NodeId over = g.op(Op::Add, {magnitude, size});
    const NodeId apart = g.op(Op::Sub, {g.op(Op::Abs, {g.op(Op::Sub, {f, s})}), g.read(absolute[i], {})});
    const NodeId far =
        g.op(Op::Where, {g.op(Op::Le, {apart, g.constant(0)}), g.constant(0), g.op(Op::Div, {apart, over})});
    // A comparison with NaN does not hold: what is no number is infinitely far, unless both are none.
    const NodeId number = g.op(Op::Where, {g.op(Op::Lt, {far, infinite}), far, infinite});
    const NodeId both_nan = g.op(Op::Sub, {g.constant(1), g.op(Op::Max, {same(f, f), same(s, s)})});
    NodeId r = g.op(Op::Where, {same(f, s), g.constant(0), g.op(Op::Where, {both_nan, g.constant(0), number})});
    std::vector<AxisId> mixed;
    for (AxisId a : lanes.symbols[lanes.updates[i].symbol].index)
      if (a != lane) mixed.push_back(a);
    if (!mixed.empty()) r = g.reduce_max(mixed, r);
    worst = g.op(Op::Max, {worst, r});
  }
  const NodeId r = g.op(Op::Max, {t.read(residual), worst});
  const NodeId tolerated = g.read(tolerance, {});
  const NodeId within = g.op(Op::Le, {r, tolerated}), here = g.op(Op::Le, {worst, tolerated});
  const NodeId longer = g.op(Op::Add, {t.read(since), g.constant(1)});
  t.cell.updates = {{residual, r, {}},
                    {good, g.op(Op::Add, {t.read(good), within}), {}},
                    {since, g.op(Op::Where, {here, longer, g.constant(0)}), {}}};
  t.cell.updates.insert(t.cell.updates.end(), sizes.begin(), sizes.end());
  t.derived.sinks.clear();  // those of the lane cell
  for (int i = 0; i < static_cast<int>(t.cell.updates.size()); ++i)
    t.derived.sinks.push_back({ArraySink::Kind::Residual, i});
  return std::move(t.derived);
}

}  // namespace derivation

}  // namespace cellc
