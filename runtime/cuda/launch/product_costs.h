#pragma once
// What products by matrices of params were measured to take, for the models of choose_relaxation and choose_stepped.
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/data/array.h"

namespace cellc {

/// Nanoseconds of a multiply-add of a card that is full of them, by what factors are: 16384 rows by 1024 by 1024 take
/// 0.99, 0.74, 0.31 and 0.27 ms on an H100, and twice the first in f64.
inline double product_ns(Dtype arithmetic, ProductFactors factors) {
  constexpr double kMeasured = 16384.0 * 1024 * 1024;
  const double ms = arithmetic == Dtype::F64            ? 2
                    : factors == ProductFactors::Real   ? 0.99
                    : factors == ProductFactors::Tf32x3 ? 0.74
                    : factors == ProductFactors::Tf32   ? 0.31
                                                        : 0.27;
  return ms * 1e6 / kMeasured;
}

/// Of a weight that a block reads for its sequence: 166 ms of an LSTM of 768 units, 1024 steps.
inline double walk_ns_of_weight() { return 0.069; }

}  // namespace cellc
