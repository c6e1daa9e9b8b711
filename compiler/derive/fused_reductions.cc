#include "compiler/derive/fused_reductions.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/derive/derivations.h"
#include "compiler/derive/lane_fusion.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/axes.h"

namespace cellc {

namespace {

class Summing {
 public:
  Summing(const StagedCell& staged, int number)
      : lanes_(staged, number, false), after_(lanes_.after()), stage_(lanes_.stage()) {}

  std::optional<FusedStage> run() {
    if (after_.cell.outs.empty() || stage_.channels.empty()) return std::nullopt;
    std::vector<NodeId> roots;
    for (const Out& o : after_.cell.outs) roots.push_back(o.value);
    std::vector<Found> found;
    for (const NodeId id : reachable(after_.cell.graph, roots)) {
      std::optional<Found> sum = find(id);
      if (sum && (found.empty() || sum->summed == found[0].summed)) found.push_back(std::move(*sum));
    }
    if (found.empty()) return std::nullopt;
    return build(found);
  }

 private:
  struct Found {
    NodeId node = kNoNode;
    int summed = 0;  ///< innermost channels
    LaneValue term;
  };

  const Node& node(NodeId id) const { return lanes_.node(id); }

  std::optional<Found> find(NodeId id) const {
    const Node& sum = node(id);
    if (sum.op != Op::ReduceSum) return std::nullopt;
    const std::optional<LaneValue> term = lanes_.find(sum.args[0]);
    if (!term) return std::nullopt;
    // The innermost ones, all of them.
    std::set<int> bound;
    for (const AxisId a : sum.bound) {
      if (!term->channel_of.contains(a)) return std::nullopt;
      bound.insert(term->channel_of.at(a));
    }
    const int summed = static_cast<int>(bound.size());
    if (*bound.begin() != static_cast<int>(stage_.channels.size()) - summed) return std::nullopt;
    return Found{id, summed, *term};
  }

  FusedStage build(const std::vector<Found>& found) {
    FusedStage result;
    StageCells& s = result.stage;
    s.states = stage_.states;
    s.channels = stage_.channels;
    s.once = stage_.once;
    s.before = stage_.before;
    s.lane = stage_.lane;
    s.summed = found[0].summed;
    for (const Found& f : found) {
      result.sums.push_back(f.node);
      s.sums.push_back(node(f.node).axes);
    }

    // The lane cell again, with room for sums behind its states.
    const CellGraph& from = stage_.lanes.cell;
    CellGraph lanes;
    lanes.name = from.name;
    lanes.span = from.span;
    lanes.graph = from.graph.without_nodes();
    lanes.header = from.header;
    const int states = static_cast<int>(from.updates.size()), sums = static_cast<int>(found.size());
    const auto moved = [&](int symbol) { return symbol < states ? symbol : symbol + sums; };
    lanes.symbols = from.symbols;
    s.lanes.sources = stage_.lanes.sources;
    s.lanes.sinks = stage_.lanes.sinks;
    s.lanes.role = Role::FusedLanes;
    s.layouts = stage_.layouts;
    for (int i = 0; i < sums; ++i) {
      const Found& f = found[static_cast<std::size_t>(i)];
      lanes.symbols.insert(lanes.symbols.begin() + states + i,
                           lanes_.of_lanes("sum" + std::to_string(i), SymbolKind::State, true, node(f.node).span));
      s.lanes.sources.insert(s.lanes.sources.begin() + states + i, {ArraySource::Kind::Sum, i});
      s.lanes.sinks.push_back({ArraySink::Kind::Sum, i});
      LaneLayout layout;
      for (const AxisId a : s.sums[static_cast<std::size_t>(i)])
        layout.channel_of_place.push_back(f.term.channel_of.at(a));
      s.layouts.insert(s.layouts.begin() + states + i, std::move(layout));
    }
    std::vector<NodeId> roots;
    for (const StateUpdate& u : from.updates) roots.push_back(u.value);
    const std::vector<NodeId> values = Rewriter(from.graph, lanes.graph, {.symbol = moved})(roots);
    for (std::size_t i = 0; i < values.size(); ++i)
      lanes.updates.push_back({from.updates[i].symbol, values[i], from.updates[i].span});

    s.lanes.cell = std::move(lanes);
    for (int i = 0; i < sums; ++i) {
      const Found& f = found[static_cast<std::size_t>(i)];
      s.lanes.cell.updates.push_back({states + i, lanes_.term(s, f.term), node(f.node).span});
    }
    return result;
  }

  LaneFusion lanes_;
  const DerivedCell& after_;
  const StageCells& stage_;
};

}  // namespace

namespace derivation {

std::optional<FusedStage> fuse_reductions(const StagedCell& staged, int stage) { return Summing(staged, stage).run(); }

DerivedCell with_reduced_outs(const DerivedCell& after, const std::vector<PartialSum>& sums) {
  DerivedCell result;
  result.cell = without_contents(after.cell);
  result.sinks = after.sinks;
  result.role = Role::AfterSums;
  Graph& graph = result.cell.graph;

  // What sums alone need is left out: from the outs down to sums.
  std::map<NodeId, int> first_part;
  int parts = 0;
  for (const PartialSum& s : sums) {
    first_part[s.node] = parts;
    parts += s.parts;
  }
  std::map<int, int> symbol_of;
  RewriteRules rules;
  rules.ends = [&](NodeId id) { return first_part.contains(id); };
  rules.replace = [&](NodeId id, const Node& n) {
    NodeId total = kNoNode;
    if (const auto it = first_part.find(id); it != first_part.end()) {
      const auto made = std::find_if(sums.begin(), sums.end(), [&](const PartialSum& s) { return s.node == id; });
      for (int p = 0; p < made->parts; ++p) {
        Symbol s;
        s.name = "sum" + std::to_string(it->second + p);
        s.kind = SymbolKind::Input;
        s.span = n.span;
        for (const AxisId a : n.axes) s.axes.push_back(graph.axis(a).extent_of);
        s.index = distinct_axes(graph, s.axes);
        const int symbol = static_cast<int>(result.cell.symbols.size());
        result.cell.symbols.push_back(std::move(s));
        result.sources.push_back({ArraySource::Kind::Sum, it->second + p});
        const NodeId read = graph.read(symbol, plain_index(n.axes), n.span);
        total = p == 0 ? read : graph.op(Op::Add, {total, read}, n.span);
      }
    }
    return total;
  };
  rules.symbol = [&](int symbol) {
    const auto [at, fresh] = symbol_of.emplace(symbol, static_cast<int>(result.cell.symbols.size()));
    if (fresh) {
      result.cell.symbols.push_back(after.cell.symbols[static_cast<std::size_t>(symbol)]);
      result.sources.push_back(after.sources[static_cast<std::size_t>(symbol)]);
    }
    return at->second;
  };
  std::vector<NodeId> roots;
  for (const Out& o : after.cell.outs) roots.push_back(o.value);
  const std::vector<NodeId> values = Rewriter(after.cell.graph, graph, std::move(rules))(roots);
  for (std::size_t o = 0; o < values.size(); ++o) {
    const Out& out = after.cell.outs[o];
    result.cell.outs.push_back({out.name, out.index, values[o], out.span});
  }
  return result;
}

}  // namespace derivation

}  // namespace cellc
