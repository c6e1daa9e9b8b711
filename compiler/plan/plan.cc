#include "compiler/plan/plan.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "compiler/graph/axes.h"
#include "compiler/graph/delay_lines.h"
#include "compiler/graph/rewriter.h"
#include "compiler/plan/plan_nests.h"
#include "compiler/plan/plan_products.h"
#include "compiler/plan/step_dependencies.h"

namespace cellc {

namespace {

/// Spells softmax out and drops operators that matter to gradients only.
void spell_out(CellGraph& cell) {
  RewriteRules rules;
  rules.slopes = DeclaredSlopes::LeftOut;  // they are for gradients and would be dead code here
  rules.drop_stop_gradient = true;
  const auto share = [&](const Node& n, NodeId weight) {
    return cell.graph.op(Op::Div, {weight, cell.graph.reduce_sum(n.bound, weight, n.span)}, n.span);
  };
  rules.by_kind[Op::Softmax] = [&](const Node& n, const std::vector<NodeId>& args) {
    const NodeId largest = cell.graph.reduce_max(n.bound, args[0], n.span);
    const NodeId shifted = cell.graph.op(Op::Sub, {args[0], largest}, n.span);
    return share(n, cell.graph.op(Op::Exp, {shifted}, n.span));
  };
  rules.by_kind[Op::MaxShare] = [&](const Node& n, const std::vector<NodeId>& args) {
    const NodeId largest = cell.graph.reduce_max(n.bound, args[0], n.span);
    return share(n, cell.graph.op(Op::Eq, {args[0], largest}, n.span));
  };
  Rewriter rewriter(cell.graph, cell.graph, std::move(rules));
  const std::vector<NodeId> images = rewriter(step_roots(cell));
  std::size_t next = 0;
  for (StateUpdate& u : cell.updates) u.value = images[next++];
  for (Out& o : cell.outs) o.value = images[next++];
}

void cut_groups_at(AxisId axis, std::vector<std::vector<AxisId>>& loops) {
  for (std::size_t i = 0; i < loops.size(); ++i) {
    const auto at = std::find(loops[i].begin(), loops[i].end(), axis);
    if (at == loops[i].end() || at == loops[i].begin()) continue;
    std::vector<AxisId> rest(at, loops[i].end());
    loops[i].erase(at, loops[i].end());
    loops.insert(loops.begin() + static_cast<std::ptrdiff_t>(i) + 1, std::move(rest));
    return;
  }
}

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
    position_of_symbol_.assign(cell.symbols.size(), -1);
    for (std::size_t i = 0; i < states; ++i) position_of_symbol_[cell.updates[i].symbol] = static_cast<int>(i);
  }

  Plan run() {
    spell_out(plan_.cell);
    of_ = step_dependencies(plan_.cell, stage_of_, position_of_symbol_);
    if (plan_.options.hoist_products)
      products_ = find_products(plan_.cell.graph, of_);
    else
      products_.of_node.assign(graph().size(), -1);
    plan_.products = products_.products;
    levels_ = step_levels(plan_.cell, of_, stage_of_, position_of_symbol_, products_);
    for (Product& p : plan_.products) p.level = levels_.of_node[p.node];
    place_values();
    schedule_all();
    if (plan_.options.narrow_storage && plan_.options.rounds_operands) store_rounded_rows(plan_);
    find_split_axis();
    return std::move(plan_);
  }

 private:
  const Graph& graph() const { return plan_.cell.graph; }
  const Node& node(NodeId id) const { return graph()[id]; }

  // Which kernel computes what -----------------------------------------------------------------

  void mark_exported(NodeId id, int kernel) {
    std::vector<NodeId>& list = plan_.kernels[kernel].exported;
    if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
  }

  void need_once(NodeId id) {
    const NodeId root = under_reindex(graph(), id).first;
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
      if (of_.once[current]) {
        need_once(current);
      } else if (n.op == Op::Reindex) {
        open.push_back(n.args[0]);
      } else if (products_.of_node[current] >= 0) {
        continue;
      } else if (n.op == Op::Read) {
        const int position = position_of_symbol_[n.symbol];
        if (position >= 0 && levels_.of_state[position] != kernel) mark_exported(current, levels_.of_state[position]);
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
                              n.lag == 0 && n.lag_axis == kNoAxis &&
                              (!plan_.options.narrow_storage || plan_.options.reads_stored) &&
                              has_distinct_axes(n.index);
    if (!direct_input) return std::nullopt;
    Home home{Place::Input, n.symbol, {}};
    for (const Index& i : n.index) home.dims.push_back(i.axis);
    return home.dims == products_.operand_dims.at(root) ? std::optional(home) : std::nullopt;
  }

  void place_values() {
    plan_.kernels.resize(levels_.count);
    computed_in_.assign(graph().size(), -1);
    once_needed_.assign(graph().size(), 0);
    for (int level = 0; level < levels_.count; ++level) {
      plan_.kernels[level].level = level;
      for (std::size_t i = 0; i < plan_.cell.updates.size(); ++i) {
        if (levels_.of_state[i] == level) visit(plan_.cell.updates[i].value, level);
      }
      for (const Out& o : plan_.cell.outs) {
        if (levels_.of_node[o.value] == level) visit(o.value, level);
      }
      for (std::size_t i = 0; i < plan_.products.size(); ++i) {
        if (plan_.products[i].level != level + 1) continue;
        const NodeId root = products_.operand_root[i];
        need_once(products_.matrix_root[i]);
        if (row_home(root) || products_.of_node[root] >= 0) continue;
        visit(root, level);
        const Node& n = node(root);
        int from = computed_in_[root];
        if (n.op == Op::Read) {
          const int position = position_of_symbol_[n.symbol];
          from = position >= 0 ? levels_.of_state[position] : level;
        }
        mark_exported(root, from);
      }
    }
    plan_.state_kernel = levels_.of_state;
    for (std::size_t i = 0; i < plan_.products.size(); ++i) {
      Product& p = plan_.products[i];
      const std::vector<AxisId> dims = result_dims(p);
      if (const int out = out_of_product(plan_, p, of_.needed); out >= 0) {
        p.result = {Place::Out, out, dims};
      } else {
        p.result = {Place::Chunk, static_cast<int>(plan_.chunks.size()), dims};
        plan_.chunks.push_back({p.node, dims});
      }
      homes_[p.node] = p.result;
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
      if (levels_.of_state[i] != kernel) continue;
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
      if (levels_.of_node[o.value] != kernel) continue;
      const Home home{Place::Out, static_cast<int>(i), o.index};
      if (is_left_by_product(plan_, home)) continue;
      stores.push_back({o.value, home});
      if (computed_here(o.value) && same_set(node(o.value).axes, o.index) && !homes_.contains(o.value) && !narrow &&
          fits_operand(o.value, o.index)) {
        homes_[o.value] = home;
      }
    }
    for (const NodeId id : exported) {
      if (homes_.contains(id)) continue;
      std::vector<AxisId> dims;
      if (const auto wanted = products_.operand_dims.find(id); wanted != products_.operand_dims.end())
        dims = wanted->second;
      const int chunk = static_cast<int>(plan_.chunks.size());
      plan_.chunks.push_back({id, dims});
      homes_[id] = {Place::Chunk, chunk, dims};  // no dims yet: the nest that computes it lays it out
      stores.push_back({id, homes_[id]});
    }
    return stores;
  }

  bool fits_operand(NodeId id, const std::vector<AxisId>& dims) const {
    const auto wanted = products_.operand_dims.find(id);
    return wanted == products_.operand_dims.end() || wanted->second == dims;
  }

  void schedule_all() {
    schedule_once();
    for (int k = 0; k < levels_.count; ++k) {
      std::vector<NodeId> values;
      for (NodeId id = 0; id < computed_in_.size(); ++id) {
        if (computed_in_[id] == k) values.push_back(id);
      }
      std::vector<Store> stores = stores_of(k);
      schedule(plan_, k, values, std::move(stores), homes_, position_of_symbol_);
    }
    for (std::size_t i = 0; i < plan_.products.size(); ++i) {
      Product& p = plan_.products[i];
      const NodeId root = products_.operand_root[i];
      const auto row = row_home(root);
      p.operand = row ? *row : homes_.at(root);
      const Node& m = node(products_.matrix_root[i]);
      p.matrix = m.op == Op::Read ? Home{Place::Param, m.symbol, plan_.cell.symbols[m.symbol].axes}
                                  : homes_.at(products_.matrix_root[i]);
    }
    for (int level = 0; level < levels_.count; ++level) {
      for (std::size_t i = 0; i < plan_.products.size(); ++i) {
        if (plan_.products[i].level == level) plan_.phases.push_back({true, static_cast<int>(i)});
      }
      if (!plan_.kernels[level].nests.empty()) plan_.phases.push_back({false, level});
    }
  }

  void schedule_once() {
    if (once_roots_.empty()) return;
    plan_.once_kernel = levels_.count;
    plan_.kernels.resize(levels_.count + 1);
    plan_.kernels.back().once = true;
    const std::vector<char> inside = needed_for(graph(), once_roots_);
    std::vector<NodeId> values;
    for (NodeId id = 0; id < inside.size(); ++id) {
      const Node& n = node(id);
      if (inside[id] && !is_immediate(n) && n.op != Op::Read && n.op != Op::Reindex) values.push_back(id);
    }
    std::sort(once_roots_.begin(), once_roots_.end());
    std::vector<Store> stores;
    for (const NodeId id : once_roots_) {
      std::vector<AxisId> dims;
      if (const auto wanted = products_.once_dims.find(id); wanted != products_.once_dims.end()) dims = wanted->second;
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
          const bool shared =
              a.home.place == Place::Param || given || a.home.place == Place::Once || is_left_by_product(plan_, a.home);
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
  std::vector<int> position_of_symbol_;
  StepDependencies of_;
  MatrixProducts products_;
  StepLevels levels_;
  std::vector<int> computed_in_;
  std::vector<char> once_needed_;
  std::vector<NodeId> once_roots_;
  Homes homes_;
};

}  // namespace

bool reads_stored_rows(const Plan& plan, const Product& product) {
  if (!plan.options.narrow_storage) return false;
  return product.operand.place == Place::Input || product.operand.place == Place::Out ||
         (product.operand.place == Place::Chunk && plan.chunks[static_cast<std::size_t>(product.operand.id)].stored);
}

bool stores_rows(const Plan& plan, const Product& product) {
  if (!plan.options.narrow_storage) return false;
  return product.result.place == Place::Out || plan.chunks[static_cast<std::size_t>(product.result.id)].stored;
}

void leave_out_outs(Plan& plan) {
  // A nest is kept whole, and with it what its other values are made of.
  std::set<NodeId> roots;
  for (const StateUpdate& u : plan.cell.updates) roots.insert(u.value);
  std::vector<char> needed;
  const auto is_kept = [&](const Nest& nest) {
    return std::any_of(nest.nodes.begin(), nest.nodes.end(), [&](NodeId id) { return needed[id]; }) ||
           std::any_of(nest.stores.begin(), nest.stores.end(),
                       [&](const Store& s) { return s.home.place != Place::Out && needed[s.value]; });
  };
  for (std::size_t known = 0; known != roots.size();) {
    known = roots.size();
    needed = needed_for(plan.cell.graph, {roots.begin(), roots.end()});
    for (const Kernel& kernel : plan.kernels)
      for (const Nest& nest : kernel.nests) {
        if (kernel.once || !is_kept(nest)) continue;
        roots.insert(nest.nodes.begin(), nest.nodes.end());
        for (const Store& s : nest.stores) roots.insert(s.value);
      }
  }
  for (Kernel& kernel : plan.kernels)
    if (!kernel.once) std::erase_if(kernel.nests, [&](const Nest& nest) { return !is_kept(nest); });
  std::erase_if(plan.phases, [&](const Phase& p) {
    return p.product ? !needed[plan.products[static_cast<std::size_t>(p.index)].node]
                     : plan.kernels[static_cast<std::size_t>(p.index)].nests.empty();
  });
}

Plan make_plan(const CellGraph& cell, const Structure& structure, const PlanOptions& options) {
  return Planner(cell, structure, options).run();
}

}  // namespace cellc
