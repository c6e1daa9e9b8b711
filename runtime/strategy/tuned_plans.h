#pragma once
// Plans that were measured. They lie beside the compiled code (object_cache.h); the key is everything that
// the measurement depended on. As there, no state of the directory is an error: an entry that cannot be read
// counts as not measured, one that cannot be written is not kept.
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "runtime/data/bind.h"
#include "runtime/data/object_cache.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

/// What a measured plan holds for: this cell on this processor, in a range of shapes.
struct TunedFor {
  std::string cell;  ///< its graph and structure, as text
  std::string dtype;
  std::string device, processor;
  std::string tolerance;
  std::string range;  ///< "8192 to 16383 lanes of 4096 to 8191 steps; k = 16": see shape_range()
};

/// Shapes that share a plan: lanes (sequences times channels of the widest stage) and steps of the longest
/// sequence within a power of two; axes along which no stage has lanes with their lengths.
std::string shape_range(const CellGraph& cell, const Structure& structure, const BoundRun& run);

TunedFor tuned_for(const CellGraph& cell, const Structure& structure, const Binding& binding, const std::string& device,
                   const std::string& processor, std::optional<double> tolerance);

struct TunedPlan {
  std::vector<StagePlan> stages;  ///< empty: nothing was faster than what the planner chooses
  double ms = 0, planner_ms = 0;  ///< of a call, as measured; the planner's own choice beside it
};

class TunedPlans {
 public:
  explicit TunedPlans(const std::string& directory) : cache_(directory) {}

  /// What was kept; its stages say in their reasons that they were measured. Nothing if what is there is damaged.
  std::optional<TunedPlan> find(const TunedFor& what, std::size_t stages) const;
  /// In place of what was there. False: it is not kept.
  bool keep(const TunedFor& what, const TunedPlan& plan) const;
  /// Where it is kept.
  std::string path_of(const TunedFor& what) const;

 private:
  ObjectCache cache_;
};

}  // namespace cellc
