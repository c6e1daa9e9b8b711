#pragma once
// Questions about lists of axes.
#include <algorithm>
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

}  // namespace cellc
