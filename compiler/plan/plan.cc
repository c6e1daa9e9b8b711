#include "compiler/plan/plan.h"

#include <algorithm>
#include <stdexcept>

#include "compiler/graph/axes.h"
#include "compiler/graph/delay_lines.h"
#include "compiler/graph/rewriter.h"
#include "compiler/plan/plan_nests.h"

namespace cellc {

namespace {

/// Stages as bits; a cell with more stages than bits shares the last one, which only costs hoisting.
using StageSet = std::uint64_t;
StageSet stage_bit(int stage) { return StageSet{1} << std::min(stage, 63); }

/// W@v, if it has the shape of a matrix product over rows.
struct ProductShape {
  NodeId matrix_root;  ///< a Read of a param, or a value to be computed once
  bool sum_last = true;
  std::vector<AxisId> matrix_dims;  ///< order in which matrix_root's own axes must lie (values only)
  NodeId operand;                   ///< v as it stands in the product
  std::vector<AxisId> batch, rows;
  AxisId sum;
};

/// Rows that a BLAS is called with (runtime/cpu/products.h).
constexpr int kLeastChunk = 64;

class Planner {
 public:
  Planner(const CellGraph& cell, const Structure& structure, const PlanOptions& options) {
    plan_.cell = cell;
    plan_.options = options;
    plan_.independent_steps = independent_steps(cell);
    // Products over fewer rows gain nothing, and how many rows share one must not follow from the cut.
    if (cell.has_lines() && plan_.independent_steps < kLeastChunk) plan_.options.hoist_products = false;
    const std::size_t states = cell.updates.size();
    stage_of_ = structure.stage_of;
    // Without proven stages all states are one: nothing that reads a state is hoisted out of any.
    if (stage_of_.size() != states) stage_of_.assign(states, 0);
    for (const int s : stage_of_) stages_ = std::max(stages_, s + 1);
    position_of_symbol_.assign(cell.symbols.size(), -1);
    for (std::size_t i = 0; i < states; ++i) position_of_symbol_[cell.updates[i].symbol] = static_cast<int>(i);
  }

  Plan run() {
    rewrite();
    classify();
    find_products();
    find_levels();
    place_values();
    schedule_all();
    find_split_axis();
    return std::move(plan_);
  }

 private:
  Graph& graph() { return plan_.cell.graph; }
  const Node& node(NodeId id) const { return plan_.cell.graph[id]; }

  std::vector<NodeId> roots() const {
    std::vector<NodeId> all;
    for (const StateUpdate& u : plan_.cell.updates) all.push_back(u.value);
    for (const Out& o : plan_.cell.outs) all.push_back(o.value);
    return all;
  }

  /// Spells softmax out and drops operators that matter to gradients only.
  void rewrite() {
    RewriteRules rules;
    rules.slopes = DeclaredSlopes::LeftOut;  // they are for gradients and would be dead code here
    rules.drop_stop_gradient = true;
    const auto share = [&](const Node& n, NodeId weight) {
      return graph().op(Op::Div, {weight, graph().reduce_sum(n.bound, weight, n.span)}, n.span);
    };
    rules.by_kind[Op::Softmax] = [&](const Node& n, const std::vector<NodeId>& args) {
      const NodeId largest = graph().reduce_max(n.bound, args[0], n.span);
      const NodeId shifted = graph().op(Op::Sub, {args[0], largest}, n.span);
      return share(n, graph().op(Op::Exp, {shifted}, n.span));
    };
    rules.by_kind[Op::MaxShare] = [&](const Node& n, const std::vector<NodeId>& args) {
      const NodeId largest = graph().reduce_max(n.bound, args[0], n.span);
      return share(n, graph().op(Op::Eq, {args[0], largest}, n.span));
    };
    Rewriter rewriter(graph(), graph(), std::move(rules));
    const std::vector<NodeId> images = rewriter(roots());
    std::size_t next = 0;
    for (StateUpdate& u : plan_.cell.updates) u.value = images[next++];
    for (Out& o : plan_.cell.outs) o.value = images[next++];
  }

  /// By node: is it needed for `from`?
  std::vector<char> marked(const std::vector<NodeId>& from) const {
    std::vector<char> seen(plan_.cell.graph.size(), 0);
    for (const NodeId id : reachable(plan_.cell.graph, from)) seen[id] = 1;
    return seen;
  }

  void classify() {
    const std::size_t count = graph().size();
    seen_ = marked(roots());
    once_.assign(count, 0);
    reads_.assign(count, 0);
    feeds_.assign(count, 0);
    for (NodeId id = 0; id < count; ++id) {
      if (!seen_[id]) continue;
      const Node& n = node(id);
      once_[id] = 1;
      if (n.op == Op::Read) {
        const SymbolKind kind = plan_.cell.symbols[n.symbol].kind;
        once_[id] = kind == SymbolKind::Param;
        if (kind == SymbolKind::State) reads_[id] = stage_bit(stage_of_[position_of_symbol_.at(n.symbol)]);
      }
      for (const NodeId a : n.args) {
        once_[id] = once_[id] && once_[a];
        reads_[id] |= reads_[a];
      }
    }
    for (std::size_t i = 0; i < plan_.cell.updates.size(); ++i) {
      feeds_[plan_.cell.updates[i].value] |= stage_bit(stage_of_[i]);
    }
    for (NodeId id = static_cast<NodeId>(count); id-- > 0;) {
      if (!seen_[id]) continue;
      for (const NodeId a : node(id).args) feeds_[a] |= feeds_[id];
    }
  }

  // Products -----------------------------------------------------------------------------------

  /// The value under a Reindex, and the index of each of its own axes.
  std::pair<NodeId, std::vector<Index>> under_reindex(NodeId id) const {
    const Node& n = node(id);
    if (n.op != Op::Reindex) {
      std::vector<Index> own;
      for (const AxisId a : n.axes) own.push_back({a, 0});
      return {id, own};
    }
    auto [root, index] = under_reindex(n.args[0]);
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

  static bool distinct_axes(const std::vector<Index>& index) {
    for (std::size_t i = 0; i < index.size(); ++i) {
      if (!index[i].is_axis()) return false;
      for (std::size_t j = 0; j < i; ++j) {
        if (index[j].axis == index[i].axis) return false;
      }
    }
    return true;
  }

  std::optional<ProductShape> product_shape(NodeId id) const {
    const Node& n = node(id);
    if (n.op != Op::ReduceSum || n.bound.size() != 1 || once_[id]) return std::nullopt;
    const Node& body = node(n.args[0]);
    if (body.op != Op::Mul) return std::nullopt;
    for (int side = 0; side < 2; ++side) {
      const NodeId matrix = body.args[side], operand = body.args[1 - side];
      if (once_[matrix] && !once_[operand]) {
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
      if (!distinct_axes(order)) return std::nullopt;
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
    auto [root, index] = under_reindex(matrix);
    if (!distinct_axes(index)) return std::nullopt;
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
    const auto before = once_dims_.find(root);
    if (before != once_dims_.end() && before->second != shape.matrix_dims) return std::nullopt;
    return shape;
  }

  void find_products() {
    product_of_node_.assign(graph().size(), -1);
    if (!plan_.options.hoist_products) return;
    for (NodeId id = 0; id < graph().size(); ++id) {
      if (!seen_[id] || (reads_[id] & feeds_[id]) != 0) continue;
      const auto shape = product_shape(id);
      if (!shape) continue;
      auto [root, index] = under_reindex(shape->operand);
      if (!distinct_axes(index)) continue;
      // The operand's rows must be [batch…, sum]; a value of our own is laid out so, once.
      std::vector<AxisId> dims;
      for (std::size_t i = 0; i <= shape->batch.size(); ++i) {
        const AxisId used = i < shape->batch.size() ? shape->batch[i] : shape->sum;
        for (std::size_t k = 0; k < index.size(); ++k) {
          if (index[k].axis == used) dims.push_back(node(root).axes[k]);
        }
      }
      const auto before = operand_dims_.find(root);
      if (before != operand_dims_.end() && before->second != dims) continue;
      operand_dims_[root] = dims;
      if (!shape->matrix_dims.empty()) once_dims_[shape->matrix_root] = shape->matrix_dims;
      product_of_node_[id] = static_cast<int>(plan_.products.size());
      Product product;
      product.node = id;
      product.sum_last = shape->sum_last;
      product.batch = shape->batch;
      product.rows = shape->rows;
      product.sum = shape->sum;
      plan_.products.push_back(product);
      operand_root_.push_back(root);
      matrix_root_.push_back(shape->matrix_root);
    }
  }

  // Levels -------------------------------------------------------------------------------------

  void find_levels() {
    state_level_.assign(plan_.cell.updates.size(), 0);
    level_.assign(graph().size(), 0);
    std::vector<int> stage_level(stages_, 0);
    // Stages depend on each other without cycles, and so do products; each round settles at least one more.
    for (std::size_t round = 0;; ++round) {
      for (NodeId id = 0; id < level_.size(); ++id) {
        if (!seen_[id]) continue;
        const Node& n = node(id);
        int level = 0;
        if (n.op == Op::Read && position_of_symbol_[n.symbol] >= 0) {
          level = stage_level[stage_of_[position_of_symbol_[n.symbol]]];
        }
        for (const NodeId a : n.args) level = std::max(level, level_[a]);
        level_[id] = level + (product_of_node_[id] >= 0);
      }
      bool changed = false;
      for (std::size_t i = 0; i < plan_.cell.updates.size(); ++i) {
        int& level = stage_level[stage_of_[i]];
        const int wanted = level_[plan_.cell.updates[i].value];
        if (wanted > level) {
          level = wanted;
          changed = true;
        }
      }
      if (!changed) break;
      if (round > plan_.products.size() + stages_ + 1) throw std::logic_error("plan: products depend on themselves");
    }
    for (std::size_t i = 0; i < state_level_.size(); ++i) state_level_[i] = stage_level[stage_of_[i]];
    for (const StateUpdate& u : plan_.cell.updates) levels_ = std::max(levels_, level_[u.value] + 1);
    for (const int l : state_level_) levels_ = std::max(levels_, l + 1);
    for (const Out& o : plan_.cell.outs) levels_ = std::max(levels_, level_[o.value] + 1);
    for (Product& p : plan_.products) p.level = level_[p.node];
  }

  // Which kernel computes what -----------------------------------------------------------------

  void mark_exported(NodeId id, int kernel) {
    std::vector<NodeId>& list = plan_.kernels[kernel].exported;
    if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  }

  void need_once(NodeId id) {
    const NodeId root = under_reindex(id).first;
    const Node& n = node(root);
    if (is_immediate(n) || n.op == Op::Read) return;
    if (!once_needed_[root]) once_roots_.push_back(root);
    once_needed_[root] = 1;
  }

  void visit(NodeId id, int kernel) {
    std::vector<NodeId> open{id};  // not recursive: a graph may be deeper than the stack
    while (!open.empty()) {
      const NodeId current = open.back();
      open.pop_back();
      const Node& n = node(current);
      if (once_[current]) {
        need_once(current);
      } else if (n.op == Op::Reindex) {
        open.push_back(n.args[0]);
      } else if (product_of_node_[current] >= 0) {
        continue;
      } else if (n.op == Op::Read) {
        const int position = position_of_symbol_[n.symbol];
        if (position >= 0 && state_level_[position] != kernel) mark_exported(current, state_level_[position]);
      } else if (computed_in_[current] >= 0) {
        if (computed_in_[current] != kernel) mark_exported(current, computed_in_[current]);
      } else {
        computed_in_[current] = kernel;
        for (const NodeId a : n.args) open.push_back(a);
      }
    }
  }

  /// Can a product read the operand's rows where they lie already?
  std::optional<Home> row_home(NodeId root) const {
    const Node& n = node(root);
    const bool direct_input = n.op == Op::Read && plan_.cell.symbols[n.symbol].kind == SymbolKind::Input &&
                              n.lag == 0 && n.lag_axis == kNoAxis && !plan_.options.narrow_storage &&
                              distinct_axes(n.index);
    if (!direct_input) return std::nullopt;
    Home home{Place::Input, n.symbol, {}};
    for (const Index& i : n.index) home.dims.push_back(i.axis);
    return home.dims == operand_dims_.at(root) ? std::optional(home) : std::nullopt;
  }

  void place_values() {
    plan_.kernels.resize(levels_);
    computed_in_.assign(graph().size(), -1);
    once_needed_.assign(graph().size(), 0);
    for (int level = 0; level < levels_; ++level) {
      plan_.kernels[level].level = level;
      for (std::size_t i = 0; i < plan_.cell.updates.size(); ++i) {
        if (state_level_[i] == level) visit(plan_.cell.updates[i].value, level);
      }
      for (const Out& o : plan_.cell.outs) {
        if (level_[o.value] == level) visit(o.value, level);
      }
      for (std::size_t i = 0; i < plan_.products.size(); ++i) {
        if (plan_.products[i].level != level + 1) continue;
        const NodeId root = operand_root_[i];
        need_once(matrix_root_[i]);
        if (row_home(root) || product_of_node_[root] >= 0) continue;
        visit(root, level);
        const Node& n = node(root);
        int from = computed_in_[root];
        if (n.op == Op::Read) {
          const int position = position_of_symbol_[n.symbol];
          from = position >= 0 ? state_level_[position] : level;
        }
        mark_exported(root, from);
      }
    }
    plan_.state_kernel = state_level_;
    for (std::size_t i = 0; i < plan_.products.size(); ++i) {
      Product& p = plan_.products[i];
      std::vector<AxisId> dims = p.batch;
      dims.insert(dims.end(), p.rows.begin(), p.rows.end());
      p.chunk = static_cast<int>(plan_.chunks.size());
      plan_.chunks.push_back({p.node, dims});
      homes_[p.node] = {Place::Chunk, p.chunk, dims};
    }
  }

  // Homes of what leaves a kernel, and its stores ------------------------------------------------

  static bool same_set(const std::vector<AxisId>& sorted, const std::vector<AxisId>& dims) {
    return sorted == sorted_axes(dims);
  }

  std::vector<Store> stores_of(int kernel) {
    std::vector<Store> stores;
    const bool narrow = plan_.options.narrow_storage;
    const auto computed_here = [&](NodeId id) { return computed_in_[id] == kernel; };
    const std::vector<NodeId>& exported = plan_.kernels[kernel].exported;
    const auto leaves = [&](NodeId id) { return std::find(exported.begin(), exported.end(), id) != exported.end(); };
    // Where the value is written anyway, other nests and kernels may read it: its first such place is its
    // home. Rows of narrow storage have lost bits, and the carried state is overwritten two steps later.
    for (std::size_t i = 0; i < plan_.cell.updates.size(); ++i) {
      if (state_level_[i] != kernel) continue;
      const StateUpdate& u = plan_.cell.updates[i];
      const Symbol& symbol = plan_.cell.symbols[u.symbol];
      const Home home{Place::StateNew, static_cast<int>(i), symbol.index};
      stores.push_back({u.value, home});
      if (narrow) stores.push_back({u.value, {Place::StateRow, static_cast<int>(i), symbol.index}});
      if (computed_here(u.value) && same_set(node(u.value).axes, symbol.index) && !homes_.contains(u.value) &&
          !(narrow && leaves(u.value)) && fits_operand(u.value, symbol.index)) {
        homes_[u.value] = home;
      }
    }
    for (std::size_t i = 0; i < plan_.cell.outs.size(); ++i) {
      const Out& o = plan_.cell.outs[i];
      if (level_[o.value] != kernel) continue;
      const Home home{Place::Out, static_cast<int>(i), o.index};
      stores.push_back({o.value, home});
      if (computed_here(o.value) && same_set(node(o.value).axes, o.index) && !homes_.contains(o.value) && !narrow &&
          fits_operand(o.value, o.index)) {
        homes_[o.value] = home;
      }
    }
    for (const NodeId id : exported) {
      if (homes_.contains(id)) continue;
      std::vector<AxisId> dims;
      if (const auto wanted = operand_dims_.find(id); wanted != operand_dims_.end()) dims = wanted->second;
      const int chunk = static_cast<int>(plan_.chunks.size());
      plan_.chunks.push_back({id, dims});
      homes_[id] = {Place::Chunk, chunk, dims};  // no dims yet: the nest that computes it lays it out
      stores.push_back({id, homes_[id]});
    }
    return stores;
  }

  bool fits_operand(NodeId id, const std::vector<AxisId>& dims) const {
    const auto wanted = operand_dims_.find(id);
    return wanted == operand_dims_.end() || wanted->second == dims;
  }

  void schedule_all() {
    schedule_once();
    for (int k = 0; k < levels_; ++k) {
      std::vector<NodeId> values;
      for (NodeId id = 0; id < computed_in_.size(); ++id) {
        if (computed_in_[id] == k) values.push_back(id);
      }
      std::vector<Store> stores = stores_of(k);
      schedule(plan_, k, values, std::move(stores), homes_, position_of_symbol_);
    }
    for (std::size_t i = 0; i < plan_.products.size(); ++i) {
      Product& p = plan_.products[i];
      const NodeId root = operand_root_[i];
      const auto row = row_home(root);
      p.operand = row ? *row : homes_.at(root);
      const Node& m = node(matrix_root_[i]);
      p.matrix = m.op == Op::Read ? Home{Place::Param, m.symbol, plan_.cell.symbols[m.symbol].axes}
                                  : homes_.at(matrix_root_[i]);
    }
    for (int level = 0; level < levels_; ++level) {
      for (std::size_t i = 0; i < plan_.products.size(); ++i) {
        if (plan_.products[i].level == level) plan_.phases.push_back({true, static_cast<int>(i)});
      }
      if (!plan_.kernels[level].nests.empty()) plan_.phases.push_back({false, level});
    }
  }

  void schedule_once() {
    if (once_roots_.empty()) return;
    plan_.once_kernel = levels_;
    plan_.kernels.resize(levels_ + 1);
    plan_.kernels.back().once = true;
    const std::vector<char> inside = marked(once_roots_);
    std::vector<NodeId> values;
    for (NodeId id = 0; id < inside.size(); ++id) {
      const Node& n = node(id);
      if (inside[id] && !is_immediate(n) && n.op != Op::Read && n.op != Op::Reindex) values.push_back(id);
    }
    std::sort(once_roots_.begin(), once_roots_.end());
    std::vector<Store> stores;
    for (const NodeId id : once_roots_) {
      std::vector<AxisId> dims;
      if (const auto wanted = once_dims_.find(id); wanted != once_dims_.end()) dims = wanted->second;
      homes_[id] = {Place::Once, static_cast<int>(plan_.once.size()), dims};
      plan_.once.push_back({id, dims});
      stores.push_back({id, homes_[id]});
    }
    schedule(plan_, plan_.once_kernel, values, std::move(stores), homes_, position_of_symbol_);
  }

  // Threads ------------------------------------------------------------------------------------

  bool splits(AxisId axis) const {
    for (const Symbol& s : plan_.cell.symbols) {
      if (s.kind == SymbolKind::State && !contains(s.index, axis)) return false;
    }
    for (const Kernel& kernel : plan_.kernels) {
      if (kernel.once) continue;
      for (const Nest& nest : kernel.nests) {
        if (!contains(nest.axes, axis)) return false;
        for (const Access& a : nest.loads) {
          // What a step wrote must be read by the lane that wrote it. Products are complete, for all lanes,
          // before the next kernel starts.
          const bool given = a.home.place == Place::Input && plan_.cell.symbols[a.home.id].line_of < 0;
          const bool shared = a.home.place == Place::Param || given || a.home.place == Place::Once ||
                              (a.home.place == Place::Chunk && product_of_node_[plan_.chunks[a.home.id].node] >= 0);
          if (shared) continue;
          for (std::size_t i = 0; i < a.home.dims.size(); ++i) {
            if (a.home.dims[i] == axis && !(a.index[i].is_axis() && a.index[i].axis == axis)) return false;
          }
          if (!contains(a.home.dims, axis)) return false;
        }
        for (const Store& s : nest.stores) {
          if (!contains(s.home.dims, axis)) return false;
        }
      }
    }
    return true;
  }

  static void cut_groups_at(AxisId axis, std::vector<std::vector<AxisId>>& loops) {
    for (std::size_t i = 0; i < loops.size(); ++i) {
      const auto at = std::find(loops[i].begin(), loops[i].end(), axis);
      if (at == loops[i].end() || at == loops[i].begin()) continue;
      std::vector<AxisId> rest(at, loops[i].end());
      loops[i].erase(at, loops[i].end());
      loops.insert(loops.begin() + static_cast<std::ptrdiff_t>(i) + 1, std::move(rest));
      return;
    }
  }

  void find_split_axis() {
    if (plan_.cell.updates.empty()) return;
    for (const AxisId axis : plan_.cell.header) {
      if (plan_.options.split_axis != kNoAxis && axis != plan_.options.split_axis) continue;
      if (splits(axis)) {
        plan_.split_axis = axis;
        // A flat loop can be cut along its first axis only.
        for (Kernel& kernel : plan_.kernels) {
          for (Nest& nest : kernel.nests) cut_groups_at(axis, nest.loops);
        }
        return;
      }
    }
  }

  Plan plan_;
  std::vector<int> stage_of_;
  int stages_ = 1;
  std::vector<int> position_of_symbol_;
  std::vector<char> seen_, once_;
  std::vector<StageSet> reads_;  ///< stages whose old states a value depends on
  std::vector<StageSet> feeds_;  ///< stages whose new states depend on a value
  std::vector<int> product_of_node_;
  std::vector<NodeId> operand_root_, matrix_root_;  ///< by product
  std::unordered_map<NodeId, std::vector<AxisId>> operand_dims_, once_dims_;
  std::vector<int> level_, state_level_;
  int levels_ = 1;
  std::vector<int> computed_in_;
  std::vector<char> once_needed_;
  std::vector<NodeId> once_roots_;
  Homes homes_;
};

}  // namespace

Plan make_plan(const CellGraph& cell, const Structure& structure, const PlanOptions& options) {
  return Planner(cell, structure, options).run();
}

}  // namespace cellc
