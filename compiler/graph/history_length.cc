#include "compiler/graph/history_length.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

namespace cellc {

std::string history_length(const CellGraph& cell, const Symbol& of) {
  const Graph& g = cell.graph;
  if (of.max_lag >= 0) return std::to_string(of.max_lag);
  const int symbol = static_cast<int>(&of - cell.symbols.data());
  int number = 0;
  std::map<AxisId, int> beyond;  // by axis of open length: how far a read goes past the length
  for (NodeId id = 0; id < g.size(); ++id) {
    const Node& n = g[id];
    if (n.op != Op::Read || n.symbol != symbol) continue;
    if (n.lag_axis == kNoAxis) {
      number = std::max(number, n.lag);
    } else if (const auto fixed = g.axis(n.lag_axis).fixed) {
      number = std::max(number, n.lag + static_cast<int>(*fixed) - 1);
    } else {
      const auto [it, fresh] = beyond.emplace(g.axis(n.lag_axis).extent_of, n.lag - 1);
      if (!fresh) it->second = std::max(it->second, n.lag - 1);
    }
  }
  std::vector<std::string> lengths;
  bool exceeded = false;  // an axis has at least one entry
  for (const auto& [axis, offset] : beyond) {
    exceeded |= 1 + offset >= number;
    const std::string& name = g.axis(axis).name;
    lengths.push_back(offset == 0 ? name : fmt::format("{} {} {}", name, offset < 0 ? '-' : '+', std::abs(offset)));
  }
  if (!exceeded) lengths.insert(lengths.begin(), std::to_string(number));
  return lengths.size() == 1 ? lengths[0] : fmt::format("max({})", fmt::join(lengths, ", "));
}

}  // namespace cellc
