#pragma once
// Is a graph what the head of graph.h says it is? The front end asks of every cell that it hands on; a fault
// found here is ours, never the user's.
#include "compiler/graph/graph.h"

namespace cellc {

/// Throws std::logic_error naming the first node or table entry that breaks an invariant.
void verify(const CellGraph& cell);

}  // namespace cellc
