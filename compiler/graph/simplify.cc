#include "compiler/graph/simplify.h"

#include <algorithm>
#include <cmath>

#include "compiler/graph/axes.h"
#include "compiler/graph/graph_walk.h"

namespace cellc {

namespace {

// Reductions that keep their axes: each entry relative to all of them.
bool is_normalised(Op op) { return op == Op::Softmax || op == Op::MaxShare; }

// Sums of more terms than this are kept as they stand: every prefix of a chain of n additions has
// a form of its own, so unbounded forms would need n^2 memory for a cell that is one long sum.
constexpr std::size_t kMaxTerms = 64;

// Products of more atoms likewise: a slope through a chain of n states has a factor for each, and there are
// n^2/2 such slopes.
constexpr std::size_t kMaxFactors = 32;

std::size_t factors(const Polynomial& p) { return p.size() == 1 ? p.begin()->first.size() : 1; }

// No power of an atom grows past this, so that no sum or product of two powers overflows: what would
// becomes an atom of its own. A node Pow with so large an exponent is read as an atom too.
constexpr int kMaxPower = 1 << 20;

/// Where a renaming takes an axis; all of it happens at once, so an axis moves one step.
Index image(AxisId axis, const std::vector<std::pair<AxisId, Index>>& map) {
  for (const auto& [from, to] : map)
    if (from == axis) return to;
  return {axis, 0};
}

Polynomial scaled(const Polynomial& p, double factor) {
  if (factor == 0) return {};
  Polynomial result = p;
  for (auto& [m, c] : result) c *= factor;
  return result;
}

Polynomial sum(const Polynomial& a, const Polynomial& b, double sign) {
  Polynomial result = a;
  for (const auto& [m, c] : b) {
    auto [it, fresh] = result.emplace(m, sign * c);
    if (fresh) continue;
    it->second += sign * c;
    if (it->second == 0) result.erase(it);
  }
  return result;
}

}  // namespace

NodeId Simplifier::simplify(NodeId node) {
  settle(node);
  return canonical(node);
}

void Simplifier::settle(NodeId node) {
  // Only what is new: most of what a coefficient reads was met in the ones before it. Ascending order makes every
  // call below find its operands done: no deep recursion.
  for (const NodeId n :
       walk_down(graph_, {node}, [&](NodeId id) { return canonical_.contains(id) ? Visit::Skip : Visit::Descend; }))
    canonical(n);
}

Polynomial Simplifier::polynomial(NodeId node) {
  settle(node);
  return form(node);
}

NodeId Simplifier::canonical(NodeId node) {
  if (auto it = canonical_.find(node); it != canonical_.end()) return it->second;
  const NodeId result = build(form(node));
  canonical_[node] = result;
  canonical_[result] = result;
  forms_.try_emplace(result, forms_.at(node));
  return result;
}

const Polynomial& Simplifier::form(NodeId node) {
  if (auto it = forms_.find(node); it != forms_.end()) return it->second;
  Polynomial p = form_of(node);
  return forms_[node] = std::move(p);
}

std::pair<double, Monomial> Simplifier::as_factor(const Polynomial& p) {
  if (p.empty()) return {0, {}};
  if (p.size() == 1) return {p.begin()->second, p.begin()->first};
  // A sum becomes one atom; its sign is chosen so that x - y and y - x share it.
  const double sign = p.begin()->second < 0 ? -1 : 1;
  const Polynomial positive = scaled(p, sign);
  const NodeId atom = build(positive);
  forms_.try_emplace(atom, positive);
  canonical_.try_emplace(atom, atom);
  return {sign, {{atom, 1}}};
}

Polynomial Simplifier::multiply(const Polynomial& a, const Polynomial& b) {
  if (a.empty() || b.empty()) return {};
  // A plain number is distributed over a sum; anything else keeps the sum whole.
  if (a.size() == 1 && a.begin()->first.empty()) return scaled(b, a.begin()->second);
  if (b.size() == 1 && b.begin()->first.empty()) return scaled(a, b.begin()->second);
  const auto [ca, ma] = as_factor(a);
  const auto [cb, mb] = as_factor(b);
  Monomial m = product(ma, mb);
  // What cancelled may leave a bare sum (x*(a+b)/x): give its terms back.
  if (m.size() == 1 && m[0].second == 1) return scaled(form(m[0].first), ca * cb);
  return {{std::move(m), ca * cb}};
}

Polynomial Simplifier::power(const Polynomial& a, int exponent) {
  if (exponent == 0) return {{{}, 1.0}};
  if (exponent == 1) return a;
  const auto [c, m] = as_factor(a);
  if (c == 0) return exponent > 0 ? Polynomial{} : Polynomial{{{}, std::pow(0.0, exponent)}};
  Monomial raised;
  for (const auto& factor : m) {
    const std::int64_t total = std::int64_t{factor.second} * exponent;
    const bool fits = std::abs(total) <= kMaxPower;
    raised = product(raised, fits ? Monomial{{factor.first, static_cast<int>(total)}} : raised_atom(factor, exponent));
  }
  return {{std::move(raised), std::pow(c, exponent)}};
}

Monomial Simplifier::raised_atom(std::pair<NodeId, int> factor, int exponent) {
  const int sign = factor.second < 0 ? -1 : 1;
  return {{build(Monomial{{factor.first, std::abs(factor.second)}}, 1), sign * exponent}};
}

Monomial Simplifier::product(const Monomial& a, const Monomial& b) {
  Monomial result, apart;
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i].first < b[j].first)) {
      result.push_back(a[i++]);
    } else if (i == a.size() || b[j].first < a[i].first) {
      result.push_back(b[j++]);
    } else {
      const auto &x = a[i++], &y = b[j++];
      const int power = x.second + y.second;
      if (std::abs(power) > kMaxPower) {
        const bool swap = std::abs(y.second) > std::abs(x.second);
        apart = product(apart, raised_atom(swap ? y : x, 1));
        result.push_back(swap ? x : y);
      } else if (power) {
        result.emplace_back(x.first, power);
      }
    }
  }
  return apart.empty() ? result : product(result, apart);
}

Polynomial Simplifier::sum_over(const std::vector<AxisId>& bound, const Polynomial& body) {
  Polynomial result;
  for (const auto& [monomial, coefficient] : body) {
    std::vector<AxisId> left = bound;
    Monomial inner = monomial;
    // Identities first: each ties one bound axis to something else and removes the sum over it.
    for (bool again = true; again;) {
      again = false;
      for (std::size_t i = 0; i < inner.size() && !again; ++i) {
        const Node& n = graph_[inner[i].first];
        if ((n.op != Op::Eye && n.op != Op::OneHot) || inner[i].second < 1) continue;
        for (int side = 0; side < 2; ++side) {
          const Index tied = n.index[side], other = n.index[1 - side];
          auto it = tied.is_axis() ? std::find(left.begin(), left.end(), tied.axis) : left.end();
          if (it == left.end()) continue;
          left.erase(it);
          Polynomial rest{{{}, 1.0}};
          for (std::size_t j = 0; j < inner.size(); ++j) {
            if (j == i) continue;
            const NodeId moved = substitute(inner[j].first, {{tied.axis, other}});
            rest = multiply(rest, power(form(moved), inner[j].second));
          }
          if (rest.empty()) {
            inner.clear();
            left.assign(1, kNoAxis);  // the whole term is zero
          } else {
            const auto [c, m] = as_factor(rest);
            inner = m;
            if (c != 1) inner = product(inner, {{graph_.constant(c), 1}});
          }
          again = true;
          break;
        }
      }
      if (left.size() == 1 && left[0] == kNoAxis) break;
    }
    if (left.size() == 1 && left[0] == kNoAxis) continue;
    Monomial outer, kept;
    for (const auto& factor : inner) {
      const bool runs =
          std::any_of(left.begin(), left.end(), [&](AxisId b) { return graph_.has_axis(factor.first, b); });
      (runs ? kept : outer).push_back(factor);
    }
    Polynomial term{{{}, coefficient}};
    for (const auto& [atom, p] : outer) term = multiply(term, power(form(atom), p));
    if (!left.empty()) {
      // A lone sum is taken apart: sum(a + b) = sum(a) + sum(b).
      if (kept.size() == 1 && kept[0].second == 1 && form(kept[0].first).size() > 1) {
        term = multiply(term, sum_over(left, form(kept[0].first)));
      } else {
        NodeId inside = build(kept, 1);
        const std::vector<AxisId> names = canonical_bound(left, inside);
        const NodeId summed = graph_.reduce_sum(names, inside);
        if (graph_[summed].op == Op::ReduceSum) {
          term = multiply(term, {{{{summed, 1}}, 1.0}});
        } else {
          term = multiply(term, form(summed));
        }
      }
    }
    result = sum(result, term, 1);
  }
  return result;
}

std::vector<NodeId> Simplifier::above_reductions(NodeId root) const {
  return walk_down(graph_, {root}, [&](NodeId id) {
    const Op op = graph_[id].op;
    return op == Op::ReduceSum || op == Op::ReduceMax ? Visit::Stop : Visit::Descend;
  });
}

NodeId Simplifier::substitute(NodeId root, std::vector<std::pair<AxisId, Index>> map) {
  // Pushes a renaming of index variables to the leaves of a canonical node. A sum renames what is
  // below it by itself (substitute_under), so the walk stops there; and what several sums read, as
  // in layer upon layer of U@tanh(v), is renamed once. Either alone would take a time that doubles
  // with every layer.
  std::erase_if(map, [&](const auto& entry) { return !graph_.has_axis(root, entry.first); });
  std::sort(map.begin(), map.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::int64_t> key{root};
  for (const auto& [from, to] : map) key.insert(key.end(), {from, to.axis, to.literal});
  if (const auto known = substituted_.find(key); known != substituted_.end()) return known->second;
  std::unordered_map<NodeId, NodeId> done;
  for (NodeId id : above_reductions(root)) {
    const Node n = graph_[id];  // by value: new nodes may move the old ones
    const bool touched = std::any_of(map.begin(), map.end(), [&](const auto& entry) {
      return std::binary_search(n.axes.begin(), n.axes.end(), entry.first);
    });
    if (!touched) {
      done[id] = id;
    } else if (is_elementwise(n.op)) {
      std::vector<NodeId> args;
      for (NodeId a : n.args) args.push_back(done.at(a));
      done[id] = graph_.op(n.op, std::move(args), n.span);
    } else if (n.op == Op::ReduceSum || n.op == Op::ReduceMax) {
      done[id] = substitute_under(id, map);
    } else if (is_normalised(n.op) && !picks_from(n, map)) {
      std::vector<AxisId> bound = n.bound;
      for (AxisId& b : bound) b = image(b, map).axis;
      done[id] = n.op == Op::Softmax ? graph_.softmax(bound, done.at(n.args[0]), n.span)
                                     : graph_.max_share(bound, done.at(n.args[0]), n.span);
    } else {
      done[id] = graph_.reindex(id, map, n.span);
    }
  }
  // The pieces above are plain nodes: bring them into canonical order, operands first.
  const NodeId moved = done.at(root);
  settle(moved);
  return substituted_[std::move(key)] = canonical(moved);
}

bool Simplifier::picks_from(const Node& n, const std::vector<std::pair<AxisId, Index>>& map) {
  // One entry of a softmax or of a share of the maximum, or either read along a diagonal, has no
  // form without the Reindex. Axes that only change names, or swap them, make no diagonal.
  for (AxisId b : n.bound) {
    const Index at = image(b, map);
    if (!at.is_axis()) return true;
    for (AxisId other : n.axes)
      if (other != b && image(other, map) == at) return true;
  }
  return false;
}

NodeId Simplifier::substitute_under(NodeId reduction, std::vector<std::pair<AxisId, Index>> map) {
  // A sum's bound axis hides an outer one of the same name, and must not capture a target: then it
  // takes another copy, the smallest that is free nowhere in sight.
  const Node n = graph_[reduction];
  std::erase_if(map, [&](const auto& entry) {
    return std::binary_search(n.bound.begin(), n.bound.end(), entry.first) || !graph_.has_axis(n.args[0], entry.first);
  });
  const auto is_target = [&](AxisId axis) {
    return std::any_of(map.begin(), map.end(), [&](const auto& e) { return e.second == Index{axis, 0}; });
  };
  std::vector<AxisId> bound = n.bound;
  for (AxisId& b : bound) {
    if (!is_target(b)) continue;
    AxisId fresh = b;
    for (int i = 1; is_target(fresh) || graph_.has_axis(n.args[0], fresh) || contains(bound, fresh); ++i)
      fresh = graph_.copy_axis(b, i);
    map.emplace_back(b, Index{fresh, 0});
    b = fresh;
  }
  const NodeId body = substitute(n.args[0], map);
  return n.op == Op::ReduceSum ? graph_.reduce_sum(bound, body, n.span) : graph_.reduce_max(bound, body, n.span);
}

std::vector<AxisId> Simplifier::canonical_bound(std::vector<AxisId> bound, NodeId& body) {
  // Sums that differ only in the name of what they sum over must be one node: each bound axis
  // becomes the header axis of its length, or its first copy, that is not free in the result.
  std::vector<AxisId> taken;
  for (AxisId a : graph_[body].axes)
    if (std::find(bound.begin(), bound.end(), a) == bound.end()) taken.push_back(a);
  std::vector<std::pair<AxisId, Index>> map;
  for (AxisId& b : bound) {
    AxisId name = graph_.axis(b).extent_of;
    for (int i = 1; std::find(taken.begin(), taken.end(), name) != taken.end(); ++i)
      name = graph_.copy_axis(graph_.axis(b).extent_of, i);
    taken.push_back(name);
    if (name != b) map.emplace_back(b, Index{name, 0});
    b = name;
  }
  if (!map.empty()) body = substitute(body, map);
  return bound;
}

Polynomial Simplifier::form_of(NodeId node) {
  const Node n = graph_[node];
  auto atom = [&](NodeId id) -> Polynomial { return {{{{id, 1}}, 1.0}}; };
  auto arg = [&](int i) -> const Polynomial& { return form(n.args[i]); };
  auto rebuilt = [&] {
    std::vector<NodeId> args;
    for (NodeId a : n.args) args.push_back(canonical(a));
    return graph_.op(n.op, std::move(args), n.span);
  };
  switch (n.op) {
    case Op::Constant:
      return n.number == 0 ? Polynomial{} : Polynomial{{{}, n.number}};
    case Op::Add:
    case Op::Sub: {
      if (arg(0).size() + arg(1).size() > kMaxTerms) {
        const NodeId kept = rebuilt();
        canonical_.try_emplace(kept, kept);
        return atom(kept);
      }
      return sum(arg(0), arg(1), n.op == Op::Add ? 1 : -1);
    }
    case Op::Neg:
      return scaled(arg(0), -1);
    case Op::Mul: {
      const Polynomial a = arg(0), b = arg(1);
      if (factors(a) + factors(b) > kMaxFactors) {
        const NodeId kept = rebuilt();
        canonical_.try_emplace(kept, kept);
        return atom(kept);
      }
      return multiply(a, b);
    }
    case Op::Div: {
      const Polynomial a = arg(0), b = arg(1);
      return multiply(a, power(b, -1));
    }
    case Op::Square:
      return power(arg(0), 2);
    case Op::Pow: {
      const NodeId exponent = canonical(n.args[1]);
      if (graph_[exponent].op == Op::Constant) {
        const double e = graph_[exponent].number;
        if (e == std::round(e) && std::fabs(e) <= 64) return power(arg(0), static_cast<int>(e));
      }
      break;
    }
    case Op::StopGradient:
    case Op::Surrogate:
      return arg(0);
    case Op::Where: {
      const NodeId c = canonical(n.args[0]), a = canonical(n.args[1]), b = canonical(n.args[2]);
      if (a == b) return form(a);
      if (graph_[c].op == Op::Constant) return form(graph_[c].number != 0 ? a : b);
      break;
    }
    case Op::Min:
    case Op::Max:
      if (canonical(n.args[0]) == canonical(n.args[1])) return arg(0);
      break;
    case Op::Reindex: {
      const NodeId body = canonical(n.args[0]);
      if (is_normalised(graph_[body].op) && picks_from(graph_[body], n.map)) {
        const NodeId kept = graph_.reindex(body, n.map, n.span);
        if (kept == node || graph_[kept].op == Op::Reindex) return atom(kept);
        return form(kept);
      }
      return form(substitute(body, n.map));
    }
    case Op::ReduceSum: {
      const Polynomial body = arg(0);
      return sum_over(n.bound, body);
    }
    case Op::ReduceMax:
    case Op::Softmax:
    case Op::MaxShare: {
      NodeId body = canonical(n.args[0]);
      const std::vector<AxisId> bound = n.op == Op::ReduceMax ? canonical_bound(n.bound, body) : n.bound;
      const NodeId r = n.op == Op::ReduceMax ? graph_.reduce_max(bound, body, n.span)
                       : n.op == Op::Softmax ? graph_.softmax(bound, body, n.span)
                                             : graph_.max_share(bound, body, n.span);
      if (r == node || graph_[r].op == n.op) return atom(r);
      return form(r);
    }
    default:
      break;
  }
  if (!is_elementwise(n.op)) return atom(node);
  const NodeId r = rebuilt();
  if (graph_[r].op == Op::Constant) return form(r);
  return atom(r);
}

NodeId Simplifier::build(const Monomial& m, double coefficient) {
  NodeId above = kNoNode, below = kNoNode;
  for (const auto& [atom, p] : m) {
    const int n = std::abs(p);
    const NodeId f = n == 1   ? atom
                     : n == 2 ? graph_.op(Op::Square, {atom})
                              : graph_.op(Op::Pow, {atom, graph_.constant(n)});
    NodeId& side = p > 0 ? above : below;
    side = side == kNoNode ? f : graph_.op(Op::Mul, {side, f});
  }
  if (above == kNoNode) {
    above = graph_.constant(coefficient);
  } else if (coefficient == -1) {
    above = graph_.op(Op::Neg, {above});
  } else if (coefficient != 1) {
    above = graph_.op(Op::Mul, {graph_.constant(coefficient), above});
  }
  return below == kNoNode ? above : graph_.op(Op::Div, {above, below});
}

NodeId Simplifier::build(const Polynomial& p) {
  if (p.empty()) return graph_.constant(0);
  // Begin with a positive term where there is one: 1 - z rather than -z + 1.
  auto first = p.begin();
  while (first != p.end() && first->second < 0) ++first;
  if (first == p.end()) first = p.begin();
  NodeId result = build(first->first, first->second);
  for (auto it = p.begin(); it != p.end(); ++it) {
    if (it == first) continue;
    const bool minus = it->second < 0;
    result = graph_.op(minus ? Op::Sub : Op::Add, {result, build(it->first, std::fabs(it->second))});
  }
  return result;
}

}  // namespace cellc
