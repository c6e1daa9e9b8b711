#include "runtime/cpu/weigh_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/strategy/pass_costs.h"

namespace cellc {

namespace {

/// Leaving the fused kernel must gain more than measurements vary; it starts threads, arrays and passes.
constexpr double kGain = 0.93, kStart = 500, kStartOfStage = 500;
/// A look at the data has to promise more than a choice that needs none, and compiles a kernel.
constexpr double kWorthALook = 0.8;
constexpr std::int64_t kShortestToCut = 512, kFewestRowsToLook = 4096;
/// Steps that a stage hopefully forgets in, before anybody looked.
constexpr double kHope = 32;
/// Runs of several stages of which one leaves a residual.
constexpr double kResiduals = 0.2;

class Weighing {
 public:
  explicit Weighing(const StagesRequest& request) : r_(request), costs_(*request.costs) {}

  StagesPlan plan() {
    StagesPlan plan;
    const StageShape first = r_.cell.shape(0);
    double total = kStart + costs_.after * static_cast<double>(first.rows) / speedup(first, true);
    std::string why;
    bool exact = true;
    for (int k = 0; k < r_.cell.count(); ++k) {
      const Choice best = choice(k);
      // Those before `next` are done.
      if (k >= std::max(0, r_.next)) total += best.ns;
      exact &= best.plan.strategy == Strategy::Segmented && best.plan.segment >= first.longest;
      if (!best.note.empty()) why = best.note;
      plan.stages.push_back(best.plan);
    }
    // Where no boundary leaves a residual, no step is looked at again: that is hoped for, and often so.
    const double look = costs_.check * static_cast<double>(first.rows) / speedup(first, true);
    if (r_.looks_at_all)
      total += look;
    else if (!exact && r_.cell.count() > 1)
      total += kResiduals * look;
    if (r_.next < 0 && costs_.together > 0) {
      // One walk of the lanes, with nothing between stages and nothing to check.
      // A single stage whose steps are looked at is so however its lanes run; stages that are one leave no residual.
      const double together = kStart + kStartOfStage +
                              costs_.together * static_cast<double>(first.rows) / speedup(first, true) +
                              (r_.looks_at_all && r_.cell.count() == 1 ? look : 0);
      if (together <= total) {
        total = together;
        plan.stages.assign(plan.stages.size(),
                           {Strategy::Segmented, std::max<std::int64_t>(1, first.longest), 0,
                            fmt::format("{} lanes side by side, a segment each, {}: {:.3g} ns a row here",
                                        first.sequences * first.channels,
                                        r_.cell.count() > 1 ? "all stages at once" : "outs among them",
                                        together / static_cast<double>(std::max<std::int64_t>(1, first.rows)))});
      }
    }
    const double through = costs_.fused * static_cast<double>(first.rows) / speedup(first, false);
    if (total < kGain * through) return plan;
    plan.fused = true;
    const double rows = static_cast<double>(std::max<std::int64_t>(1, first.rows));
    for (StagePlan& stage : plan.stages) {
      stage = {};
      stage.reason = fmt::format("{}step by step a row takes {:.3g} ns here, lane by lane {:.3g} at least", why,
                                 through / rows, total / rows);
    }
    return plan;
  }

 private:
  struct Choice {
    double ns = std::numeric_limits<double>::infinity();
    StagePlan plan;
    std::string note{};
  };

  /// Threads that a pass keeps busy.
  static double speedup(const StageShape& shape, bool by_lanes) {
    const std::int64_t lanes = shape.sequences * shape.channels;
    const std::int64_t units = by_lanes ? lanes / shape.vector_lanes : std::max(shape.sequences, lanes / 4);
    return static_cast<double>(std::clamp<std::int64_t>(units, 1, std::max(1, shape.threads)));
  }

  Choice choice(int k) const {
    const StageShape shape = r_.cell.shape(k);
    const PassCosts::OfStage& cost = costs_.stages[static_cast<std::size_t>(k)];
    const double rows = static_cast<double>(shape.rows);
    const double threads = static_cast<double>(std::max(1, shape.threads));
    Choice best;
    best.ns = cost.whole * rows / speedup(shape, true);
    best.plan = {Strategy::Segmented, std::max<std::int64_t>(1, shape.longest), 0,
                 fmt::format("{} lanes side by side, a segment each: {:.3g} ns a row here",
                             shape.sequences * shape.channels, best.ns / std::max(1.0, rows))};
    const double pass = cost.cut * rows / threads;
    const auto weigh = [&](const std::vector<Offer>& offers) {
      for (const Offer& offer : offers)
        if (const double ns = cost_of(offer, shape, cost) * rows / threads; ns < best.ns) best = {ns, offer.plan};
    };
    if (shape.longest >= kShortestToCut) {
      weigh(offers(r_.cell.stage(k), shape));
      if (!r_.seen.empty() && r_.seen[static_cast<std::size_t>(k)]) {
        const Forgetting& seen = *r_.seen[static_cast<std::size_t>(k)];
        weigh(r_.cell.count() > 1 ? earlier(offers(shape, seen)) : offers(shape, seen));
        if (seen.slow > 0)
          best.note = fmt::format("{:.0f} % of the lanes remember longer than half a segment of {} steps; ",
                                  100 * seen.slow, segment_length(shape, 2));
      } else if (shape.rows >= kFewestRowsToLook && !feeds_no_state(r_.cell.stage(k)) &&
                 !keeps_every_shift(r_.cell.stage(k))) {
        const double steps = static_cast<double>(segment_length(shape, 2));
        const double hoped = pass * (1 + kHope / steps) + cost.cut * look_rows(shape);
        if (hoped < kWorthALook * best.ns) best = {hoped, {Strategy::Auto, 0, 0, ""}};
      }
    }
    best.ns += kStartOfStage + cost.before * rows / threads;
    return best;
  }

  /// Segments that start so early that they come to the bits, not to the tolerance alone: one residual in one of
  /// several stages, and every step of the run is looked at again.
  static std::vector<Offer> earlier(std::vector<Offer> all) {
    for (Offer& offer : all) {
      StagePlan& plan = offer.plan;
      if (plan.strategy != Strategy::Segmented || plan.burn_in == 0 || plan.segment == 0) continue;
      const std::int64_t burn_in = std::min(plan.segment, plan.burn_in + plan.burn_in / 2 + 16);
      offer.passes *= static_cast<double>(plan.segment + burn_in) / static_cast<double>(plan.segment + plan.burn_in);
      plan.burn_in = burn_in;
    }
    return all;
  }

  /// Rows that probe_stage() goes through, as steps with transitions.
  static double look_rows(const StageShape& shape) { return 16 * (64 + 128 * (1 + static_cast<double>(shape.block))); }

  /// Nanoseconds a row.
  static double cost_of(const Offer& offer, const StageShape& shape, const PassCosts::OfStage& cost) {
    if (offer.plan.strategy == Strategy::Scan) return cost.scan;
    return cost.cut * (offer.passes == 0 ? 1 : offer.passes / lane_pass(shape));
  }

  const StagesRequest& r_;
  const PassCosts& costs_;
};

}  // namespace

StagesPlan plan_from_costs(const StagesRequest& request) { return Weighing(request).plan(); }

}  // namespace cellc
