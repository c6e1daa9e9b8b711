#include "runtime/cuda/launch/choose_persistent.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace cellc {

namespace {

StationaryNumbers numbers_of(ProductFactors factors, Dtype dtype) {
  if (dtype == Dtype::F64 || factors == ProductFactors::Real) return StationaryNumbers::Real;
  return factors == ProductFactors::BF16 || factors == ProductFactors::F16 ? StationaryNumbers::Half
                                                                           : StationaryNumbers::Tf32;
}

/// Nanoseconds of a step that blocks spend telling each other, by measured points: so many blocks, so many bytes of
/// each (docs/notes/persistent.md).
double exchange_ns(const PersistentShape& shape, double bytes) {
  const int blocks = shape.blocks;
  // Through memory: pieces of sixteen bytes have twelve of data, and every block reads those of all.
  if (shape.grouped) return 560 + 2 * blocks + 0.045 * bytes * blocks * 16 / 12;
  const double base = blocks == 1 ? 30 : blocks == 2 ? 260 : blocks == 4 ? 265 : blocks == 8 ? 275 : 300;
  return base + bytes * 0.11 * blocks;
}

/// Of a step, and of all of them one after another where clusters have to wait for each other.
double step_ns(const PersistentRequest& r, const std::vector<PersistentCode>& code, std::int64_t clusters,
               double at_once) {
  double ns = 0;
  for (const PersistentCode& c : code) {
    const double slots = c.shape.slots, columns = (c.shape.slots + 7) / 8;
    for (const PersistentLayout::Told& t : c.layout.told)
      ns += exchange_ns(c.shape, static_cast<double>(c.layout.part * t.inner * t.entry_bytes) * slots);
    for (std::size_t p = 0; p < c.layout.products.size(); ++p) {
      const PersistentLayout::Product& product = c.layout.products[p];
      const double factors = static_cast<double>(c.kernel.products[p].factors.size()),
                   rows = factors * static_cast<double>(c.layout.part);
      if (c.shape.numbers == StationaryNumbers::Real) {
        ns += rows * slots * static_cast<double>(c.layout.terms) / 128;  // bytes of shared memory a cycle
        continue;
      }
      const double times = r.factors == ProductFactors::Tf32x3 ? 5 : 1;
      // A warp's own instructions, of which two warps fill a scheduler, and what does not rest in registers, 128 bytes
      // a cycle.
      const double crowd = c.shape.grouped ? std::max(1.0, c.shape.threads / 256.0) : 1;
      ns += 60 + (product.shares > 1 ? 40 : 0) + product.of_warp * columns * product.steps * 6 * times * crowd +
            product.tiles * product.shares * (product.steps - product.held) * 512 / 128 * (c.shape.grouped ? 0.6 : 1.2);
    }
    // Nests; barriers, which more warps come to later; clusters that share a part of the card.
    ns += 250 + 0.3 * c.shape.threads +
          (!c.shape.grouped && static_cast<double>(clusters) > 0.5 * at_once && c.shape.blocks > 4 ? 100 : 0);
  }
  return ns * std::max(1.0, std::ceil(static_cast<double>(clusters) / at_once));
}

/// Blocks of groups that are worth a look: so that parts are whole rows of eight, and all of a group are resident.
std::vector<int> sizes_of_groups(std::int64_t places, const PersistentRequest& r) {
  std::vector<int> sizes;
  if (!r.groups || r.wish.exchange == PersistentWish::Exchange::Cluster) return sizes;
  if (r.wish.blocks > 0) {
    if (r.wish.blocks > 1 && r.wish.blocks <= r.card.multiprocessors) sizes.push_back(r.wish.blocks);
    return sizes;
  }
  for (const std::int64_t part : {8, 16, 24, 32, 40, 48, 64, 96, 128}) {
    const std::int64_t blocks = (places + part - 1) / part;
    if (blocks > 1 && blocks <= r.card.multiprocessors && (sizes.empty() || sizes.back() != blocks))
      sizes.push_back(static_cast<int>(blocks));
  }
  return sizes;
}

}  // namespace

PersistentChoice choose_persistent(const PersistentRequest& r) {
  PersistentChoice choice;
  if (r.card.major < 9) {
    choice.reason = "blocks of this card cannot tell each other values (clusters, sm_90)";
    return choice;
  }
  std::vector<PersistentKernel> kernels;
  std::set<int> with_states(r.plan.state_kernel.begin(), r.plan.state_kernel.end());
  for (const int k : with_states) {
    auto found = find_persistent(r.plan, k, choice.reason);
    if (!found) return choice;
    kernels.push_back(std::move(*found));
  }
  std::int64_t parts = 1;
  if (r.plan.split_axis != kNoAxis) {
    const Axis& axis = r.plan.cell.graph.axis(r.plan.cell.graph.axis(r.plan.split_axis).extent_of);
    parts = axis.fixed ? *axis.fixed : r.lengths.at(r.plan.cell.graph.axis(r.plan.split_axis).extent_of);
  }
  if (kernels.empty()) {
    choice.reason = "it has no states";
    return choice;
  }
  double best = std::numeric_limits<double>::infinity();
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const auto consider = [&](int blocks, bool grouped) {
    // Clusters that the card has room for at the same time: parts of it have 16 or 18 multiprocessors. Groups lie
    // anywhere, a block a multiprocessor.
    const double at_once = blocks == 1 ? r.card.multiprocessors
                           : grouped   ? r.card.multiprocessors / blocks
                                       : std::max(1.0, std::floor(0.92 * r.card.multiprocessors / blocks));
    for (int slots = std::max(1, r.wish.slots); slots <= 32; slots = slots < 8 ? slots + 1 : slots + 8) {
      const std::int64_t clusters = (r.sequences + slots - 1) / slots * parts;
      for (const int threads : {256, 384, 512}) {
        if (r.wish.threads && r.wish.threads != threads) continue;
        const PersistentShape shape{
            r.lengths, blocks, slots, threads, numbers_of(r.factors, r.dtype), r.dtype == Dtype::F64 ? 8 : 4, grouped};
        std::vector<PersistentCode> code;
        std::int64_t shared = 0;
        for (const PersistentKernel& k : kernels) {
          const int scalars =
              static_cast<int>(scalars_of(r.plan, r.plan.kernels[static_cast<std::size_t>(k.kernel)]).size());
          code.push_back({k, shape, persistent_layout(r.plan, k, shape, scalars), static_cast<int>(parts)});
          shared = std::max(shared, code.back().layout.shared_bytes);
        }
        least = std::min(least, shared);
        if (shared > r.card.shared_per_block - r.card.shared_kept) continue;
        const double ns = step_ns(r, code, clusters, at_once);
        if (ns >= best) continue;
        best = ns;
        choice.code = std::move(code);
      }
      if (r.wish.slots || slots >= r.sequences) break;
    }
  };
  for (int blocks = 1; blocks <= r.most_blocks && r.wish.exchange != PersistentWish::Exchange::Group; blocks *= 2)
    if (r.wish.blocks <= 0 || r.wish.blocks == blocks) consider(blocks, false);
  const Axis& header = r.plan.cell.graph.axis(r.plan.cell.graph.axis(kernels[0].spread).extent_of);
  const std::int64_t places =
      header.fixed ? *header.fixed : r.lengths.at(r.plan.cell.graph.axis(kernels[0].spread).extent_of);
  for (const int blocks : sizes_of_groups(places, r)) consider(blocks, true);
  if (choice.code.empty() && least == std::numeric_limits<std::int64_t>::max()) {
    choice.reason = r.groups ? fmt::format("each block of a group needs one of the card's {} multiprocessors",
                                           r.card.multiprocessors)
                             : "the card does not hold all blocks of such a group at once";
    return choice;
  }
  if (choice.code.empty()) {
    choice.reason = fmt::format("its weights and values take {} KB of a block at least, and a block has {}",
                                least >> 10, r.card.shared_per_block >> 10);
    return choice;
  }
  choice.step_ns = best;
  const PersistentShape& shape = choice.code[0].shape;
  choice.reason = fmt::format("weights rest in {} of {} block{} of {} threads, {} sequence{} side by side",
                              shape.grouped ? "groups" : "clusters", shape.blocks, shape.blocks == 1 ? "" : "s",
                              shape.threads, shape.slots, shape.slots == 1 ? "" : "s");
  return choice;
}

}  // namespace cellc
