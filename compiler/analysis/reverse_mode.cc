#include "compiler/analysis/reverse_mode.h"

#include <algorithm>
#include <set>

#include "compiler/analysis/derivative_rules.h"
#include "compiler/graph/axes.h"
#include "compiler/graph/graph_walk.h"

namespace cellc {

NodeId sum_of(Graph& graph, const std::vector<NodeId>& terms) {
  NodeId total = terms.front();
  for (std::size_t i = 1; i < terms.size(); ++i) total = graph.op(Op::Add, {total, terms[i]});
  return total;
}

void ReverseMode::seed(NodeId node, const std::vector<AxisId>& index, NodeId cotangent) {
  add_summed(node, index, cotangent);
}

ReverseMode::Terms ReverseMode::run() {
  Terms reads;
  // Users have larger ids than operands, and nothing that is added here is passed on by another: when a node's turn
  // comes, all its users have had theirs.
  while (!terms_.empty()) {
    const auto last = std::prev(terms_.end());
    const NodeId node = last->first;
    const Node& n = g_[node];
    if (n.op != Op::Read) {
      pass(node);
      terms_.erase(node);
      continue;
    }
    const Symbol& symbol = cell_.symbols[static_cast<std::size_t>(n.symbol)];
    Places places;
    for (std::size_t p = 0; p < n.index.size(); ++p) places.emplace_back(symbol.index[p], n.index[p]);
    ArrayRead read{n.symbol, n.lag, n.lag_axis};
    if (n.lag_axis != kNoAxis) {
      // x[w] read at one entry and lagged along w: the lags get an axis that none of its places has.
      for (int copy = 1; contains(symbol.index, read.lag_axis); ++copy) read.lag_axis = g_.copy_axis(n.lag_axis, copy);
      places.emplace_back(read.lag_axis, Index{n.lag_axis, 0});
    }
    const std::vector<NodeId> terms = last->second;
    for (const NodeId term : terms) reads[read].push_back(spread(term, places));
    terms_.erase(node);
  }
  return reads;
}

void ReverseMode::add(NodeId node, NodeId term) {
  if (!g_.is_constant(term, 0)) terms_[node].push_back(term);
}

void ReverseMode::add_summed(NodeId node, const std::vector<AxisId>& axes_of_term, NodeId term) {
  std::vector<AxisId> repeated;
  for (const AxisId a : axes_of_term)
    if (!contains(g_[node].axes, a)) repeated.push_back(a);
  add(node, repeated.empty() ? term : g_.reduce_sum(repeated, term));
}

NodeId ReverseMode::total(NodeId node) { return sum_of(g_, terms_.at(node)); }

void ReverseMode::pass(NodeId node) {
  const Node n = g_[node];  // a copy: the graph grows
  switch (n.op) {
    case Op::Constant:
    case Op::Size:
    case Op::Read:
    case Op::Eye:
    case Op::OneHot:
    case Op::MaxShare:  // which entries are the largest jumps
      return;
    case Op::ReduceSum:  // every entry of the body counts once
      for (const NodeId term : std::vector<NodeId>(terms_.at(node))) add(n.args[0], term);
      return;
    case Op::Add:
      for (const NodeId operand : n.args)
        for (const NodeId term : std::vector<NodeId>(terms_.at(node))) add_summed(operand, n.axes, term);
      return;
    case Op::ReduceMax: {
      const NodeId share = g_.max_share(n.bound, n.args[0]);
      add(n.args[0], chain_(node, 0, share, total(node)));
      return;
    }
    case Op::Softmax: {
      // The transpose of ∂s = s (∂e − Σ s ∂e) is itself.
      const NodeId whole = total(node);
      const NodeId mean = g_.reduce_sum(n.bound, product_of(g_, node, whole));
      add(n.args[0], product_of(g_, node, g_.op(Op::Sub, {whole, mean})));
      return;
    }
    case Op::Reindex: {
      Places places;
      for (const AxisId a : g_[n.args[0]].axes) {
        Index at{a, 0};
        for (const auto& [from, to] : n.map)
          if (from == a) at = to;
        places.emplace_back(a, at);
      }
      for (const NodeId term : std::vector<NodeId>(terms_.at(node))) add(n.args[0], spread(term, places));
      return;
    }
    case Op::Surrogate: {
      const NodeId whole = total(node);
      const std::size_t count = (n.args.size() - 1) / 2;
      for (std::size_t i = 0; i < count; ++i) {
        const NodeId argument = n.args[1 + i], slope = n.args[1 + count + i];
        std::vector<AxisId> axes = n.axes;
        axes.insert(axes.end(), g_[slope].axes.begin(), g_[slope].axes.end());
        std::sort(axes.begin(), axes.end());
        axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
        add_summed(argument, axes, product_of(g_, slope, whole));
      }
      return;
    }
    default:
      break;
  }
  if (n.op == Op::StopGradient) return;
  const NodeId whole = total(node);
  // The same operand twice (h*h) is met at both places; each contributes its own slope.
  for (int i = 0; i < static_cast<int>(n.args.size()); ++i) {
    const NodeId slope = slope_of(g_, node, i, SlopeRule::True), zero = g_.constant(0);
    if (g_.is_constant(slope, 0)) continue;
    NodeId term;
    if (n.op == Op::Where)  // what is not taken gets nothing, though its cotangent be no number
      term = g_.op(Op::Where, {n.args[0], i == 1 ? whole : zero, i == 1 ? zero : whole});
    else if (slope_formula(n.op, i).chooses())
      term = g_.op(Op::Where, {slope, whole, zero});
    else
      term = g_.is_constant(slope, -1) ? g_.op(Op::Neg, {whole}) : chain_(node, i, slope, whole);
    add_summed(n.args[static_cast<std::size_t>(i)], n.axes, term);
  }
}

NodeId ReverseMode::spread(NodeId term, const Places& places) {
  // An axis goes to the first place that it reads; the others are tied to that one.
  std::map<AxisId, AxisId> place_of;
  std::vector<std::pair<AxisId, Index>> map;
  std::vector<NodeId> ties;
  for (const auto& [place, at] : places) {
    if (!at.is_axis()) {
      ties.push_back(g_.eye({place, 0}, at));
      continue;
    }
    const auto [first, fresh] = place_of.emplace(at.axis, place);
    if (fresh)
      map.emplace_back(at.axis, Index{place, 0});
    else
      ties.push_back(g_.eye({first->second, 0}, {place, 0}));
  }
  NodeId result = renamed(term, map);
  for (const NodeId tie : ties) result = product_of(g_, result, tie);
  return result;
}

NodeId ReverseMode::renamed(NodeId term, const std::vector<std::pair<AxisId, Index>>& map) {
  const Node n = g_[term];
  bool same = true;
  for (const auto& [from, to] : map) same = same && (!contains(n.axes, from) || to == Index{from, 0});
  if (same) return term;
  if (n.op == Op::Neg) return g_.op(Op::Neg, {renamed(n.args[0], map)});
  if (n.op != Op::ReduceSum) return g_.reindex(term, map);
  // Bound axes get names that are free neither in the body nor in what is put in.
  std::set<AxisId> taken(g_[n.args[0]].axes.begin(), g_[n.args[0]].axes.end());
  for (const AxisId b : n.bound) taken.erase(b);
  for (const auto& [from, to] : map)
    if (to.is_axis()) taken.insert(to.axis);
  std::vector<std::pair<AxisId, Index>> inside;
  for (const auto& pair : map)
    if (contains(n.axes, pair.first)) inside.push_back(pair);
  std::vector<AxisId> bound;
  for (const AxisId b : n.bound) {
    AxisId name = b;
    for (int copy = 1; taken.contains(name); ++copy) name = g_.copy_axis(b, copy);
    taken.insert(name);
    bound.push_back(name);
    if (name != b) inside.emplace_back(b, Index{name, 0});
  }
  const Node body = g_[n.args[0]];
  NodeId moved;
  if (is_elementwise(body.op)) {
    std::vector<NodeId> args;
    for (const NodeId a : body.args) args.push_back(g_.reindex(a, inside));
    moved = g_.op(body.op, std::move(args), body.span);
  } else {
    moved = g_.reindex(n.args[0], inside);
  }
  return g_.reduce_sum(bound, moved, n.span);
}

}  // namespace cellc
