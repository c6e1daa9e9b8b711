// Exactly scannable though not linear.
//
// Some nonlinear maps of one state are closed under composition, so a parallel scan solves them
// without iterating, as it does an affine map.
//
//   clip:     s' = clip(a·s + b, lo, hi), also max, min and relu of such a map. Four numbers carry
//             it, since clip∘affine∘clip is again clip∘affine.
//             has it:   IndRNN with relu, peak hold max(l·m, u), the stabiliser max(a + m, i) of mLSTM
//             lacks it: abs(s), max(a·s, b·s) (a kink that moves with s on both sides), s > 0
//   Möbius:   s' = (a·s + b)/(c·s + d), carried by its 2×2 matrix.
//             has it:   the scalar Riccati equation of a Kalman filter; lacks it: s/(1 + s²)
//
// Which of several such maps a step is may be chosen by a condition that is free of the state, as resets and masks are:
//             has it:   where(reset, 0, max(s, u)), where(seen, s*r/(s + r), s); m*s + (1 - m)*max(s, u) with m = u >
//             0,
//                       which is a choice since a comparison is 1 or 0
//             lacks it: where(s > 0, …), whose condition reads the state
// Then the numbers that carry the map are chosen.
//
// The coefficients must be free of the stage's own state. What it saves: IndRNN costs one scan
// instead of 3–10 Newton iterations of one scan each, and the answer is exact.
//
// A form is recognised here and nowhere else. The stage hands it on as nodes of its cell; for a cell that is derived of
// it, whose values are others (what crosses lanes has become an input), transition_cell has it read off the lane's own
// update by the same function.
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "compiler/analysis/structure_rules.h"
#include "compiler/graph/rewriter.h"

namespace cellc {

namespace {

/// A step may be split into what it is where a condition holds and what it is elsewhere.
struct Split {
  NodeId condition, holds, fails;
};

/// Finds conditions that are free of the state, and what a value is on either side of them.
class Splitter {
 public:
  Splitter(Graph& g, Simplifier& s, Dependence& moves) : g_(g), s_(s), depends_(moves) {}

  /// nullopt: there is no condition, or too many.
  std::optional<Split> operator()(NodeId node) {
    if (left_ == 0) return std::nullopt;
    const NodeId condition = condition_in(node);
    if (condition == kNoNode) return std::nullopt;
    --left_;
    const NodeId holds = s_.simplify(under(node, condition, true)), fails = s_.simplify(under(node, condition, false));
    if (holds == node || fails == node) return std::nullopt;
    return Split{condition, holds, fails};
  }

 private:
  static constexpr int kMostSplits = 16;
  static constexpr std::size_t kMostNodes = 1000;

  /// Entry by entry only: below a sum a condition is another one for each of the entries.
  NodeId condition_in(NodeId root) {
    const std::vector<NodeId> below =
        walk_down(g_, {root}, [&](NodeId id) { return is_elementwise(g_[id].op) ? Visit::Descend : Visit::Stop; });
    if (below.size() > kMostNodes) return kNoNode;
    NodeId found = kNoNode;
    std::unordered_map<NodeId, bool> moves, chooses, takes_long;
    for (NodeId id : below) {
      const Node& n = g_[id];
      const bool whole = !is_elementwise(n.op);  // met without its operands
      bool chosen = is_comparison(n.op) || n.op == Op::Where, moved = whole && depends_(id);
      bool slow = is_long(n.op);
      if (!whole)
        for (NodeId a : n.args) chosen |= chooses[a], moved |= moves[a], slow |= takes_long[a];
      chooses[id] = chosen, moves[id] = moved, takes_long[id] = slow;
      // Made before the stage as one value (is_shared in stage_cells.cc): its lanes could not look into it.
      if (!moved && chosen && slow) return kNoNode;
      if (found != kNoNode) continue;
      if (n.op == Op::Where && moved && !moves[n.args[0]] && g_[n.args[0]].op != Op::Constant) found = n.args[0];
      if (is_comparison(n.op) && !moved) found = id;
    }
    return found;
  }

  NodeId under(NodeId root, NodeId condition, bool holds) {
    const bool number = !holds || is_comparison(g_[condition].op);
    const auto stays = [this](NodeId id) { return !is_elementwise(g_[id].op); };
    RewriteRules rules;
    rules.ends = [&](NodeId id) { return id == condition || stays(id); };
    rules.replace = [&](NodeId id, const Node&) {
      if (id == condition) return number ? g_.constant(holds ? 1 : 0) : id;
      return stays(id) ? id : kNoNode;
    };
    rules.by_kind[Op::Where] = [&](const Node& n, const std::vector<NodeId>& args) {
      return n.args[0] == condition ? args[holds ? 1 : 2] : g_.op(Op::Where, args, n.span);
    };
    return Rewriter(g_, g_, std::move(rules))(root);
  }

  Graph& g_;
  Simplifier& s_;
  Dependence& depends_;
  int left_ = kMostSplits;
};

NodeId chosen(Graph& g, NodeId condition, NodeId holds, NodeId fails) {
  return holds == fails ? holds : g.op(Op::Where, {condition, holds, fails});
}

/// What is above or below a bound, or is an affine map.
struct ClipStep {
  enum class Kind { Affine, Floor, Ceiling };
  Kind kind = Kind::Affine;
  NodeId bound = kNoNode;  ///< kNoNode: zero
  Polynomial form = {};    ///< Affine: a sum whose only factor that holds the state is `inner`
  NodeId inner = kNoNode;
};

/// A value that is a clip of an affine map of the state, by what it is made of.
struct ClipPart {
  enum class Kind { Start, Free, Steps, Choice };
  NodeId value = kNoNode;
  Kind kind = Kind::Steps;
  std::vector<ClipStep> steps = {};  ///< Steps: of `inner`, the last one first
  NodeId inner = kNoNode;            ///< Choice: where the condition holds
  NodeId condition = kNoNode, otherwise = kNoNode;
};

class ClipRecogniser {
 public:
  ClipRecogniser(Graph& g, Simplifier& s, std::set<int> own)
      : g_(g), s_(s), depends_(g, std::move(own)), split_(g, s, depends_) {}

  /// Parts before what is made of them, `node` last. Empty: it is no clip.
  std::vector<ClipPart> parts(NodeId node) {
    std::vector<ClipPart> order;
    std::unordered_map<NodeId, ClipPart> known;
    std::unordered_set<NodeId> done;
    bool refused = false;
    const auto needs = [&](NodeId id, std::vector<NodeId>& list) {
      if (refused) return;
      if (!known.contains(id)) {
        std::optional<ClipPart> part = part_of(id);
        if (!part) {
          refused = true;
          return;
        }
        known.emplace(id, std::move(*part));
      }
      const ClipPart& part = known.at(id);
      if (part.inner != kNoNode) list.push_back(part.inner);
      if (part.otherwise != kNoNode) list.push_back(part.otherwise);
    };
    postorder(
        node, needs, [&](NodeId id) { return done.contains(id); },
        [&](NodeId id) {
          done.insert(id);
          if (!refused) order.push_back(std::move(known.at(id)));
        });
    return refused ? std::vector<ClipPart>{} : order;
  }

 private:
  bool free(NodeId node) { return !depends_(node); }

  std::optional<ClipPart> part_of(NodeId node) {
    // Free of the state, though perhaps read in vain (a choice between equals): the start is forgotten.
    if (free(node)) return ClipPart{node, ClipPart::Kind::Free};
    if (g_[node].op == Op::Read) return ClipPart{node, ClipPart::Kind::Start};
    if (const Node& n = g_[node]; n.op == Op::Where && free(n.args[0]))
      return ClipPart{node, ClipPart::Kind::Choice, {}, n.args[1], n.args[0], n.args[2]};
    ClipPart part{node};
    part.inner = step(node, part.steps);
    if (part.inner != kNoNode) return part;
    const std::optional<Split> split = split_(node);
    if (!split) return std::nullopt;
    return ClipPart{node, ClipPart::Kind::Choice, {}, split->holds, split->condition, split->fails};
  }

  /// What the step at `node` is made on; kNoNode: it is none.
  NodeId step(NodeId node, std::vector<ClipStep>& steps) {
    const Node n = g_[node];
    switch (n.op) {
      case Op::Relu:
        steps.push_back({ClipStep::Kind::Floor});
        return n.args[0];
      case Op::Max:
      case Op::Min: {
        // Both sides moving with the state would move the kink: no clip of one affine map.
        const bool first = free(n.args[0]), second = free(n.args[1]);
        if (first == second) return kNoNode;
        steps.push_back({n.op == Op::Max ? ClipStep::Kind::Floor : ClipStep::Kind::Ceiling, n.args[first ? 0 : 1]});
        return n.args[first ? 1 : 0];
      }
      case Op::Clip:
        if (!free(n.args[1]) || !free(n.args[2]) || free(n.args[0])) return kNoNode;
        steps.push_back({ClipStep::Kind::Ceiling, n.args[2]});
        steps.push_back({ClipStep::Kind::Floor, n.args[1]});
        return n.args[0];
      default:
        break;
    }
    // An affine map of one clip: a·X + b, with X the only factor that holds the state.
    ClipStep affine;
    affine.form = s_.polynomial(node);
    for (const auto& [monomial, coefficient] : affine.form)
      for (const auto& [atom, power] : monomial) {
        if (free(atom)) continue;
        if (power != 1 || (affine.inner != kNoNode && affine.inner != atom) || atom == node) return kNoNode;
        affine.inner = atom;
      }
    // One atom, and never twice in a monomial (that would be a power).
    if (affine.inner == kNoNode) return kNoNode;
    const NodeId inner = affine.inner;
    steps.push_back(std::move(affine));
    return inner;
  }

  Graph& g_;
  Simplifier& s_;
  Dependence depends_;
  Splitter split_;
};

/// Parts put together, as nodes.
class ClipComposer {
 public:
  explicit ClipComposer(Graph& g) : g_(g) {}

  ClipMap compose(const std::vector<ClipPart>& parts, const ClipMap& start) {
    std::vector<std::vector<Operands>> operands(parts.size());
    for (std::size_t i = parts.size(); i-- > 0;)
      for (const ClipStep& step : parts[i].steps) operands[i].push_back(operands_of(step));
    std::unordered_map<NodeId, ClipMap> made;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const ClipPart& part = parts[i];
      switch (part.kind) {
        case ClipPart::Kind::Start:
          made[part.value] = start;
          break;
        case ClipPart::Kind::Free:
          made[part.value] = {g_.constant(0), part.value, g_.constant(-kInfinite), g_.constant(kInfinite)};
          break;
        case ClipPart::Kind::Steps: {
          ClipMap x = made.at(part.inner);
          for (std::size_t k = part.steps.size(); k-- > 0;) x = after(part.steps[k].kind, operands[i][k], x);
          made[part.value] = x;
          break;
        }
        case ClipPart::Kind::Choice: {
          const ClipMap &x = made.at(part.inner), &y = made.at(part.otherwise);
          const auto choose = [&](NodeId a, NodeId b) { return chosen(g_, part.condition, a, b); };
          made[part.value] = {choose(x.a, y.a), choose(x.b, y.b), choose(x.low, y.low), choose(x.high, y.high)};
          break;
        }
      }
    }
    return made.at(parts.back().value);
  }

 private:
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  struct Operands {
    NodeId bound = kNoNode;
    NodeId factor = kNoNode, rest = kNoNode;  ///< of an affine step
  };

  Operands operands_of(const ClipStep& step) {
    Operands parts;
    if (step.kind != ClipStep::Kind::Affine) {
      parts.bound = step.bound == kNoNode ? g_.constant(0) : step.bound;
      return parts;
    }
    const auto add = [&](NodeId& sum, NodeId term) { sum = sum == kNoNode ? term : g_.op(Op::Add, {sum, term}); };
    for (const auto& [monomial, coefficient] : step.form) {
      NodeId product = g_.constant(coefficient);
      bool moves = false;
      for (const auto& [atom, power] : monomial) {
        if (atom == step.inner) {
          moves = true;
          continue;
        }
        const NodeId raised = power == 1 ? atom : g_.op(Op::Pow, {atom, g_.constant(power)});
        product = g_.is_constant(product, 1) ? raised : g_.op(Op::Mul, {product, raised});
      }
      add(moves ? parts.factor : parts.rest, product);
    }
    return parts;
  }

  ClipMap after(ClipStep::Kind kind, const Operands& parts, const ClipMap& x) {
    if (kind != ClipStep::Kind::Affine) {
      const Op op = kind == ClipStep::Kind::Floor ? Op::Max : Op::Min;
      return {x.a, x.b, bounded(op, x.low, parts.bound), bounded(op, x.high, parts.bound)};
    }
    const NodeId factor = parts.factor, rest = parts.rest == kNoNode ? g_.constant(0) : parts.rest;
    const auto scale = [&](NodeId value) { return g_.op(Op::Mul, {factor, value}); };
    const auto shift = [&](NodeId value) { return g_.op(Op::Add, {value, rest}); };
    if (is_open(x.low, -1) && is_open(x.high, 1)) return {scale(x.a), shift(scale(x.b)), x.low, x.high};
    // Zero times an open bound is no bound; a negative factor turns the interval round.
    const NodeId zero = g_.op(Op::Eq, {factor, g_.constant(0)}), negative = g_.op(Op::Lt, {factor, g_.constant(0)});
    const auto bound = [&](NodeId straight, NodeId turned) {
      const NodeId which = g_.op(Op::Where, {negative, turned, straight});
      return shift(g_.op(Op::Where, {zero, g_.constant(0), scale(which)}));
    };
    return {scale(x.a), shift(scale(x.b)), bound(x.low, x.high), bound(x.high, x.low)};
  }

  bool is_open(NodeId end, int sign) const { return g_.is_constant(end, sign * kInfinite); }
  /// A bound of an open end is that bound, or leaves it open.
  NodeId bounded(Op op, NodeId end, NodeId bound) {
    if (is_open(end, -1)) return op == Op::Max ? bound : end;
    if (is_open(end, 1)) return op == Op::Min ? bound : end;
    return g_.op(op, {end, bound});
  }

  Graph& g_;
};

// A rational function of the state: coefficients by power, as nodes.
struct Rational {
  std::vector<NodeId> above, below;
};

class MoebiusRecogniser {
 public:
  MoebiusRecogniser(Graph& g, Simplifier& s, std::set<int> own)
      : g_(g), s_(s), depends_(g, std::move(own)), split_(g, s, depends_) {}

  std::optional<MoebiusMap> map(NodeId node) {
    std::optional<MoebiusMap> m = linear_fractional(node);
    if (m && g_.is_constant(m->c, 0)) return std::nullopt;  // an affine one
    return m;
  }

 private:
  static constexpr std::size_t kMaxDegree = 6;
  static constexpr int kMaxDepth = 64;
  using Coefficients = std::vector<NodeId>;

  /// Splits are few, so this goes no deeper than their number.
  std::optional<MoebiusMap> linear_fractional(NodeId node) {
    const std::optional<Rational> r = rational(node, 0);
    const auto at = [&](const Coefficients& c, std::size_t power) {
      return power < c.size() ? c[power] : g_.constant(0);
    };
    if (r && degree(r->above) <= 1 && degree(r->below) <= 1)
      return MoebiusMap{at(r->above, 1), r->above[0], at(r->below, 1), r->below[0]};
    const std::optional<Split> split = split_(node);
    if (!split) return std::nullopt;
    const std::optional<MoebiusMap> x = linear_fractional(split->holds);
    if (!x) return std::nullopt;
    const std::optional<MoebiusMap> y = linear_fractional(split->fails);
    if (!y) return std::nullopt;
    const auto choose = [&](NodeId a, NodeId b) { return chosen(g_, split->condition, a, b); };
    return MoebiusMap{choose(x->a, y->a), choose(x->b, y->b), choose(x->c, y->c), choose(x->d, y->d)};
  }

  static int degree(const Coefficients& c) { return static_cast<int>(c.size()) - 1; }

  Coefficients trimmed(Coefficients c) {
    for (NodeId& n : c) n = s_.simplify(n);
    while (c.size() > 1 && g_.is_constant(c.back(), 0)) c.pop_back();
    return c;
  }
  Coefficients plus(const Coefficients& a, const Coefficients& b, double sign) {
    Coefficients r(std::max(a.size(), b.size()), g_.constant(0));
    for (std::size_t i = 0; i < r.size(); ++i) {
      const NodeId x = i < a.size() ? a[i] : g_.constant(0), y = i < b.size() ? b[i] : g_.constant(0);
      r[i] = g_.op(sign > 0 ? Op::Add : Op::Sub, {x, y});
    }
    return trimmed(r);
  }
  Coefficients times(const Coefficients& a, const Coefficients& b) {
    Coefficients r(a.size() + b.size() - 1, g_.constant(0));
    for (std::size_t i = 0; i < a.size(); ++i)
      for (std::size_t j = 0; j < b.size(); ++j) r[i + j] = g_.op(Op::Add, {r[i + j], g_.op(Op::Mul, {a[i], b[j]})});
    return trimmed(r);
  }

  std::optional<Rational> rational(NodeId node, int depth) {
    if (const auto known = rationals_.find(node); known != rationals_.end()) return known->second;
    std::optional<Rational> r = rational_of(node, depth);
    rationals_.emplace(node, r);
    return r;
  }

  std::optional<Rational> rational_of(NodeId node, int depth) {
    const Coefficients one{g_.constant(1)};
    if (!depends_(node)) return Rational{{node}, one};
    if (depth > kMaxDepth) return std::nullopt;
    const Node n = g_[node];
    if (n.op == Op::Read) return Rational{{g_.constant(0), g_.constant(1)}, one};
    if (n.op == Op::Where) return choice(n, depth);
    std::optional<Rational> a, b;
    if (!n.args.empty()) a = rational(n.args[0], depth + 1);
    if (!a) return std::nullopt;
    std::optional<Rational> r;
    switch (n.op) {
      case Op::Neg:
        return Rational{plus({g_.constant(0)}, a->above, -1), a->below};
      case Op::Square:
        r = product(*a, *a);
        break;
      case Op::Add:
      case Op::Sub:
      case Op::Mul:
      case Op::Div:
        b = rational(n.args[1], depth + 1);
        if (!b) return std::nullopt;
        if (n.op == Op::Mul)
          r = product(*a, *b);
        else if (n.op == Op::Div)
          r = product(*a, {b->below, b->above});
        else {
          const double sign = n.op == Op::Add ? 1 : -1;
          if (a->below == b->below)
            r = Rational{plus(a->above, b->above, sign), a->below};
          else
            r = Rational{plus(times(a->above, b->below), times(b->above, a->below), sign), times(a->below, b->below)};
        }
        break;
      default:
        return std::nullopt;
    }
    if (r->above.size() > kMaxDegree || r->below.size() > kMaxDegree) return std::nullopt;
    return r;
  }

  std::optional<Rational> choice(const Node& n, int depth) {
    if (depends_(n.args[0])) return std::nullopt;
    const std::optional<Rational> a = rational(n.args[1], depth + 1), b = rational(n.args[2], depth + 1);
    if (!a || !b) return std::nullopt;
    const auto choose = [&](const Coefficients& x, const Coefficients& y) {
      Coefficients c(std::max(x.size(), y.size()));
      for (std::size_t i = 0; i < c.size(); ++i)
        c[i] = chosen(g_, n.args[0], i < x.size() ? x[i] : g_.constant(0), i < y.size() ? y[i] : g_.constant(0));
      return trimmed(c);
    };
    return Rational{choose(a->above, b->above), choose(a->below, b->below)};
  }

  Rational product(const Rational& a, const Rational& b) {
    // Cancel a numerator against the other's denominator before it raises the degree.
    if (a.above == b.below) return {b.above, a.below};
    if (b.above == a.below) return {a.above, b.below};
    return {times(a.above, b.above), times(a.below, b.below)};
  }

  Graph& g_;
  Simplifier& s_;
  Dependence depends_;
  Splitter split_;
  std::unordered_map<NodeId, std::optional<Rational>> rationals_;
};

}  // namespace

std::optional<MoebiusMap> moebius_map(Graph& graph, Simplifier& simplifier, NodeId update, int state) {
  return MoebiusRecogniser(graph, simplifier, {state}).map(simplifier.simplify(update));
}

std::optional<ClipMap> clip_map(Graph& graph, Simplifier& simplifier, NodeId update, int state, const ClipMap* start) {
  const std::vector<ClipPart> parts = ClipRecogniser(graph, simplifier, {state}).parts(simplifier.simplify(update));
  if (parts.empty()) return std::nullopt;
  ClipComposer composer(graph);
  if (start) return composer.compose(parts, *start);
  constexpr double infinite = std::numeric_limits<double>::infinity();
  const ClipMap own = composer.compose(
      parts, {graph.constant(1), graph.constant(0), graph.constant(-infinite), graph.constant(infinite)});
  // What a factor of one and a sum of nothing leave is no part of the form. Ends stay as they are: the laws of finite
  // numbers are not theirs.
  return ClipMap{simplifier.simplify(own.a), simplifier.simplify(own.b), own.low, own.high};
}

ScanForm classify_scannable(const StageView& stage) {
  if (stage.states.size() != 1) return {};
  const StateUpdate& update = stage.cell.updates[stage.states[0]];
  if (const auto clip = clip_map(stage.cell.graph, stage.simplifier, update.value, update.symbol))
    return {clip, std::nullopt};
  return {std::nullopt, moebius_map(stage.cell.graph, stage.simplifier, update.value, update.symbol)};
}

}  // namespace cellc
