#include "compiler/plan/plan_products.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <stdexcept>

#include "compiler/graph/axes.h"
#include "compiler/plan/plan_nests.h"

namespace cellc {
namespace {

/// W@v, if it has the shape of a matrix product over rows.
struct ProductShape {
  NodeId matrix_root;               ///< a Read of a param, or a value to be computed once
  std::vector<AxisId> matrix_dims;  ///< order in which matrix_root's own axes must lie (values only)
  NodeId operand;                   ///< v as it stands in the product
  Product product;                  ///< its axes, and how the matrix lies
};

bool is_one_of(const std::vector<AxisId>& axes, AxisId axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

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
      // The operand's rows must be [batch…, shared…, sums…]; a value of our own is laid out so, once.
      const std::vector<AxisId> dims = own_axes(root, index, operand_axes(shape->product));
      // What a product leaves lies as that product has it.
      if (const int of = found_.of_node[root];
          of >= 0 && result_dims(found_.products[static_cast<std::size_t>(of)]) != dims)
        continue;
      const auto before = found_.operand_dims.find(root);
      if (before != found_.operand_dims.end() && before->second != dims) continue;
      found_.operand_dims[root] = dims;
      if (!shape->matrix_dims.empty()) found_.once_dims[shape->matrix_root] = shape->matrix_dims;
      found_.of_node[id] = static_cast<int>(found_.products.size());
      found_.products.push_back(shape->product);
      found_.products.back().node = id;
      found_.operand_root.push_back(root);
      found_.matrix_root.push_back(shape->matrix_root);
    }
    return std::move(found_);
  }

 private:
  const Node& node(NodeId id) const { return graph_[id]; }

  static std::vector<AxisId> operand_axes(const Product& p) {
    std::vector<AxisId> axes = p.batch;
    axes.insert(axes.end(), p.shared.begin(), p.shared.end());
    axes.insert(axes.end(), p.sums.begin(), p.sums.end());
    return axes;
  }

  /// What the root calls the axes that a use of it calls `used`.
  std::vector<AxisId> own_axes(NodeId root, const std::vector<Index>& index, const std::vector<AxisId>& used) const {
    std::vector<AxisId> own;
    for (const AxisId u : used)
      for (std::size_t k = 0; k < index.size(); ++k)
        if (index[k].axis == u) own.push_back(node(root).axes[k]);
    if (own.size() != used.size()) throw std::logic_error("plan: a factor lacks its own axis");
    return own;
  }

  std::optional<ProductShape> product_shape(NodeId id) const {
    const Node& n = node(id);
    if (n.op != Op::ReduceSum || n.bound.empty() || of_.once[id]) return std::nullopt;
    const Node& body = node(n.args[0]);
    if (body.op != Op::Mul) return std::nullopt;
    for (int side = 0; side < 2; ++side) {
      const NodeId matrix = body.args[side], operand = body.args[1 - side];
      if (of_.once[matrix] && !of_.once[operand]) {
        if (auto shape = product_of(matrix, operand, n.bound)) return shape;
      }
    }
    return std::nullopt;
  }

  std::optional<ProductShape> product_of(NodeId matrix, NodeId operand, const std::vector<AxisId>& sums) const {
    const Node& m = node(matrix);
    const Node& v = node(operand);
    if (is_immediate(m)) return std::nullopt;
    for (const AxisId a : sums)
      if (!contains(m.axes, a) || !contains(v.axes, a)) return std::nullopt;
    ProductShape shape;
    shape.operand = operand;
    Product& p = shape.product;
    // As they lie in the operand, where they lie somewhere.
    std::vector<AxisId> of_operand;
    for (const Index& i : memory_of(operand))
      if (i.is_axis() && contains(v.axes, i.axis)) of_operand.push_back(i.axis);
    for (const AxisId a : of_operand)
      if (!contains(m.axes, a)) p.shared.push_back(a);
    const auto [root, index] = m.op == Op::Read ? std::pair{matrix, m.index} : under_reindex(graph_, matrix);
    if (!has_distinct_axes(index)) return std::nullopt;
    for (const Index& i : index)
      (is_one_of(sums, i.axis) ? p.sums : contains(v.axes, i.axis) ? p.batch : p.rows).push_back(i.axis);
    if (p.rows.empty()) return std::nullopt;
    shape.matrix_root = root;
    if (m.op == Op::Read) return lies_in_groups(p, index) ? std::optional(shape) : std::nullopt;
    // A value of our own lies as we want it: sums as in the operand.
    std::vector<AxisId> sums_of_operand;
    for (const AxisId a : of_operand)
      if (is_one_of(sums, a)) sums_of_operand.push_back(a);
    if (sums_of_operand.size() == p.sums.size()) p.sums = sums_of_operand;
    std::vector<AxisId> used = p.batch;
    used.insert(used.end(), p.rows.begin(), p.rows.end());
    used.insert(used.end(), p.sums.begin(), p.sums.end());
    shape.matrix_dims = own_axes(root, index, used);
    // One value can lie in memory in one order only: that of the first product that wants it.
    const auto before = found_.once_dims.find(root);
    if (before != found_.once_dims.end() && before->second != shape.matrix_dims) return std::nullopt;
    return shape;
  }

  /// The index of each dimension in memory, or of a value of our own, in some order.
  std::vector<Index> memory_of(NodeId id) const {
    // Along an axis of lags it lies in no row: a value of our own, whose rows have that axis.
    const bool in_rows = node(id).op == Op::Read && node(id).lag_axis == kNoAxis;
    return in_rows ? node(id).index : under_reindex(graph_, id).second;
  }

  /// Does a param lie as [batch…, rows…, sums…] or with its groups in another order, so that the axes of each are as
  /// one and rows or sums are last? Says how in `p`.
  static bool lies_in_groups(Product& p, const std::vector<Index>& order) {
    const auto is = [&](std::initializer_list<const std::vector<AxisId>*> groups) {
      std::size_t at = 0;
      for (const std::vector<AxisId>* group : groups)
        for (const AxisId a : *group)
          if (order[at++].axis != a) return false;
      return true;
    };
    p.batch_inside = false;
    p.sum_last = true;
    if (is({&p.batch, &p.rows, &p.sums})) return true;
    p.sum_last = false;
    if (is({&p.batch, &p.sums, &p.rows})) return true;
    p.batch_inside = true;
    if (is({&p.sums, &p.batch, &p.rows})) return true;
    p.sum_last = true;
    return is({&p.rows, &p.batch, &p.sums});
  }

  const Graph& graph_;
  const StepDependencies& of_;
  MatrixProducts found_;
};

}  // namespace

std::vector<AxisId> result_dims(const Product& product) {
  std::vector<AxisId> dims = product.batch;
  dims.insert(dims.end(), product.shared.begin(), product.shared.end());
  dims.insert(dims.end(), product.rows.begin(), product.rows.end());
  return dims;
}

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

int out_of_product(const Plan& plan, const Product& product, const std::vector<char>& needed) {
  if (!plan.options.products_to_outs) return -1;
  const CellGraph& cell = plan.cell;
  const auto is_read_beside = [&](std::size_t out) {
    for (std::size_t o = 0; o < cell.outs.size(); ++o)
      if (o != out && cell.outs[o].value == product.node) return true;
    for (const StateUpdate& u : cell.updates)
      if (u.value == product.node) return true;
    for (NodeId n = 0; n < cell.graph.size(); ++n) {
      const std::vector<NodeId>& args = cell.graph[n].args;
      if (needed[n] && std::find(args.begin(), args.end(), product.node) != args.end()) return true;
    }
    return false;
  };
  for (std::size_t o = 0; o < cell.outs.size(); ++o) {
    if (cell.outs[o].value != product.node || cell.outs[o].index != result_dims(product)) continue;
    const bool rounds = plan.options.rounds_operands && cell.updates.empty();
    return plan.options.narrow_storage && !rounds && is_read_beside(o) ? -1 : static_cast<int>(o);
  }
  return -1;
}

bool is_left_by_product(const Plan& plan, const Home& home) {
  return std::any_of(plan.products.begin(), plan.products.end(),
                     [&](const Product& p) { return p.result.place == home.place && p.result.id == home.id; });
}

void store_rounded_rows(Plan& plan) {
  std::vector<char> stored(plan.chunks.size(), plan.cell.updates.empty());
  const auto mark = [&](const Home& home, bool is_stored) {
    if (home.place == Place::Chunk) stored[static_cast<std::size_t>(home.id)] = is_stored;
  };
  if (!plan.cell.updates.empty()) {
    for (const Product& p : plan.products) mark(p.operand, true);
    for (const Product& p : plan.products) mark(p.result, false);
    for (const Kernel& kernel : plan.kernels)
      for (const Nest& nest : kernel.nests)
        for (const Access& a : nest.loads) mark(a.home, false);
  }
  for (std::size_t c = 0; c < stored.size(); ++c) plan.chunks[c].stored = stored[c] != 0;
}

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
