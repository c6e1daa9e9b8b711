#pragma once
// The starts and defaults that a cell computes where a caller gives none, as a cell of its own; and the
// conditions that a cell puts on lengths.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/derive/derived_cell.h"
#include "compiler/graph/graph.h"

namespace cellc {

/// Symbols of the kind (State or Param) with a declared start or default; lagged copies have that of their state.
std::vector<int> symbols_with_defaults(const CellGraph& cell, SymbolKind kind);

/// Tells `visit` of every entry that the cell picks by a number: of which header axis, and of what, in words.
void each_picked_entry(const CellGraph& cell,
                       const std::function<void(AxisId, std::int64_t, const std::string&)>& visit);

/// By header axis: 1, or more where the cell picks an entry by number.
std::map<AxisId, std::int64_t> least_lengths(const CellGraph& cell);

}  // namespace cellc
