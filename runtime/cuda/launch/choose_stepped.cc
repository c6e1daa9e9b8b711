#include "runtime/cuda/launch/choose_stepped.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels-templates/host/host_tiles.h"
#include "runtime/cuda/launch/product_costs.h"

namespace cellc {

namespace {

/// From the end of a kernel to work of the next one, both of one stream, and of a small one itself.
constexpr double kKernelNs = 2500;
/// A tile of a product beside its terms: its first rows and columns come from memory, and its sums go there.
constexpr double kTileNs = 1500;
/// TB/s of the card's memory, of its second-level cache, and of one block that has three stages of columns under way;
/// in bytes a nanosecond.
constexpr double kMemory = 2.5, kCache = 4.5, kBlock = 0.024, kBytesNs = 1000;

double product_step_ns(const StepProductShape& p, const SteppedRequest& r, bool cached) {
  const double tile = CELLC_PRODUCT_TILE, multiprocessors = std::max(1, r.card.multiprocessors),
               batch = static_cast<double>(p.batch), depth = static_cast<double>(p.depth),
               tiles = std::ceil(static_cast<double>(p.width) / tile) *
                       std::ceil(static_cast<double>(r.sequences) / tile) * batch,
               at_once = std::min(tiles, 2 * multiprocessors);
  const double bytes = batch * static_cast<double>(p.width) * depth * static_cast<double>(size_of(r.arithmetic)),
               read = bytes / (kBytesNs * std::min(cached ? kCache : kMemory, at_once * kBlock));
  // Tiles are whole ones, and fewer of them than multiprocessors leave the others idle.
  const double multiply = tiles * tile * tile * depth * product_ns(r.arithmetic, r.factors) *
                          std::max(1.0, multiprocessors / std::max(1.0, tiles));
  return kTileNs + std::max(read, multiply);
}

}  // namespace

SteppedChoice choose_stepped(const SteppedRequest& r) {
  SteppedChoice choice;
  double entries = 0, fixed = 0;
  int kernels = 0;
  for (const SteppedStage& s : r.stages) {
    fixed += static_cast<double>(s.fixed_bytes) * static_cast<double>(r.rows);
    kernels += s.kernels;
    for (const StepProductShape& p : s.products) entries += static_cast<double>(p.width * p.depth * p.batch);
  }
  const double bytes = entries * static_cast<double>(size_of(r.arithmetic));
  const bool cached = bytes < 0.7 * static_cast<double>(r.card.l2_bytes);
  choice.step_ns = kernels * kKernelNs;
  for (const SteppedStage& s : r.stages)
    for (const StepProductShape& p : s.products) choice.step_ns += product_step_ns(p, r, cached);
  const double waves = std::ceil(static_cast<double>(r.sequences) / std::max(1, r.card.multiprocessors));
  choice.walk_ns = entries * walk_ns_of_weight() * waves;
  const bool fits = fixed < 0.25 * static_cast<double>(r.card.memory_bytes);
  choice.pays = fits && choice.step_ns < choice.walk_ns;
  choice.reason = !fits ? fmt::format("sums of all steps, {:.1f} GB, leave too little memory", fixed * 1e-9)
                        : fmt::format(
                              "with {:.1f} MB of weights a step is {} kernels of {:.0f} us in all, where a "
                              "block a sequence takes {:.0f}",
                              bytes * 1e-6, kernels, choice.step_ns * 1e-3, choice.walk_ns * 1e-3);
  return choice;
}

}  // namespace cellc
