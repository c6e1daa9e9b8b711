#pragma once
// Whether the planner relaxes the first stage of a cell (strategy_relaxation.cc has the strategy).
#include <functional>
#include <map>

#include "runtime/cpu/cpu_strategy.h"

namespace cellc {

/// Weighs what mixing costs step by step against what relaxation is predicted to take, the sequential kernel's look at
/// all steps among it. All are measured, once a shape: processors differ here by a factor of four, and runs that are
/// alike choose alike.
class RelaxationChoice {
 public:
  /// A plan for stage 0, where that is dense, its matrices do not stay in cache, and a look at the first steps shows
  /// that relaxation contracts fast enough; the stages behind it must not be dense. `step_ns`: what the fused kernel
  /// takes a row. `look_ns`: what its look at a row takes; asked for where relaxation would be faster without.
  std::optional<StagePlan> choose(StagesOfRun& cell, double tolerance, std::size_t entry_bytes,
                                  const std::function<double()>& step_ns, const std::function<double()>& look_ns);

  /// Iterations after which a run that was chosen to be relaxed is no longer worth it; 0: none was chosen.
  int worth() const { return worth_; }

  /// Why there is none, as the end of a reason; empty: it was not considered.
  const std::string& why_not() const { return why_not_; }
  void forget() { why_not_.clear(), worth_ = 0; }

 private:
  struct Weighed {
    std::map<AxisId, std::int64_t> sizes;
    std::vector<std::int64_t> offsets;
    int threads = 0;
    double worth = 0;  ///< iterations
  };
  std::optional<Weighed> weighed_;  ///< of the last shape that was asked for
  std::string why_not_;
  int worth_ = 0;
};

}  // namespace cellc
