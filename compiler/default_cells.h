#pragma once
// What the cell computes where a caller gives nothing, as a cell of its own; and what it asks of lengths.
#include <cstdint>
#include <map>
#include <vector>

#include "compiler/graph.h"
#include "compiler/stage_cells.h"

namespace cellc {

/// A cell with some declared starts or defaults as its outs.
struct Defaults {
  std::vector<int> symbols;  ///< by out
  StatelessCell cell;
};

/// All declared starts (State) or defaults (Param) of the cell.
Defaults defaults_of(const CellGraph& cell, SymbolKind kind);

/// By header axis: 1, or more where the cell picks an entry by number.
std::map<AxisId, std::int64_t> least_lengths(const CellGraph& cell);

}  // namespace cellc
