#pragma once
// Delay lines (Symbol::line_of): lags of states that are read from the rows that a run writes.
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

struct DelayLine {
  int symbol, state;     ///< the line; the state whose rows it is
  int nearest, deepest;  ///< steps back from the step at hand, 1: the state before it
};

std::vector<DelayLine> delay_lines(const CellGraph& cell);

/// So many steps do not wait for each other as far as delay lines go: the fewest steps back that one is read. 0: the
/// cell has none.
int independent_steps(const CellGraph& cell);

/// Whether a symbol is an input that whoever runs the cell has to give.
inline bool is_given_input(const Symbol& symbol) { return symbol.kind == SymbolKind::Input && symbol.line_of < 0; }

}  // namespace cellc
