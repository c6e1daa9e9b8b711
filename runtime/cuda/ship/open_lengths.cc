#include "runtime/cuda/ship/open_lengths.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/graph_walk.h"

namespace cellc {

std::set<std::string> open_axes(const CellGraph& cell, const std::map<AxisId, std::int64_t>& lengths,
                                const StageCells& stage) {
  std::set<AxisId> used;
  const Graph& graph = stage.lanes.cell.graph;
  const auto use = [&](AxisId a) { used.insert(graph.axis(a).extent_of); };
  for (const Symbol& s : stage.lanes.cell.symbols)
    for (const AxisId a : s.axes) use(a);
  std::vector<NodeId> roots;
  for (const StateUpdate& u : stage.lanes.cell.updates) roots.push_back(u.value);
  for (const NodeId id : reachable(graph, roots)) {
    const Node& n = graph[id];
    for (const AxisId a : n.axes) use(a);
    for (const AxisId a : n.bound) use(a);
    for (const Index& i : n.index)
      if (i.is_axis()) use(i.axis);
  }
  used.erase(stage.lane);
  const auto is_open = [&](AxisId axis) {
    const AxisId header = cell.graph.axis(axis).extent_of;
    return !cell.graph.axis(header).fixed && !lengths.contains(header);
  };
  std::set<std::string> names;
  for (const AxisId a : used) {
    const auto header = std::find_if(cell.header.begin(), cell.header.end(),
                                     [&](AxisId h) { return cell.graph.axis(h).name == graph.axis(a).name; });
    if (header != cell.header.end() && is_open(*header)) names.insert(graph.axis(a).name);
  }
  return names;
}

std::vector<std::string> options_for(const std::set<std::string>& axes) {
  std::vector<std::string> options;
  for (const std::string& a : axes) options.push_back(fmt::format("--dim {}=N", a));
  return options;
}

}  // namespace cellc
