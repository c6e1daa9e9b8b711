#pragma once
// Our own elementary functions, as LLVM IR text. Scalar calls of libm stop vectorisation. A vector libm
// is not installed everywhere, and has no tanh and no 16-wide exp. These functions have no branches
// (but sin and cos leave huge arguments to a scalar routine). They are the same for every vector width
// and give the same bits at every width. Accuracy: docs/notes/math-functions.md.
//
// The text relies on IR semantics only: it requests fused multiply-add by llvm.fma where the error
// bound needs it, and uses no fast-math flag. So it must be compiled for a target that has FMA
// instructions.
#include <compare>
#include <set>
#include <string>

#include "compiler/graph/graph.h"

namespace cellc::llvm_math {

struct Request {
  Op op;
  bool f64;
  int lanes;
  auto operator<=>(const Request&) const = default;
};

/// Whether `op` is computed by a function of this module: the column `llvm` of ops.def.
bool has_function(Op op);

/// Name of the function that computes `op` on vectors of `lanes` (1: scalars) of f32 or f64, with
/// the sigil: "@cellc.tanh.v16f32", "@cellc.exp.f64". Throws std::logic_error without has_function.
std::string function_name(Op op, bool f64, int lanes);

/// Definitions (internal, alwaysinline) of the requested functions and of what they call. Intrinsics
/// are not declared: LLVM does that by itself, and a second declaration would be an error.
std::string definitions(const std::set<Request>& functions);

}  // namespace cellc::llvm_math
