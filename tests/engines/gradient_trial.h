#pragma once
// Derivatives of runs as tests try them: tangents against differences of the oracle, adjoints against tangents,
// products with Hessians against differences of gradients. Everything in f64.
#include <cstdint>
#include <string>

#include "runtime/gradient/hessian_product.h"
#include "tests/engines/lowered_cell.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/random.h"

namespace cellc {

/// The evaluator, step after step, or generated code by the strategies that it chooses.
enum class By : std::uint8_t { Reference, Solver };
RunCell run_by(By by);

struct GradientCounts {
  std::int64_t compared = 0;  ///< numbers
  std::int64_t kinked = 0;  ///< numbers left out: a kink, a jump or what is not finite within the reach of differences
  int cells = 0;
  int left_out = 0;  ///< cells with slopes that are declared, which differences do not know
};

/// Tangents along a random direction of everything that is given against central differences of the oracle, over a few
/// steps; or what is wrong.
std::string tangent_failure(const LoweredCell& cell, const oracle::Ranges& ranges, By by, oracle::Random& random,
                            GradientCounts& counts);

/// <v, J u> = <Jᵀ v, u> for random v and u, over ragged sequences in either direction of time, to 1e-10 of the sum of
/// what is added up; or what is wrong. Kinks and declared slopes included.
std::string dot_failure(const LoweredCell& cell, const oracle::Ranges& ranges, By by, oracle::Random& random,
                        GradientCounts& counts);

/// H v of the loss ½ Σ y² + Σ c·y over all that a run writes, against central differences of gradients, to 1e-6.
std::string hessian_failure(const LoweredCell& cell, const oracle::Ranges& ranges, By by, oracle::Random& random,
                            GradientCounts& counts);

}  // namespace cellc
