#pragma once
// The derivative of a run in one direction is one more recurrence, beside the first and as it runs. With
// s_t = f(s_{t-1}, x_t; p), y_t = g(s_{t-1}, x_t; p) and tangents of inputs, params and starts, the tangent
//
//   ṡ_t = J_t ṡ_{t-1} + (∂f_t/∂x) ẋ_t + (∂f_t/∂p) ṗ ,     ẏ_t = (∂g_t/∂s) ṡ_{t-1} + (∂g_t/∂x) ẋ_t + (∂g_t/∂p) ṗ
//
// is linear by construction and has the Jacobian of the cell itself, so its structure too (Williams and Zipser, A
// learning algorithm for continually running fully recurrent neural networks, 1989, in one direction instead of all).
// States are ṡ, outs ẏ; the states before each step, inputs and params are read as the adjoint reads them
// (adjoint_cell.h). Unlike the adjoint it runs forwards, so a lagged input is lagged here too, and its history is
// there.
//
// The adjoint cell is a cell like any other: its tangent gives products with the Hessian
// (runtime/gradient/hessian_product.h).
#include <vector>

#include "compiler/derive/derived_cell.h"

namespace cellc {

/// Of which symbols of the whole cell there is a tangent: inputs (with their histories), params, starts of states.
/// Empty: of all. What none of them moves has the tangent 0 and costs nothing.
struct TangentOf {
  std::vector<bool> symbols;
  bool operator==(const TangentOf&) const = default;
};

}  // namespace cellc
