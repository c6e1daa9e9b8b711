#pragma once
// The derived facts of a cell, for people (text, LaTeX) and programs (JSON), and the dumps of the
// graph, Jacobian and structure stages.
#include <string>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"

namespace cellc {

std::string inspect_text(CellGraph& cell, const Jacobian& jacobian, const Structure& structure,
                         const SourceText& source);
/// A complete document: the step, the Jacobian and its shared subexpressions.
std::string inspect_latex(CellGraph& cell, const Jacobian& jacobian, const Structure& structure);
/// One JSON object; the keys are those of the command line's contract.
std::string inspect_json(CellGraph& cell, const Jacobian& jacobian, const Structure& structure,
                         const SourceText& source);

std::string print_graph(const CellGraph& cell);
std::string print_jacobian(CellGraph& cell, const Jacobian& jacobian);
std::string print_structure(const CellGraph& cell, const Structure& structure);

/// Operations of one step per batch row, as a polynomial in the axis lengths: "14*d + 2*d*m".
/// Every elementwise operator and function counts one, a sum over n entries n.
std::string flops_per_step(const CellGraph& cell);

}  // namespace cellc
