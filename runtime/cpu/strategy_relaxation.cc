// Relaxation: waveform relaxation. Every term that mixes the channels of a stage is taken from the last iterate, as one
// matrix product over all steps of a window; what is left is a cell of independent channels, which a solver of its own
// runs exactly; again until nothing moves, and then the next window (relax_stage.h).
//
// Stages with mixing terms have it (LSTM, GRU, Elman, coRNN, mean fields), also dense ones, which lack every other
// strategy; stages without such a term have nothing to relax. It costs a product and a solution an iteration. It saves
// memory traffic: step by step the matrices are read again for every step, and a product over many steps reads them
// once. So it pays where they do not stay in the second-level cache and few iterations suffice. A stage that does not
// contract is not repaired: the sequential kernel runs the cell from the first step on (solve.cc).
#include "runtime/cpu/strategy_relaxation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/cpu/relax_stage.h"

namespace cellc {

namespace {

/// Multiplications of a whole run below which relaxation is not even looked at: a tenth of a second.
constexpr double kSmallMixing = 1e9;
constexpr std::int64_t kShortMixing = 512;  ///< steps
/// That relaxation ever took to a tolerance of use; a look at the data takes as many.
constexpr double kFewestIterations = 4;

std::int64_t second_level_cache_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? bytes : 1 << 20;
}

class RelaxationStrategy final : public CpuStrategy {
 public:
  std::optional<std::string> refusal(StagesOfRun& cell, int k) const override {
    if (cell.relaxation(k)) return std::nullopt;
    return fmt::format("the stage {} has no term that mixes its channels, so there is nothing to relax",
                       cell.states(k));
  }

  StagePlan forced(StagesOfRun& cell, int, const SolveOptions& options) const override {
    return {Strategy::Relaxation, options.fixed_iterations ? 0 : Relaxation::window_steps(cell.run()), 0, "asked for"};
  }

  StageOutcome run(StageToSolve& run) const override {
    StageOutcome outcome =
        run.relaxation->run(run.arrays, run.options, run.tolerance, run.plan.segment, run.relaxation_worth);
    outcome.report.plan = run.plan;
    return outcome;
  }
};

}  // namespace

std::optional<StagePlan> RelaxationChoice::choose(StagesOfRun& cell, double tolerance, std::size_t entry_bytes,
                                                  const std::function<double()>& step_ns,
                                                  const std::function<double()>& look_ns) {
  forget();
  for (int k = 0; k < cell.count(); ++k)
    if ((cell.shape(k).block > kLargestBlock) != (k == 0)) return std::nullopt;
  const StageShape s = cell.shape(0);
  if (s.longest < kShortMixing || static_cast<double>(s.rows * s.block * s.block) < kSmallMixing) return std::nullopt;
  Relaxation* const r = cell.relaxation(0);
  if (!r) return std::nullopt;
  const BoundRun& run = cell.run();
  const double entries = r->product_entries(run);
  if (entries * static_cast<double>(s.rows) < kSmallMixing) return std::nullopt;
  if (entries * static_cast<double>(entry_bytes) <= static_cast<double>(second_level_cache_bytes())) {
    why_not_ = "; step by step their matrices stay in the second-level cache";
    return std::nullopt;
  }
  if (!weighed_ || weighed_->sizes != run.sizes || weighed_->offsets != run.offsets || weighed_->threads != s.threads) {
    MixingCost cost{step_ns(), r->iteration_ns(run)};
    // A look needs code of its own.
    if (iterations_worth(cost) >= kFewestIterations) cost.look = look_ns();
    weighed_ = {run.sizes, run.offsets, s.threads, iterations_worth(cost)};
  }
  const double worth = weighed_->worth;
  if (worth < kFewestIterations) {
    why_not_ = fmt::format("; relaxation would have to end after {:.0f} iterations to be faster", std::max(0.0, worth));
    return std::nullopt;
  }
  const std::optional<int> predicted = r->predict(run, tolerance);
  if (!predicted) {
    why_not_ = "; relaxation does not contract";
    return std::nullopt;
  }
  if (*predicted > worth) {
    why_not_ = fmt::format("; relaxation would take {} iterations, and {:.0f} take as long as running through",
                           *predicted, worth);
    return std::nullopt;
  }
  worth_ = static_cast<int>(std::min(worth, 1e6));
  return StagePlan{Strategy::Relaxation, Relaxation::window_steps(run), 0,
                   fmt::format("{} coupled entries; relaxation is predicted to take {} iterations, and {:.0f} take as "
                               "long as running through",
                               s.block, *predicted, worth)};
}

const CpuStrategy& relaxation_on_cpu() {
  static const RelaxationStrategy strategy;
  return strategy;
}

}  // namespace cellc
