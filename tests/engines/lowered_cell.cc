#include "tests/engines/lowered_cell.h"

#include <set>
#include <stdexcept>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure_rules.h"
#include "compiler/graph/lower.h"
#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/parse.h"

namespace cellc {

CellGraph graph_of(const SourceText& source, const File& tree, const Cell& cell) {
  Diagnostics diagnostics;
  std::optional<CellGraph> graph = lower(tree, cell, diagnostics);
  if (!graph || !diagnostics.empty()) throw std::runtime_error(diagnostics.format(source));
  return std::move(*graph);
}

LoweredCell::LoweredCell(const SourceText& source, const File& tree, const Cell& cell)
    : graph(graph_of(source, tree, cell)), structure(analyse(graph, differentiate(graph))), oracle(tree, cell.name) {}

std::string try_cell(const std::string& text,
                     const std::function<std::string(const SourceText& source, const LoweredCell& cell)>& attempt) {
  const SourceText source("random.cell", text);
  Diagnostics diagnostics;
  const File tree = parse(source, diagnostics);
  if (!diagnostics.empty() || tree.cells.empty()) return "invalid: " + diagnostics.format(source);
  if (!lower(tree, tree.cells[0], diagnostics) || !diagnostics.empty()) return "invalid: " + diagnostics.format(source);
  try {
    return attempt(source, LoweredCell(source, tree, tree.cells[0]));
  } catch (const oracle::OracleError& e) {
    return std::string("oracle: ") + e.what();
  } catch (const std::exception& e) {
    return std::string("exception: ") + e.what();
  }
}

bool has_jumps(const CellGraph& cell) {
  std::set<int> states;
  for (std::size_t i = 0; i < cell.symbols.size(); ++i)
    if (cell.symbols[i].kind == SymbolKind::State) states.insert(static_cast<int>(i));
  for (NodeId id = 0; id < cell.graph.size(); ++id) {
    const Node& n = cell.graph[id];
    if (!is_elementwise(n.op)) continue;
    const Slope slope = op_info(n.op).slope;
    if ((slope == Slope::Step && depends_on(cell.graph, id, states)) ||
        (slope == Slope::Select && depends_on(cell.graph, n.args[0], states)))
      return true;
  }
  return false;
}

}  // namespace cellc
