#include "compiler/graph/delay_lines.h"

#include <algorithm>

namespace cellc {

std::vector<DelayLine> delay_lines(const CellGraph& cell) {
  std::vector<DelayLine> lines;
  if (!cell.has_lines()) return lines;
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.line_of >= 0) lines.push_back({static_cast<int>(s), symbol.line_of, symbol.max_lag, symbol.max_lag});
  }
  for (NodeId id = 0; id < cell.graph.size(); ++id) {
    const Node& n = cell.graph[id];
    if (n.op != Op::Read || cell.symbols[static_cast<std::size_t>(n.symbol)].line_of < 0) continue;
    for (DelayLine& line : lines)
      if (line.symbol == n.symbol) line.nearest = std::min(line.nearest, n.lag);
  }
  return lines;
}

int independent_steps(const CellGraph& cell) {
  int steps = 0;
  for (const DelayLine& line : delay_lines(cell)) steps = steps == 0 ? line.nearest : std::min(steps, line.nearest);
  return steps;
}

}  // namespace cellc
