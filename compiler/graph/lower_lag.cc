// lag(e, n) and lag[w](e): rewriting of leaves in the scratch graph.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/graph/axes.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/lower_internal.h"

namespace cellc::lowering {

bool Lowering::varies(NodeId node) {
  for (NodeId id = static_cast<NodeId>(varies_.size()); id < graph_.size(); ++id) {
    const Node& n = graph_[id];
    bool result = n.op == Op::Read && (is_prime(n.symbol) || symbols_[n.symbol].kind != SymbolKind::Param);
    for (NodeId a : n.args) result = result || varies_[a];
    varies_.push_back(result);
  }
  return varies_[node];
}

NodeId Lowering::shift(NodeId root, int steps, Span span, Scope& scope) {
  if (steps == 0 || !varies(root)) return root;
  const auto read = [&](NodeId, const Node& node) {
    if (node.op != Op::Read) return kNoNode;
    // h' one step earlier is h itself.
    const bool prime = is_prime(node.symbol);
    const int symbol = prime ? node.symbol - static_cast<int>(symbols_.size()) : node.symbol;
    const int lag = node.lag + steps - prime;
    if (lag > kMaxLag) {
      fail(span,
           fmt::format("'{}' would be read {} steps back; the limit is {}", base_symbol(symbol).name, lag, kMaxLag),
           scope);
      return kNoImage;
    }
    return graph_.read(symbol, node.index, node.span, lag, node.lag_axis);
  };
  Rewriter shifted(graph_, graph_, lag_rules(read, span, scope), &shifted_[steps]);
  const std::vector<NodeId> nodes = shifted.needed({root});
  if (!spend(varying_in(nodes), span, scope) || !shifted.make(nodes)) return kNoNode;
  for (const NodeId id : nodes)
    if (written_out_.contains(id)) written_out_.insert(shifted.image(id));
  return shifted.image(root);
}

/// Only what varies is moved.
RewriteRules Lowering::lag_rules(std::function<NodeId(NodeId, const Node&)> moved, Span span, Scope& scope) {
  RewriteRules rules;
  rules.ends = [this](NodeId id) { return !varies(id); };
  rules.replace = [this, moved = std::move(moved)](NodeId id, const Node& node) {
    return varies(id) ? moved(id, node) : id;
  };
  rules.may_continue = [this, span, &scope] { return !too_large(span, scope); };
  return rules;
}

std::size_t Lowering::varying_in(const std::vector<NodeId>& nodes) {
  return static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), [&](NodeId id) { return varies(id); }));
}

NodeId Lowering::shift_along(NodeId root, AxisId axis, Span span, Scope& scope) {
  if (!varies(root)) return root;
  AxisId along = axis;
  const auto fixed = graph_.axis(axis).fixed;
  const auto read = [&](NodeId id, const Node& node) {
    if (node.op != Op::Read) return kNoNode;
    const Symbol& symbol = base_symbol(node.symbol);
    const bool lined_up = node.lag_axis != kNoAxis;
    if (symbol.kind == SymbolKind::Input && !lined_up)
      return graph_.read(node.symbol, node.index, node.span, node.lag, along);
    if (!fixed || *fixed > kMaxStateLagAxis) {
      fail(span,
           fmt::format("lags of {} '{}' along '{}' need a length that the header fixes, {} at most",
                       lined_up ? "lags of" : "the state", symbol.name, axis_name(axis), kMaxStateLagAxis),
           scope,
           fmt::format("write {}=4 in the header: {}", axis_name(axis),
                       lined_up ? "lags that are lined up already are written out for each of its entries"
                                : "lags of a state are written out for each of its entries"));
      return kNoImage;
    }
    NodeId line_up = kNoNode;
    for (int n = static_cast<int>(*fixed) - 1; n >= 0; --n) {
      const NodeId lagged = shift(id, n, span, scope);
      if (lagged == kNoNode) return kNoImage;
      const NodeId here = graph_.eye(Index{along, 0}, Index{kNoAxis, n}, span);
      line_up = line_up == kNoNode ? lagged : graph_.op(Op::Where, {here, lagged, line_up}, span);
    }
    written_out_.insert(line_up);
    return line_up;
  };
  Rewriter lined_up(graph_, graph_, lag_rules(read, span, scope));
  std::vector<NodeId> nodes = lined_up.needed({root});
  if (!spend(varying_in(nodes), span, scope)) return kNoNode;
  // Inside a sum over w, or under a Reindex, w already means something else: there the lag runs
  // along a copy of w, which is renamed at the end.
  auto occurs = [&](AxisId a) {
    for (NodeId id : nodes) {
      if (!varies(id)) continue;
      const Node& n = graph_[id];
      if (graph_.has_axis(id, a) || contains(n.bound, a)) return true;
      for (const auto& [from, to] : n.map)
        if (from == a || to.axis == a) return true;
    }
    return false;
  };
  for (int n = 1; occurs(along); ++n) along = graph_.copy_axis(axis, n);
  if (!lined_up.make(nodes)) return kNoNode;
  return graph_.reindex(lined_up.image(root), {{along, Index{axis, 0}}}, span);
}

/// Axes of a Reindex's operand that are read at `axis`.
std::vector<AxisId> Lowering::axes_before(const Node& reindex, AxisId axis) const {
  std::vector<AxisId> before;
  for (const AxisId a : graph_[reindex.args[0]].axes) {
    Index to{a, 0};
    for (const auto& [from, target] : reindex.map)
      if (from == a) to = target;
    if (to == Index{axis, 0}) before.push_back(a);
  }
  return before;
}

/// Whether a value chooses, by its place on the axis, among lags that were written out.
bool Lowering::chooses_lags(NodeId root, AxisId axis) const {
  std::vector<std::pair<NodeId, AxisId>> behind;
  bool found = false;
  walk_down(graph_, {root}, [&](NodeId id) {
    if (found || !graph_.has_axis(id, axis)) return Visit::Skip;
    const Node& n = graph_[id];
    found = written_out_.contains(id);
    if (n.op != Op::Reindex) return contains(n.bound, axis) ? Visit::Skip : Visit::Descend;
    for (const AxisId a : axes_before(n, axis)) behind.emplace_back(n.args[0], a);
    return Visit::Skip;
  });
  return found ||
         std::any_of(behind.begin(), behind.end(), [&](const auto& b) { return chooses_lags(b.first, b.second); });
}

/// The value at one place of the axis, in which nothing chooses by that place any more.
NodeId Lowering::at_place(NodeId root, AxisId axis, std::int64_t place, Span span, Scope& scope) {
  RewriteRules rules;
  // A leaf, and what the axis means something else in.
  const auto is_end = [&](NodeId id) {
    const Node& n = graph_[id];
    return !graph_.has_axis(id, axis) || n.args.empty() || n.op == Op::Reindex || contains(n.bound, axis);
  };
  rules.ends = is_end;
  rules.replace = [&](NodeId id, const Node& node) {
    if (!is_end(id)) return kNoNode;
    if (!graph_.has_axis(id, axis)) return id;
    if (node.op != Op::Reindex) return graph_.reindex(id, {{axis, Index{kNoAxis, place}}}, node.span);
    NodeId inner = node.args[0];
    for (const AxisId a : axes_before(node, axis)) {
      inner = at_place(inner, a, place, span, scope);
      if (inner == kNoNode) return kNoImage;
    }
    return graph_.reindex(inner, node.map, node.span);
  };
  rules.by_kind[Op::Where] = [&](const Node& node, const std::vector<NodeId>& args) {
    const Node& chosen = graph_[args[0]];
    if (chosen.op == Op::Constant) return chosen.number != 0 ? args[1] : args[2];
    return graph_.rebuild(node, args);
  };
  rules.may_continue = [&] { return !too_large(span, scope); };
  Rewriter rewriter(graph_, graph_, std::move(rules));
  const std::vector<NodeId> nodes = rewriter.needed({root});
  if (!spend(nodes.size(), span, scope) || !rewriter.make(nodes)) return kNoNode;
  return rewriter.image(root);
}

/// A sum along an axis of lags that were written out is written out as well: each of its terms then reads the one lag
/// that it needs, where the loop would choose among all of them for each term. Other sums are what they always are.
NodeId Lowering::sum_of_lags(std::vector<AxisId> bound, NodeId body, Span span, Scope& scope) {
  for (std::size_t i = 0; i < bound.size();) {
    const auto fixed = graph_.axis(bound[i]).fixed;
    if (!fixed || *fixed > kMaxStateLagAxis || !chooses_lags(body, bound[i])) {
      ++i;
      continue;
    }
    NodeId sum = kNoNode;
    for (std::int64_t n = 0; n < *fixed; ++n) {
      const NodeId term = at_place(body, bound[i], n, span, scope);
      if (term == kNoNode) return kNoNode;
      sum = sum == kNoNode ? term : graph_.op(Op::Add, {sum, term}, span);
    }
    body = sum;
    bound.erase(bound.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return bound.empty() ? body : graph_.reduce_sum(bound, body, span);
}

Value Lowering::lower_lag(const Expr& e, Scope& scope) {
  if (scope.kind == Scope::Kind::Start || scope.kind == Scope::Kind::Default)
    return fail(e.span, "a start or default has no steps before it: lag cannot stand here", scope);
  if (e.has_index) return lag_along_axis(e, scope);
  if (e.args.size() != 2) {
    lower_args(e, scope);
    return fail(e.span,
                fmt::format("lag takes a value and a number of steps, and {} argument{} given", e.args.size(),
                            e.args.size() == 1 ? " is" : "s are"),
                scope, "write lag(x, 1), or lag[w](x) for lags 0, 1, … along an axis w");
  }
  const Value steps_before = lower(*e.args[1], scope);
  const Node* const count = steps_before.poisoned ? nullptr : &graph_[steps_before.node];
  const bool known =
      count && count->op == Op::Constant && count->number >= 0 && count->number == std::floor(count->number);
  const int steps = known && count->number <= kMaxLag ? static_cast<int>(count->number) : 0;
  // h' one step earlier is h, and needs no line above that gives h'.
  steps_back_ += steps;
  Value value = lower(*e.args[0], scope);
  steps_back_ -= steps;
  if (value.poisoned || steps_before.poisoned) return poison();
  if (!known)
    return fail(e.args[1]->span, "the steps of a lag are a whole number, 0 or more, known in the text", scope,
                "write lag(x, 2), or give the number a name on a line of its own");
  if (graph_[steps_before.node].number > kMaxLag)
    return fail(e.args[1]->span,
                fmt::format("a lag of {} steps; the limit is {}", graph_[steps_before.node].number, kMaxLag), scope);
  value.node = shift(value.node, steps, e.span, scope);
  if (value.node == kNoNode) return poison();
  value.symbol = -1;
  if (!value.name.empty()) value.name = fmt::format("lag({}, {})", value.name, steps);
  return value;
}

Value Lowering::lag_along_axis(const Expr& e, Scope& scope) {
  const std::vector<Value> args = lower_args(e, scope);
  if (args.size() != 1 || e.index.size() != 1) return fail(e.span, "lag[w](x) takes one axis and one value", scope);
  const AxisId axis = known_axis(e.index[0], nullptr, scope);
  if (axis == kNoAxis || args[0].poisoned) return poison();
  const Value& value = args[0];
  if (!plain(value, e.args[0]->span, scope)) return poison();
  if (std::find(value.order.begin(), value.order.end(), axis) != value.order.end())
    return fail(e.args[0]->span,
                fmt::format("{} has the axis '{}' already, along which its lags would be lined up", describe(value),
                            axis_name(axis)),
                scope, "use an axis of its own for the lags");
  const NodeId node = shift_along(value.node, axis, e.span, scope);
  if (node == kNoNode) return poison();
  std::vector<AxisId> axes = value.order;
  if (!unite(axes, {axis}, e.span, scope)) return poison();
  return expression_value(node, std::move(axes));
}

}  // namespace cellc::lowering
