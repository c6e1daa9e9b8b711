#pragma once
// Cotangents and gradients under the names and shapes that users know.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/bind.h"
#include "runtime/gradient/adjoint_run.h"

namespace cellc {

/// Cotangents by name: a state (of its trajectory), NAME.final, or an out; shaped as the arrays that a run writes.
/// Throws RequestError, which names the array, what was expected and what was found.
Cotangents bind_cotangents(const CellGraph& cell, const Binding& binding,
                           const std::map<std::string, GivenArray>& given);

/// What the caller gave of a run; the rest was computed from it.
GivenSymbols given_symbols(const CellGraph& cell, const BindRequest& request, const Binding& binding);

/// By file name without ".npy": grad.NAME of every input and param, grad.NAME.initial of every state, grad.NAME.lag of
/// what has a history. Memory is shared with `gradients`.
std::vector<std::pair<std::string, Array>> gradient_arrays(const CellGraph& cell, const Binding& binding,
                                                           const Gradients& gradients);

}  // namespace cellc
