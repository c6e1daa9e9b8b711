#include "compiler/derive/block_cell.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/derive/derivations.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/delay_lines.h"
#include "compiler/graph/rewriter.h"

namespace cellc::derivation {

BlockCell block_of(const CellGraph& cell) {
  BlockCell result;
  result.steps = independent_steps(cell);
  CellGraph& block = result.block.cell = without_contents(cell);
  result.block.role = Role::Block;
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    if (cell.symbols[s].line_of >= 0) continue;  // the last ones
    block.symbols.push_back(cell.symbols[s]);
    const bool state = cell.symbols[s].kind == SymbolKind::State;
    const auto update = std::find_if(cell.updates.begin(), cell.updates.end(),
                                     [&](const StateUpdate& u) { return u.symbol == static_cast<int>(s); });
    result.block.sources.push_back(
        state ? ArraySource{ArraySource::Kind::Trajectory, static_cast<int>(update - cell.updates.begin())}
              : ArraySource{ArraySource::Kind::Symbol, static_cast<int>(s)});
    Symbol& own = block.symbols.back();
    if (state)  // histories are those of copies that lag
      own.max_lag = static_cast<int>(std::count_if(cell.symbols.begin(), cell.symbols.end(),
                                                   [&](const Symbol& c) { return c.lag_of == static_cast<int>(s); }));
  }
  RewriteRules rules;
  rules.replace = [&](NodeId, const Node& node) {
    if (node.op != Op::Read || cell.symbols[static_cast<std::size_t>(node.symbol)].line_of < 0) return kNoNode;
    const auto found = std::find_if(result.taps.begin(), result.taps.end(),
                                    [&](const LineTap& t) { return t.line == node.symbol && t.lag == node.lag; });
    const int number = static_cast<int>(found - result.taps.begin());
    const int first = static_cast<int>(block.symbols.size() - result.taps.size());
    if (found == result.taps.end()) {
      Symbol tap = cell.symbols[static_cast<std::size_t>(node.symbol)];
      tap.name = fmt::format("lag({}, {})", cell.symbols[static_cast<std::size_t>(tap.line_of)].name, node.lag - 1);
      tap.line_of = -1;
      tap.max_lag = 0;
      block.symbols.push_back(std::move(tap));
      result.block.sources.push_back({ArraySource::Kind::Tap, number});
      result.taps.push_back({node.symbol, node.lag});
    }
    return block.graph.read(first + number, node.index, node.span);
  };
  std::vector<NodeId> roots;
  for (const StateUpdate& u : cell.updates) roots.push_back(u.value);
  for (const Out& o : cell.outs) roots.push_back(o.value);
  for (const Symbol& s : block.symbols)
    if (s.initial != kNoNode) roots.push_back(s.initial);
  Images images;
  Rewriter moved(cell.graph, block.graph, std::move(rules), &images);
  moved(roots);
  for (Symbol& s : block.symbols)
    if (s.initial != kNoNode) s.initial = images.at(s.initial);
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    block.updates.push_back({cell.updates[u].symbol, images.at(cell.updates[u].value), cell.updates[u].span});
    result.block.sinks.push_back({ArraySink::Kind::Trajectory, static_cast<int>(u)});
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o) {
    block.outs.push_back({cell.outs[o].name, cell.outs[o].index, images.at(cell.outs[o].value), cell.outs[o].span});
    result.block.sinks.push_back({ArraySink::Kind::Out, static_cast<int>(o)});
  }
  for (const NamedValue& n : cell.named)
    if (const auto image = images.find(n.node); image != images.end())
      block.named.push_back({n.name, image->second, n.index, n.span, n.ordered});
  return result;
}

}  // namespace cellc::derivation
