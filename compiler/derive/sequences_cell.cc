#include "compiler/derive/sequences_cell.h"

#include <algorithm>
#include <string>

#include "compiler/derive/derivations.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/rewriter.h"

namespace cellc {

namespace {

bool sums_up(Op op) { return op == Op::ReduceSum || op == Op::ReduceMax || op == Op::Softmax || op == Op::MaxShare; }

std::vector<NodeId> results_of(const CellGraph& cell) {
  std::vector<NodeId> roots;
  for (const StateUpdate& u : cell.updates) roots.push_back(u.value);
  for (const Out& o : cell.outs) roots.push_back(o.value);
  return roots;
}

/// Whether every value of a step is elementwise, of this step and the one before and of inputs some steps back; but for
/// outs whose sums may be added up in any order.
bool is_elementwise_step(const CellGraph& cell, const std::vector<bool>& any_order) {
  if (cell.updates.empty() || cell.has_lines()) return false;
  Dependence varies(cell.graph, all_but_params(cell));
  const std::vector<NodeId> results = results_of(cell);
  std::vector<NodeId> exact;
  for (std::size_t r = 0; r < results.size(); ++r)
    if (any_order.empty() || r < cell.updates.size() || !any_order.at(r - cell.updates.size()))
      exact.push_back(results[r]);
  for (const NodeId id : reachable(cell.graph, results, DeclaredSlopes::LeftOut))
    if (cell.graph[id].lag_axis != kNoAxis) return false;
  for (const NodeId id : reachable(cell.graph, exact, DeclaredSlopes::LeftOut))
    if (sums_up(cell.graph[id].op) && varies(id)) return false;
  return true;
}

}  // namespace

bool steps_in_registers(const CellGraph& cell) {
  // As many as kernels hold (emit_llvm_kernel.cc), with as many coefficients.
  constexpr std::size_t kMost = 50;
  if (cell.updates.size() > kMost) return false;
  std::vector<NodeId> roots;
  for (const StateUpdate& u : cell.updates) {
    if (!cell.symbol_of(u).axes.empty()) return false;
    roots.push_back(u.value);
  }
  const std::vector<NodeId> all = reachable(cell.graph, roots);
  return std::none_of(all.begin(), all.end(), [&](NodeId id) {
    const Op op = cell.graph[id].op;
    return is_long(op) || op == Op::ReduceSum || op == Op::ReduceMax || op == Op::Softmax;
  });
}

namespace derivation {

std::optional<SequencesCell> sequences_of(const CellGraph& cell, const std::vector<bool>& any_order) {
  if (!is_elementwise_step(cell, any_order)) return std::nullopt;
  SequencesCell result;
  CellGraph& lanes = result.sequences.cell = without_contents(cell);
  result.sequences.role = Role::Sequences;
  std::string name = "lane";
  for (bool taken = true; taken;) {
    taken = false;
    for (AxisId a = 0; a < lanes.graph.axis_count(); ++a) taken |= lanes.graph.axis(a).name == name;
    if (taken) name += "_";
  }
  const AxisId lane = result.lane = lanes.graph.add_header_axis(name, std::nullopt);
  lanes.header.push_back(lane);
  const auto add = [&](Symbol symbol, ArraySource source) {
    symbol.initial = kNoNode;  // whoever runs the cell has starts and defaults
    symbol.lag_of = -1;
    symbol.lag = symbol.max_lag = 0;
    if (symbol.kind != SymbolKind::Param) {
      symbol.axes.push_back(lane);
      symbol.index.push_back(lane);
    }
    lanes.symbols.push_back(std::move(symbol));
    result.sequences.sources.push_back(source);
  };
  const UpdateTable updates(cell);
  for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s) {
    const bool state = cell.symbols[static_cast<std::size_t>(s)].kind == SymbolKind::State;
    add(cell.symbols[static_cast<std::size_t>(s)],
        state ? ArraySource{ArraySource::Kind::Trajectory, updates.of_symbol(s)}
              : ArraySource{ArraySource::Kind::Symbol, s});
  }
  RewriteRules rules;
  rules.slopes = DeclaredSlopes::LeftOut;
  rules.drop_stop_gradient = true;
  rules.replace = [&](NodeId, const Node& node) -> NodeId {
    if (node.op != Op::Read) return kNoNode;
    const Symbol& symbol = cell.symbols[static_cast<std::size_t>(node.symbol)];
    std::vector<Index> index = node.index;
    if (symbol.kind != SymbolKind::Param) index.push_back({lane, 0});
    if (node.lag == 0) return lanes.graph.read(node.symbol, std::move(index), node.span);
    const auto found = std::find_if(result.earlier.begin(), result.earlier.end(), [&](const EarlierInput& e) {
      return e.symbol == node.symbol && e.lag == node.lag;
    });
    const int number = static_cast<int>(found - result.earlier.begin());
    if (found == result.earlier.end()) {
      Symbol earlier = symbol;
      earlier.name += "_" + std::to_string(node.lag) + "_back";
      add(std::move(earlier), {ArraySource::Kind::Lagged, number});
      result.earlier.push_back({node.symbol, node.lag});
    }
    return lanes.graph.read(static_cast<int>(cell.symbols.size()) + number, std::move(index), node.span);
  };
  Rewriter rewritten(cell.graph, lanes.graph, std::move(rules));
  const std::vector<NodeId> values = rewritten(results_of(cell));
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    lanes.updates.push_back({cell.updates[u].symbol, values[u], cell.updates[u].span});
    result.sequences.sinks.push_back({ArraySink::Kind::Trajectory, static_cast<int>(u)});
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o) {
    std::vector<AxisId> index = cell.outs[o].index;
    index.push_back(lane);
    lanes.outs.push_back({cell.outs[o].name, std::move(index), values[cell.updates.size() + o], cell.outs[o].span});
    result.sequences.sinks.push_back({ArraySink::Kind::Out, static_cast<int>(o)});
  }
  return result;
}

}  // namespace derivation

}  // namespace cellc
