#pragma once
// The parts of check_cell: claims about the step as a function, kernels against the reference, gradients.
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/check/check_cell.h"
#include "runtime/data/bind.h"

namespace cellc {

/// The largest rank that is checked: by minors of that size, at random points.
inline constexpr std::int64_t kMostRank = 99;

/// Jacobian blocks, zeros, masks, channel axes, linearity, rank, time invariance. `binding` holds
/// one sequence of random f64 data.
void check_claims(CellGraph& cell, const Jacobian& jacobian, const Structure& structure, const Binding& binding,
                  std::uint64_t seed, std::vector<CheckItem>& items);

/// Whether each entry of a run is what the reference makes of the row before it, to `tolerance` of |value| + the
/// largest of its lane over the sequence, which is what `converged` promises in any unit, and what roundings of
/// `rounding` may do besides.
CheckItem check_each_step(const CellGraph& cell, const std::string& strategy, const RunOutput& output,
                          const Binding& binding, double tolerance, double rounding);

/// The sequential kernel in f32 and f64, step by step, and its edge cases.
void check_engine(const CellGraph& cell, const Structure& structure, const BindRequest& request,
                  const std::string& cache_directory, std::vector<CheckItem>& items);

/// Every strategy that a stage admits, in f64, step by step; what check_engine does with other precisions too.
void check_strategies(const CellGraph& cell, const Structure& structure, const CompileOptions& compile,
                      const Binding& binding, std::vector<CheckItem>& items);

/// Gradients against finite differences of the reference, one sequence of `binding`: every array along a direction and
/// at two entries, but for cells whose slopes are declared or stopped. The adjoint by every strategy.
void check_gradients(const CellGraph& cell, const Binding& binding, const BindRequest& request, std::uint64_t seed,
                     const std::string& cache_directory, std::vector<CheckItem>& items);

}  // namespace cellc
