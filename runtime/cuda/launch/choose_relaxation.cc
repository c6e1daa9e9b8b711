#include "runtime/cuda/launch/choose_relaxation.h"

#include <algorithm>
#include <cmath>

#include "runtime/cuda/launch/product_costs.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

namespace {

/// Iterations that freshly initialised cells take, and some to see that others will not end.
constexpr double kFewestIterations = 8;
/// Small runs are not worth the second that further kernels take to compile.
constexpr double kSmallRunNs = 2e6;
/// Iterations that go on by 3xTF32 where coarser products stall, their inputs' products and the check among them.
constexpr double kRefined = 4;

}  // namespace

int iterations_worth_on_gpu(const RelaxationRequest& r) {
  // What an iteration takes beside its products: rows of states and terms, about a dozen passes at 2.5 TB/s; five
  // launches and one look of the host.
  constexpr double kPasses = 12, kBytesANs = 2500, kOnceNs = 60e3;
  const double waves = std::ceil(static_cast<double>(r.sequences) / std::max(1, r.multiprocessors));
  const double step = r.other_step_ns > 0 ? r.other_step_ns : r.product_entries * walk_ns_of_weight() * waves;
  const double by_steps = step * static_cast<double>(r.longest), rows = static_cast<double>(r.rows);
  const double products = rows * r.product_entries * product_ns(r.arithmetic, r.factors),
               refined = std::max(
                   0.0, rows * r.product_entries * product_ns(r.arithmetic, ProductFactors::Tf32x3) - products);
  const double iteration =
      products + rows * r.state_entries * static_cast<double>(size_of(r.arithmetic)) * kPasses / kBytesANs + kOnceNs;
  if (r.product_entries == 0 || by_steps < kSmallRunNs) return 0;
  const double worth = std::floor(iterations_worth({by_steps - kRefined * refined, iteration}));
  return worth < kFewestIterations ? 0 : static_cast<int>(std::min(worth, 1e6));
}

}  // namespace cellc
