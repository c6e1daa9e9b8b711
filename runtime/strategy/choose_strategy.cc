#include "runtime/strategy/choose_strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels-templates/abi/side_by_side.h"

namespace cellc {

namespace {

/// Steps below which cutting a sequence gains less than it costs, and rows below which all are done before
/// lanes are cut and threads woken (0.2 to 0.5 ms).
constexpr std::int64_t kShortest = 512, kFewestRows = 8192;
constexpr std::int64_t kShortestSegment = 64;
/// Channels that fill tiles of lanes as they lie in memory, so that nothing is gathered.
bool whole_tiles(const StageShape& shape) { return shape.mixed == 1 && shape.channels % (4 * shape.vector_lanes) == 0; }

/// What a look at the data costs in passes lane by lane (probe_stage.cc).
double look(const StageShape& shape) {
  return 16 * (64 + 128 * (1 + static_cast<double>(shape.block))) /
         static_cast<double>(std::max<std::int64_t>(1, shape.rows));
}

/// The code of a look is as long as its transitions; one of a few hundred values takes no longer than any kernel.
/// Coupled scalars whose step takes 0.05 s for the whole run had seconds of compiling before it. Nanoseconds, of which
/// a step of the run takes a few for each entry.
bool look_outweighs_run(const StageShape& shape) {
  constexpr double kCompileValue = 100e3, kStepOfEntry = 4;
  constexpr std::int64_t kAnyKernel = 500;
  const double compiling =
      kCompileValue * static_cast<double>(std::max<std::int64_t>(0, shape.look_values - kAnyKernel));
  return compiling > kStepOfEntry * static_cast<double>(shape.rows) * static_cast<double>(shape.channels * shape.block);
}

/// Sweeps of the vector units that one sequential pass over the run costs: lanes that are missing
/// leave them idle.
double sequential_cost(const StageShape& shape) {
  // A chain of a few operations from register to register, for one sequence after the other.
  if (shape.in_registers)
    return 0.5 * shape.vector_lanes * shape.threads /
           static_cast<double>(std::clamp<std::int64_t>(shape.sequences, 1, std::max(1, shape.threads)));
  const double lanes = static_cast<double>(std::max<std::int64_t>(1, shape.sequences * shape.channels * shape.mixed));
  const double whole = std::ceil(lanes / shape.vector_lanes) * shape.vector_lanes;
  const double padding = whole / lanes;
  return std::max(padding, static_cast<double>(lanes_wanted(shape)) / lanes);
}

/// Null: there is none. Of equal ones the first.
const Offer* cheapest(const std::vector<Offer>& offers) {
  const auto best = std::min_element(offers.begin(), offers.end(),
                                     [](const Offer& a, const Offer& b) { return a.passes < b.passes; });
  return best == offers.end() ? nullptr : &*best;
}

}  // namespace

std::string name_of_stage(const CellGraph& cell, const std::vector<int>& updates) {
  std::string names;
  for (const int u : updates)
    if (const Symbol& s = cell.symbol_of(cell.updates[u]); s.lag_of < 0) names += (names.empty() ? "" : ", ") + s.name;
  return "{" + names + "}";
}

std::int64_t lanes_wanted(const StageShape& shape) {
  // Four vectors hide the latency of one step's chain of operations.
  return static_cast<std::int64_t>(shape.threads) * 4 * shape.vector_lanes;
}

double iterations_worth(const MixingCost& cost) {
  if (!(cost.iteration > 0)) return 0;
  // The check of every step is one product more.
  return (cost.step - cost.look) / cost.iteration - 1;
}

std::optional<std::string> no_scan(const Stage& stage, const std::string& states) {
  if (stage.linear || stage.scannable != Scannable::No) return std::nullopt;
  return fmt::format(
      "the stage {} is neither linear nor a clip or Möbius map of its state, nor linear over (max, +), (min, +) or "
      "(logsumexp, +), so no scan solves it",
      states);
}

bool keeps_every_shift(const Stage& stage) { return stage.semiring && stage.semiring->offsets.empty(); }

bool feeds_no_state(const Stage& stage) { return stage.linear && stage.norm_bound && *stage.norm_bound == 0; }

// Lanes are gathered and spread again, and a lane that mixes entries goes through its products one entry at a time
// (measured with one thread, 60,000 steps: docs/notes/strategies.md).
double lane_pass(const StageShape& shape) { return shape.mixed > 1 ? 16 : whole_tiles(shape) ? 1 : 2.5; }

std::int64_t segment_length(const StageShape& shape, std::int64_t tiles_per_thread) {
  // The longer, the less a run-up costs.
  const std::int64_t wanted =
      std::max<std::int64_t>(1, tiles_per_thread * lanes_wanted(shape) / std::max<std::int64_t>(1, shape.channels));
  const std::int64_t steps = (shape.rows + wanted - 1) / std::max<std::int64_t>(1, wanted);
  return std::clamp<std::int64_t>(steps, kShortestSegment, std::max<std::int64_t>(kShortestSegment, shape.longest));
}

std::int64_t requested_segment(const StageShape& shape) {
  return std::min<std::int64_t>(segment_length(shape, 1), 4096);
}

std::int64_t requested_burn_in(const Stage& stage) { return feeds_no_state(stage) ? 1 : 64; }

std::string idle_lanes(const StageShape& shape) {
  const std::int64_t lanes = shape.sequences * shape.channels;
  return fmt::format("{} lane{} vectors idle", lanes, lanes == 1 ? " leaves" : "s leave");
}

std::optional<StagePlan> plan_from_shape(const StageShape& shape, const std::vector<Offer>& offers) {
  StagePlan plan;
  const std::int64_t lanes = shape.sequences * shape.channels;
  if (shape.longest < kShortest || shape.rows < kFewestRows) {
    plan.reason =
        fmt::format("{} steps are too few to be worth cutting", shape.longest < kShortest ? shape.longest : shape.rows);
    return plan;
  }
  const double sequential = sequential_cost(shape), pass = lane_pass(shape);
  if (sequential <= std::max(1.5, pass)) {
    if (shape.mixed > 1)
      plan.reason = fmt::format("{} lane{} of {} entries that mix: step by step they lie side by side in vectors",
                                lanes, lanes == 1 ? "" : "s", shape.mixed);
    else
      plan.reason =
          fmt::format("{} lanes {} the vectors of {} thread{}", lanes, sequential < 1.5 ? "fill" : "are enough for",
                      shape.threads, shape.threads == 1 ? "" : "s");
    return plan;
  }
  if (const Offer* best = cheapest(offers); best && best->passes < sequential) return best->plan;
  if (const double least = pass * (1 + look(shape)); least >= sequential) {
    plan.reason =
        fmt::format("cutting, and a look at the data before, would cost {:.1f} passes at least, running through {:.1f}",
                    least, sequential);
    return plan;
  }
  if (look_outweighs_run(shape)) {
    plan.reason = fmt::format("a look at the data would compile {} values of transitions, longer than {} steps take",
                              shape.look_values, shape.rows);
    return plan;
  }
  return std::nullopt;
}

std::optional<std::string> stays_in_registers(const std::vector<StageShape>& shapes) {
  // In passes of full vectors over an entry. Eight biquads of one sequence, f32 (docs/notes/strategies.md): 7 ns a step
  // where one alone takes 3.7, since stages of one step run beside others of the step before; 36 by a scan of each.
  constexpr double kBesideOthers = 1, kOutside = 6;
  if (shapes.size() < 2) return std::nullopt;
  double through = 0, beside = 0, cut = 0;
  for (const StageShape& s : shapes) {
    if (!s.in_registers) return std::nullopt;
    const double entries = static_cast<double>(s.block);
    through = std::max(through, sequential_cost(s) * entries);
    beside += kBesideOthers * entries;
    cut += (1.5 * lane_pass(s) + kOutside) * entries;
  }
  if (cut < through + beside) return std::nullopt;
  return fmt::format("{} stages whose states stay in registers: a step takes {:.0f} passes over an entry, cut {:.0f}",
                     shapes.size(), through + beside, cut);
}

std::optional<StagePlan> plan_of_narrow_stage(const StageShape& shape) {
  if (!cellc_lie_side_by_side(shape.channels * shape.block, shape.channels * shape.mixed, shape.in_registers,
                              shape.vector_lanes, shape.sequences, shape.rows))
    return std::nullopt;
  return StagePlan{Strategy::Segmented, shape.longest, 0,
                   fmt::format("{} narrow lanes side by side, a segment each", shape.sequences * shape.channels)};
}

std::optional<std::string> keeps_fused(const std::vector<StagePlan>& plans, const std::vector<StageShape>& shapes) {
  // In passes of full vectors over one entry. An mLSTM of 64 by 64, 512 steps: 0.6 ns an entry and step
  // fused, 19 with its stabiliser scanned; the rest of that is what an entry of any stage pays.
  constexpr double kOutside = 12;
  double saved = 0, lost = 0, behind = 0;
  for (std::size_t k = 0; k < plans.size(); ++k) {
    const StageShape& s = shapes[k];
    const double entries = static_cast<double>(s.sequences * s.channels * s.block);
    if (plans[k].strategy == Strategy::Sequential) {
      lost += kOutside * entries;
      behind += entries;
      continue;
    }
    const double passes =
        lane_pass(s) * (plans[k].strategy == Strategy::Scan ? 2.0 + static_cast<double>(s.block) : 1.5);
    saved += std::max(0.0, sequential_cost(s) - passes) * entries;
  }
  if (saved >= lost) return std::nullopt;
  return fmt::format(
      "cutting it would take {:.0f} entries of other stages out of the fused kernel: {:.0f} passes over an entry lost, "
      "{:.0f} saved",
      behind, lost, saved);
}

StagePlan plan_from_data(const StageShape& shape, const Forgetting& seen, const std::vector<Offer>& offers) {
  const double sequential = sequential_cost(shape);
  const Offer* const best = cheapest(offers);
  if (best && best->passes < sequential) return best->plan;
  const std::string remember = fmt::format(
      "{} remember longer than half a segment of {} steps",
      seen.slow >= 1 ? "all lanes" : fmt::format("{:.0f} % of the lanes", 100 * seen.slow), segment_length(shape, 2));
  if (whole_tiles(shape))
    return {Strategy::Segmented, shape.longest, 0, remember + ": one segment a lane, which stays in registers"};
  StagePlan plan;
  plan.reason = fmt::format("{}: cutting would cost {:.1f} passes, running through {:.1f}", remember,
                            best ? best->passes : 0, sequential);
  return plan;
}

}  // namespace cellc
