#include "runtime/cuda/launch/choose_relaxation.h"

#include <algorithm>
#include <cmath>

#include "runtime/strategy/choose_strategy.h"

namespace cellc {

namespace {

/// Iterations that freshly initialised cells take, and some to see that others will not end.
constexpr double kFewestIterations = 8;
/// Small runs are not worth the second that further kernels take to compile.
constexpr double kSmallRunNs = 2e6;
/// Iterations that go on by 3xTF32 where coarser products stall, their inputs' products and the check among them.
constexpr double kRefined = 4;

/// Nanoseconds of a multiply-add over all rows, by what factors are: 16384 rows by 1024 by 1024 take 0.99, 0.74, 0.31
/// and 0.27 ms on an H100, and twice the first in f64.
double product_ns(const RelaxationRequest& r, ProductFactors factors) {
  constexpr double kMeasured = 16384.0 * 1024 * 1024;
  const double ms = r.arithmetic == Dtype::F64          ? 2
                    : factors == ProductFactors::Real   ? 0.99
                    : factors == ProductFactors::Tf32x3 ? 0.74
                    : factors == ProductFactors::Tf32   ? 0.31
                                                        : 0.27;
  return ms * 1e6 / kMeasured;
}

}  // namespace

int iterations_worth_on_gpu(const RelaxationRequest& r) {
  // A block reads its sequence's weights at every step: 166 ms of an LSTM of 768 units, 1024 steps.
  constexpr double kWeightNs = 0.069;
  // What an iteration takes beside its products: rows of states and terms, about a dozen passes at 2.5 TB/s; five
  // launches and one look of the host.
  constexpr double kPasses = 12, kBytesANs = 2500, kOnceNs = 60e3;
  const double waves = std::ceil(static_cast<double>(r.sequences) / std::max(1, r.multiprocessors));
  const double step = r.persistent_step_ns > 0 ? r.persistent_step_ns : r.product_entries * kWeightNs * waves;
  const double by_steps = step * static_cast<double>(r.longest), rows = static_cast<double>(r.rows);
  const double products = rows * r.product_entries * product_ns(r, r.factors),
               refined = std::max(0.0, rows * r.product_entries * product_ns(r, ProductFactors::Tf32x3) - products);
  const double iteration =
      products + rows * r.state_entries * static_cast<double>(size_of(r.arithmetic)) * kPasses / kBytesANs + kOnceNs;
  if (r.product_entries == 0 || by_steps < kSmallRunNs) return 0;
  const double worth = std::floor(iterations_worth({by_steps - kRefined * refined, iteration}));
  return worth < kFewestIterations ? 0 : static_cast<int>(std::min(worth, 1e6));
}

}  // namespace cellc
