#pragma once
// The adjoint of a cell as formulas: for `inspect --stage adjoint`, and a part of inspect.h's document and object.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "compiler/derive/adjoint_cell.h"
#include "compiler/graph/graph.h"

namespace cellc {

/// A line for each value that has a name, in an order in which each reads those before it; then the adjoint's states
/// and how params' gradients are summed.
std::string adjoint_text(const CellGraph& whole, const AdjointCell& adjoint);

/// The same as equations: \lambda_h is the adjoint of the state h, \bar x the gradient by x, or the cotangent of a
/// result.
std::string adjoint_latex(const CellGraph& whole, const AdjointCell& adjoint);

/// {"linear", "class", "stages", "definitions", "states", "gradients"}.
nlohmann::ordered_json adjoint_json(const CellGraph& whole, AdjointCell adjoint);

}  // namespace cellc
