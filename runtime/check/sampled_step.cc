#include "runtime/check/sampled_step.h"

#include <fmt/format.h>

#include <utility>

#include "compiler/graph/delay_lines.h"
#include "runtime/evaluate/reference.h"

namespace cellc {

namespace {

BoundRun with_rows_of_lines(const CellGraph& cell, BoundRun run, const RunOutput& trajectory) {
  for (const DelayLine& line : delay_lines(cell))
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      if (cell.updates[u].symbol == line.state)
        run.symbols[static_cast<std::size_t>(line.symbol)] = trajectory.states[u];
  return run;
}

}  // namespace

SampledStep::SampledStep(CellGraph& cell, const Structure& structure, const BoundRun& run, std::uint64_t seed)
    : SampledStep(cell, structure, run, reference_run(cell, run), seed) {}

/// Points on a trajectory are where the cell lives (a variance there is positive); random ones
/// are where mistakes show that a trajectory hides (a state that stays 0).
SampledStep::SampledStep(CellGraph& cell, const Structure& structure, const BoundRun& given,
                         const RunOutput& trajectory, std::uint64_t seed)
    : cell(cell),
      structure(structure),
      run(with_rows_of_lines(cell, given, trajectory)),
      random(seed, "check"),
      maps(values_of_maps(cell, structure)),
      step(cell, run) {
  const std::int64_t rows = run.offsets.back();
  for (const std::int64_t row : {std::int64_t{1}, std::int64_t{4}, rows - 1}) {
    Point point{{}, row};
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const std::int64_t n = step.entries(static_cast<int>(u));
      Values values;
      for (std::int64_t i = 0; i < n; ++i) values.push_back(trajectory.states[u].get((row - 1) * n + i));
      point.states.push_back(std::move(values));
    }
    points.push_back(std::move(point));
  }
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{2}, std::int64_t{7}})
    points.push_back({random_states(), row});
  for (Point& point : points) differentiate_at(step, point);
}

std::string SampledStep::name(int update) const { return cell.symbol_of(cell.updates[update]).name; }

std::string SampledStep::stage_text(int s) const {
  std::vector<std::string> names;
  for (const int u : structure.stages[s].states) names.push_back(name(u));
  return fmt::format("stage {{{}}}", fmt::join(names, ", "));
}

States SampledStep::random_states() {
  States states;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Symbol& symbol = cell.symbol_of(cell.updates[u]);
    Values values(static_cast<std::size_t>(step.entries(static_cast<int>(u))));
    for (double& v : values)
      v = symbol.range ? random.uniform(symbol.range->low, symbol.range->high) : random.uniform(-1, 1);
    states.push_back(std::move(values));
  }
  return states;
}

}  // namespace cellc
