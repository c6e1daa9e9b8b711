#pragma once
// How many steps of history a symbol needs, as text for people.
#include <string>

#include "compiler/graph/graph.h"

namespace cellc {

/// Steps of history that the cell reads of a state or input: a number, or a text in the lengths of
/// axes that the header leaves open ("w - 1", "max(3, w + 1)"). `of` is one of the cell's symbols.
std::string history_length(const CellGraph& cell, const Symbol& of);

}  // namespace cellc
