#include "compiler/derive/newton_cell.h"

#include <limits>
#include <map>
#include <stdexcept>

#include "compiler/analysis/jacobian.h"
#include "compiler/graph/simplify.h"

namespace cellc {

namespace {

/// A copy of the lane cell in which every state has become two inputs.
class AboutTrajectory {
 public:
  explicit AboutTrajectory(const CellGraph& lanes) : cell(lanes) {
    for (const StateUpdate& u : lanes.updates) {
      before.push_back(add_input("before." + lanes.symbols[u.symbol].name, u.symbol));
      before_of_[u.symbol] = before.back();
    }
  }

  int add_input(const std::string& name, int like) {
    Symbol s = cell.symbols[like];
    s.name = name;
    s.kind = SymbolKind::Input;
    s.initial = kNoNode;
    s.range.reset();
    cell.symbols.push_back(std::move(s));
    return static_cast<int>(cell.symbols.size()) - 1;
  }

  /// `root` with the states read from the trajectory.
  NodeId about(NodeId root) {
    Graph& g = cell.graph;
    for (NodeId id : reachable(g, {root})) {
      if (image_.count(id)) continue;
      Node n = g[id];
      bool same = true;
      if (n.op == Op::Read) {
        if (auto it = before_of_.find(n.symbol); it != before_of_.end()) n.symbol = it->second, same = false;
      }
      std::vector<NodeId> args;
      for (NodeId a : n.args) args.push_back(image_.at(a));
      same &= args == n.args;
      image_[id] = same ? id : g.rebuild(n, std::move(args));
    }
    return image_.at(root);
  }

  NodeId read(int symbol) {
    std::vector<Index> at;
    for (AxisId a : cell.symbols[symbol].index) at.push_back({a, 0});
    return cell.graph.read(symbol, std::move(at));
  }

  CellGraph cell;
  std::vector<int> before;

 private:
  std::map<int, int> before_of_;
  std::map<NodeId, NodeId> image_;
};

}  // namespace

NewtonCell linearised(const CellGraph& lanes, AxisId lane) {
  AboutTrajectory t(lanes);
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
  return {std::move(t.cell), std::move(t.before)};
}

NewtonCell evaluated(const CellGraph& lanes) {
  AboutTrajectory t(lanes);
  for (StateUpdate& u : t.cell.updates) u.value = t.about(u.value);
  return {std::move(t.cell), std::move(t.before)};
}

ResidualCell residual(const CellGraph& lanes, AxisId lane) {
  AboutTrajectory t(lanes);
  Graph& g = t.cell.graph;
  ResidualCell result;
  std::vector<NodeId> values;
  for (const StateUpdate& u : lanes.updates) {
    values.push_back(t.about(u.value));
    result.value.push_back(t.add_input("value." + lanes.symbols[u.symbol].name, u.symbol));
  }
  Symbol tolerance;
  tolerance.name = "tolerance";
  tolerance.kind = SymbolKind::Param;
  t.cell.symbols.push_back(tolerance);
  result.tolerance = static_cast<int>(t.cell.symbols.size()) - 1;

  const NodeId infinite = g.constant(std::numeric_limits<double>::infinity());
  NodeId worst = g.constant(0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const NodeId f = values[i], s = t.read(result.value[i]);
    const auto same = [&](NodeId a, NodeId b) { return g.op(Op::Eq, {a, b}); };
    const NodeId size = g.op(Op::Add, {g.constant(1), g.op(Op::Abs, {s})});
    const NodeId far = g.op(Op::Div, {g.op(Op::Abs, {g.op(Op::Sub, {f, s})}), size});
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
  const auto add_state = [&](const char* name) {
    Symbol s;
    s.name = name;
    s.kind = SymbolKind::State;
    s.axes = s.index = {lane};
    t.cell.symbols.push_back(std::move(s));
    return static_cast<int>(t.cell.symbols.size()) - 1;
  };
  const int residual = add_state("residual"), good = add_state("good"), since = add_state("since");
  const NodeId r = g.op(Op::Max, {t.read(residual), worst});
  const NodeId tolerated = g.read(result.tolerance, {});
  const NodeId within = g.op(Op::Le, {r, tolerated}), here = g.op(Op::Le, {worst, tolerated});
  const NodeId longer = g.op(Op::Add, {t.read(since), g.constant(1)});
  t.cell.updates = {{residual, r, {}},
                    {good, g.op(Op::Add, {t.read(good), within}), {}},
                    {since, g.op(Op::Where, {here, longer, g.constant(0)}), {}}};
  result.cell = std::move(t.cell);
  result.before = std::move(t.before);
  return result;
}

}  // namespace cellc
