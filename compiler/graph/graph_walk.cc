#include "compiler/graph/graph_walk.h"

namespace cellc {

std::uint64_t& nodes_met() {
  static thread_local std::uint64_t count = 0;
  return count;
}

std::span<const NodeId> operands(const Node& node, DeclaredSlopes slopes) {
  const bool value_only = node.op == Op::Surrogate && slopes == DeclaredSlopes::LeftOut;
  return {node.args.data(), value_only ? 1 : node.args.size()};
}

std::vector<NodeId> reachable(const Graph& graph, const std::vector<NodeId>& roots, DeclaredSlopes slopes) {
  std::vector<bool> met(graph.size());
  std::vector<NodeId> result, ahead = roots;
  while (!ahead.empty()) {
    const NodeId id = ahead.back();
    ahead.pop_back();
    if (met[id]) continue;
    met[id] = true;
    result.push_back(id);
    const std::span<const NodeId> below = operands(graph[id], slopes);
    ahead.insert(ahead.end(), below.begin(), below.end());
  }
  nodes_met() += result.size();
  std::sort(result.begin(), result.end());
  return result;
}

bool depends_on(const Graph& graph, NodeId node, const std::set<int>& symbols) {
  bool found = false;
  walk_down(graph, {node}, [&](NodeId id) {
    const Node& n = graph[id];
    found = found || (n.op == Op::Read && symbols.contains(n.symbol));
    return found ? Visit::Skip : Visit::Descend;  // what is still ahead is met, and no more
  });
  return found;
}

std::set<int> all_but_params(const CellGraph& cell) {
  std::set<int> symbols;
  for (std::size_t s = 0; s < cell.symbols.size(); ++s)
    if (cell.symbols[s].kind != SymbolKind::Param) symbols.insert(static_cast<int>(s));
  return symbols;
}

bool Dependence::operator()(NodeId node) {
  if (const auto known = known_.find(node); known != known_.end()) return known->second;
  const std::vector<NodeId> below =
      walk_down(graph_, {node}, [&](NodeId id) { return known_.contains(id) ? Visit::Skip : Visit::Descend; });
  for (NodeId id : below) {
    const Node& n = graph_[id];
    known_[id] = (n.op == Op::Read && symbols_.contains(n.symbol)) ||
                 std::any_of(n.args.begin(), n.args.end(), [&](NodeId a) { return known_.at(a); });
  }
  return known_.at(node);
}

}  // namespace cellc
