#include "compiler/plan/nest_loops.h"

#include <algorithm>
#include <set>

#include "compiler/graph/axes.h"

namespace cellc {
namespace {

/// How well memory suits `axis` as the one that is walked in vectors.
int lane_score(AxisId axis, const std::vector<Index>& index) {
  const int weight = index.size() >= 2 ? 4 : 1;
  int times = 0;
  for (const Index& i : index) times += i.is_axis() && i.axis == axis;
  if (times == 0) return 0;
  const bool contiguous = times == 1 && index.back().is_axis() && index.back().axis == axis;
  return contiguous ? 2 * weight : -6 * weight;
}

std::vector<Index> as_index(const std::vector<AxisId>& dims) {
  std::vector<Index> index;
  for (const AxisId a : dims) index.push_back({a, 0});
  return index;
}

class LoopChoice {
 public:
  LoopChoice(Plan& plan, Nest& nest, Homes& homes) : plan_(plan), nest_(nest), homes_(homes) {}

  void run() {
    find_accesses();
    choose_vector_axis();
    const std::vector<AxisId> outer = ordered(nest_.axes);
    nest_.bound_loops = ordered(nest_.bound);
    for (const AxisId axis : outer) {
      const bool merge = !nest_.is_reduction() && !nest_.loops.empty() && !no_merge_.contains(axis) &&
                         !no_merge_.contains(nest_.loops.back().back()) && walk_as_one(nest_.loops.back().back(), axis);
      if (merge) {
        nest_.loops.back().push_back(axis);
      } else {
        nest_.loops.push_back({axis});
      }
    }
    if (is_short()) nest_.vector_axis = kNoAxis;
    for (Store& s : nest_.stores) {
      if (has_order(s.home)) continue;
      s.home.dims = outer;
      homes_.at(s.value).dims = outer;
      (s.home.place == Place::Temp   ? plan_.temps
       : s.home.place == Place::Once ? plan_.once
                                     : plan_.chunks)[s.home.id]
          .dims = outer;
    }
  }

 private:
  const Node& node(NodeId id) const { return plan_.cell.graph[id]; }
  bool has_order(const Home& home) const { return home.dims.size() == rank_of(home); }
  std::size_t rank_of(const Home& home) const {
    switch (home.place) {
      case Place::Temp:
        return node(plan_.temps[home.id].node).axes.size();
      case Place::Once:
        return node(plan_.once[home.id].node).axes.size();
      case Place::Chunk:
        return node(plan_.chunks[home.id].node).axes.size();
      default:
        return home.dims.size();
    }
  }

  void find_accesses() {
    for (const Access& a : nest_.loads) {
      used_.push_back(a.index);
      if (a.lag_axis != kNoAxis) no_merge_.insert(a.lag_axis);
    }
    lag_axes_.assign(no_merge_.begin(), no_merge_.end());
    for (const Store& s : nest_.stores) {
      if (has_order(s.home)) used_.push_back(as_index(s.home.dims));
    }
    each_operand(plan_.cell.graph, nest_, [&](NodeId operand) {
      const Node& n = node(operand);
      if (n.op != Op::Eye && n.op != Op::OneHot) return;
      for (const AxisId a : n.axes) no_merge_.insert(a);
    });
  }

  void choose_vector_axis() {
    const auto choose_lane = [&](const std::vector<AxisId>& among, int bonus, int& best_score) {
      for (const AxisId axis : among) {
        if (contains(lag_axes_, axis)) continue;  // rows of different steps are no vector
        int score = bonus;
        for (const auto& index : used_) score += lane_score(axis, index);
        if (nest_.vector_axis == kNoAxis || score >= best_score) {
          nest_.vector_axis = axis;
          best_score = score;
        }
      }
    };
    int score = 0;
    if (nest_.is_reduction()) choose_lane(nest_.bound, 0, score);
    choose_lane(nest_.axes, 1, score);
  }

  /// The widest access gives the order of the loops, the lanes come last.
  std::vector<AxisId> ordered(const std::vector<AxisId>& axes) const {
    std::vector<AxisId> result = axes;
    const std::vector<Index>* widest = nullptr;
    for (const auto& index : used_) {
      if (!widest || index.size() > widest->size()) widest = &index;
    }
    const auto rank = [&](AxisId axis) {
      if (axis == nest_.vector_axis) return std::size_t{1000};
      for (std::size_t i = 0; widest && i < widest->size(); ++i) {
        if ((*widest)[i].is_axis() && (*widest)[i].axis == axis) return i;
      }
      return std::size_t{100};
    };
    std::stable_sort(result.begin(), result.end(), [&](AxisId a, AxisId b) { return rank(a) < rank(b); });
    return result;
  }

  /// Vectors of one or two lanes are no gain.
  bool is_short() const {
    if (nest_.vector_axis == kNoAxis) return false;
    const bool in_bound = !nest_.bound_loops.empty() && nest_.bound_loops.back() == nest_.vector_axis;
    std::int64_t length = 1;
    const std::vector<AxisId> group = in_bound ? std::vector{nest_.vector_axis} : nest_.loops.back();
    for (const AxisId axis : group) {
      const std::optional<std::int64_t> fixed = plan_.cell.graph.axis(plan_.cell.graph.axis(axis).extent_of).fixed;
      length = fixed && length <= 2 ? length * *fixed : 3;
    }
    return length <= 2;
  }

  /// Two loops are one flat loop if every access has both axes side by side, or neither.
  bool walk_as_one(AxisId first, AxisId second) const {
    for (const auto& index : used_) {
      int firsts = 0, seconds = 0;
      bool adjacent = false;
      for (std::size_t i = 0; i < index.size(); ++i) {
        if (!index[i].is_axis()) continue;
        firsts += index[i].axis == first;
        seconds += index[i].axis == second;
        adjacent =
            adjacent || (i > 0 && index[i].axis == second && index[i - 1].is_axis() && index[i - 1].axis == first);
      }
      if (firsts == 0 && seconds == 0) continue;
      if (firsts != 1 || seconds != 1 || !adjacent) return false;
    }
    return true;
  }

  Plan& plan_;
  Nest& nest_;
  Homes& homes_;
  std::vector<std::vector<Index>> used_;  ///< every access with a known layout
  std::set<AxisId> no_merge_;             ///< axes whose positions are needed as numbers, or that pick rows
  std::vector<AxisId> lag_axes_;
};

}  // namespace

void choose_loops(Plan& plan, Nest& nest, Homes& homes) { LoopChoice(plan, nest, homes).run(); }

}  // namespace cellc
