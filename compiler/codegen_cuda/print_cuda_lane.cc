// `inspect --stage cuda`: what emit_cuda_lane makes of every stage.
#include <fmt/format.h>

#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/graph_walk.h"

namespace cellc {

std::map<AxisId, std::int64_t> sizes_to_show(const CellGraph& cell, AxisId lane) {
  std::set<AxisId> mentioned;
  std::vector<NodeId> roots;
  for (const StateUpdate& u : cell.updates) {
    roots.push_back(u.value);
    for (AxisId a : cell.symbols[u.symbol].axes) mentioned.insert(a);
  }
  for (NodeId id : reachable(cell.graph, roots)) {
    const Node& n = cell.graph[id];
    for (AxisId a : n.axes) mentioned.insert(cell.graph.axis(a).extent_of);
    if (n.op == Op::Size) mentioned.insert(cell.graph.axis(n.index[0].axis).extent_of);
    // An entry of a longer array is found by the lengths of all its axes.
    if (n.op == Op::Read) mentioned.insert(cell.symbols[n.symbol].axes.begin(), cell.symbols[n.symbol].axes.end());
  }
  std::map<AxisId, std::int64_t> sizes;
  std::int64_t next = 2;
  for (AxisId a : cell.header) {
    if (a == lane || cell.graph.axis(a).fixed || !mentioned.contains(a)) continue;
    sizes[a] = next;
    next = next == 4 ? 2 : next + 1;
  }
  return sizes;
}

std::string print_cuda(const CellGraph& cell, const StagedCell& staged, const Structure& structure,
                       const SourceText& source, Storage storage) {
  std::string text;
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const StageCells& stage = staged.stages[k];
    CudaLaneOptions options;
    options.storage = storage;
    options.sizes = sizes_to_show(stage.lanes.cell, stage.lane);
    options.source = &source;
    options.written = &cell;
    std::string shown;
    for (const auto& [axis, length] : options.sizes)
      shown += fmt::format("{}{} = {}", shown.empty() ? ", shown for " : ", ", cell.graph.axis(axis).name, length);
    text += fmt::format("{}// stage {}{}\n", k ? "\n" : "", k + 1, shown);
    try {
      text += emit_cuda_lane(stage.lanes.cell, stage.lane, options).text;
      options.name = "StepWithTransition";
      text += "\n" + emit_cuda_step_with_transition(
                         with_transition(stage.lanes, stage.lane, structure.stages[k].scannable), stage.lane, options)
                         .text;
    } catch (const ScalarizedTooLong& e) {
      text += fmt::format("// {}: no code by lanes\n", e.what());
    }
  }
  return text;
}

}  // namespace cellc
