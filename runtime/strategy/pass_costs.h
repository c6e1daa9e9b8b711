#pragma once
// What passes over a run of a cell cost on this machine, and where that is kept: measured once for a cell, a processor
// and the lengths of its axes (runtime/cpu/measure_passes.h), as an entry of the cache. So a choice that was made from
// it is made again by every later process, as long as the entry is there.
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/object_cache.h"

namespace cellc {

/// Nanoseconds a row of the run, by one thread.
struct PassCosts {
  struct OfStage {
    double before = 0;  ///< what the stage reads of other channels and steps, for all steps before it
    double whole = 0;   ///< lane by lane, a segment a sequence
    double cut = 0;     ///< lane by lane, in segments that fill the vectors
    double scan = 0;    ///< by a scan; 0: none solves the stage
  };
  double fused = 0;  ///< the sequential kernel of the whole cell
  std::vector<OfStage> stages;
  double after = 0;  ///< the outs, after the last stage
  double check = 0;  ///< looking at every whole step again, where one of several stages left a residual
  double together =
      0;  ///< all stages as one, lane by lane, a segment a sequence; of a single one with its outs; 0: they cannot be
};

/// What the costs hold for.
struct CostsFor {
  std::string cell;  ///< its graph and structure, as text
  std::string dtype;
  std::string processor;
  std::string shape;  ///< lengths of axes, and how many lanes there are
};

class KeptCosts {
 public:
  explicit KeptCosts(const std::string& directory) : cache_(directory) {}

  /// Nothing if none were kept, or what is there is damaged.
  std::optional<PassCosts> find(const CostsFor& what, std::size_t stages) const;
  /// False: they are not kept.
  bool keep(const CostsFor& what, const PassCosts& costs) const;

 private:
  ObjectCache cache_;
};

}  // namespace cellc
