// Low rank, identity plus low rank, diagonal plus low rank.
//
// A stage that mixes along an axis usually costs a dense N×N product per step.
// It need not where every mixing term of the Jacobian is an outer product of a vector over rows
// with a vector over columns: then J = D + Σ u_i v_iᵀ, and products of such matrices stay that way.
//
//   has it:   DeltaNet          S + b(val − S@key)key        I − b key keyᵀ                  rank 1
//             DeltaProduct      two reflections              4 terms, 2 distinct left factors rank 2
//             layer norm        g·(s − mean s)/√(var s)      a mean and a variance            rank 2
//             FastGRNN          U1@(h@U2) through axis r     Σ_r U1[d,r]U2[d2,r]              rank r
//   lacks it: Elman             tanh(U@h)                    U[d,d2] is no product of factors
//             softmax[d](A@h)   the outer part is low rank, A in it is not
//
// What it saves: a step is O(N·rank) instead of O(N²), and chunks of steps become matrix products
// (WY form, arXiv 2406.06484). The rank reported is the smaller number of *distinct* left or right
// factors (a rank that reaches N says nothing: then it is dense), since terms that share a factor add up:
// DeltaProduct's four terms have rank two. A factor Σ_r L[row,r]·R[col,r] through another axis counts with the length
// of that axis.
#include <algorithm>
#include <map>

#include "compiler/analysis/structure_rules.h"

namespace cellc {

namespace {

constexpr std::size_t kMaxOuterProducts = 256;

using OuterProduct = LowRankForm::OuterProduct;

class Factoriser {
 public:
  Factoriser(const StageView& stage, std::vector<AxisId> rows, std::vector<AxisId> columns)
      : g_(stage.cell.graph), s_(stage.simplifier), rows_(std::move(rows)), columns_(std::move(columns)) {}

  /// Splits a coefficient into outer products; false where some factor ties rows to columns.
  bool split(NodeId coefficient, std::vector<OuterProduct>& out) {
    return split(s_.polynomial(coefficient), {}, 1, out);
  }

 private:
  bool touches(NodeId n, const std::vector<AxisId>& axes) const {
    return std::any_of(axes.begin(), axes.end(), [&](AxisId a) { return g_.has_axis(n, a); });
  }

  bool split(const Polynomial& p, const Monomial& carried, double times, std::vector<OuterProduct>& out) {
    for (const auto& [monomial, coefficient] : p) {
      if (out.size() > kMaxOuterProducts) return false;
      Monomial left, right, both, scale;
      auto place = [&](const std::pair<NodeId, int>& f) {
        const bool r = touches(f.first, rows_), c = touches(f.first, columns_);
        if (r && c)
          both.push_back(f);
        else if (r)
          left.push_back(f);
        else if (c)
          right.push_back(f);
        else
          scale.push_back(f);
      };
      for (const auto& f : carried) place(f);
      for (const auto& f : monomial) place(f);
      if (both.size() > 1 || (both.size() == 1 && both[0].second != 1)) return false;
      if (both.empty()) {
        add(left, right, scale, times * coefficient, kNoAxis, out);
        continue;
      }
      const NodeId atom = both[0].first;
      const Node n = g_[atom];
      Monomial rest = left;
      rest.insert(rest.end(), right.begin(), right.end());
      rest.insert(rest.end(), scale.begin(), scale.end());
      if (n.op == Op::ReduceSum && n.bound.size() == 1) {
        if (!through_axis(n.bound[0], s_.polynomial(n.args[0]), left, right, scale, times * coefficient, out))
          return false;
      } else {
        // A sum that is one factor: multiply it out, each term on its own.
        const Polynomial inner = s_.polynomial(atom);
        if (inner.size() < 2) return false;
        if (!split(inner, sorted(rest), times * coefficient, out)) return false;
      }
    }
    return true;
  }

  void add(const Monomial& left, const Monomial& right, const Monomial& scale, double times, AxisId through,
           std::vector<OuterProduct>& out) {
    out.push_back(
        {0, 0, s_.build(sorted(scale), times), s_.build(sorted(left), 1), s_.build(sorted(right), 1), through});
  }

  bool through_axis(AxisId axis, const Polynomial& body, const Monomial& left, const Monomial& right,
                    const Monomial& scale, double times, std::vector<OuterProduct>& out) {
    // An axis as long as a mixed one gives no low rank: U@V@h is as dense as U@h.
    for (AxisId r : rows_)
      if (g_.same_length(r, axis)) return false;
    for (const auto& [monomial, coefficient] : body) {
      Monomial l = left, r = right;
      for (const auto& f : monomial) {
        const bool on_rows = touches(f.first, rows_), on_columns = touches(f.first, columns_);
        if (on_rows && on_columns) return false;
        (on_rows ? l : r).push_back(f);
      }
      add(l, r, scale, times * coefficient, axis, out);
    }
    return true;
  }

  static Monomial sorted(Monomial m) {
    std::sort(m.begin(), m.end());
    return m;
  }

  Graph& g_;
  Simplifier& s_;
  std::vector<AxisId> rows_, columns_;
};

/// How many factors there are, by the axis that they run through.
using Weights = std::map<AxisId, int>;

SizeExpression rank_of(const Graph& g, const Weights& weights) {
  std::map<std::vector<AxisId>, std::int64_t> terms;
  for (const auto& [axis, count] : weights) {
    if (axis == kNoAxis)
      terms[{}] += count;
    else if (const auto fixed = g.axis(axis).fixed)
      terms[{}] += count * *fixed;
    else
      terms[{g.axis(axis).extent_of}] += count;
  }
  return size_expression(g, terms);
}

}  // namespace

LowRank classify_low_rank(const StageView& stage) {
  LowRank result;
  Graph& g = stage.cell.graph;
  std::set<std::pair<int, NodeId>> left_seen, right_seen;
  Weights left_rank, right_rank;
  bool uniform = true;
  std::vector<const JacobianBlock*> blocks;
  for (const int u : stage.states)
    for (const JacobianBlock& block : stage.jacobian.row(u))
      if (stage.contains(block.column)) blocks.push_back(&block);
  for (const JacobianBlock* const at : blocks) {
    const JacobianBlock& block = *at;
    const Symbol& row = stage.cell.symbol_of(stage.cell.updates[block.row]);
    const Symbol& column = stage.cell.symbol_of(stage.cell.updates[block.column]);
    std::vector<AxisId> rows, columns;
    for (AxisId a : row.index)
      if (!stage.is_channel(a)) rows.push_back(a);
    for (std::size_t p = 0; p < column.index.size(); ++p)
      if (!stage.is_channel(column.index[p])) columns.push_back(block.column_axes[p]);
    for (const JacobianTerm& term : block.terms) {
      std::size_t tied = 0;
      bool straight = true;
      for (const auto& [place, axis] : term.identities) {
        if (stage.is_channel(column.index[place])) continue;
        ++tied;
        straight &= axis == column.index[place];
      }
      if (tied == columns.size() && straight && rows.size() == columns.size()) {
        result.diagonal = true;
        for (AxisId a : rows) uniform &= !g.has_axis(term.coefficient, a);
        if (block.row != block.column) uniform = false;
        result.form.diagonal.push_back({block.row, block.column, term.coefficient});
        continue;
      }
      auto refuse = [&] {
        result.why_not = {stage.cell.updates[block.row].span, "the coupling of " + row.name + " with " + column.name +
                                                                  " along the mixed axes is no sum of outer products"};
        return result;
      };
      if (tied) return refuse();  // mixes along one axis and keeps another: no outer product
      std::vector<OuterProduct> products;
      if (!Factoriser(stage, rows, columns).split(term.coefficient, products)) return refuse();
      for (OuterProduct& p : products) {
        p.row = block.row;
        p.column = block.column;
        if (left_seen.insert({block.row, p.left}).second) ++left_rank[p.through];
        if (right_seen.insert({block.column, p.right}).second) ++right_rank[p.through];
        result.form.products.push_back(p);
      }
    }
  }
  auto total = [](const Weights& w) {
    int n = 0;
    for (const auto& [axis, count] : w) n += count;
    return n;
  };
  const Weights& smaller = total(left_rank) < total(right_rank) ? left_rank : right_rank;
  result.applies = true;
  result.uniform = result.diagonal && uniform;
  result.rank = rank_of(g, smaller);
  return result;
}

}  // namespace cellc
