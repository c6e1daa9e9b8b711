#pragma once
// Lengths that the code of a lane depends on and that whoever has it compiled has not said.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/derive/stage_cells.h"

namespace cellc {

/// Names of the axes whose lengths decide on the code of a stage's lanes, and that neither the cell nor `lengths` (by
/// header axis) fixes.
std::set<std::string> open_axes(const CellGraph& cell, const std::map<AxisId, std::int64_t>& lengths,
                                const StageCells& stage);

/// "--dim k=N", for each.
std::vector<std::string> options_for(const std::set<std::string>& axes);

}  // namespace cellc
