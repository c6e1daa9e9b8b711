#include "runtime/strategy/tuned_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <sstream>

#include "compiler/inspect.h"
#include "compiler/syntax/version.h"

namespace cellc {

namespace {

/// First word of an entry; raise the number with every change of its lines.
constexpr const char* kHead = "cellc-plan-1";
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;

std::int64_t power_below(std::int64_t n) {
  return n < 1 ? 0 : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n)));
}

std::string range_text(std::int64_t n, const char* what) {
  const std::int64_t low = power_below(n);
  return low <= 1 ? fmt::format("{} {}{}", low, what, low == 1 ? "" : "s")
                  : fmt::format("{} to {} {}s", low, 2 * low - 1, what);
}

ObjectKey key_of(const TunedFor& what) {
  ObjectIdentity identity;
  identity.kind = "plan";
  identity.text = what.cell;
  identity.platform = what.device;
  identity.processor = what.processor;
  identity.features = what.range;
  identity.options = what.dtype + " " + what.tolerance;
  identity.compiler = std::string(kHead) + " " + kVersion;
  return object_key(identity);
}

/// A line for the times, a line a stage.
std::string text_of(const TunedPlan& plan) {
  std::string text = fmt::format("{} {} {} {}\n", kHead, plan.ms, plan.planner_ms, plan.stages.size());
  for (const StagePlan& s : plan.stages) text += fmt::format("{} {} {}\n", to_string(s.strategy), s.segment, s.burn_in);
  return text;
}

std::optional<TunedPlan> read(const std::string& text, std::size_t stages) {
  std::istringstream in(text);
  std::string head;
  std::size_t count = 0;
  TunedPlan plan;
  if (!(in >> head >> plan.ms >> plan.planner_ms >> count) || head != kHead || !(plan.ms > 0) ||
      !(plan.planner_ms > 0) || (count != 0 && count != stages))
    return std::nullopt;
  for (std::size_t k = 0; k < count; ++k) {
    std::string name;
    StagePlan s;
    if (!(in >> name >> s.segment >> s.burn_in)) return std::nullopt;
    const auto strategy = strategy_named(name);
    if (!strategy || *strategy == Strategy::Auto) return std::nullopt;
    if (s.segment < 0 || s.segment > kMostSteps || s.burn_in < 0 || s.burn_in > kMostSteps) return std::nullopt;
    s.strategy = *strategy;
    s.reason =
        fmt::format("measured by cellc tune: {:.4g} ms, the planner's own choice {:.4g} ms", plan.ms, plan.planner_ms);
    plan.stages.push_back(std::move(s));
  }
  return plan;
}

}  // namespace

std::string shape_range(const CellGraph& cell, const Structure& structure, const BoundRun& run) {
  const std::int64_t sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
  std::int64_t longest = 0, lanes = 1;
  for (std::int64_t s = 0; s < sequences; ++s) longest = std::max(longest, run.offsets[s + 1] - run.offsets[s]);
  std::set<AxisId> along;
  for (const Stage& stage : structure.stages) {
    std::int64_t channels = 1;
    for (const AxisId a : stage.channel_axes) {
      const AxisId header = cell.graph.axis(a).extent_of;
      channels *= run.sizes.at(header);
      along.insert(header);
    }
    lanes = std::max(lanes, channels);
  }
  std::string text = fmt::format("{} of {}", range_text(sequences * lanes, "lane"), range_text(longest, "step"));
  const char* between = "; ";
  for (const AxisId a : cell.header) {
    if (along.count(a)) continue;
    text += fmt::format("{}{} = {}", between, cell.graph.axis(a).name, run.sizes.at(a));
    between = ", ";
  }
  return text;
}

TunedFor tuned_for(const CellGraph& cell, const Structure& structure, const Binding& binding, const std::string& device,
                   const std::string& processor, std::optional<double> tolerance) {
  return {print_graph(cell) + print_structure(cell, structure),
          to_string(binding.dtype),
          device,
          processor,
          fmt::format("{}", tolerance.value_or(default_tolerance(binding.dtype))),
          shape_range(cell, structure, binding.run)};
}

std::optional<TunedPlan> TunedPlans::find(const TunedFor& what, std::size_t stages) const {
  const auto entry = cache_.find(key_of(what));
  return entry ? read({entry->data(), entry->size()}, stages) : std::nullopt;
}

bool TunedPlans::keep(const TunedFor& what, const TunedPlan& plan) const {
  return cache_.store(key_of(what), text_of(plan));
}

std::string TunedPlans::path_of(const TunedFor& what) const { return cache_.path_of(key_of(what)); }

}  // namespace cellc
