#include "tests/gpu/cells_on_device.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <stdexcept>

#include "compiler/diagnostic.h"
#include "compiler/jacobian.h"
#include "compiler/lower.h"
#include "compiler/structure_rules.h"

namespace cellc {

using oracle::Example;

const std::vector<Example>& all_examples() {
  static const std::vector<Example> all = oracle::load_all_cells(CELLC_SOURCE_DIR);
  return all;
}

const Example& example_named(const std::string& name) {
  const auto found = std::find_if(all_examples().begin(), all_examples().end(),
                                  [&](const Example& e) { return e.name == name; });
  if (found == all_examples().end()) throw std::runtime_error("no example " + name);
  return *found;
}

std::vector<std::string> example_names() {
  std::vector<std::string> result;
  for (const Example& e : all_examples()) result.push_back(e.name);
  return result;
}

TestDevice open_test_device() {
  TestDevice device;
  if (const char* asked = std::getenv("CELLC_TEST_DEVICE"); asked && std::string(asked) == "gpu") {
    std::string reason;
    device.gpu = open_gpu("", reason);
    if (!device.gpu) throw std::runtime_error(reason);
    return device;
  }
  EmulatorOptions quick;  // what runs here is short: compiling is what takes time
  quick.optimisation = 0;
  auto emulator = open_emulator(quick);
  device.emulator = emulator.get();
  device.gpu = std::move(emulator);
  return device;
}

namespace {

CellGraph lowered(const Example& file, const Cell& tree) {
  Diagnostics diagnostics;
  std::optional<CellGraph> graph = lower(file.tree, tree, diagnostics);
  if (!graph) throw std::runtime_error(diagnostics.format(file.source));
  return std::move(*graph);
}

}  // namespace

LoweredCell::LoweredCell(const Example& file, const Cell& tree)
    : graph(lowered(file, tree)),
      structure(analyse(graph, differentiate(graph))),
      oracle(file.tree, tree.name) {}

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
