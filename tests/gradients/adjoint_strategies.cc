#include "tests/gradients/adjoint_strategies.h"

namespace cellc {

std::vector<AskedStrategy> admitted_strategies(Solver& solver, const AdjointRun& adjoint, const BoundRun& run) {
  std::vector<AskedStrategy> all(1);
  all[0].name = "auto";
  for (const StrategyFacts& f : strategies()) {
    if (!f.on_cpu || f.takes != StrategyFacts::Takes::EveryStage) continue;
    SolveOptions forced, planned;
    forced.solver = f.strategy;
    std::size_t admitted = 0;
    for (std::size_t k = 0; k < adjoint.structure().stages.size(); ++k) {
      const bool admits = !solver.refusal(static_cast<int>(k), f.strategy, run);
      admitted += admits;
      planned.plan.push_back(admits ? StagePlan{f.strategy, 5, 2, "test"} : StagePlan{});
    }
    if (admitted == 0) continue;
    if (admitted == planned.plan.size()) all.push_back({std::string(to_string(f.strategy)), forced});
    if (f.strategy != Strategy::Sequential)
      all.push_back({std::string(to_string(f.strategy)) + " every 5 steps", planned});
  }
  return all;
}

}  // namespace cellc
