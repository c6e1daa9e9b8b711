// Interval bound on the norm of a stage's Jacobian: a proof, where one is to be had, that the
// recurrence contracts, and so forgets its start and lets Newton converge fast.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "compiler/analysis/range_rules.h"
#include "compiler/analysis/structure_rules.h"
#include "compiler/graph/axes.h"

namespace cellc {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();

// What is no number bounds nothing, and a value that overflows here may be finite: exp(800) is beyond
// f64, but 1/exp(800) is not zero, nor is exp(800) - exp(801).
Interval sound(Interval x) {
  if (std::isnan(x.low) || std::isnan(x.high)) return {};
  return {std::min(x.low, kLargest), std::max(x.high, -kLargest)};
}

}  // namespace

/// A product with shares of a whole among its factors.
struct Weighted {
  NodeId of = kNoNode;         ///< the shares; kNoNode: there are none
  std::vector<AxisId> axes;    ///< along which they add up to one
  std::vector<NodeId> others;  ///< the other factors
};

/// Softmax, and the share of a greatest entry: over their axes they are weights that add up to one, and what is
/// weighted with them lies between its least and its greatest entry. Their axes must be among `summed`.
Weighted without_shares(const Graph& g, NodeId product, const std::vector<AxisId>& summed) {
  Weighted result;
  std::vector<NodeId> ahead{product};
  while (!ahead.empty()) {
    const NodeId id = ahead.back();
    ahead.pop_back();
    const Node& n = g[id];
    if (n.op == Op::Mul) {
      ahead.insert(ahead.end(), n.args.begin(), n.args.end());
    } else if (result.of == kNoNode && (n.op == Op::Softmax || n.op == Op::MaxShare) &&
               std::all_of(n.bound.begin(), n.bound.end(), [&](AxisId b) { return contains(summed, b); })) {
      result.of = id;
      result.axes = n.bound;
    } else {
      result.others.push_back(id);
    }
  }
  return result;
}

using Ranges = std::unordered_map<NodeId, Interval>;

class IntervalEvaluator {
 public:
  explicit IntervalEvaluator(const CellGraph& cell) : cell_(cell), g_(cell.graph) {}

  Interval bound(NodeId root) {
    // Only what is new, as a late stage reads what thousands before it did.
    for (NodeId id :
         walk_down(g_, {root}, [&](NodeId id) { return known_.contains(id) ? Visit::Skip : Visit::Descend; }))
      known_[id] = sound(of(id, known_)), chooses_[id] = chooses(g_[id]);
    return known_.at(root);
  }
  /// Does a node that is bounded already choose, entry by entry?
  bool chooses(NodeId id) const { return chooses_.at(id); }

  /// The range of one node from those of its operands, as `ranges` has them, or as they are without it.
  Interval in(const Ranges& ranges, NodeId id) const { return sound(of(id, ranges)); }

  Interval at(const Ranges& ranges, NodeId n) const {
    const auto it = ranges.find(n);
    return it != ranges.end() ? it->second : known_.at(n);
  }

 private:
  bool chooses(const Node& n) const {
    if (!is_elementwise(n.op)) return false;
    return n.op == Op::Where || is_comparison(n.op) ||
           std::any_of(n.args.begin(), n.args.end(), [&](NodeId a) { return chooses_.at(a); });
  }

  Interval of(NodeId id, const Ranges& ranges) const {
    const Node& n = g_[id];
    const auto x = [&](int i) { return at(ranges, n.args[i]); };
    switch (n.op) {
      case Op::Constant:
        return {n.number, n.number};
      case Op::Size:
        return {1, kInf};
      case Op::Eye:
      case Op::OneHot:
        return {0, 1};
      case Op::Read: {
        const auto& range = cell_.symbols[n.symbol].range;
        return range ? Interval{range->low, range->high} : Interval{};
      }
      case Op::Surrogate:
      case Op::Reindex:
      case Op::ReduceMax:
        return x(0);
      case Op::Softmax:
      case Op::MaxShare:
        return {0, 1};
      case Op::ReduceSum: {
        const Weighted weighted = without_shares(g_, n.args[0], n.bound);
        Interval sum = x(0);
        if (weighted.of != kNoNode) {
          sum = {1, 1};
          for (NodeId factor : weighted.others) sum = times(sum, at(ranges, factor));
        }
        // An axis that the header leaves open has one entry at least (over none the sum is 0, and what
        // it scales is no step of a recurrence).
        for (AxisId b : n.bound) {
          if (contains(weighted.axes, b)) continue;
          const auto& fixed = g_.axis(b).fixed;
          sum = times(sum, fixed ? Interval{double(*fixed), double(*fixed)} : Interval{1, kInf});
        }
        return sum;
      }
#define CELLC_OP(Name, ...) case Op::Name:
#include "compiler/graph/ops.def"
        return entry_by_entry(n, ranges);
    }
    return {};
  }

  Interval entry_by_entry(const Node& n, const Ranges& ranges) const {
    // v·(1 − v) as a product of intervals would lose the maximum of 1/4.
    if (n.op == Op::Mul) {
      for (int i = 0; i < 2; ++i) {
        const Node& other = g_[n.args[1 - i]];
        if (other.op != Op::Sub || !g_.is_constant(other.args[0], 1) || other.args[1] != n.args[i]) continue;
        const Interval v = at(ranges, n.args[i]);
        const auto f = [](double t) { return product(t, 1 - t); };
        const double ends[] = {f(v.low), f(v.high)};
        const bool inside = v.low <= 0.5 && v.high >= 0.5;
        return {std::min(ends[0], ends[1]), inside ? 0.25 : std::max(ends[0], ends[1])};
      }
    }
    Interval x[3];
    for (std::size_t i = 0; i < n.args.size(); ++i) x[i] = at(ranges, n.args[i]);
    if (n.op == Op::Where) {
      if (x[0].low > 0 || x[0].high < 0) return x[1];
      if (x[0].low == 0 && x[0].high == 0) return x[2];
    }
    return range_of(n.op, x);
  }

  const CellGraph& cell_;
  const Graph& g_;
  Ranges known_;
  std::unordered_map<NodeId, bool> chooses_;
};

NormBounds::NormBounds(const CellGraph& cell) : intervals_(std::make_unique<IntervalEvaluator>(cell)) {}

NormBounds::~NormBounds() = default;

namespace {

/// Which branch a step takes. Everything in a row of the Jacobian takes the same one, so its norm is at most the
/// largest of the branches; intervals of the slopes of both, added, would be their sum.
///
/// A comparison may come out in four ways (less, equal, greater, or neither where something is no number), and says the
/// same to all that compare these two values; any other condition holds or fails.
class Branches {
 public:
  Branches(const Graph& g, IntervalEvaluator& intervals, const std::vector<NodeId>& coefficients)
      : g_(g), intervals_(intervals) {
    for (NodeId c : coefficients) intervals.bound(c);
    // Entry by entry only: below a sum a condition is another one for each of the entries.
    nodes_ =
        walk_down(g, coefficients, [&](NodeId id) { return intervals.chooses(id) ? Visit::Descend : Visit::Skip; });
    std::size_t ways = 1;
    const auto decide = [&](const Decision& d) {
      if (std::find(decisions_.begin(), decisions_.end(), d) != decisions_.end()) return;
      if (ways * count(d) * nodes_.size() > kMostWork) return;
      ways *= count(d);
      decisions_.push_back(d);
    };
    for (NodeId id : nodes_)
      if (const auto d = compared(id)) decide(*d);
    for (NodeId id : nodes_)
      if (g[id].op == Op::Where && !compared(g[id].args[0])) decide({g[id].args[0], kNoNode});
  }

  /// The largest of `measure`, a function of the ranges of the coefficients, over all that can happen.
  template <typename Measure>
  double largest(Measure&& measure) {
    double most = 0;
    std::vector<int> way(decisions_.size(), 0);
    while (true) {
      Ranges ranges;
      if (possible(way, ranges)) most = std::max(most, measure(ranges));
      std::size_t i = 0;
      while (i < way.size() && ++way[i] == count(decisions_[i])) way[i++] = 0;
      if (i == way.size()) return most;
    }
  }

 private:
  static constexpr std::size_t kMostWork = std::size_t{1} << 14;
  enum Way { kLess, kEqual, kGreater, kNeither };

  /// Two values that are compared, the smaller node first, or a condition.
  struct Decision {
    NodeId first, second = kNoNode;
    bool operator==(const Decision&) const = default;
  };
  static int count(const Decision& d) { return d.second == kNoNode ? 2 : 4; }

  std::optional<Decision> compared(NodeId id) const {
    const Node& n = g_[id];
    if (!is_comparison(n.op)) return std::nullopt;
    return Decision{std::min(n.args[0], n.args[1]), std::max(n.args[0], n.args[1])};
  }

  double outcome(const Node& n, int way) const {
    if (n.args[0] > n.args[1] && way != kEqual && way != kNeither) way = way == kLess ? kGreater : kLess;
    switch (n.op) {
      case Op::Lt:
        return way == kLess;
      case Op::Le:
        return way == kLess || way == kEqual;
      case Op::Gt:
        return way == kGreater;
      case Op::Ge:
        return way == kGreater || way == kEqual;
      case Op::Eq:
        return way == kEqual;
      default:
        return way != kEqual;
    }
  }

  /// The ranges where the decisions fall so; false where they cannot.
  bool possible(const std::vector<int>& way, Ranges& ranges) const {
    for (NodeId id : nodes_) {
      Interval range = intervals_.in(ranges, id);
      if (g_[id].op == Op::Where) {
        const auto d = std::find(decisions_.begin(), decisions_.end(), Decision{g_[id].args[0]});
        if (d != decisions_.end()) range = intervals_.at(ranges, g_[id].args[way[d - decisions_.begin()] == 0 ? 1 : 2]);
      }
      for (std::size_t i = 0; i < decisions_.size(); ++i) {
        const Decision& d = decisions_[i];
        double value = 0;
        if (d.second != kNoNode && compared(id) == d)
          value = outcome(g_[id], way[i]);
        else if (d.second != kNoNode || d.first != id || way[i] == 0)
          continue;  // a condition that holds does so with whatever value
        if (range.low > value || range.high < value) return false;
        range = {value, value};
      }
      ranges[id] = range;
    }
    return true;
  }

  const Graph& g_;
  IntervalEvaluator& intervals_;
  std::vector<NodeId> nodes_;  ///< ascending: operands first
  std::vector<Decision> decisions_;
};

}  // namespace

std::optional<double> NormBounds::of(const StageView& stage, const Jacobian& true_jacobian) {
  const Graph& g = stage.cell.graph;
  double largest = 0;
  for (int row : stage.states) {
    // A coefficient as products, and the columns that it is summed over: every place that no identity ties.
    struct Part {
      NodeId whole;
      std::vector<AxisId> summed;
      Weighted weighted;
    };
    std::vector<Part> parts;
    std::vector<NodeId> coefficients;
    for (const JacobianBlock& block : true_jacobian.row(row)) {
      if (!stage.contains(block.column)) continue;
      for (const JacobianTerm& term : block.terms) {
        std::vector<AxisId> summed;
        for (std::size_t p = 0; p < block.column_axes.size(); ++p)
          if (std::none_of(term.identities.begin(), term.identities.end(),
                           [&](const auto& i) { return i.first == static_cast<int>(p); }))
            summed.push_back(block.column_axes[p]);
        Weighted weighted = without_shares(g, term.coefficient, summed);
        parts.push_back({term.coefficient, std::move(summed), std::move(weighted)});
        coefficients.push_back(term.coefficient);
      }
    }
    const double most = Branches(g, *intervals_, coefficients).largest([&](const Ranges& ranges) {
      const auto magnitude = [&](NodeId id) {
        const Interval range = intervals_->at(ranges, id);
        return std::max(std::fabs(range.low), std::fabs(range.high));
      };
      double sum = 0;
      for (const Part& part : parts) {
        double share = 1;
        if (part.weighted.of == kNoNode)
          share = magnitude(part.whole);
        else
          for (NodeId other : part.weighted.others) share = product(share, magnitude(other));
        for (AxisId axis : part.summed) {
          if (contains(part.weighted.axes, axis)) continue;
          const auto& fixed = g.axis(axis).fixed;
          share = product(share, fixed ? static_cast<double>(*fixed) : kInf);
        }
        sum += share;
      }
      return sum;
    });
    largest = std::max(largest, most);
  }
  if (!std::isfinite(largest)) return std::nullopt;
  return largest;
}

}  // namespace cellc
