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
#include "compiler/analysis/structure_rules.h"

namespace cellc {

namespace {

class ClipRecogniser {
 public:
  ClipRecogniser(const Graph& g, Simplifier& s, std::set<int> own) : g_(g), s_(s), own_(std::move(own)) {}

  bool is_clip(NodeId node) { return kind(node) != Kind::Other; }

 private:
  enum class Kind { Free, Clip, Other };

  Kind kind(NodeId node) {
    if (!depends_on(g_, node, own_)) return Kind::Free;
    const Node n = g_[node];
    switch (n.op) {
      case Op::Read:
        return Kind::Clip;
      case Op::Relu:
        return kind(n.args[0]);
      case Op::Max:
      case Op::Min: {
        const Kind a = kind(n.args[0]), b = kind(n.args[1]);
        if (a == Kind::Other || b == Kind::Other) return Kind::Other;
        // Both sides moving with the state would move the kink: no clip of one affine map.
        return a == Kind::Clip && b == Kind::Clip ? Kind::Other : Kind::Clip;
      }
      case Op::Clip:
        if (kind(n.args[1]) != Kind::Free || kind(n.args[2]) != Kind::Free) return Kind::Other;
        return kind(n.args[0]);
      default:
        break;
    }
    // An affine map of one clip: a·X + b, with X the only factor that holds the state.
    const Polynomial p = s_.polynomial(node);
    NodeId inner = kNoNode;
    for (const auto& [monomial, coefficient] : p)
      for (const auto& [atom, power] : monomial) {
        if (!depends_on(g_, atom, own_)) continue;
        if (power != 1 || (inner != kNoNode && inner != atom) || atom == node) return Kind::Other;
        inner = atom;
      }
    // One atom, and never twice in a monomial (that would be a power).
    return inner == kNoNode ? Kind::Other : kind(inner);
  }

  const Graph& g_;
  Simplifier& s_;
  std::set<int> own_;
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

Scannable classify_scannable(const StageView& stage) {
  if (stage.states.size() != 1) return Scannable::No;
  const StateUpdate& update = stage.cell.updates[stage.states[0]];
  const std::set<int> own{update.symbol};
  const NodeId value = stage.simplifier.simplify(update.value);
  if (ClipRecogniser(stage.cell.graph, stage.simplifier, own).is_clip(value)) return Scannable::Clip;
  if (moebius_map(stage.cell.graph, stage.simplifier, value, update.symbol)) return Scannable::Moebius;
  return Scannable::No;
}

}  // namespace cellc
