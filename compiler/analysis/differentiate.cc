// Forward-mode symbolic differentiation in index notation (jacobian.h).
//
// Each node carries, per state t, its derivative as a list of terms; a term keeps its identities
// apart from its coefficient, so that "diagonal" is never multiplied out into a matrix and found
// again. The rules are the chain rule plus three that act on identities: a sum over a bound axis
// that is tied to a column replaces the axis by the column; a reindexing moves the row side of an
// identity; a literal index turns an identity into a one-hot factor.
//
// The slopes of operators that work entry by entry are formulas (derivative_rules.cc). A maximum over an axis shares
// the slope among equal entries. What is not taken, by `where` or at a kink, has no part in the slope, also where its
// own is infinite or no number. Comparisons and sign have slope 0, or with SlopeRule::Structural an opaque one: a
// factor that depends on what they depend on and cancels against nothing, so that no dependence is lost.
#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

#include "compiler/analysis/chain_rule.h"
#include "compiler/analysis/derivative_rules.h"
#include "compiler/analysis/jacobian.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/simplify.h"

namespace cellc {

namespace {

using Identities = std::vector<std::pair<int, AxisId>>;
using Terms = std::map<Identities, NodeId>;

// What a state may move: most states of a cell of thousands are read by few of its values, and those
// alone are derived by it.
class Readers {
 public:
  Readers(const CellGraph& cell, const std::vector<NodeId>& order)
      : users_(cell.graph.size()), updates_(cell.graph.size()), reads_(cell.symbols.size()) {
    for (NodeId id : order) {
      const Node& n = cell.graph[id];
      if (n.op == Op::Read) reads_[n.symbol].push_back(id);
      for (NodeId a : n.args)
        if (users_[a].empty() || users_[a].back() != id) users_[a].push_back(id);
    }
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      updates_[cell.updates[u].value].push_back(static_cast<int>(u));
  }

  /// Reads of the symbol and all that depends on them, ascending.
  std::vector<NodeId> of(int symbol) const {
    std::vector<NodeId> result, work = reads_[symbol];
    std::vector<bool> seen(users_.size());
    while (!work.empty()) {
      const NodeId id = work.back();
      work.pop_back();
      if (seen[id]) continue;
      seen[id] = true;
      result.push_back(id);
      work.insert(work.end(), users_[id].begin(), users_[id].end());
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  /// Updates that assign this value.
  const std::vector<int>& updates_of(NodeId value) const { return updates_[value]; }

 private:
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::vector<int>> updates_;
  std::vector<std::vector<NodeId>> reads_;
};

class Differentiator {
 public:
  Differentiator(CellGraph& cell, SlopeRule rule)
      : cell_(cell), g_(cell.graph), simplifier_(cell.graph), rule_(rule), chain_(cell.graph, rule) {}

  Jacobian run() {
    std::vector<NodeId> roots;
    for (const StateUpdate& u : cell_.updates) roots.push_back(u.value);
    const std::vector<NodeId> order = reachable(g_, roots);
    Jacobian jacobian;
    const Readers readers(cell_, order);
    std::vector<std::vector<JacobianBlock>> rows(cell_.updates.size());
    for (int column = 0; column < static_cast<int>(cell_.updates.size()); ++column) {
      symbol_ = cell_.updates[column].symbol;
      columns_ = column_axes(symbol_);
      derivatives_.clear();
      std::vector<int> moved;
      for (NodeId n : readers.of(symbol_)) {
        Terms t = derive(n);
        if (t.empty()) continue;
        derivatives_.emplace(n, std::move(t));
        const std::vector<int>& updates = readers.updates_of(n);
        moved.insert(moved.end(), updates.begin(), updates.end());
      }
      for (const int row : moved) {
        JacobianBlock block{row, column, columns_, {}};
        for (const auto& [identities, coefficient] : derivatives_.at(cell_.updates[row].value)) {
          const bool number = g_[coefficient].op == Op::Constant;
          const NodeId simple = number ? coefficient : simplifier_.simplify(coefficient);
          if (!g_.is_constant(simple, 0)) block.terms.push_back({simple, identities});
        }
        if (!block.terms.empty()) rows[row].push_back(std::move(block));
      }
    }
    // There may be millions: no room for twice as many.
    std::size_t count = 0;
    for (const auto& row : rows) count += row.size();
    jacobian.blocks.reserve(count);
    for (auto& row : rows) {
      std::move(row.begin(), row.end(), std::back_inserter(jacobian.blocks));
      row = {};
    }
    jacobian.chooses = chain_.chooses();
    return jacobian;
  }

 private:
  // One index variable per place of the state, shared by all states that have the place: the
  // copy of its axis numbered from kColumnCopy on, far from the copies that contractions bind.
  std::vector<AxisId> column_axes(int symbol) {
    std::vector<AxisId> result;
    for (AxisId place : cell_.symbols[symbol].index)
      result.push_back(g_.copy_axis(place, kColumnCopy + g_.axis(place).copy_number));
    return result;
  }

  const Terms* of(NodeId n) const {
    auto it = derivatives_.find(n);
    return it == derivatives_.end() ? nullptr : &it->second;
  }

  NodeId op(Op o, std::vector<NodeId> args) { return g_.op(o, std::move(args)); }
  NodeId number(double v) { return g_.constant(v); }
  NodeId times(NodeId a, NodeId b) { return product_of(g_, a, b); }

  void add(Terms& terms, const Identities& identities, NodeId coefficient) {
    if (g_.is_constant(coefficient, 0)) return;
    auto [it, fresh] = terms.emplace(identities, coefficient);
    if (!fresh) it->second = op(Op::Add, {it->second, coefficient});
  }

  Terms derive(NodeId node) {
    const Node& n = g_[node];
    Terms result;
    switch (n.op) {
      case Op::Read: {
        if (n.symbol != symbol_) return result;
        Identities identities;
        NodeId coefficient = number(1);
        for (std::size_t place = 0; place < n.index.size(); ++place) {
          if (n.index[place].is_axis())
            identities.emplace_back(static_cast<int>(place), n.index[place].axis);
          else
            coefficient = times(coefficient, g_.eye({columns_[place], 0}, n.index[place]));
        }
        result.emplace(std::move(identities), coefficient);
        return result;
      }
      case Op::Reindex: {
        const Terms* inner = of(n.args[0]);
        if (!inner) return result;
        for (const auto& [identities, coefficient] : *inner) {
          NodeId moved = g_.reindex(coefficient, n.map);
          Identities kept;
          for (const auto& [place, axis] : identities) {
            Index to{axis, 0};
            for (const auto& [from, target] : n.map)
              if (from == axis) to = target;
            if (to.is_axis())
              kept.emplace_back(place, to.axis);
            else
              moved = times(moved, g_.eye({columns_[place], 0}, to));
          }
          add(result, kept, moved);
        }
        return result;
      }
      case Op::ReduceSum: {
        const Terms* inner = of(n.args[0]);
        if (inner) sum_over(result, *inner, n.bound);
        return result;
      }
      case Op::ReduceMax: {
        const Terms* inner = of(n.args[0]);
        if (!inner) return result;
        const NodeId share = g_.max_share(n.bound, n.args[0]);
        Terms shared;
        for (const auto& [identities, coefficient] : *inner)
          shared.emplace(identities, chain_(node, 0, share, coefficient));
        sum_over(result, shared, n.bound);
        return result;
      }
      case Op::Softmax: {
        // ∂s = s (∂e − Σ s ∂e)
        const Terms* inner = of(n.args[0]);
        if (!inner) return result;
        const Terms weighted = scaled(*inner, node);
        for (const auto& [identities, coefficient] : weighted) add(result, identities, coefficient);
        Terms mean;
        sum_over(mean, weighted, n.bound);
        for (const auto& [identities, coefficient] : mean)
          add(result, identities, op(Op::Neg, {times(node, coefficient)}));
        return result;
      }
      case Op::Surrogate: {
        const Terms* inner = of(n.args[0]);  // the value's own derivative: slopes are for gradients
        if (inner) result = *inner;
        return result;
      }
      case Op::Constant:
      case Op::Size:
      case Op::Eye:
      case Op::OneHot:
      case Op::MaxShare:  // which entries are the largest jumps
        return result;
#define CELLC_OP(Name, ...) case Op::Name:
#include "compiler/graph/ops.def"
        break;
    }
    for (int i = 0; i < static_cast<int>(n.args.size()); ++i) {
      const Terms* inner = of(n.args[i]);
      if (!inner) continue;
      // The same operand twice (h*h) is met at both places; each contributes its own slope.
      const NodeId factor = slope_of(g_, node, i, rule_);
      for (const auto& [identities, coefficient] : *inner)
        add(result, identities, chain_(node, i, factor, coefficient));
    }
    return result;
  }

  Terms scaled(const Terms& terms, NodeId factor) {
    Terms result;
    for (const auto& [identities, coefficient] : terms) result.emplace(identities, times(factor, coefficient));
    return result;
  }

  void sum_over(Terms& result, const Terms& terms, const std::vector<AxisId>& bound) {
    for (const auto& [identities, coefficient] : terms) {
      std::vector<AxisId> left = bound;
      Identities kept;
      NodeId value = coefficient;
      std::map<AxisId, AxisId> column_for;
      for (const auto& [place, axis] : identities) {
        auto tied = column_for.find(axis);
        if (tied != column_for.end()) {
          // A diagonal read: two columns tied to one bound axis are tied to each other.
          value = times(value, g_.eye({tied->second, 0}, {columns_[place], 0}));
          continue;
        }
        auto it = std::find(left.begin(), left.end(), axis);
        if (it == left.end()) {
          kept.emplace_back(place, axis);
          continue;
        }
        left.erase(it);
        column_for[axis] = columns_[place];
      }
      std::vector<std::pair<AxisId, Index>> map;
      for (const auto& [axis, column] : column_for) map.emplace_back(axis, Index{column, 0});
      value = g_.reindex(value, map);
      add(result, kept, g_.reduce_sum(left, value));
    }
  }

  CellGraph& cell_;
  Graph& g_;
  Simplifier simplifier_;
  SlopeRule rule_;
  int symbol_ = -1;
  std::vector<AxisId> columns_;
  ChainRule chain_;
  std::unordered_map<NodeId, Terms> derivatives_;
};

}  // namespace

const JacobianBlock* Jacobian::find(int row, int column) const {
  const auto at = std::lower_bound(
      blocks.begin(), blocks.end(), std::pair(row, column),
      [](const JacobianBlock& b, const std::pair<int, int>& wanted) { return std::pair(b.row, b.column) < wanted; });
  return at != blocks.end() && at->row == row && at->column == column ? &*at : nullptr;
}

std::span<const JacobianBlock> Jacobian::row(int row) const {
  const auto before = [](const JacobianBlock& b, int wanted) { return b.row < wanted; };
  const auto begin = std::lower_bound(blocks.begin(), blocks.end(), row, before);
  return {begin, std::lower_bound(begin, blocks.end(), row + 1, before)};
}

Jacobian differentiate(CellGraph& cell, SlopeRule rule) { return Differentiator(cell, rule).run(); }

NodeId block_as_node(CellGraph& cell, const JacobianBlock& block) {
  Graph& g = cell.graph;
  NodeId total = kNoNode;
  for (const JacobianTerm& term : block.terms) {
    NodeId value = term.coefficient;
    for (const auto& [place, axis] : term.identities) {
      const NodeId e = g.eye({axis, 0}, {block.column_axes[place], 0});
      value = g.is_constant(value, 1) ? e : g.op(Op::Mul, {value, e});
    }
    total = total == kNoNode ? value : g.op(Op::Add, {total, value});
  }
  return total;
}

}  // namespace cellc
