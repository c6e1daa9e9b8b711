#pragma once
// The stages after structure as text: derived cells, and emitted code without what is the same for every cell.
#include <string>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"
#include "compiler/syntax/source.h"

namespace cellc {

/// The cells that a cell is cut into.
std::string print_lanes(const CellGraph& cell, const Structure& structure);

/// The lane cells with every axis but the lane written out.
std::string print_scalars(const CellGraph& cell, const Structure& structure);

/// Kernels for a CPU: of the whole cell, and of every stage's lanes. Without the math library.
std::string print_llvm(const CellGraph& cell, const Structure& structure);

/// CUDA C++ by loop nests: of the whole cell, and of the cells without states around its stages. Without templates.
std::string print_nests(const CellGraph& cell, const Structure& structure, const SourceText& source);

}  // namespace cellc
