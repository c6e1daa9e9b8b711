#pragma once
// Checks that a graph is what the head of graph.h says. The front end checks every cell that it hands on; a
// fault found here is ours, never the user's.
#include "compiler/graph/graph.h"

namespace cellc {

/// Throws std::logic_error naming the first node or table entry that breaks an invariant.
void verify(const CellGraph& cell);

}  // namespace cellc
