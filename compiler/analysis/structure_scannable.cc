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
// The coefficients must be free of the stage's own state. What it saves: IndRNN costs one scan
// instead of 3–10 Newton iterations of one scan each, and the answer is exact.
//
// A form is recognised here and nowhere else. The stage hands it on as nodes of its cell; for a cell that is derived of
// it, whose values are others (what crosses lanes has become an input), transition_cell has it read off the lane's own
// update by the same function.
#include <limits>

#include "compiler/analysis/structure_rules.h"

namespace cellc {

namespace {

/// A map of the state as steps, the last one first: what is above or below a bound, and what is an affine map of what
/// the steps behind it give.
struct ClipStep {
  enum class Kind { Affine, Floor, Ceiling };
  Kind kind = Kind::Affine;
  NodeId bound = kNoNode;  ///< kNoNode: zero
  Polynomial form = {};    ///< Affine: a sum whose only factor that holds the state is `inner`
  NodeId inner = kNoNode;
};

struct ClipSteps {
  std::vector<ClipStep> steps;
  NodeId constant = kNoNode;  ///< all of the map, where it does not depend on the state
};

class ClipRecogniser {
 public:
  ClipRecogniser(const Graph& g, Simplifier& s, std::set<int> own) : g_(g), s_(s), own_(std::move(own)) {}

  std::optional<ClipSteps> steps(NodeId node) {
    if (free(node)) return ClipSteps{{}, node};  // read in vain (a choice between equals): the start is forgotten
    ClipSteps result;
    while (g_[node].op != Op::Read) {
      std::optional<NodeId> next = step(node, result.steps);
      if (!next) return std::nullopt;
      node = *next;
    }
    return result;
  }

  bool free(NodeId node) const { return !depends_on(g_, node, own_); }

 private:
  /// What the step at `node` is made on; nullopt: it is none.
  std::optional<NodeId> step(NodeId node, std::vector<ClipStep>& steps) {
    const Node n = g_[node];
    switch (n.op) {
      case Op::Relu:
        steps.push_back({ClipStep::Kind::Floor});
        return n.args[0];
      case Op::Max:
      case Op::Min: {
        // Both sides moving with the state would move the kink: no clip of one affine map.
        const bool first = free(n.args[0]), second = free(n.args[1]);
        if (first == second) return std::nullopt;
        steps.push_back({n.op == Op::Max ? ClipStep::Kind::Floor : ClipStep::Kind::Ceiling, n.args[first ? 0 : 1]});
        return n.args[first ? 1 : 0];
      }
      case Op::Clip:
        if (!free(n.args[1]) || !free(n.args[2]) || free(n.args[0])) return std::nullopt;
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
        if (power != 1 || (affine.inner != kNoNode && affine.inner != atom) || atom == node) return std::nullopt;
        affine.inner = atom;
      }
    // One atom, and never twice in a monomial (that would be a power).
    if (affine.inner == kNoNode) return std::nullopt;
    const NodeId inner = affine.inner;
    steps.push_back(std::move(affine));
    return inner;
  }

  const Graph& g_;
  Simplifier& s_;
  std::set<int> own_;
};

/// Steps after a map, as nodes.
class ClipComposer {
 public:
  explicit ClipComposer(Graph& g) : g_(g) {}

  ClipMap compose(const ClipSteps& map, const ClipMap& start) {
    if (map.constant != kNoNode) return {g_.constant(0), map.constant, g_.constant(-kInfinite), g_.constant(kInfinite)};
    std::vector<Parts> parts;
    for (const ClipStep& step : map.steps) parts.push_back(parts_of(step));
    ClipMap x = start;
    for (std::size_t i = map.steps.size(); i-- > 0;) x = after(map.steps[i].kind, parts[i], x);
    return x;
  }

 private:
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  struct Parts {
    NodeId bound = kNoNode;
    NodeId factor = kNoNode, rest = kNoNode;  ///< of an affine step
  };

  Parts parts_of(const ClipStep& step) {
    Parts parts;
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

  ClipMap after(ClipStep::Kind kind, const Parts& parts, const ClipMap& x) {
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
  MoebiusRecogniser(Graph& g, Simplifier& s, std::set<int> own) : g_(g), s_(s), own_(std::move(own)) {}

  std::optional<MoebiusMap> map(NodeId node) {
    const std::optional<Rational> r = rational(node, 0);
    if (!r || degree(r->above) > 1 || degree(r->below) != 1) return std::nullopt;
    const NodeId a = degree(r->above) == 1 ? r->above[1] : g_.constant(0);
    return MoebiusMap{a, r->above[0], r->below[1], r->below[0]};
  }

 private:
  static constexpr std::size_t kMaxDegree = 6;
  static constexpr int kMaxDepth = 64;
  using Coefficients = std::vector<NodeId>;

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
    const Coefficients one{g_.constant(1)};
    if (!depends_on(g_, node, own_)) return Rational{{node}, one};
    if (depth > kMaxDepth) return std::nullopt;
    const Node n = g_[node];
    if (n.op == Op::Read) return Rational{{g_.constant(0), g_.constant(1)}, one};
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

  Rational product(const Rational& a, const Rational& b) {
    // Cancel a numerator against the other's denominator before it raises the degree.
    if (a.above == b.below) return {b.above, a.below};
    if (b.above == a.below) return {a.above, b.below};
    return {times(a.above, b.above), times(a.below, b.below)};
  }

  Graph& g_;
  Simplifier& s_;
  std::set<int> own_;
};

}  // namespace

std::optional<MoebiusMap> moebius_map(Graph& graph, Simplifier& simplifier, NodeId update, int state) {
  return MoebiusRecogniser(graph, simplifier, {state}).map(simplifier.simplify(update));
}

std::optional<ClipMap> clip_map(Graph& graph, Simplifier& simplifier, NodeId update, int state, const ClipMap* start) {
  const std::optional<ClipSteps> steps = ClipRecogniser(graph, simplifier, {state}).steps(simplifier.simplify(update));
  if (!steps) return std::nullopt;
  ClipComposer composer(graph);
  if (start) return composer.compose(*steps, *start);
  constexpr double infinite = std::numeric_limits<double>::infinity();
  const ClipMap own = composer.compose(
      *steps, {graph.constant(1), graph.constant(0), graph.constant(-infinite), graph.constant(infinite)});
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
