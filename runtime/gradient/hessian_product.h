#pragma once
// Products of the Hessian of a loss with one direction, without the Hessian: the tangent of the gradient (Pearlmutter,
// Fast exact multiplication by the Hessian, 1994). Four linear or ordinary recurrences, each a cell:
//
//   the run itself        s_t              the tangent of the run       ṡ_t    in the direction v
//   its adjoint           λ_t              the tangent of the adjoint   λ̇_t
//
// The adjoint reads the states before each step, so its own tangent needs theirs, ṡ: those are what the tangent of the
// run wrote. Its other inputs move as v says, and its cotangents as the loss bends: of L = Σ c·y with a fixed c they do
// not move; of a loss ℓ(y) they move by ∇²ℓ ẏ, which whoever knows the loss says as `Curvature`.
#include <functional>

#include "runtime/gradient/adjoint_run.h"
#include "runtime/gradient/through_defaults.h"

namespace cellc {

/// The run of any cell from its arrays, in the arithmetic asked for: on a CPU by Solver, on a GPU by CudaSolver.
using RunCell = std::function<RunOutput(const CellGraph&, const Structure&, const BoundRun&)>;

/// From the tangents of a run's results to those of the loss's cotangents.
using Curvature = std::function<Cotangents(const RunOutput&)>;

struct HessianProduct {
  RunOutput tangents;   ///< of the run's results: J v
  Gradients gradients;  ///< of the loss
  Gradients product;    ///< H v: how they move; shaped as they are
};

/// After a run of `forward` that wrote `output`. `curvature`: empty where cotangents do not move.
HessianProduct hessian_vector_product(const CellGraph& cell, const BoundRun& forward, const RunOutput& output,
                                      const GivenSymbols& given, const Cotangents& cotangents, Tangents direction,
                                      const Curvature& curvature, Dtype arithmetic, const RunCell& run,
                                      const SumOverSteps& sum);

}  // namespace cellc
