#pragma once
// Cotangents, gradients and tangents under the names and shapes that users know.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/bind.h"
#include "runtime/gradient/adjoint_run.h"
#include "runtime/gradient/through_defaults.h"

namespace cellc {

/// Cotangents by name: a state (of its trajectory), NAME.final, or an out; shaped as the arrays that a run writes.
/// Throws RequestError, which names the array, what was expected and what was found.
Cotangents bind_cotangents(const CellGraph& cell, const Binding& binding,
                           const std::map<std::string, GivenArray>& given);

/// Tangents by name: an input, a param, a state (its start; also NAME.initial) or a history NAME.lag; shaped as what
/// the run reads. Throws as bind_cotangents.
Tangents bind_tangents(const CellGraph& cell, const Binding& binding, const std::map<std::string, GivenArray>& given);

/// By file name without ".npy": tangent.NAME of every state, tangent.NAME.final, tangent.NAME of every out. `output`:
/// of the tangent's run, whose memory is shared.
std::vector<std::pair<std::string, Array>> tangent_arrays(const CellGraph& cell, const Binding& binding,
                                                          const RunOutput& output);

/// What the caller gave of a run; the rest was computed from it.
GivenSymbols given_symbols(const CellGraph& cell, const BindRequest& request, const Binding& binding);

/// By file name without ".npy": grad.NAME of every input and param, grad.NAME.initial of every state, grad.NAME.lag of
/// what has a history. Memory is shared with `gradients`.
std::vector<std::pair<std::string, Array>> gradient_arrays(const CellGraph& cell, const Binding& binding,
                                                           const Gradients& gradients);

}  // namespace cellc
