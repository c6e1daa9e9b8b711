#pragma once
// A cell's step at some points with its derivatives there: what claims are held against.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/check/check_cell.h"
#include "runtime/data/random_fill.h"
#include "runtime/evaluate/check_step.h"

namespace cellc {

/// Collects one claim's comparisons.
class ClaimTally {
 public:
  explicit ClaimTally(std::string what) { item_.what = std::move(what); }
  void compare(double error, double allowed, const std::function<std::string()>& where) {
    ++item_.tried;
    const double ratio = std::isfinite(error) ? error / allowed : INFINITY;
    if (ratio > item_.worst) {
      item_.worst = ratio;
      if (ratio > 1) item_.detail = where();
    }
    if (!(ratio <= 1)) item_.passed = false;
  }
  void skip() { ++item_.skipped; }
  CheckItem finish() { return item_; }

 private:
  CheckItem item_;
};

/// New states as the maps that stages were recognised to be give them (clip, Möbius, semirings), by position in
/// updates: what scans compose, put together to a value of the cell's graph.
std::map<int, NodeId> values_of_maps(CellGraph& cell, const Structure& structure);

struct SampledStep {
  SampledStep(CellGraph& cell, const Structure& structure, const BoundRun& run, std::uint64_t seed);
  /// `trajectory`: what the reference makes of the run.
  SampledStep(CellGraph& cell, const Structure& structure, const BoundRun& run, const RunOutput& trajectory,
              std::uint64_t seed);

  std::string name(int update) const;
  std::string stage_text(int stage) const;
  /// Of the ranges that the cell states, or within (-1, 1).
  States random_states();

  CellGraph& cell;
  const Structure& structure;
  const BoundRun run;  ///< with the rows of delay lines
  RandomStream random;
  const std::map<int, NodeId> maps;  ///< before `step` looks at the graph
  Step step;
  std::vector<Point> points;
};

/// Whether a stage's step is the kind of map that it is said to be: linear, time-invariant, a clip, a Möbius map, of
/// low rank.
void check_forms(SampledStep& sampled, int stage, std::vector<CheckItem>& items);

}  // namespace cellc
