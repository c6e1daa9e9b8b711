#pragma once
// Walks over a graph: what a value is made of. None of them recurses, since a graph may be deeper than a stack.
//
// Operands have smaller ids than their users, so ascending ids are an order in which all can be computed; each
// walk answers in it. What a walk sees of declared derivatives is its caller's choice: a Surrogate runs as its
// value alone, and is differentiated by its arguments and slopes.
#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

/// Arguments and slopes of a Surrogate, behind its value.
enum class DeclaredSlopes : std::uint8_t { Followed, LeftOut };

/// Nodes that walks of this thread have met so far: what tests of how work grows with a cell count.
std::uint64_t& nodes_met();

/// The operands of a node that a walk follows.
std::span<const NodeId> operands(const Node& node, DeclaredSlopes slopes = DeclaredSlopes::Followed);

/// Ids of all nodes that `roots` need, ascending (operands before users).
std::vector<NodeId> reachable(const Graph& graph, const std::vector<NodeId>& roots,
                              DeclaredSlopes slopes = DeclaredSlopes::Followed);

/// Does the value of `node` depend on one of these symbols?
bool depends_on(const Graph& graph, NodeId node, const std::set<int>& symbols);

/// The same of many nodes: each is looked at once, however often it is asked about.
class Dependence {
 public:
  Dependence(const Graph& graph, std::set<int> symbols) : graph_(graph), symbols_(std::move(symbols)) {}
  bool operator()(NodeId node);

 private:
  const Graph& graph_;
  const std::set<int> symbols_;
  std::unordered_map<NodeId, bool> known_;
};

/// What a cell's values may differ by, from step to step and from sequence to sequence: states, inputs, all but params.
std::set<int> all_but_params(const CellGraph& cell);

/// What to do with a node that a walk meets.
enum class Visit : std::uint8_t {
  Skip,     ///< it is not wanted, nor is what it is made of
  Stop,     ///< it is wanted, and what it is made of is not
  Descend,  ///< both are
};

/// Walks down from `roots`, the last one first, and asks `visit` of every node once, in the order in which the
/// walk meets them; the wanted ones, ascending. It marks what it meets and not all that there is: a graph may have
/// thousands of small values.
template <typename Ask>
std::vector<NodeId> walk_down(const Graph& graph, std::vector<NodeId> roots, Ask&& visit,
                              DeclaredSlopes slopes = DeclaredSlopes::Followed) {
  std::vector<NodeId> wanted;
  std::unordered_set<NodeId> met;
  std::vector<NodeId>& ahead = roots;
  while (!ahead.empty()) {
    const NodeId id = ahead.back();
    ahead.pop_back();
    if (!met.insert(id).second) continue;
    const Visit answer = visit(id);
    if (answer == Visit::Skip) continue;
    wanted.push_back(id);
    if (answer == Visit::Stop) continue;
    const std::span<const NodeId> below = operands(graph[id], slopes);
    ahead.insert(ahead.end(), below.begin(), below.end());
  }
  nodes_met() += met.size();
  std::sort(wanted.begin(), wanted.end());
  return wanted;
}

/// Visits what `root` needs before `root`, by needs of any kind: `needs(id, list)` adds to `list`, `is_done(id)`
/// says that `visit(id)` was called for it. For graphs whose ids are no such order. Needs must not run in circles.
template <typename Needs, typename IsDone, typename Do>
void postorder(NodeId root, Needs&& needs, IsDone&& is_done, Do&& visit) {
  std::vector<NodeId> ahead{root}, waits_for;
  while (!ahead.empty()) {
    const NodeId id = ahead.back();
    if (is_done(id)) {
      ahead.pop_back();
      continue;
    }
    waits_for.clear();
    needs(id, waits_for);
    std::erase_if(waits_for, is_done);
    if (waits_for.empty()) visit(id);
    ahead.insert(ahead.end(), waits_for.begin(), waits_for.end());
  }
}

}  // namespace cellc
