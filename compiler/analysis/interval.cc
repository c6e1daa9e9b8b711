// Interval bound on the norm of a stage's Jacobian: a proof, where one is to be had, that the
// recurrence contracts, and so forgets its start and lets Newton converge fast.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "compiler/analysis/structure_rules.h"

namespace cellc {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();

struct Interval {
  double low = -kInf, high = kInf;
};

// What is no number bounds nothing, and a value that overflows here may be finite: exp(800) is beyond
// f64, but 1/exp(800) is not zero, nor is exp(800) - exp(801).
Interval sound(Interval x) {
  if (std::isnan(x.low) || std::isnan(x.high)) return {};
  return {std::min(x.low, kLargest), std::max(x.high, -kLargest)};
}

double product(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

Interval times(Interval a, Interval b) {
  const double p[] = {product(a.low, b.low), product(a.low, b.high), product(a.high, b.low), product(a.high, b.high)};
  return {*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

class IntervalEvaluator {
 public:
  explicit IntervalEvaluator(const CellGraph& cell) : cell_(cell), g_(cell.graph) {}

  Interval bound(NodeId root) {
    // Only what is new, as a late stage reads what thousands before it did.
    std::vector<NodeId> work{root}, fresh;
    std::unordered_set<NodeId> seen;
    while (!work.empty()) {
      const NodeId id = work.back();
      work.pop_back();
      if (memo_.count(id) || !seen.insert(id).second) continue;
      fresh.push_back(id);
      for (NodeId a : g_[id].args) work.push_back(a);
    }
    std::sort(fresh.begin(), fresh.end());
    for (NodeId id : fresh) memo_[id] = sound(of(id));
    return memo_.at(root);
  }

 private:
  Interval at(NodeId n) const { return memo_.at(n); }

  Interval monotone(NodeId n, double (*f)(double)) const {
    const Interval x = at(g_[n].args[0]);
    return {f(x.low), f(x.high)};
  }

  Interval of(NodeId id) {
    const Node& n = g_[id];
    auto x = [&](int i) { return at(n.args[i]); };
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
      case Op::Add:
        return {x(0).low + x(1).low, x(0).high + x(1).high};
      case Op::Sub: {
        return {x(0).low - x(1).high, x(0).high - x(1).low};
      }
      case Op::Neg:
        return {-x(0).high, -x(0).low};
      case Op::Mul: {
        // v·(1 − v) as a product of intervals would lose the maximum of 1/4.
        for (int i = 0; i < 2; ++i) {
          const Node& other = g_[n.args[1 - i]];
          if (other.op == Op::Sub && g_.is_constant(other.args[0], 1) && other.args[1] == n.args[i]) {
            const Interval v = x(i);
            auto f = [](double t) { return product(t, 1 - t); };
            const double ends[] = {f(v.low), f(v.high)};
            const bool inside = v.low <= 0.5 && v.high >= 0.5;
            return {std::min(ends[0], ends[1]), inside ? 0.25 : std::max(ends[0], ends[1])};
          }
        }
        return times(x(0), x(1));
      }
      case Op::Div: {
        const Interval d = x(1);
        if (d.low <= 0 && d.high >= 0) return {};
        return times(x(0), {1 / d.high, 1 / d.low});
      }
      case Op::Square: {
        const Interval v = x(0);
        const double a = product(v.low, v.low), b = product(v.high, v.high);
        return {v.low <= 0 && v.high >= 0 ? 0 : std::min(a, b), std::max(a, b)};
      }
      case Op::Pow: {
        const double e = g_[n.args[1]].number;
        if (g_[n.args[1]].op == Op::Constant && e == std::round(e) && e > 0) {
          const Interval v = x(0);
          if (std::fmod(e, 2) != 0 || v.low >= 0) return {std::pow(v.low, e), std::pow(v.high, e)};
          return {0, std::pow(std::max(-v.low, v.high), e)};
        }
        return x(0).low > 0 ? Interval{0, kInf} : Interval{};
      }
      case Op::Exp:
        return monotone(id, [](double v) { return std::exp(v); });
      case Op::Log:
        return x(0).low > 0 ? Interval{std::log(x(0).low), std::log(x(0).high)} : Interval{};
      case Op::Sqrt:
        return {x(0).low > 0 ? std::sqrt(x(0).low) : 0, x(0).high > 0 ? std::sqrt(x(0).high) : 0};
      case Op::Rsqrt:
        return x(0).low > 0 ? Interval{1 / std::sqrt(x(0).high), 1 / std::sqrt(x(0).low)} : Interval{0, kInf};
      case Op::Sin:
      case Op::Cos:
      case Op::Sign:
        return {-1, 1};
      case Op::Erf:
        return monotone(id, [](double v) { return std::erf(v); });
      case Op::Tanh:
        return monotone(id, [](double v) { return std::tanh(v); });
      case Op::Sigmoid:
        return monotone(id, sigmoid);
      case Op::Softplus:
        return monotone(id, [](double v) { return v > 700 ? v : std::log1p(std::exp(v)); });
      case Op::Relu:
        return monotone(id, [](double v) { return std::max(v, 0.0); });
      case Op::Silu:
      case Op::Gelu:
        return {-0.2785, std::max(x(0).high, 0.0)};  // both have their minimum above -0.2785
      case Op::Abs: {
        const Interval v = x(0);
        if (v.low >= 0) return v;
        if (v.high <= 0) return {-v.high, -v.low};
        return {0, std::max(-v.low, v.high)};
      }
      case Op::Min:
        return {std::min(x(0).low, x(1).low), std::min(x(0).high, x(1).high)};
      case Op::Max:
        return {std::max(x(0).low, x(1).low), std::max(x(0).high, x(1).high)};
      case Op::Clip:
        return {std::min(std::max(x(0).low, x(1).low), x(2).low), std::min(std::max(x(0).high, x(1).high), x(2).high)};
      case Op::Lt:
      case Op::Le:
      case Op::Gt:
      case Op::Ge:
      case Op::Eq:
      case Op::Ne:
        return {0, 1};
      case Op::Where:
        return {std::min(x(1).low, x(2).low), std::max(x(1).high, x(2).high)};
      case Op::StopGradient:
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
    }
    return {};
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
