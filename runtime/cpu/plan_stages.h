#pragma once
// Decides how a run goes on CPUs, and gives that as a value: whether the stages leave the fused kernel, each one's
// strategy with its parameters, and why. It compiles nothing and reads no data: what a look at the data showed is part
// of the request, and who learns more asks again. Runs, prepared calls, `bench` and `tune` take their decisions here.
//
// The counterpart of plan_execution (runtime/cuda/launch/plan_execution.h). Solver runs what is said here.
#include <optional>
#include <string>
#include <vector>

#include "runtime/cpu/cpu_strategy.h"

namespace cellc {

struct PassCosts;

struct StagesRequest {
  StagesOfRun& cell;
  const SolveOptions& solve;
  double tolerance;  ///< 0: the bits of the sequential kernel
  /// By stage: how its lanes forget, where that was looked at. Empty: nothing was.
  std::vector<std::optional<Forgetting>> seen{};
  /// The stage that is about to run; those before it have run as planned. -1: none has.
  int next = -1;
  std::optional<StagePlan> relaxed_first{};  ///< of stage 0, where relaxation was found to be faster
  std::string why_not_relaxed{};             ///< the end of a reason; empty: it was not considered
  bool looks_at_all = false;                 ///< runs in lanes look at every whole step afterwards
  const PassCosts* costs = nullptr;          ///< what passes cost on this machine, where that was measured
};

struct StagesPlan {
  bool fused = false;             ///< the sequential kernel of the whole cell runs, in one pass
  std::vector<StagePlan> stages;  ///< by stage; Auto: a look at the data decides, when its turn comes
};

/// Throws SolverError where a requested or pinned strategy is refused, with the reason.
StagesPlan plan_stages(const StagesRequest& request);

/// Why a stage cannot be run by the strategy on a CPU, where it is requested for all: one stage has to admit a strategy
/// that takes some, each one that takes all. nullopt: it can.
std::optional<std::string> refusal_on_cpu(StagesOfRun& cell, int stage, Strategy strategy);

/// Steps of the segments that a look at the data tries.
std::int64_t probed_segment(const StageShape& shape);

}  // namespace cellc
