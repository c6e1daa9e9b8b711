#pragma once
// Starts and defaults that a cell computes from its params (`state v[d] = v0`), and copies that start as their state
// does: derivatives flow through them wherever the caller of the run did not give the array. Evaluated in f64, once a
// run.
#include <functional>
#include <vector>

#include "runtime/data/run.h"
#include "runtime/gradient/adjoint_run.h"
#include "runtime/gradient/tangent_run.h"

namespace cellc {

/// Which of a run's arrays its caller gave; the others were computed from those, so derivatives flow on through them.
struct GivenSymbols {
  std::vector<bool> symbols, histories;  ///< by symbol
};

/// Adds to params what flows through starts and defaults, and to the start of a state what flows through the copies
/// that start as it does. What was computed keeps its own gradient.
void through_defaults(const CellGraph& cell, const BoundRun& forward, const GivenSymbols& given, Gradients& gradients);

/// The same with the gradients' own derivative in the direction of `tangents`, for which the other function has been.
void through_defaults(const CellGraph& cell, const BoundRun& forward, const GivenSymbols& given,
                      const Tangents& tangents, Gradients& gradients, Gradients& derivative);

/// Adds to starts and defaults that the cell computed what moves them. What is given for one of them counts besides.
void tangents_through_defaults(const CellGraph& cell, const BoundRun& forward, const GivenSymbols& given,
                               Tangents& tangents);

}  // namespace cellc
