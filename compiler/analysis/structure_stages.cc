// The stages: strongly connected components of what values read, by Tarjan's algorithm, in an order in
// which they can run; among those that could run next, the one whose first state is declared first.
//
// The search runs over nodes and states together: a node reads its operands, a read of a state that state,
// and a state its formula. The states that a formula reads in all are as many as there are states before
// it, so a graph of states alone has as many edges as the square of their number; this one is as large as
// the cell. With a stack of its own: a cell may have thousands of states in a row.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "compiler/analysis/structure_rules.h"

namespace cellc {

namespace {

class Stages {
 public:
  explicit Stages(const CellGraph& cell) : cell_(cell), count_(static_cast<int>(cell.updates.size())) {
    update_of_.assign(cell.symbols.size(), -1);
    for (int u = 0; u < count_; ++u) update_of_[cell.updates[u].symbol] = u;
    index_.assign(static_cast<std::size_t>(count_) + cell.graph.size(), -1);
    low_ = component_ = index_;
    for (int u = 0; u < count_; ++u)
      if (index_[u] < 0) search(u);
  }

  /// Updates by stage, each ascending.
  std::vector<std::vector<int>> in_order() const {
    const auto n = static_cast<std::size_t>(found_);
    std::vector<std::vector<int>> states(n), read_by(n);
    std::vector<int> waits_for(n);
    for (const int v : met_) {
      if (v < count_) states[component_[v]].push_back(v);
      for (std::size_t i = 0; i < degree(v); ++i)
        if (const int reader = component_[v], read = component_[read_of(v, i)]; reader != read)
          read_by[read].push_back(reader), ++waits_for[reader];
    }
    for (std::vector<int>& s : states) std::sort(s.begin(), s.end());
    // What has no state of its own is known as soon as what it reads is.
    std::set<std::pair<int, int>> ready;  // by first state
    std::vector<int> known;
    const auto settle = [&](int c) {
      if (states[c].empty())
        known.push_back(c);
      else
        ready.emplace(states[c][0], c);
    };
    for (int c = 0; c < found_; ++c)
      if (waits_for[c] == 0) settle(c);
    std::vector<std::vector<int>> order;
    while (!known.empty() || !ready.empty()) {
      int c;
      if (!known.empty()) {
        c = known.back();
        known.pop_back();
      } else {
        c = ready.begin()->second;
        ready.erase(ready.begin());
        order.push_back(states[c]);
      }
      for (const int reader : read_by[c])
        if (--waits_for[reader] == 0) settle(reader);
    }
    return order;
  }

 private:
  // A vertex is an update, or a node behind all updates.
  int vertex(NodeId node) const { return count_ + static_cast<int>(node); }
  const Node& node_of(int vertex) const { return cell_.graph[static_cast<NodeId>(vertex - count_)]; }
  int state_read_by(int vertex) const {
    const Node& n = node_of(vertex);
    return n.op == Op::Read ? update_of_[n.symbol] : -1;
  }

  std::size_t degree(int vertex) const {
    if (vertex < count_) return 1;
    return state_read_by(vertex) >= 0 ? 1 : node_of(vertex).args.size();
  }
  int read_of(int v, std::size_t i) const {
    if (v < count_) return vertex(cell_.updates[v].value);
    const int state = state_read_by(v);
    return state >= 0 ? state : vertex(node_of(v).args[i]);
  }

  struct Visit {
    int vertex;
    std::size_t next;
  };

  void search(int start) {
    enter(start);
    while (!visits_.empty()) {
      Visit& visit = visits_.back();
      const int a = visit.vertex;
      if (visit.next < degree(a)) {
        const int b = read_of(a, visit.next++);
        if (index_[b] < 0)
          enter(b);
        else if (component_[b] < 0)
          low_[a] = std::min(low_[a], index_[b]);
        continue;
      }
      visits_.pop_back();
      if (!visits_.empty()) low_[visits_.back().vertex] = std::min(low_[visits_.back().vertex], low_[a]);
      if (low_[a] != index_[a]) continue;
      int b;
      do {
        b = open_.back();
        open_.pop_back();
        component_[b] = found_;
      } while (b != a);
      ++found_;
    }
  }

  void enter(int vertex) {
    index_[vertex] = low_[vertex] = static_cast<int>(met_.size());
    met_.push_back(vertex);
    open_.push_back(vertex);
    visits_.push_back({vertex, 0});
  }

  const CellGraph& cell_;
  const int count_;
  std::vector<int> update_of_;  ///< by symbol
  std::vector<int> index_, low_, component_;
  std::vector<int> open_, met_;
  std::vector<Visit> visits_;
  int found_ = 0;
};

}  // namespace

std::vector<std::vector<int>> stages_of(const CellGraph& cell) { return Stages(cell).in_order(); }

int widest_stage(const CellGraph& cell, const std::vector<Stage>& stages) {
  const auto rank = [](StructureClass c) {
    switch (c) {
      case StructureClass::Diagonal:
        return 0;
      case StructureClass::BlockDiagonal:
        return 1;
      case StructureClass::Dense:
        return 3;
      default:
        return 2;
    }
  };
  // Where lengths are symbolic they count as large: more symbolic factors, then the number.
  const auto entries = [&](const Stage& stage, const std::vector<AxisId>& without) {
    std::pair<std::size_t, std::int64_t> most{0, 0};
    for (const int u : stage.states) {
      std::size_t symbolic = 0;
      std::int64_t number = 1;
      for (const AxisId a : cell.symbol_of(cell.updates[u]).index) {
        if (std::find(without.begin(), without.end(), a) != without.end()) continue;
        if (const auto fixed = cell.graph.axis(a).fixed)
          number *= *fixed;
        else
          ++symbolic;
      }
      if (symbolic > most.first) most = {symbolic, 0};
      if (symbolic == most.first) most.second += number;
    }
    return most;
  };
  const auto key = [&](const Stage& s) {
    return std::make_tuple(rank(s.kind), entries(s, s.channel_axes), entries(s, {}));
  };
  int best = 0;
  for (int i = 1; i < static_cast<int>(stages.size()); ++i)
    if (key(stages[i]) > key(stages[best])) best = i;
  return best;
}

}  // namespace cellc
