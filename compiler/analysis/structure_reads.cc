#include <algorithm>
#include <utility>

#include "compiler/analysis/structure_rules.h"

namespace cellc {

StageReads::StageReads(const CellGraph& cell, std::vector<int> stage_of) : cell_(cell), stage_of_(std::move(stage_of)) {
  update_of_.assign(cell.symbols.size(), -1);
  for (std::size_t u = 0; u < cell.updates.size(); ++u) update_of_[cell.updates[u].symbol] = static_cast<int>(u);
}

int StageReads::last_stage(NodeId node) {
  look_at_all();
  return last_stage_[node];
}

bool StageReads::varies(NodeId node) {
  look_at_all();
  return varies_[node];
}

void StageReads::look_at_all() {
  for (NodeId id = static_cast<NodeId>(last_stage_.size()); id < cell_.graph.size(); ++id) {
    const Node& n = cell_.graph[id];
    int last = -1;
    bool varies = false;
    if (n.op == Op::Read) {
      if (const int u = update_of_[n.symbol]; u >= 0) last = stage_of_[u];
      varies = cell_.symbols[n.symbol].kind != SymbolKind::Param;
    }
    for (NodeId a : n.args) last = std::max(last, last_stage_[a]), varies = varies || varies_[a];
    last_stage_.push_back(last);
    varies_.push_back(varies);
  }
}

std::vector<NodeId> StageReads::own_part(const std::vector<NodeId>& roots, int number) {
  return walk_down(cell_.graph, roots,
                   [&](NodeId id) { return last_stage(id) == number ? Visit::Descend : Visit::Skip; });
}

}  // namespace cellc
