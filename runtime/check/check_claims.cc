#include "runtime/check/check_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "runtime/check/sampled_step.h"

namespace cellc {
namespace {

/// A block with all its entries: 0 off an identity also where the slope on it is infinite or no number, as
/// that of sqrt(h) at 0 is, since a product with the identity would be no number there.
NodeId entries_of(CellGraph& cell, const JacobianBlock& block) {
  Graph& g = cell.graph;
  NodeId total = g.constant(0);
  for (const JacobianTerm& term : block.terms) {
    NodeId value = term.coefficient;
    for (const auto& [place, axis] : term.identities)
      value = g.op(Op::Where, {g.eye({axis, 0}, {block.column_axes[place], 0}), value, g.constant(0)});
    total = g.op(Op::Add, {total, value});
  }
  return total;
}

class ClaimChecker {
 public:
  ClaimChecker(CellGraph& cell, const Jacobian& jacobian, const Structure& structure, const BoundRun& run,
               std::uint64_t seed, std::vector<CheckItem>& items)
      : cell_(cell), jacobian_(jacobian), structure_(structure), items_(items) {
    // Blocks become nodes before the evaluator looks at the graph.
    for (const JacobianBlock& block : jacobian.blocks) block_nodes_.push_back(entries_of(cell, block));
    sampled_.emplace(cell, structure, run, seed);
  }

  void run() {
    check_blocks();
    for (std::size_t s = 0; s < structure_.stages.size(); ++s) check_stage(static_cast<int>(s));
  }

 private:
  /// Every block against finite differences; a block that was left out is claimed to be zero.
  void check_blocks() {
    ClaimTally zeros("blocks proved zero are zero");
    bool any_zero = false;
    for (int r = 0; r < static_cast<int>(cell_.updates.size()); ++r)
      for (int c = 0; c < static_cast<int>(cell_.updates.size()); ++c) {
        const JacobianBlock* block = jacobian_.find(r, c);
        if (!block) {
          any_zero = true;
          for (const Point& point : sampled_->points)
            expect_zero(zeros, point, r, c, [](std::int64_t, std::int64_t) { return true; });
          continue;
        }
        // Companions are copies of what stands before them; one line each would bury the rest.
        ClaimTally tally(fmt::format("d {}'/d {}", sampled_->name(r), sampled_->name(c)));
        const NodeId node = block_nodes_[static_cast<std::size_t>(block - jacobian_.blocks.data())];
        std::vector<AxisId> axes = cell_.symbol_of(cell_.updates[r]).index;
        axes.insert(axes.end(), block->column_axes.begin(), block->column_axes.end());
        for (const Point& point : sampled_->points) {
          sampled_->step.at(point.row);
          const Tensor claimed = sampled_->step.value(node, axes, point.states);
          const Values& found = point.slopes[r][c];
          const std::int64_t columns = sampled_->step.entries(c);
          for (std::size_t i = 0; i < found.size(); ++i) {
            if (std::isnan(found[i])) {
              tally.skip();
              continue;
            }
            tally.compare(
                std::abs(claimed.data[i] - found[i]), 1e-6 * (1 + std::abs(found[i])) + point.rounding[r][c][i], [&] {
                  const auto flat = static_cast<std::int64_t>(i);
                  return fmt::format("d {}/d {} is {:.9g} by formula, {:.9g} by differences",
                                     sampled_->step.entry_text(r, flat / columns, true),
                                     sampled_->step.entry_text(c, flat % columns, false), claimed.data[i], found[i]);
                });
          }
        }
        items_.push_back(tally.finish());
      }
    if (any_zero) items_.push_back(zeros.finish());
  }

  /// The entries of a block that `claimed` selects (by row and column entry) must be zero.
  template <class Claimed>
  void expect_zero(ClaimTally& tally, const Point& point, int r, int c, Claimed claimed) {
    const Values& found = point.slopes[r][c];
    const std::int64_t columns = sampled_->step.entries(c);
    for (std::size_t k = 0; k < found.size(); ++k) {
      const std::int64_t i = static_cast<std::int64_t>(k) / columns, j = static_cast<std::int64_t>(k) % columns;
      if (!claimed(i, j)) continue;
      if (std::isnan(found[k])) {
        tally.skip();
        continue;
      }
      tally.compare(std::abs(found[k]), 1e-8, [&] {
        return fmt::format("d {}/d {} is {:.3g}, claimed zero", sampled_->step.entry_text(r, i, true),
                           sampled_->step.entry_text(c, j, false), found[k]);
      });
    }
  }

  /// Places of two states with one index variable: in P[d,d] the two d are apart, and only one may be a lane.
  std::vector<std::pair<std::size_t, std::size_t>> shared_places(int r, int c, const std::vector<AxisId>* only) const {
    const auto& rows = cell_.symbol_of(cell_.updates[r]).index;
    const auto& columns = cell_.symbol_of(cell_.updates[c]).index;
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (only && std::find(only->begin(), only->end(), rows[i]) == only->end()) continue;
      const auto j = std::find(columns.begin(), columns.end(), rows[i]);
      if (j != columns.end()) pairs.emplace_back(i, j - columns.begin());
    }
    return pairs;
  }

  void check_stage(int s) {
    const Stage& stage = structure_.stages[s];
    check_order(s);
    check_mask(s, stage);
    check_lanes(s, stage);
    check_forms(*sampled_, s, items_);
  }

  void check_order(int s) {
    if (structure_.stages.size() == 1 || s + 1 == static_cast<int>(structure_.stages.size())) return;
    ClaimTally tally(sampled_->stage_text(s) + " reads no later stage");
    for (const int r : structure_.stages[s].states)
      for (std::size_t c = 0; c < cell_.updates.size(); ++c)
        if (structure_.stage_of[c] > s)
          for (const Point& point : sampled_->points)
            expect_zero(tally, point, r, static_cast<int>(c), [](std::int64_t, std::int64_t) { return true; });
    items_.push_back(tally.finish());
  }

  void check_mask(int s, const Stage& stage) {
    if (stage.mask.size() != stage.states.size()) return;
    ClaimTally tally(
        fmt::format("{} has the mask [{}]", sampled_->stage_text(s), fmt::join(mask_text(stage.mask), "; ")));
    bool any = false;
    for (std::size_t a = 0; a < stage.states.size(); ++a)
      for (std::size_t b = 0; b < stage.states.size(); ++b) {
        const Coupling coupling = stage.mask[a][b];
        if (coupling == Coupling::Full) continue;
        const int r = stage.states[a], c = stage.states[b];
        const auto pairs = shared_places(r, c, nullptr);
        for (const Point& point : sampled_->points)
          expect_zero(tally, point, r, c, [&](std::int64_t i, std::int64_t j) {
            if (coupling == Coupling::None) return any = true;
            return any |= differ(r, i, c, j, pairs), differ(r, i, c, j, pairs);
          });
      }
    if (any) items_.push_back(tally.finish());
  }

  bool differ(int r, std::int64_t i, int c, std::int64_t j,
              const std::vector<std::pair<std::size_t, std::size_t>>& pairs) const {
    const auto at = sampled_->step.position(r, i), from = sampled_->step.position(c, j);
    return std::any_of(pairs.begin(), pairs.end(), [&](const auto& p) { return at[p.first] != from[p.second]; });
  }

  void check_lanes(int s, const Stage& stage) {
    if (stage.channel_axes.empty()) return;
    std::vector<std::string> names;
    for (const AxisId a : stage.channel_axes) names.push_back(cell_.graph.axis(cell_.graph.axis(a).extent_of).name);
    ClaimTally tally(fmt::format("{} moves nothing along {}", sampled_->stage_text(s), fmt::join(names, ", ")));
    bool any = false;
    for (const int r : stage.states)
      for (const int c : stage.states) {
        const auto pairs = shared_places(r, c, &stage.channel_axes);
        for (const Point& point : sampled_->points)
          expect_zero(tally, point, r, c, [&](std::int64_t i, std::int64_t j) {
            const bool apart = differ(r, i, c, j, pairs);
            any |= apart;
            return apart;
          });
      }
    if (any) items_.push_back(tally.finish());
  }

  CellGraph& cell_;
  const Jacobian& jacobian_;
  const Structure& structure_;
  std::vector<CheckItem>& items_;
  std::vector<NodeId> block_nodes_;
  std::optional<SampledStep> sampled_;
};

}  // namespace

void check_claims(CellGraph& cell, const Jacobian& jacobian, const Structure& structure, const Binding& binding,
                  std::uint64_t seed, std::vector<CheckItem>& items) {
  ClaimChecker(cell, jacobian, structure, binding.run, seed, items).run();
}

}  // namespace cellc
