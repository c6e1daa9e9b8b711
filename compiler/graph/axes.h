#pragma once
// Questions about lists of axes, and about their lengths in a run.
#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

inline bool contains(const std::vector<AxisId>& axes, AxisId axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

/// Every axis by itself: how a value is read at its own places.
inline std::vector<Index> plain_index(const std::vector<AxisId>& axes) {
  std::vector<Index> index;
  for (const AxisId a : axes) index.push_back({a, 0});
  return index;
}

/// Where the axis that an axis has its length from stands in the header.
inline int header_position(const CellGraph& cell, AxisId axis) {
  const auto found = std::find(cell.header.begin(), cell.header.end(), cell.graph.axis(axis).extent_of);
  if (found == cell.header.end()) throw std::logic_error("an axis without a header axis");
  return static_cast<int>(found - cell.header.begin());
}

/// Lengths of a graph's axes, from those of the header. Graph and lengths must outlive it.
class AxisLengths {
 public:
  AxisLengths(const Graph& graph, const std::map<AxisId, std::int64_t>& sizes) : graph_(graph), sizes_(sizes) {}

  std::int64_t operator[](AxisId axis) const { return sizes_.at(graph_.axis(axis).extent_of); }
  /// Product of the lengths.
  std::int64_t entries(const std::vector<AxisId>& axes) const {
    std::int64_t n = 1;
    for (const AxisId a : axes) n *= (*this)[a];
    return n;
  }
  /// Lengths behind those in `before`.
  std::vector<std::int64_t> shape(std::vector<std::int64_t> before, const std::vector<AxisId>& axes) const {
    for (const AxisId a : axes) before.push_back((*this)[a]);
    return before;
  }

 private:
  const Graph& graph_;
  const std::map<AxisId, std::int64_t>& sizes_;
};

}  // namespace cellc
