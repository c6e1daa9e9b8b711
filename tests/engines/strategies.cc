#include "tests/engines/strategies.h"

namespace cellc {

std::optional<SolveOptions> planned(Solver& solver, const LoweredCell& cell, Strategy strategy, const BoundRun& run,
                                    std::int64_t segment, std::int64_t burn_in) {
  SolveOptions options;
  bool any = false;
  for (int k = 0; k < cell.stages(); ++k) {
    const bool admitted = !solver.refusal(k, strategy, run);
    any |= admitted;
    options.plan.push_back(admitted ? StagePlan{strategy, segment, burn_in, "test"} : StagePlan{});
  }
  if (!any) return std::nullopt;
  return options;
}

std::optional<SolveOptions> forced(Solver& solver, const LoweredCell& cell, Strategy strategy, const BoundRun& run,
                                   bool mixed) {
  bool all = true;
  for (int k = 0; k < cell.stages(); ++k) all &= !solver.refusal(k, strategy, run);
  if (!all) return mixed ? planned(solver, cell, strategy, run, 16, 8) : std::nullopt;
  SolveOptions options;
  options.solver = strategy;
  return options;
}

BoundRun filled_run(const LoweredCell& cell, std::int64_t steps, std::int64_t length, Dtype dtype) {
  const Graph& graph = cell.graph.graph;
  BoundRun run;
  run.offsets = {0, steps};
  for (const AxisId a : cell.graph.header) run.sizes[a] = graph.axis(a).fixed.value_or(length);
  oracle::Random random(3);
  for (const Symbol& symbol : cell.graph.symbols) {
    std::vector<std::int64_t> dims;
    if (symbol.kind != SymbolKind::Param) dims.push_back(symbol.kind == SymbolKind::Input ? steps : 1);
    for (const AxisId a : symbol.axes) dims.push_back(run.sizes.at(graph.axis(a).extent_of));
    Array array(dtype, dims);
    for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, random.uniform(-1, 1));
    run.symbols.push_back(array);
  }
  return run;
}

}  // namespace cellc
