#pragma once
// The lengths that a build of a cell asks for.
#include <cstdint>
#include <map>
#include <string>

#include "tests/engines/lowered_cell.h"

namespace cellc {

/// Those that decide on a lane's code, or all: axes of channels stay open where they may.
std::map<AxisId, std::int64_t> needed_lengths(const LoweredCell& cell, const std::map<std::string, std::int64_t>& sizes,
                                              bool all);

}  // namespace cellc
