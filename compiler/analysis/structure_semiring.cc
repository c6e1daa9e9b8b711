// Linear over a semiring, though not over numbers.
//
// Where ⊕ is the maximum, the minimum or the log of a sum of exponentials, and what it adds up are states with
// something added to each, steps compose as matrices do, with ⊕ for + and + for ×. The neutral element is −infinity (of
// the minimum infinity).
//
//   has it:   Viterbi max[i](h[i] + A[i,j]) + e[j]; the forward pass of an HMM or a CRF, logsumexp[i](h[i] + A[i,j]) +
//             e[j]; shortest paths min(p + a, q + b); h + softplus(x - h), which is log(exp(h) + exp(x))
//   lacks it: max(2*h, x), which doubles (for one number that is a clip); max(h, -g); log(exp(h) - exp(x))
//
// An expression is a ⊕ of terms: each has a power of what holds states, and a coefficient that is free of them. In the
// end a term has one state once, or none. Under way it may have others: a stabiliser m, taken off every exponent and
// added again, cancels whatever it is. So do products of exponentials, which is how W[i,j]*exp(h[i] - m) is read. The
// greater and the smaller of two are the two, in whichever order: max(p, q) + log(1 + exp(-abs(p - q))), and
// where(p > q, p + log(1 + exp(q - p)), q + log(1 + exp(p - q))).
//
// Larger than most (SemiringRecogniser): values and their weights are read by each other, in the same terms.
//
// What it saves: one scan instead of one step after another. A scan of N coupled entries costs N times the work.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "compiler/analysis/semiring.h"
#include "compiler/analysis/structure_rules.h"
#include "compiler/graph/logsumexp.h"

namespace cellc {

namespace {

struct Term {
  std::map<NodeId, int> powers;  ///< of what holds states, by node
  NodeId coefficient = kNoNode;
  std::vector<AxisId> bound;  ///< sorted
  bool operator==(const Term&) const = default;
};
using Terms = std::vector<Term>;

class SemiringRecogniser {
 public:
  SemiringRecogniser(CellGraph& cell, Simplifier& s, std::set<int> own, Scannable kind, bool proved)
      : cell_(cell), g_(cell.graph), s_(s), own_(std::move(own)), depends_(g_, own_), kind_(kind), proved_(proved) {}

  std::optional<Terms> of(NodeId update) {
    std::optional<Terms> terms = value(s_.simplify(update), 1, 0);
    if (terms)
      for (Term& t : *terms) t.coefficient = s_.simplify(t.coefficient);
    return terms;
  }

 private:
  static constexpr int kMaxDepth = 40, kMostLooks = 600;
  static constexpr std::size_t kMostTerms = 64;

  bool free(NodeId node) { return !depends_(node); }
  bool logs() const { return kind_ == Scannable::LogPlus; }
  Term nothing() { return {{}, g_.constant(0), {}}; }

  /// What `sign` times a node is the ⊕ of.
  std::optional<Terms> value(NodeId node, int sign, int depth) {
    if (depth > kMaxDepth || ++looks_ > kMostLooks) return std::nullopt;
    Terms total{nothing()};
    Polynomial rest;
    const Polynomial form = s_.polynomial(node);
    for (const auto& [monomial, factor] : form) {
      if (std::all_of(monomial.begin(), monomial.end(), [&](const auto& f) { return free(f.first); })) {
        rest[monomial] = sign * factor;
        continue;
      }
      std::optional<Terms> part;
      if (monomial.size() == 1 && monomial[0].second == 1 && (factor == 1 || factor == -1)) {
        part = atom(monomial[0].first, factor > 0 ? sign : -sign, depth + 1);
      } else {
        // Whatever it is, it may cancel against itself.
        if (factor != static_cast<int>(factor)) return std::nullopt;
        Term whole = nothing();
        whole.powers[s_.build(monomial, 1)] = sign * static_cast<int>(factor);
        part = Terms{whole};
      }
      if (!part) return std::nullopt;
      std::optional<Terms> both = product(total, *part);
      if (!both) return std::nullopt;
      total = std::move(*both);
    }
    if (!rest.empty()) {
      Term added = nothing();
      added.coefficient = s_.build(rest);
      std::optional<Terms> both = product(total, {added});
      if (!both) return std::nullopt;
      total = std::move(*both);
    }
    return logs() && sign > 0 ? without_order(std::move(total), depth) : total;
  }

  /// Of two terms that are the same but for the greater of p and q in one and the smaller in the other: the same with p
  /// in one and q in the other. The smaller is also max(p, q) - abs(p - q), the greater min(p, q) + abs(p - q).
  std::optional<Terms> without_order(Terms terms, int depth) {
    for (std::size_t i = 0; i < terms.size(); ++i)
      for (const auto& factor : std::map<NodeId, int>(terms[i].powers)) {
        const NodeId node = factor.first;  // by name: clang before 16 captures no structured binding
        const Node n = g_[node];
        if (factor.second != 1 || (n.op != Op::Max && n.op != Op::Min)) continue;
        Term rest = terms[i];
        rest.powers.erase(node);
        const auto other = std::find_if(terms.begin(), terms.end(), [&](const Term& t) {
          return t.bound == rest.bound && same_value(t.coefficient, rest.coefficient) &&
                 is_other(t.powers, rest.powers, node);
        });
        if (other == terms.end()) continue;
        std::optional<Terms> two;
        if (const auto first = value(n.args[0], 1, depth + 1), second = value(n.args[1], 1, depth + 1);
            first && second) {
          const auto one = product({rest}, *first), another = product({rest}, *second);
          if (one && another) two = joined(one, another);
        }
        if (!two) continue;
        const auto at = static_cast<std::size_t>(other - terms.begin());
        terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(std::max(i, at)));
        terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(std::min(i, at)));
        terms.insert(terms.end(), two->begin(), two->end());
        if (terms.size() > kMostTerms) return std::nullopt;
        return without_order(std::move(terms), depth + 1);
      }
    return terms;
  }

  /// Whether `powers` are `rest` with the other one of what `node` is the greater or the smaller.
  bool is_other(std::map<NodeId, int> powers, const std::map<NodeId, int>& rest, NodeId node) {
    const Node of = g_[node];  // nodes move where others are made
    const NodeId p = of.args[0], q = of.args[1];
    const bool greater = of.op == Op::Max;
    const auto take = [&](NodeId at, int power) {
      if ((powers[at] -= power) == 0) powers.erase(at);
    };
    for (const auto& [at, power] : std::map<NodeId, int>(powers)) {
      const Node n = g_[at];
      if (n.op == (greater ? Op::Min : Op::Max) && power == 1 &&
          ((n.args[0] == p && n.args[1] == q) || (n.args[0] == q && n.args[1] == p))) {
        take(at, 1);
        return powers == rest;
      }
      if (n.op == Op::Abs && power == (greater ? -1 : 1) && powers.contains(node) &&
          (same_value(n.args[0], g_.op(Op::Sub, {p, q})) || same_value(n.args[0], g_.op(Op::Sub, {q, p})))) {
        take(at, power);
        take(node, 1);
        return powers == rest;
      }
    }
    return false;
  }

  bool same_value(NodeId a, NodeId b) { return a == b || s_.polynomial(a) == s_.polynomial(b); }

  /// The same of one atom of a sum that holds states.
  std::optional<Terms> atom(NodeId node, int sign, int depth) {
    const Node n = g_[node];
    Term whole = nothing();
    whole.powers[node] = sign;
    const bool adds_up = kind_ == (sign > 0 ? Scannable::MaxPlus : Scannable::MinPlus);
    switch (n.op) {
      case Op::Max:
        return adds_up ? joined(value(n.args[0], sign, depth), value(n.args[1], sign, depth)) : Terms{whole};
      case Op::Min:
        return !logs() && !adds_up ? joined(value(n.args[0], sign, depth), value(n.args[1], sign, depth))
                                   : Terms{whole};
      case Op::Relu:
        return adds_up ? joined(value(n.args[0], sign, depth), Terms{nothing()}) : Terms{whole};
      case Op::ReduceMax:
        return adds_up ? over(value(n.args[0], sign, depth), n.bound) : Terms{whole};
      case Op::Log:
        return logs() && sign > 0 ? weight(n.args[0], depth) : Terms{whole};
      case Op::Softplus:
        return logs() && sign > 0 ? joined(Terms{nothing()}, value(n.args[0], 1, depth)) : Terms{whole};
      case Op::Where:
        if (free(n.args[0])) return choice(n.args[0], value(n.args[1], sign, depth), value(n.args[2], sign, depth));
        return logs() && sign > 0 ? either(n, whole, depth) : Terms{whole};
      default:
        return Terms{whole};
    }
  }

  /// A choice by what depends on states: of two branches that are the same, or of the guard of logsumexp.h,
  /// where(|m| < 3e38, …, m), m the greatest of what the other branch adds up.
  std::optional<Terms> either(const Node& n, const Term& whole, int depth) {
    const std::optional<Terms> first = value(n.args[1], 1, depth);
    if (!first) return Terms{whole};
    if (is_guard_of(n.args[0], n.args[2])) {
      const std::optional<Terms> most =
          SemiringRecogniser(cell_, s_, own_, Scannable::MaxPlus, proved_).value(n.args[2], 1, depth);
      return most && *first == *most ? first : Terms{whole};
    }
    const std::optional<Terms> second = value(n.args[2], 1, depth);
    return second && same_terms(*first, *second) ? first : Terms{whole};
  }

  bool is_guard_of(NodeId condition, NodeId greatest) const {
    const Node& c = g_[condition];
    const auto is_size = [&](NodeId e) { return g_[e].op == Op::Abs && g_[e].args[0] == greatest; };
    const auto is_bound = [&](NodeId e) { return g_.is_constant(e, kSumIsGreatest); };
    return (c.op == Op::Lt && is_size(c.args[0]) && is_bound(c.args[1])) ||
           (c.op == Op::Gt && is_size(c.args[1]) && is_bound(c.args[0]));
  }

  /// The log of a node that is a sum of products of what is not negative.
  std::optional<Terms> weight(NodeId node, int depth) {
    if (depth > kMaxDepth || ++looks_ > kMostLooks) return std::nullopt;
    Terms total;
    const Polynomial form = s_.polynomial(node);
    for (const auto& [monomial, factor] : form) {
      if (factor < 0) return std::nullopt;
      Term plain = nothing();
      plain.coefficient = g_.op(Op::Log, {g_.constant(factor)});
      std::optional<Terms> part = Terms{plain};
      for (const auto& [atom, power] : monomial) {
        const std::optional<Terms> next = free(atom) ? free_weight(atom, power) : moving_weight(atom, power, depth + 1);
        if (next) part = product(*part, *next);
        if (!next || !part) return std::nullopt;
      }
      total.insert(total.end(), part->begin(), part->end());
      if (total.size() > kMostTerms) return std::nullopt;
    }
    return total;
  }

  std::optional<Terms> free_weight(NodeId atom, int power) {
    const Node n = g_[atom];
    if (n.op != Op::Exp && power % 2 != 0 && !is_not_negative(atom)) return std::nullopt;
    Term t = nothing();
    NodeId size = n.op == Op::Exp ? n.args[0] : g_.op(Op::Log, {is_not_negative(atom) ? atom : g_.op(Op::Abs, {atom})});
    if (power != 1) size = g_.op(Op::Mul, {g_.constant(power), size});
    t.coefficient = size;
    return Terms{t};
  }

  std::optional<Terms> moving_weight(NodeId atom, int power, int depth) {
    const Node n = g_[atom];
    if (n.op == Op::Exp && (power == 1 || power == -1)) return value(n.args[0], power, depth);
    if (power != 1) return std::nullopt;
    if (n.op == Op::ReduceSum) return over(weight(n.args[0], depth), n.bound);
    if (n.op == Op::Where && free(n.args[0]))
      return choice(n.args[0], weight_or_none(n.args[1], depth), weight_or_none(n.args[2], depth));
    return std::nullopt;
  }

  std::optional<Terms> weight_or_none(NodeId node, int depth) {
    return g_.is_constant(node, 0) ? Terms{} : weight(node, depth);
  }

  bool is_not_negative(NodeId node) const {
    if (proved_) return true;
    const Node& n = g_[node];
    switch (n.op) {
      case Op::Constant:
        return n.number >= 0;
      case Op::Exp:
      case Op::Sigmoid:
      case Op::Softplus:
      case Op::Square:
      case Op::Sqrt:
      case Op::Rsqrt:
      case Op::Abs:
      case Op::Relu:
      case Op::Softmax:
      case Op::Eye:
      case Op::OneHot:
      case Op::Size:
        return true;
      case Op::Read: {
        const std::optional<Range>& range = cell_.symbols[static_cast<std::size_t>(n.symbol)].range;
        return range && range->low >= 0;
      }
      default:
        return is_comparison(n.op);
    }
  }

  bool same_terms(const Terms& a, Terms b) {
    for (const Term& t : a) {
      const auto same = std::find_if(b.begin(), b.end(), [&](const Term& o) {
        return o.powers == t.powers && o.bound == t.bound && same_value(o.coefficient, t.coefficient);
      });
      if (same == b.end()) return false;
      b.erase(same);
    }
    return b.empty();
  }

  /// A maximum takes what stands in it twice once; a sum of exponentials does not.
  std::optional<Terms> joined(std::optional<Terms> a, std::optional<Terms> b) const {
    if (!a || !b || a->size() + b->size() > kMostTerms) return std::nullopt;
    for (Term& t : *b)
      if (logs() || std::find(a->begin(), a->end(), t) == a->end()) a->push_back(std::move(t));
    return a;
  }

  bool runs_along(const Term& t, AxisId axis) const {
    return g_.has_axis(t.coefficient, axis) ||
           std::any_of(t.powers.begin(), t.powers.end(), [&](const auto& p) { return g_.has_axis(p.first, axis); });
  }

  /// ⊕ along axes: where nothing changes along one, as often as it is long.
  std::optional<Terms> over(std::optional<Terms> terms, const std::vector<AxisId>& bound) {
    if (!terms) return std::nullopt;
    for (Term& t : *terms)
      for (const AxisId axis : bound) {
        if (std::binary_search(t.bound.begin(), t.bound.end(), axis)) return std::nullopt;
        if (runs_along(t, axis)) {
          t.bound.insert(std::upper_bound(t.bound.begin(), t.bound.end(), axis), axis);
        } else if (logs()) {
          t.coefficient = g_.op(Op::Add, {t.coefficient, g_.op(Op::Log, {g_.size(axis)})});
        }
      }
    return terms;
  }

  /// Terms of one value where a condition holds, of another where it does not.
  std::optional<Terms> choice(NodeId condition, std::optional<Terms> holds, std::optional<Terms> fails) {
    const NodeId none = g_.constant(semiring_zero(kind_));
    for (std::optional<Terms>* branch : {&holds, &fails}) {
      if (!*branch) return std::nullopt;
      for (Term& t : **branch) {
        for (const AxisId a : t.bound)
          if (g_.has_axis(condition, a)) return std::nullopt;
        t.coefficient = branch == &holds ? g_.op(Op::Where, {condition, t.coefficient, none})
                                         : g_.op(Op::Where, {condition, none, t.coefficient});
      }
    }
    return joined(std::move(holds), std::move(fails));
  }

  std::optional<Terms> product(const Terms& a, const Terms& b) {
    if (a.size() * b.size() > kMostTerms) return std::nullopt;
    Terms all;
    for (const Term& x : a)
      for (const Term& y : b) {
        // An axis that one adds up along means something else in the other.
        for (const AxisId axis : x.bound)
          if (std::binary_search(y.bound.begin(), y.bound.end(), axis) || runs_along(y, axis)) return std::nullopt;
        for (const AxisId axis : y.bound)
          if (runs_along(x, axis)) return std::nullopt;
        Term t = x;
        for (const auto& [node, power] : y.powers)
          if ((t.powers[node] += power) == 0) t.powers.erase(node);
        if (g_.is_constant(x.coefficient, 0))
          t.coefficient = y.coefficient;
        else if (!g_.is_constant(y.coefficient, 0))
          t.coefficient = g_.op(Op::Add, {x.coefficient, y.coefficient});
        t.bound.insert(t.bound.end(), y.bound.begin(), y.bound.end());
        std::sort(t.bound.begin(), t.bound.end());
        all.push_back(std::move(t));
      }
    return all;
  }

  CellGraph& cell_;
  Graph& g_;
  Simplifier& s_;
  const std::set<int> own_;
  Dependence depends_;
  const Scannable kind_;
  const bool proved_;
  int looks_ = 0;
};

/// What a cell has to be made of, and of what it does not need to be looked at further.
struct Met {
  bool logs = false, bounds = false;
};
std::optional<Met> operators_of(const Graph& g, const std::vector<NodeId>& own_part) {
  Met met;
  for (const NodeId id : own_part) {
    switch (g[id].op) {
      case Op::Log:
      case Op::Softplus:
        met.logs = true;
        break;
      case Op::Max:
      case Op::Min:
      case Op::Relu:
      case Op::ReduceMax:
        met.bounds = true;
        break;
      case Op::Read:
      case Op::Add:
      case Op::Sub:
      case Op::Neg:
      case Op::Mul:
      case Op::Div:
      case Op::Exp:
      case Op::Abs:
      case Op::Lt:
      case Op::Gt:
      case Op::Where:
      case Op::ReduceSum:
      case Op::Reindex:
      case Op::StopGradient:
        break;
      default:
        return std::nullopt;
    }
  }
  return met;
}

}  // namespace

std::optional<SemiringMap> semiring_map(CellGraph& cell, Simplifier& simplifier, const std::vector<int>& rows,
                                        Scannable kind, bool proved) {
  std::set<int> own;
  std::map<int, int> update_of;
  for (const int u : rows) {
    own.insert(cell.updates[static_cast<std::size_t>(u)].symbol);
    update_of[cell.updates[static_cast<std::size_t>(u)].symbol] = u;
  }
  SemiringMap map;
  for (const int u : rows) {
    // Each row for itself: a budget that the others have not used.
    SemiringRecogniser recogniser(cell, simplifier, own, kind, proved);
    const std::optional<Terms> terms = recogniser.of(cell.updates[static_cast<std::size_t>(u)].value);
    if (!terms) return std::nullopt;
    for (const Term& t : *terms) {
      if (t.powers.empty()) {
        map.offsets.push_back({u, semiring_sum_over(cell.graph, kind, t.bound, t.coefficient)});
        continue;
      }
      const auto& [node, power] = *t.powers.begin();
      const Node& n = cell.graph[node];
      if (t.powers.size() != 1 || power != 1 || n.op != Op::Read || n.lag || n.lag_axis != kNoAxis) return std::nullopt;
      map.terms.push_back({u, update_of.at(n.symbol), n.index, t.bound, t.coefficient});
    }
  }
  return map;
}

std::optional<SemiringForm> classify_semiring(const StageView& stage) {
  constexpr std::size_t kMostNodes = 2000;
  CellGraph& cell = stage.cell;
  std::set<int> own;
  std::vector<NodeId> updates;
  for (const int u : stage.states) {
    own.insert(cell.updates[static_cast<std::size_t>(u)].symbol);
    updates.push_back(cell.updates[static_cast<std::size_t>(u)].value);
  }
  Dependence depends(cell.graph, own);
  const std::vector<NodeId> part =
      walk_down(cell.graph, updates, [&](NodeId id) { return depends(id) ? Visit::Descend : Visit::Skip; });
  if (part.size() > kMostNodes) return std::nullopt;
  const std::optional<Met> met = operators_of(cell.graph, part);
  if (!met) return std::nullopt;
  // Nothing moves along a channel, so what is read there is the row's own entry.
  const auto keeps_channels = [&](const SemiringMap& map) {
    return std::all_of(map.terms.begin(), map.terms.end(), [&](const SemiringMap::Term& t) {
      const std::vector<AxisId>& places = cell.symbol_of(cell.updates[static_cast<std::size_t>(t.column)]).index;
      for (std::size_t p = 0; p < places.size(); ++p)
        if (stage.is_channel(places[p]) && t.at[p].axis != places[p]) return false;
      return true;
    });
  };
  for (const Scannable kind : {Scannable::MaxPlus, Scannable::MinPlus, Scannable::LogPlus}) {
    if (kind == Scannable::LogPlus ? !met->logs : !met->bounds) continue;
    std::optional<SemiringMap> map = semiring_map(cell, stage.simplifier, stage.states, kind, false);
    if (map && keeps_channels(*map)) return SemiringForm{kind, std::move(*map)};
  }
  return std::nullopt;
}

}  // namespace cellc
