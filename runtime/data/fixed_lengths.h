#pragma once
// --dim NAME=N for code that is built ahead of time.
#include <cstdint>
#include <map>
#include <string>

#include "compiler/graph/graph.h"
#include "runtime/data/errors.h"

namespace cellc {

/// By header axis, of those that the header leaves open. Throws UsageError where the cell has no such axis,
/// RequestError where the header says something else.
std::map<AxisId, std::int64_t> fixed_lengths(const CellGraph& cell, const std::map<std::string, std::int64_t>& dims);

}  // namespace cellc
