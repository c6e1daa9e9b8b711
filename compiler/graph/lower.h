#pragma once
// Tree -> graph: resolves names and axes, inlines functions, turns lags of states into companion
// states and reports every semantic error of the cell. Follows parse; precedes simplify.
//
// Lags are pushed to the leaves: lag(e, n) is e with every input read n steps earlier and every
// state replaced by its companion; lag(h', n) is lag(h, n-1), not a second evaluation of the step.
#include <optional>

#include "compiler/graph/graph.h"
#include "compiler/syntax/diagnostic.h"

namespace cellc {

/// The cell `cell` of `file` as a graph; nullopt after an error, which `diagnostics` then holds.
std::optional<CellGraph> lower(const File& file, const Cell& cell, Diagnostics& diagnostics);

/// Checks every cell and function of the file, so that all errors are reported in one go, and
/// returns the graphs of those cells that have none, in file order.
std::vector<CellGraph> lower_all(const File& file, Diagnostics& diagnostics);

}  // namespace cellc
