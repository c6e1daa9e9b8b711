#include "compiler/plan/plan_nests.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <unordered_set>

#include "compiler/graph/axes.h"
#include "compiler/plan/nest_loops.h"

namespace cellc {

namespace {

/// A value, or a store of a value that no nest of its own axes computes: what scheduling moves.
struct Item {
  NodeId node = kNoNode;  ///< kNoNode: stores only
  std::vector<AxisId> axes, bound;
  std::vector<int> stores;
  struct Need {
    int item;
    bool same_place;  ///< read at the very position that is computed: may share a nest
  };
  std::vector<Need> needs;
  bool across = false;  ///< a sum apart: its matrix is walked along what others of its axes sum over
};

using NestKey = std::pair<std::vector<AxisId>, std::vector<AxisId>>;

class Scheduler {
 public:
  Scheduler(Plan& plan, int kernel, const std::vector<NodeId>& values, std::vector<Store> stores, Homes& homes,
            const std::vector<int>& position_of_symbol)
      : plan_(plan),
        kernel_(kernel),
        values_(values),
        stores_(std::move(stores)),
        homes_(homes),
        position_of_symbol_(position_of_symbol) {}

  void run() {
    find_inlined();
    make_items();
    part_directions();
    cluster();
    give_temps();
    for (Nest& nest : nests()) {
      collect_loads(nest);
      choose_loops(plan_, nest, homes_);
    }
  }

 private:
  const Node& node(NodeId id) const { return plan_.cell.graph[id]; }
  std::vector<Nest>& nests() { return plan_.kernels[kernel_].nests; }

  NodeId root_of(NodeId id) const {
    while (node(id).op == Op::Reindex) id = node(id).args[0];
    return id;
  }
  bool here(NodeId id) const { return values_set_.contains(id); }

  static bool is_reduction(const Node& n) { return n.op == Op::ReduceSum || n.op == Op::ReduceMax; }

  NestKey key_of(NodeId id) const {
    const Node& n = node(id);
    return is_reduction(n) ? NestKey{n.axes, n.bound} : NestKey{n.axes, {}};
  }

  /// A value that only reductions over all of its axes read is evaluated inside their loops instead of
  /// being stored: U*h of U@h is never a matrix in memory.
  void find_inlined() {
    values_set_.insert(values_.begin(), values_.end());
    std::map<NodeId, std::optional<NestKey>> wanted;  // nullopt: must be computed on its own
    const auto use = [&](NodeId operand, const std::optional<NestKey>& by) {
      const bool direct = node(operand).op != Op::Reindex;
      const NodeId root = root_of(operand);
      if (!here(root)) return;
      const std::optional<NestKey> want = direct ? by : std::nullopt;
      const auto [it, first] = wanted.try_emplace(root, want);
      if (!first && it->second != want) it->second = std::nullopt;
    };
    for (const Store& s : stores_) use(s.value, std::nullopt);
    for (auto it = values_.rbegin(); it != values_.rend(); ++it) {
      const Node& n = node(*it);
      std::optional<NestKey> by;
      if (is_reduction(n)) {
        by = key_of(*it);
      } else if (const auto w = wanted.find(*it); w != wanted.end() && w->second) {
        const auto& [axes, bound] = *w->second;
        std::vector<AxisId> all = axes;
        all.insert(all.end(), bound.begin(), bound.end());
        if (n.axes == sorted_axes(all)) {
          inlined_.insert(*it);
          by = w->second;
        }
      }
      for (const NodeId a : n.args) use(a, by);
    }
  }

  void make_items() {
    for (const NodeId id : values_) {
      if (inlined_.contains(id)) continue;
      const auto [axes, bound] = key_of(id);
      item_of_[id] = static_cast<int>(items_.size());
      items_.push_back({id, axes, bound, {}, {}});
    }
    for (std::size_t s = 0; s < stores_.size(); ++s) {
      const NodeId value = stores_[s].value;
      std::vector<AxisId> axes = sorted_axes(stores_[s].home.dims);
      if (axes.empty()) axes = node(value).axes;  // a home without an order of its own yet
      if (here(value) && axes == node(value).axes) {
        items_[item_of_.at(value)].stores.push_back(static_cast<int>(s));
      } else {
        items_.push_back({kNoNode, axes, {}, {static_cast<int>(s)}, {}});
      }
    }
    for (Item& item : items_) {
      if (item.node == kNoNode) {
        add_need(item, stores_[item.stores[0]].value);
      } else {
        for (const NodeId a : node(item.node).args) add_need(item, a);
      }
    }
  }

  void add_need(Item& item, NodeId operand) {
    const NodeId root = root_of(operand);
    if (!here(root)) return;
    if (inlined_.contains(root)) {
      for (const NodeId a : node(root).args) add_need(item, a);
      return;
    }
    const Item& other = items_[item_of_.at(root)];
    const bool same_place = root == operand && item.bound.empty() && other.bound.empty() && other.axes == item.axes;
    item.needs.push_back({item_of_.at(root), same_place});
  }

  /// A matrix that is used both ways, as U@h + h@U, is walked along its rows for each: a dot product a row, and a sum
  /// of rows. In one nest one of them would gather a column, at a quarter of the speed of either.
  void part_directions() {
    std::map<NestKey, std::vector<int>> along, across;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].bound.empty()) continue;
      const auto [sums, keeps] = directions(items_[i]);
      const NestKey key{items_[i].axes, items_[i].bound};
      if (sums && !keeps) along[key].push_back(static_cast<int>(i));
      if (keeps && !sums) across[key].push_back(static_cast<int>(i));
    }
    for (const auto& [key, items] : across)
      if (along.contains(key))
        for (const int i : items) items_[static_cast<std::size_t>(i)].across = true;
  }

  /// Of the matrices that a reduction reads: is the last axis of one bound, is that of one kept?
  std::pair<bool, bool> directions(const Item& item) const {
    bool sums = false, keeps = false;
    std::set<NodeId> met;
    std::vector<NodeId> ahead = node(item.node).args;
    while (!ahead.empty()) {
      const NodeId id = ahead.back();
      ahead.pop_back();
      if (!met.insert(id).second) continue;
      const Node& n = node(id);
      const auto has = [&](const std::vector<AxisId>& axes) {
        return std::any_of(n.index.begin(), n.index.end(),
                           [&](const Index& i) { return i.is_axis() && contains(axes, i.axis); });
      };
      if (n.op == Op::Read && has(item.axes) && has(item.bound) && n.index.back().is_axis())
        (contains(item.bound, n.index.back().axis) ? sums : keeps) = true;
      if (inlined_.contains(id)) ahead.insert(ahead.end(), n.args.begin(), n.args.end());
    }
    return {sums, keeps};
  }

  /// Greedy: again and again the loops over which most can be computed, but rather loops that then need
  /// not be opened a second time.
  void cluster() {
    std::vector<int> nest_of(items_.size(), -1);
    using Loops = std::pair<NestKey, bool>;
    std::map<Loops, std::vector<int>> open;
    for (std::size_t i = 0; i < items_.size(); ++i)
      open[{{items_[i].axes, items_[i].bound}, items_[i].across}].push_back(int(i));
    while (!open.empty()) {
      const Loops* best = nullptr;
      std::vector<int> best_items;
      bool best_whole = false;
      for (const auto& [key, members] : open) {
        std::vector<int> ready;
        std::set<int> in;
        for (const int i : members) {
          const bool can = std::all_of(items_[i].needs.begin(), items_[i].needs.end(), [&](const Item::Need& n) {
            return nest_of[n.item] >= 0 || (n.same_place && in.contains(n.item));
          });
          if (can) {
            ready.push_back(i);
            in.insert(i);
          }
        }
        if (ready.empty()) continue;
        const bool whole = ready.size() == members.size();
        if (!best || (whole && !best_whole) || (whole == best_whole && ready.size() > best_items.size())) {
          best = &key;
          best_items = std::move(ready);
          best_whole = whole;
        }
      }
      if (!best) throw std::logic_error("plan: values depend on each other in a circle");
      Nest nest;
      nest.axes = best->first.first;
      nest.bound = best->first.second;
      for (const int i : best_items) {
        nest_of[i] = static_cast<int>(nests().size());
        if (items_[i].node != kNoNode) {
          nest.nodes.push_back(items_[i].node);
          nest_of_node_[items_[i].node] = nest_of[i];
        }
        for (const int s : items_[i].stores) nest.stores.push_back(stores_[s]);
      }
      std::vector<int>& members = open.at(*best);
      std::erase_if(members, [&](int i) { return nest_of[i] >= 0; });
      const Loops key = *best;
      if (members.empty()) open.erase(key);
      collect_inlined(nest);
      nests().push_back(std::move(nest));
    }
  }

  void collect_inlined(Nest& nest) {
    std::set<NodeId> found;
    std::vector<NodeId> open;
    for (const NodeId r : nest.nodes) {
      if (nest.is_reduction()) open.push_back(node(r).args[0]);
    }
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (!inlined_.contains(id) || !found.insert(id).second) continue;
      for (const NodeId a : node(id).args) open.push_back(a);
    }
    nest.inlined.assign(found.begin(), found.end());  // ascending: operands first
  }

  /// Memory for what a later nest of the step reads. A scalar stays in its register: the code of a step
  /// is straight, so it dominates all that follows.
  void give_temps() {
    for (std::size_t k = 0; k < nests().size(); ++k) {
      each_operand(plan_.cell.graph, nests()[k], [&](NodeId operand) {
        const NodeId root = root_of(operand);
        if (!here(root) || inlined_.contains(root) || homes_.contains(root)) return;
        const bool crosses = nest_of_node_.at(root) != static_cast<int>(k) || root != operand;
        if (!crosses || node(root).axes.empty()) return;
        const Home home{Place::Temp, static_cast<int>(plan_.temps.size()), {}};
        plan_.temps.push_back({root, {}});
        homes_[root] = home;
        nests()[nest_of_node_.at(root)].stores.push_back({root, home});
      });
    }
  }

  void collect_loads(Nest& nest) {
    std::set<NodeId> done;
    std::unordered_set<NodeId> computed(nest.nodes.begin(), nest.nodes.end());
    computed.insert(nest.inlined.begin(), nest.inlined.end());
    each_operand(plan_.cell.graph, nest, [&](NodeId operand) {
      if (is_immediate(node(operand)) || computed.contains(operand)) return;
      const NodeId root = root_of(operand);
      if (here(root) && node(root).axes.empty()) return;  // a register
      if (!done.insert(operand).second) return;
      auto access = resolve(plan_, homes_, position_of_symbol_, kernel_, operand);
      if (!access) throw std::logic_error("plan: a value that another nest reads has no home");
      nest.loads.push_back(std::move(*access));
    });
  }

  Plan& plan_;
  const int kernel_;
  const std::vector<NodeId>& values_;
  std::vector<Store> stores_;
  Homes& homes_;
  const std::vector<int>& position_of_symbol_;
  std::set<NodeId> values_set_, inlined_;
  std::vector<Item> items_;
  std::map<NodeId, int> item_of_;
  std::map<NodeId, int> nest_of_node_;
};

}  // namespace

bool is_immediate(const Node& node) {
  return node.op == Op::Constant || node.op == Op::Size || node.op == Op::Eye || node.op == Op::OneHot;
}

std::vector<AxisId> sorted_axes(std::vector<AxisId> axes) {
  std::sort(axes.begin(), axes.end());
  return axes;
}

std::optional<Access> resolve(const Plan& plan, const Homes& homes, const std::vector<int>& position_of_symbol,
                              int kernel, NodeId id) {
  const Graph& graph = plan.cell.graph;
  const Node& n = graph[id];
  if (n.op == Op::Reindex) {
    auto access = resolve(plan, homes, position_of_symbol, kernel, n.args[0]);
    if (!access) return access;
    access->node = id;
    const auto renamed = [&](Index i) {
      for (const auto& [from, to] : n.map) {
        if (i.is_axis() && i.axis == from) return to;
      }
      return i;
    };
    for (Index& i : access->index) i = renamed(i);
    if (access->lag_axis != kNoAxis) {
      const Index i = renamed({access->lag_axis, 0});
      access->lag_axis = i.axis;
      access->lag += static_cast<int>(i.is_axis() ? 0 : i.literal);
    }
    return access;
  }
  if (n.op == Op::Read) {
    const Symbol& symbol = plan.cell.symbols[n.symbol];
    const int position = position_of_symbol[n.symbol];
    const bool imported = position >= 0 && plan.state_kernel[position] != kernel;
    if (!imported) {
      const Place place = symbol.kind == SymbolKind::Param   ? Place::Param
                          : symbol.kind == SymbolKind::Input ? Place::Input
                                                             : Place::StateOld;
      // Where an array repeats an axis, `index` names its places apart.
      return Access{id, {place, position >= 0 ? position : n.symbol, symbol.index}, n.index, n.lag, n.lag_axis};
    }
  }
  const auto home = homes.find(id);
  if (home == homes.end()) return std::nullopt;
  Access access{id, home->second, {}, 0, kNoAxis};
  for (const AxisId a : home->second.dims) access.index.push_back({a, 0});
  return access;
}

void schedule(Plan& plan, int kernel, const std::vector<NodeId>& values, std::vector<Store> stores, Homes& homes,
              const std::vector<int>& position_of_symbol) {
  Scheduler(plan, kernel, values, std::move(stores), homes, position_of_symbol).run();
}

}  // namespace cellc
