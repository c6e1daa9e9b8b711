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
  Summing(const StagedCell& staged, int number, const std::optional<AccumulatedOuts>& of_gradient)
      : of_gradient_(of_gradient),
        lanes_(staged, number, of_gradient.has_value()),
        after_(lanes_.after()),
        stage_(lanes_.stage()) {}

  std::optional<FusedStage> run() {
    if (after_.cell.outs.empty() || stage_.channels.empty()) return std::nullopt;
    std::vector<NodeId> roots;
    for (const Out& o : after_.cell.outs) roots.push_back(o.value);
    std::vector<Found> inner, outer;
    for (const NodeId id : reachable(after_.cell.graph, roots)) {
      std::optional<Found> sum = find(id);
      if (!sum || (sum->outermost && !of_gradient_)) continue;
      std::vector<Found>& found = sum->outermost ? outer : inner;
      if (found.empty() || sum->summed == found[0].summed) found.push_back(std::move(*sum));
    }
    const int outer_sums = static_cast<int>(outer.size());
    std::move(outer.begin(), outer.end(), std::back_inserter(inner));
    if (inner.empty()) return std::nullopt;
    return build(inner, outer_sums);
  }

 private:
  struct Found {
    NodeId node = kNoNode;
    int summed = 0;          ///< innermost channels,
    bool outermost = false;  ///< or outermost ones
    LaneValue term;
  };

  const Node& node(NodeId id) const { return lanes_.node(id); }

  std::optional<Found> find(NodeId id) const {
    const Node& sum = node(id);
    if (sum.op != Op::ReduceSum) return std::nullopt;
    // No λ is part of ∂C[n] = sum[d](ȳ[d]*h[d,n]), but each entry of h is at hand.
    const std::optional<LaneValue> term = lanes_.find(sum.args[0], of_gradient_.has_value());
    if (!term) return std::nullopt;
    // The innermost ones or the outermost, without a gap.
    std::set<int> bound;
    for (const AxisId a : sum.bound) {
      if (!term->channel_of.contains(a)) return std::nullopt;
      bound.insert(term->channel_of.at(a));
    }
    const int summed = static_cast<int>(bound.size());
    const int channels = static_cast<int>(stage_.channels.size());
    if (*bound.begin() == channels - summed) return Found{id, summed, false, *term};
    if (*bound.rbegin() == summed - 1) return Found{id, summed, true, *term};
    return std::nullopt;
  }

  /// Those along the outermost channels are the last `outer` of them.
  FusedStage build(const std::vector<Found>& found, int outer) {
    FusedStage result;
    StageCells& s = result.stage;
    s = stage_;
    s.summed = found[0].outermost ? 0 : found[0].summed;
    s.outer = outer;
    s.outer_summed = outer > 0 ? found.back().summed : 0;
    for (const Found& f : found) {
      result.sums.push_back(f.node);
      s.sums.push_back(node(f.node).axes);
    }

    // The lane cell again; its terms are declared behind all else, outs of a gradient before them.
    s.lanes.role = Role::FusedLanes;
    if (of_gradient_) derivation::add_outs(lanes_, *of_gradient_, s);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const Found& f = found[i];
      const int number = static_cast<int>(i);
      const NodeId made = lanes_.term(s, f.term);
      LaneLayout layout;
      for (const AxisId a : s.sums[i]) layout.channel_of_place.push_back(f.term.channel_of.at(a));
      s.lanes.cell.symbols.push_back(
          lanes_.of_lanes("sum" + std::to_string(i), SymbolKind::State, true, node(f.node).span));
      s.lanes.cell.updates.push_back({static_cast<int>(s.lanes.cell.symbols.size()) - 1, made, node(f.node).span});
      s.lanes.sources.push_back({ArraySource::Kind::Sum, number});
      s.lanes.sinks.push_back({ArraySink::Kind::Sum, number});
      s.layouts.push_back(std::move(layout));
    }
    return result;
  }

  const std::optional<AccumulatedOuts>& of_gradient_;
  LaneFusion lanes_;
  const DerivedCell& after_;
  const StageCells& stage_;
};

}  // namespace

DerivedCell without_sums(const StageCells& stage) {
  DerivedCell lanes = stage.lanes;
  lanes.role = Role::Lanes;
  std::vector<StateUpdate>& updates = lanes.cell.updates;
  for (std::size_t u = stage.states.size(); u < updates.size(); ++u)
    lanes.cell.symbols[static_cast<std::size_t>(updates[u].symbol)].kind = SymbolKind::Input;
  updates.resize(stage.states.size());
  lanes.sinks.resize(stage.states.size());
  return lanes;
}

namespace derivation {

std::optional<FusedStage> fuse_reductions(const StagedCell& staged, int stage,
                                          const std::optional<AccumulatedOuts>& of_gradient) {
  return Summing(staged, stage, of_gradient).run();
}

DerivedCell with_reduced_outs(const DerivedCell& after, const std::vector<PartialSum>& sums,
                              const std::vector<int>& made) {
  DerivedCell result;
  result.cell = without_contents(after.cell);
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
      const auto sum = std::find_if(sums.begin(), sums.end(), [&](const PartialSum& s) { return s.node == id; });
      for (int p = 0; p < sum->parts; ++p) {
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
  std::vector<std::size_t> left;
  for (std::size_t o = 0; o < after.cell.outs.size(); ++o) {
    if (std::find(made.begin(), made.end(), after.sinks[o].id) != made.end()) continue;
    left.push_back(o);
    roots.push_back(after.cell.outs[o].value);
  }
  const std::vector<NodeId> values = Rewriter(after.cell.graph, graph, std::move(rules))(roots);
  for (std::size_t i = 0; i < left.size(); ++i) {
    const Out& out = after.cell.outs[left[i]];
    result.cell.outs.push_back({out.name, out.index, values[i], out.span});
    result.sinks.push_back(after.sinks[left[i]]);
  }
  return result;
}

}  // namespace derivation

}  // namespace cellc
