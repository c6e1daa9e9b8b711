// Interval bound on the norm of a stage's Jacobian: a proof, where one is to be had, that the
// recurrence contracts, and so forgets its start and lets Newton converge fast.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "compiler/analysis/range_rules.h"
#include "compiler/analysis/structure_rules.h"

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

class IntervalEvaluator {
 public:
  explicit IntervalEvaluator(const CellGraph& cell) : cell_(cell), g_(cell.graph) {}

  Interval bound(NodeId root) {
    // Only what is new, as a late stage reads what thousands before it did.
    for (NodeId id :
         walk_down(g_, {root}, [&](NodeId id) { return memo_.contains(id) ? Visit::Skip : Visit::Descend; }))
      memo_[id] = sound(of(id));
    return memo_.at(root);
  }

 private:
  Interval at(NodeId n) const { return memo_.at(n); }

  Interval of(NodeId id) {
    const Node& n = g_[id];
    const auto x = [&](int i) { return at(n.args[i]); };
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
        // An axis that the header leaves open has one entry at least (over none the sum is 0, and what
        // it scales is no step of a recurrence).
        Interval count{1, 1};
        for (AxisId b : n.bound) {
          const auto& fixed = g_.axis(b).fixed;
          count = times(count, fixed ? Interval{double(*fixed), double(*fixed)} : Interval{1, kInf});
        }
        return times(x(0), count);
      }
#define CELLC_OP(Name, ...) case Op::Name:
#include "compiler/graph/ops.def"
        return entry_by_entry(n);
    }
    return {};
  }

  Interval entry_by_entry(const Node& n) const {
    // v·(1 − v) as a product of intervals would lose the maximum of 1/4.
    if (n.op == Op::Mul) {
      for (int i = 0; i < 2; ++i) {
        const Node& other = g_[n.args[1 - i]];
        if (other.op != Op::Sub || !g_.is_constant(other.args[0], 1) || other.args[1] != n.args[i]) continue;
        const Interval v = at(n.args[i]);
        const auto f = [](double t) { return product(t, 1 - t); };
        const double ends[] = {f(v.low), f(v.high)};
        const bool inside = v.low <= 0.5 && v.high >= 0.5;
        return {std::min(ends[0], ends[1]), inside ? 0.25 : std::max(ends[0], ends[1])};
      }
    }
    Interval x[3];
    for (std::size_t i = 0; i < n.args.size(); ++i) x[i] = at(n.args[i]);
    return range_of(n.op, x);
  }

  const CellGraph& cell_;
  const Graph& g_;
  std::unordered_map<NodeId, Interval> memo_;
};

NormBounds::NormBounds(const CellGraph& cell) : intervals_(std::make_unique<IntervalEvaluator>(cell)) {}

NormBounds::~NormBounds() = default;

std::optional<double> NormBounds::of(const StageView& stage, const Jacobian& true_jacobian) {
  const Graph& g = stage.cell.graph;
  double largest = 0;
  for (int row : stage.states) {
    double sum = 0;
    for (const JacobianBlock& block : true_jacobian.row(row)) {
      if (!stage.contains(block.column)) continue;
      for (const JacobianTerm& term : block.terms) {
        const Interval c = intervals_->bound(term.coefficient);
        double magnitude = std::max(std::fabs(c.low), std::fabs(c.high));
        // Every column place that no identity ties is summed over.
        for (std::size_t p = 0; p < block.column_axes.size(); ++p) {
          const bool tied = std::any_of(term.identities.begin(), term.identities.end(),
                                        [&](const auto& i) { return i.first == static_cast<int>(p); });
          if (tied) continue;
          const auto& fixed = g.axis(block.column_axes[p]).fixed;
          magnitude = product(magnitude, fixed ? static_cast<double>(*fixed) : kInf);
        }
        sum += magnitude;
      }
    }
    largest = std::max(largest, sum);
  }
  if (!std::isfinite(largest)) return std::nullopt;
  return largest;
}

}  // namespace cellc
