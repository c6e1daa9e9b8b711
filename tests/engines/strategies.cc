#include "tests/engines/strategies.h"

#include <algorithm>
#include <stdexcept>

#include "compiler/diagnostic.h"
#include "compiler/jacobian.h"
#include "compiler/lower.h"

namespace cellc {
namespace {

CellGraph lowered(const SourceText& source, const File& tree, const Cell& cell) {
  Diagnostics diagnostics;
  std::optional<CellGraph> graph = lower(tree, cell, diagnostics);
  if (!graph || !diagnostics.empty()) throw std::runtime_error(diagnostics.format(source));
  return std::move(*graph);
}

}  // namespace

LoweredCell::LoweredCell(const SourceText& source, const File& tree, const Cell& cell)
    : graph(lowered(source, tree, cell)), structure(analyse(graph, differentiate(graph))), oracle(tree, cell.name) {}

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

std::optional<SolveOptions> forced(Solver& solver, const LoweredCell& cell, Strategy strategy, const BoundRun& run, bool mixed) {
  bool all = true;
  for (int k = 0; k < cell.stages(); ++k) all &= !solver.refusal(k, strategy, run);
  if (!all) return mixed ? planned(solver, cell, strategy, run, 16, 8) : std::nullopt;
  SolveOptions options;
  options.solver = strategy;
  return options;
}

const std::vector<oracle::Example>& examples() {
  static const std::vector<oracle::Example> all = oracle::load_examples(std::string(CELLC_SOURCE_DIR) + "/dsl-examples");
  return all;
}

const oracle::Example& example(const std::string& name) {
  return *std::find_if(examples().begin(), examples().end(), [&](const oracle::Example& e) { return e.name == name; });
}

std::vector<std::string> example_names() {
  std::vector<std::string> names;
  for (const oracle::Example& e : examples()) names.push_back(e.name);
  return names;
}

}  // namespace cellc
