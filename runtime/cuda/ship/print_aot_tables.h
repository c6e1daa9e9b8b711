#pragma once
// The tables of a shipped cell (kernels-templates/host/host_cell.h) as constants in C.
#include <string>

#include "runtime/cuda/ship/aot_cell.h"

namespace cellc {

/// Each a constant of its own whose name begins with `prefix`; the last is PREFIX_cell.
std::string print_aot_tables(const AotCell& cell, const std::string& prefix);

}  // namespace cellc
