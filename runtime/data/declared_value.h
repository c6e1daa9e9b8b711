#pragma once
// The start or default that a cell declares for an array that nobody gives.
#include <map>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/data/array.h"

namespace cellc {

/// Of a param [a…], or of a state for all sequences [N, a…]; rounded once, to `dtype`. `symbols`: arrays of the params
/// that it is computed from, by symbol; may be empty where it is a constant.
Array declared_value(const CellGraph& cell, int symbol, const std::map<AxisId, std::int64_t>& sizes,
                     const std::vector<Array>& symbols, Dtype dtype, std::vector<std::int64_t> shape);

}  // namespace cellc
