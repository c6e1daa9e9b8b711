#pragma once
// The gradients of a cell over a sequence are one more recurrence, which runs from the last step to the first and is
// affine whatever the cell is. With s_t = f(s_{t-1}, x_t), y_t = g(s_{t-1}, x_t), J_t = ∂f/∂s and cotangents of every
// trajectory, out and final state, the adjoint
//
//   λ_{t-1} = J_tᵀ (λ_t + s̄_t) + (∂g_t/∂s)ᵀ ȳ_t,     λ_T = the cotangent of the final state
//
// is the gradient by the state before each step; λ_0 is that by the initial state. Of the same products come
//
//   x̄_t = (∂f_t/∂x)ᵀ (λ_t + s̄_t) + (∂g_t/∂x)ᵀ ȳ_t,    p̄ = Σ_t (∂f_t/∂p)ᵀ (λ_t + s̄_t) + (∂g_t/∂p)ᵀ ȳ_t
//
// (Pearlmutter, Gradient calculations for dynamic recurrent neural networks, 1995, section III; for linear recurrences
// Martin and Cundy, arXiv 1709.04057, section 2.2). So the adjoint is an ordinary cell: λ are its states, x̄ its outs;
// the states before each step and the cotangents are inputs. It is linear by construction, J_tᵀ has the mask of J_t
// transposed and its rank, and structure, strategies and kernels know no more of it than that it runs in reverse.
//
// What a step reads of a state through a delay line, m steps back, contributes to λ m steps earlier: the adjoint holds
// the contribution in a state of its own, and reads that through a delay line, m of its own steps back.
//
// Nothing is kept of the forward run but its trajectories: gates are computed again from the state before the step.
//
// A param's gradient is summed over all steps. What is summed is the product of two factors where it can be taken apart
// so that none of them has all axes: of W@x the gradient is G[d]·X[k] a step, which is one matrix product over all
// steps; of a·h it is one number a channel and step.
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/reverse_mode.h"
#include "compiler/derive/derived_cell.h"

namespace cellc {

/// Of which results there is a cotangent: by position in updates (of a trajectory; those of copies that lag do not
/// count) and by out. Empty: of all. The others are left out and cost nothing.
struct AdjointOf {
  std::vector<bool> states, outs;
  /// Two factors along the same axes are multiplied by the cell, for lanes that add the product up (fused_outs.h);
  /// otherwise where they are summed, so that nothing is written for it that is not there anyway.
  bool multiplies_factors = false;
  bool operator==(const AdjointOf&) const = default;
};

/// An array over steps, one of those that a param's gradient is made of: an input of the adjoint as it lies, or an out.
struct StepFactor {
  bool is_out = false;
  int id = -1;                ///< symbol, or out, of the adjoint
  std::vector<AxisId> index;  ///< its axes, in the order in which it lies
};

/// Σ over steps, sequences and those axes of the factors that the param lacks, of left·right. Axes of the param that
/// neither has repeat.
struct StepProduct {
  StepFactor left;
  std::optional<StepFactor> right;
};

struct ParamGradient {
  int symbol = -1;  ///< of the whole cell
  std::vector<StepProduct> products;
};

struct AdjointCell {
  DerivedCell adjoint;  ///< reverse
  /// What the whole cell's step reads of other steps of its inputs: the adjoint takes each as an input of its own
  /// (ArraySource::Lagged, by position here) and gives what every step contributes (ArraySink::LaggedGradient; through
  /// a delay line as a state, of which what is still under way at the end is the history's).
  std::vector<ArrayRead> lagged;
  std::vector<ParamGradient> params;
};

/// `inspect --stage adjoint`: the equations as a cell, and how params' gradients are summed.
std::string print_adjoint(const CellGraph& whole, const AdjointCell& adjoint);

}  // namespace cellc
