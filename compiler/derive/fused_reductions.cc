#include "compiler/derive/fused_reductions.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/derive/derivations.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/axes.h"

namespace cellc {

namespace {

class Summing {
 public:
  Summing(const StagedCell& staged, int number) : after_(staged.after), stage_(staged.stages[number]) {
    for (int k = 0; k < number; ++k) known_.insert(staged.stages[k].states.begin(), staged.stages[k].states.end());
  }

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
    int summed = 0;                    ///< innermost channels
    std::map<AxisId, int> channel_of;  ///< of the axes that its terms have
    std::set<NodeId> own;              ///< of its body: what depends on the stage's states
    std::set<NodeId> cut;  ///< and what is made before the stage instead, as what steps read of other channels is
  };

  const Node& node(NodeId id) const { return after_.cell.graph[id]; }
  const ArraySource& source(const Node& read) const { return after_.sources[static_cast<std::size_t>(read.symbol)]; }

  /// Position among the stage's states, -1: of another.
  int own_state(const ArraySource& s) const {
    if (s.kind != ArraySource::Kind::Trajectory) return -1;
    const auto it = std::find(stage_.states.begin(), stage_.states.end(), s.id);
    return it == stage_.states.end() ? -1 : static_cast<int>(it - stage_.states.begin());
  }

  std::optional<Found> find(NodeId id) const {
    const Node& sum = node(id);
    if (sum.op != Op::ReduceSum) return std::nullopt;
    Found found;
    found.node = id;
    const std::vector<NodeId> body = reachable(after_.cell.graph, {sum.args[0]});
    // Which axis is which channel: as the stage's own states are read.
    bool reads_own = false;
    for (const NodeId b : body) {
      const Node& n = node(b);
      if (n.op != Op::Read) continue;
      const int state = own_state(source(n));
      if (state < 0) continue;
      reads_own = true;
      const std::vector<int>& channels = stage_.layouts[static_cast<std::size_t>(state)].channel_of_place;
      for (std::size_t p = 0; p < n.index.size(); ++p) {
        if (channels[p] < 0 || !n.index[p].is_axis()) return std::nullopt;
        const auto [it, fresh] = found.channel_of.emplace(n.index[p].axis, channels[p]);
        if (!fresh && it->second != channels[p]) return std::nullopt;
      }
    }
    if (!reads_own || found.channel_of.size() != stage_.channels.size()) return std::nullopt;
    std::set<int> channels;
    for (const auto& [axis, channel] : found.channel_of) channels.insert(channel);
    if (channels.size() != stage_.channels.size()) return std::nullopt;
    for (const NodeId b : body) {
      const Node& n = node(b);
      const bool own = n.op == Op::Read
                           ? own_state(source(n)) >= 0
                           : std::any_of(n.args.begin(), n.args.end(), [&](NodeId a) { return found.own.contains(a); });
      if (own) found.own.insert(b);
    }
    std::set<NodeId> met;
    if (!is_of_a_lane(sum.args[0], found, met)) return std::nullopt;
    // The innermost ones, all of them.
    std::set<int> bound;
    for (const AxisId a : sum.bound) {
      if (!found.channel_of.contains(a)) return std::nullopt;
      bound.insert(found.channel_of.at(a));
    }
    found.summed = static_cast<int>(bound.size());
    if (*bound.begin() != static_cast<int>(stage_.channels.size()) - found.summed) return std::nullopt;
    return found;
  }

  /// Whether a lane has it when its step is done, or can have it from before the stage.
  bool is_of_a_lane(NodeId id, Found& found, std::set<NodeId>& met) const {
    if (!met.insert(id).second) return true;
    const Node& n = node(id);
    const auto args = [&] {
      return std::all_of(n.args.begin(), n.args.end(), [&](NodeId a) { return is_of_a_lane(a, found, met); });
    };
    if (found.own.contains(id)) return n.op == Op::Read ? is_natural(n, found) : is_elementwise(n.op) && args();
    if (n.op == Op::Constant || n.op == Op::Size) return true;
    if (n.op == Op::Read ? is_natural(n, found) && is_known(id)
                         : is_elementwise(n.op) && !is_shared(id, found) && args())
      return true;
    if (!is_known(id) ||
        !std::all_of(n.axes.begin(), n.axes.end(), [&](AxisId a) { return found.channel_of.contains(a); }))
      return false;
    found.cut.insert(id);
    return true;
  }
  bool is_natural(const Node& n, const Found& found) const {
    std::set<AxisId> met;
    return n.lag == 0 && n.lag_axis == kNoAxis && std::all_of(n.index.begin(), n.index.end(), [&](const Index& i) {
             return i.is_axis() && found.channel_of.contains(i.axis) && met.insert(i.axis).second;
           });
  }
  /// Inputs, params and states of earlier stages are all that it is made of.
  bool is_known(NodeId id) const {
    const std::vector<NodeId> all = reachable(after_.cell.graph, {id});
    return std::all_of(all.begin(), all.end(), [&](NodeId a) {
      return node(a).op != Op::Read || source(node(a)).kind != ArraySource::Kind::Trajectory ||
             known_.contains(source(node(a)).id);
    });
  }
  /// As for steps (stage_cells.cc): lanes along the axes that it lacks would each make it anew.
  bool is_shared(NodeId id, const Found& found) const {
    if (stage_.channels.size() < 2 || node(id).axes.size() == found.channel_of.size()) return false;
    const std::vector<NodeId> all = reachable(after_.cell.graph, {id});
    return std::any_of(all.begin(), all.end(), [&](NodeId a) { return is_long(node(a).op); });
  }
  /// Whether it changes from step to step.
  bool varies(NodeId id) const {
    const std::vector<NodeId> all = reachable(after_.cell.graph, {id});
    return std::any_of(all.begin(), all.end(), [&](NodeId a) {
      return node(a).op == Op::Read &&
             after_.cell.symbols[static_cast<std::size_t>(node(a).symbol)].kind == SymbolKind::Input;
    });
  }

  /// One more out of what is made before the stage; its number.
  int append(DerivedCell& to, NodeId root, Role role, ArraySink::Kind sink) const {
    if (to.cell.outs.empty()) {
      to.cell = without_contents(after_.cell);
      to.role = role;
    }
    const auto symbol = [&](int s) {
      const ArraySource& from = after_.sources[static_cast<std::size_t>(s)];
      const auto known = std::find(to.sources.begin(), to.sources.end(), from);
      const int number = static_cast<int>(known - to.sources.begin());
      if (known == to.sources.end()) {
        to.cell.symbols.push_back(after_.cell.symbols[static_cast<std::size_t>(s)]);
        to.sources.push_back(from);
      }
      return number;
    };
    const NodeId value = Rewriter(after_.cell.graph, to.cell.graph, {.symbol = symbol})(root);
    // What the step takes, too, is there.
    for (std::size_t o = 0; o < to.cell.outs.size(); ++o)
      if (to.cell.outs[o].value == value) return static_cast<int>(o);
    const int number = static_cast<int>(to.cell.outs.size());
    to.cell.outs.push_back({to_string(role) + std::to_string(number), node(root).axes, value, node(root).span});
    to.sinks.push_back({sink, number});
    return number;
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
                           of_lanes("sum" + std::to_string(i), SymbolKind::State, true, node(f.node).span));
      s.lanes.sources.insert(s.lanes.sources.begin() + states + i, {ArraySource::Kind::Sum, i});
      s.lanes.sinks.push_back({ArraySink::Kind::Sum, i});
      LaneLayout layout;
      for (const AxisId a : s.sums[static_cast<std::size_t>(i)]) layout.channel_of_place.push_back(f.channel_of.at(a));
      s.layouts.insert(s.layouts.begin() + states + i, std::move(layout));
    }
    std::vector<NodeId> roots;
    for (const StateUpdate& u : from.updates) roots.push_back(u.value);
    const std::vector<NodeId> values = Rewriter(from.graph, lanes.graph, {.symbol = moved})(roots);
    for (std::size_t i = 0; i < values.size(); ++i)
      lanes.updates.push_back({from.updates[i].symbol, values[i], from.updates[i].span});

    std::map<NodeId, ArraySource> cut;
    for (int i = 0; i < sums; ++i) {
      const Found& f = found[static_cast<std::size_t>(i)];
      for (const NodeId id : f.cut) {
        if (cut.contains(id)) continue;
        cut[id] =
            varies(id)
                ? ArraySource{ArraySource::Kind::Before, append(s.before, id, Role::Before, ArraySink::Kind::Before)}
                : ArraySource{ArraySource::Kind::Once, append(s.once, id, Role::Once, ArraySink::Kind::Once)};
      }
      RewriteRules rules;
      rules.ends = [&](NodeId id) { return f.cut.contains(id); };
      rules.replace = [&](NodeId id, const Node& n) {
        if (f.cut.contains(id)) {
          const ArraySource& from = cut.at(id);
          const bool before = from.kind == ArraySource::Kind::Before;
          return read(s, lanes, f, from, before ? SymbolKind::Input : SymbolKind::Param,
                      (before ? "before" : "once") + std::to_string(from.id), plain_index(n.axes), n.span);
        }
        if (n.op != Op::Read) return kNoNode;
        const int state = own_state(source(n));
        const Symbol& symbol = after_.cell.symbols[static_cast<std::size_t>(n.symbol)];
        return state >= 0 ? lanes.updates[static_cast<std::size_t>(state)].value
                          : read(s, lanes, f, source(n), symbol.kind, symbol.name, n.index, n.span);
      };
      const NodeId term = Rewriter(after_.cell.graph, lanes.graph, std::move(rules))(node(f.node).args[0]);
      lanes.updates.push_back({states + i, term, node(f.node).span});
    }
    s.lanes.cell = std::move(lanes);
    return result;
  }

  Symbol of_lanes(const std::string& name, SymbolKind kind, bool has_lane, Span span) const {
    Symbol symbol;
    symbol.name = name;
    symbol.kind = kind;
    symbol.span = span;
    if (has_lane) symbol.axes = symbol.index = {stage_.lane};
    return symbol;
  }

  /// A value that the lane may read already, of the same array at the same channels.
  NodeId read(StageCells& s, CellGraph& lanes, const Found& f, const ArraySource& from, SymbolKind kind,
              const std::string& name, const std::vector<Index>& places, Span span) const {
    std::vector<int> channels;
    for (const Index& i : places) channels.push_back(f.channel_of.at(i.axis));
    std::size_t at = 0;
    while (at < s.layouts.size() && !(s.lanes.sources[at] == from && s.layouts[at].channel_of_place == channels)) ++at;
    if (at == s.layouts.size()) {
      const bool has_lane = kind != SymbolKind::Param || !channels.empty();
      lanes.symbols.push_back(of_lanes(name, kind, has_lane, span));
      s.lanes.sources.push_back(from);
      s.layouts.push_back({std::move(channels), has_lane});
    }
    std::vector<Index> index;
    if (s.layouts[at].has_lane) index.push_back({s.lane, 0});
    return lanes.graph.read(static_cast<int>(at), std::move(index), span);
  }

  const DerivedCell& after_;
  const StageCells& stage_;
  std::set<int> known_;  ///< updates of earlier stages: their trajectories are there
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
