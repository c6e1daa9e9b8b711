#pragma once
// A strategy on the CPU: when it admits a stage, which parameters it takes, what it costs, and how it solves a stage.
//
// Each strategy is a file, runtime/cpu/strategy_NAME.cc, whose head describes it. It defines NAME_on_cpu(), and a row
// of runtime/strategy/strategies.def adds it to the table that the solver walks (cpu_strategies.cc). Strategies over
// segments share SegmentSweep (segment_sweep.h), its repair (repair_segments.h) and sweeps with transitions
// (transition_sweep.h).
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "runtime/cpu/stage_data.h"
#include "runtime/cpu/stage_kernels.h"
#include "runtime/strategy/choose_strategy.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class Relaxation;

/// Blocks of up to this many coupled entries have transitions that are worth multiplying.
constexpr std::int64_t kLargestBlock = 64;

/// The stages of a cell at the sizes of one run, as strategies ask about them. The solver answers.
class StagesOfRun {
 public:
  virtual ~StagesOfRun() = default;
  virtual int count() const = 0;
  virtual const Stage& stage(int k) const = 0;
  virtual StageShape shape(int k) = 0;
  virtual std::string states(int k) const = 0;  ///< "{h, c}"
  virtual const BoundRun& run() const = 0;
  virtual Relaxation* relaxation(int k) = 0;  ///< null: the stage has nothing to relax
  /// Whether several stages can run as one, where each takes a segment a sequence (joined_stages.h).
  virtual bool joins() { return false; }
};

/// The stage once more, with lanes that make the outs as well: of a run that wants no state. Rows of states are then
/// nowhere, unless a strategy asks for them.
struct StageOuts {
  const LaneKernel& kernel;
  StageData& data;
};

/// One stage of one run, to be solved.
struct StageToSolve {
  RunArrays& arrays;
  std::function<StageData&()> data;  ///< made when it is first asked for
  StageKernels& kernels;
  Relaxation* relaxation;  ///< null: not asked for, or nothing to relax
  const StagePlan& plan;
  const SolveOptions& options;
  double tolerance;              ///< > 0
  std::vector<double> absolute;  ///< by state of the stage: what is tolerated besides, in its own units
  int threads;
  StageOuts* outs = nullptr;  ///< null: rows of states are written
  int relaxation_worth = 0;   ///< iterations after which going step by step is faster; 0: whatever it takes
};

struct StageOutcome {
  StageReport report;
  std::vector<Unconverged> unconverged;
  /// Where no rows were written: by state, [N, a…]. Empty: the strategy has to have rows, and is to be run again.
  std::vector<Array> finals{};
};

class CpuStrategy {
 public:
  virtual ~CpuStrategy() = default;

  /// Why stage `k` does not admit it; nullopt where it does. Here: its block is too large.
  virtual std::optional<std::string> refusal(StagesOfRun& cell, int k) const;

  /// The plan of a stage for which it was requested by name.
  virtual StagePlan forced(StagesOfRun& cell, int k, const SolveOptions& options) const = 0;

  /// What it offers the planner: by the shape alone, and with a look at the data. Nothing: it does not offer itself.
  virtual std::optional<Offer> offer(const Stage& stage, const StageShape& shape) const;
  virtual std::optional<Offer> offer(const StageShape& shape, const Forgetting& seen) const;

  /// Writes the trajectories of the stage.
  virtual StageOutcome run(StageToSolve& run) const = 0;
};

/// Of a strategy that has a row for the CPU.
const CpuStrategy& on_cpu(Strategy strategy);

/// What all strategies offer.
std::vector<Offer> offers(const Stage& stage, const StageShape& shape);
std::vector<Offer> offers(const StageShape& shape, const Forgetting& seen);

}  // namespace cellc
