#include "compiler/plan/plan_products.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "compiler/graph/axes.h"
#include "compiler/plan/plan_nests.h"

namespace cellc {
namespace {

/// W@v, if it has the shape of a matrix product over rows.
struct ProductShape {
  NodeId matrix_root;  ///< a Read of a param, or a value to be computed once
  bool sum_last = true;
  std::vector<AxisId> matrix_dims;  ///< order in which matrix_root's own axes must lie (values only)
  NodeId operand;                   ///< v as it stands in the product
  std::vector<AxisId> batch, rows;
  AxisId sum;
};

class ProductFinder {
 public:
  ProductFinder(const Graph& graph, const StepDependencies& of) : graph_(graph), of_(of) {}

  MatrixProducts run() {
    found_.of_node.assign(graph_.size(), -1);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!of_.needed[id] || (of_.reads[id] & of_.feeds[id]) != 0) continue;
      const auto shape = product_shape(id);
      if (!shape) continue;
      auto [root, index] = under_reindex(graph_, shape->operand);
      if (!has_distinct_axes(index)) continue;
      // The operand's rows must be [batch…, sum]; a value of our own is laid out so, once.
      std::vector<AxisId> dims;
      for (std::size_t i = 0; i <= shape->batch.size(); ++i) {
        const AxisId used = i < shape->batch.size() ? shape->batch[i] : shape->sum;
        for (std::size_t k = 0; k < index.size(); ++k) {
          if (index[k].axis == used) dims.push_back(node(root).axes[k]);
        }
      }
      const auto before = found_.operand_dims.find(root);
      if (before != found_.operand_dims.end() && before->second != dims) continue;
      found_.operand_dims[root] = dims;
      if (!shape->matrix_dims.empty()) found_.once_dims[shape->matrix_root] = shape->matrix_dims;
      found_.of_node[id] = static_cast<int>(found_.products.size());
      Product product;
      product.node = id;
      product.sum_last = shape->sum_last;
      product.batch = shape->batch;
      product.rows = shape->rows;
      product.sum = shape->sum;
      found_.products.push_back(product);
      found_.operand_root.push_back(root);
      found_.matrix_root.push_back(shape->matrix_root);
    }
    return std::move(found_);
  }

 private:
  const Node& node(NodeId id) const { return graph_[id]; }

  std::optional<ProductShape> product_shape(NodeId id) const {
    const Node& n = node(id);
    if (n.op != Op::ReduceSum || n.bound.size() != 1 || of_.once[id]) return std::nullopt;
    const Node& body = node(n.args[0]);
    if (body.op != Op::Mul) return std::nullopt;
    for (int side = 0; side < 2; ++side) {
      const NodeId matrix = body.args[side], operand = body.args[1 - side];
      if (of_.once[matrix] && !of_.once[operand]) {
        if (auto shape = product_of(matrix, operand, n.bound[0])) return shape;
      }
    }
    return std::nullopt;
  }

  std::optional<ProductShape> product_of(NodeId matrix, NodeId operand, AxisId sum) const {
    const Node& m = node(matrix);
    const Node& v = node(operand);
    if (is_immediate(m) || !contains(m.axes, sum) || !contains(v.axes, sum)) return std::nullopt;
    ProductShape shape;
    shape.operand = operand;
    shape.sum = sum;
    for (const AxisId a : v.axes) {
      if (a != sum && !contains(m.axes, a)) return std::nullopt;
    }
    std::vector<Index> order;  // index of each dimension of the matrix in memory
    if (m.op == Op::Read) {
      order = m.index;
      shape.matrix_root = matrix;
      if (!has_distinct_axes(order)) return std::nullopt;
      for (const Index& i : order) {
        if (i.axis != sum) (contains(v.axes, i.axis) ? shape.batch : shape.rows).push_back(i.axis);
      }
      const std::size_t b = shape.batch.size(), r = shape.rows.size();
      for (std::size_t i = 0; i < b; ++i) {
        if (order[i].axis != shape.batch[i]) return std::nullopt;
      }
      if (order.back().axis == sum) {
        shape.sum_last = true;
      } else if (order[b].axis == sum) {
        shape.sum_last = false;
      } else {
        return std::nullopt;
      }
      if (r == 0) return std::nullopt;
      return shape;
    }
    auto [root, index] = under_reindex(graph_, matrix);
    if (!has_distinct_axes(index)) return std::nullopt;
    const auto own = [&, r = root, ix = index](AxisId used) {
      for (std::size_t i = 0; i < ix.size(); ++i) {
        if (ix[i].axis == used) return node(r).axes[i];
      }
      throw std::logic_error("plan: a matrix lacks its own axis");
    };
    shape.matrix_root = root;
    for (const Index& i : index) {
      if (i.axis != sum) (contains(v.axes, i.axis) ? shape.batch : shape.rows).push_back(i.axis);
    }
    if (shape.rows.empty()) return std::nullopt;
    for (const AxisId a : shape.batch) shape.matrix_dims.push_back(own(a));
    for (const AxisId a : shape.rows) shape.matrix_dims.push_back(own(a));
    shape.matrix_dims.push_back(own(sum));
    // One value can lie in memory in one order only: that of the first product that wants it.
    const auto before = found_.once_dims.find(root);
    if (before != found_.once_dims.end() && before->second != shape.matrix_dims) return std::nullopt;
    return shape;
  }

  const Graph& graph_;
  const StepDependencies& of_;
  MatrixProducts found_;
};

}  // namespace

std::pair<NodeId, std::vector<Index>> under_reindex(const Graph& graph, NodeId id) {
  const Node& n = graph[id];
  if (n.op != Op::Reindex) {
    std::vector<Index> own;
    for (const AxisId a : n.axes) own.push_back({a, 0});
    return {id, own};
  }
  auto [root, index] = under_reindex(graph, n.args[0]);
  for (Index& i : index) {
    for (const auto& [from, to] : n.map) {
      if (i.is_axis() && i.axis == from) {
        i = to;
        break;
      }
    }
  }
  return {root, index};
}

bool has_distinct_axes(const std::vector<Index>& index) {
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (!index[i].is_axis()) return false;
    for (std::size_t j = 0; j < i; ++j) {
      if (index[j].axis == index[i].axis) return false;
    }
  }
  return true;
}

MatrixProducts find_products(const Graph& graph, const StepDependencies& of) { return ProductFinder(graph, of).run(); }

StepLevels step_levels(const CellGraph& cell, const StepDependencies& of, const std::vector<int>& stage_of,
                       const std::vector<int>& position_of_symbol, const MatrixProducts& products) {
  StepLevels levels;
  levels.of_node.assign(cell.graph.size(), 0);
  std::size_t stages = 1;
  for (const int s : stage_of) stages = std::max(stages, static_cast<std::size_t>(s) + 1);
  std::vector<int> stage_level(stages, 0);
  // Stages depend on each other without cycles, and so do products; each round settles at least one more.
  for (std::size_t round = 0;; ++round) {
    for (NodeId id = 0; id < levels.of_node.size(); ++id) {
      if (!of.needed[id]) continue;
      const Node& n = cell.graph[id];
      int level = 0;
      if (n.op == Op::Read && position_of_symbol[n.symbol] >= 0) {
        level = stage_level[stage_of[position_of_symbol[n.symbol]]];
      }
      for (const NodeId a : n.args) level = std::max(level, levels.of_node[a]);
      levels.of_node[id] = level + (products.of_node[id] >= 0);
    }
    bool changed = false;
    for (std::size_t i = 0; i < cell.updates.size(); ++i) {
      int& level = stage_level[stage_of[i]];
      const int wanted = levels.of_node[cell.updates[i].value];
      if (wanted > level) {
        level = wanted;
        changed = true;
      }
    }
    if (!changed) break;
    if (round > products.products.size() + stages + 1) throw std::logic_error("plan: products depend on themselves");
  }
  for (const int s : stage_of) levels.of_state.push_back(stage_level[s]);
  for (const NodeId root : step_roots(cell)) levels.count = std::max(levels.count, levels.of_node[root] + 1);
  for (const int l : levels.of_state) levels.count = std::max(levels.count, l + 1);
  return levels;
}

}  // namespace cellc
