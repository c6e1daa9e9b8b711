#include "compiler/derive/fused_reductions.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "compiler/derive/substitute_states.h"
#include "compiler/graph/simplify.h"

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
      const std::vector<int>& channels = stage_.symbols[static_cast<std::size_t>(state)].channel_of_place;
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
  int append(StatelessCell& to, NodeId root, const std::string& stem) const {
    if (to.cell.outs.empty()) to.cell = without_contents(after_.cell);
    std::map<NodeId, NodeId> image;
    for (const NodeId id : reachable(after_.cell.graph, {root})) {
      Node n = node(id);
      if (n.op == Op::Read) {
        const ArraySource& from = source(n);
        const auto known = std::find(to.sources.begin(), to.sources.end(), from);
        const int symbol = static_cast<int>(known - to.sources.begin());
        if (known == to.sources.end()) {
          to.cell.symbols.push_back(after_.cell.symbols[static_cast<std::size_t>(n.symbol)]);
          to.sources.push_back(from);
        }
        n.symbol = symbol;
      }
      std::vector<NodeId> args;
      for (const NodeId a : n.args) args.push_back(image.at(a));
      image[id] = to.cell.graph.rebuild(n, std::move(args));
    }
    // What the step takes, too, is there.
    for (std::size_t o = 0; o < to.cell.outs.size(); ++o)
      if (to.cell.outs[o].value == image.at(root)) return static_cast<int>(o);
    const int number = static_cast<int>(to.cell.outs.size());
    to.cell.outs.push_back({stem + std::to_string(number), node(root).axes, image.at(root), node(root).span});
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
    const CellGraph& from = stage_.lanes;
    CellGraph lanes;
    lanes.name = from.name;
    lanes.span = from.span;
    lanes.graph = from.graph.without_nodes();
    lanes.header = from.header;
    const int states = static_cast<int>(from.updates.size()), sums = static_cast<int>(found.size());
    const auto moved = [&](int symbol) { return symbol < states ? symbol : symbol + sums; };
    for (int i = 0; i < states; ++i) {
      lanes.symbols.push_back(from.symbols[static_cast<std::size_t>(i)]);
      s.symbols.push_back(stage_.symbols[static_cast<std::size_t>(i)]);
    }
    for (int i = 0; i < sums; ++i) {
      lanes.symbols.push_back(of_lanes("sum" + std::to_string(i), SymbolKind::State, true,
                                       node(found[static_cast<std::size_t>(i)].node).span));
      LaneSymbol symbol{{ArraySource::Kind::Sum, i}, {}, true};
      for (const AxisId a : s.sums[static_cast<std::size_t>(i)])
        symbol.channel_of_place.push_back(found[static_cast<std::size_t>(i)].channel_of.at(a));
      s.symbols.push_back(std::move(symbol));
    }
    for (std::size_t i = static_cast<std::size_t>(states); i < from.symbols.size(); ++i) {
      lanes.symbols.push_back(from.symbols[i]);
      s.symbols.push_back(stage_.symbols[i]);
    }
    std::vector<NodeId> roots;
    for (const StateUpdate& u : from.updates) roots.push_back(u.value);
    std::map<NodeId, NodeId> image;
    for (const NodeId id : reachable(from.graph, roots)) {
      const Node& n = from.graph[id];
      std::vector<NodeId> args;
      for (const NodeId a : n.args) args.push_back(image.at(a));
      image[id] = n.op == Op::Read ? lanes.graph.read(moved(n.symbol), n.index, n.span, n.lag, n.lag_axis)
                                   : lanes.graph.rebuild(n, std::move(args));
    }
    for (const StateUpdate& u : from.updates) lanes.updates.push_back({u.symbol, image.at(u.value), u.span});

    std::map<NodeId, ArraySource> cut;
    for (int i = 0; i < sums; ++i) {
      const Found& f = found[static_cast<std::size_t>(i)];
      for (const NodeId id : f.cut) {
        if (cut.contains(id)) continue;
        cut[id] = varies(id) ? ArraySource{ArraySource::Kind::Before, append(s.before, id, "before")}
                             : ArraySource{ArraySource::Kind::Once, append(s.once, id, "once")};
      }
      std::map<NodeId, NodeId> term;
      const std::function<NodeId(NodeId)> of = [&](NodeId id) {
        if (const auto known = term.find(id); known != term.end()) return known->second;
        const Node& n = node(id);
        if (f.cut.contains(id)) {
          std::vector<Index> index;
          for (const AxisId a : n.axes) index.push_back({a, 0});
          const ArraySource& from = cut.at(id);
          const bool before = from.kind == ArraySource::Kind::Before;
          return term[id] = read(s, lanes, f, from, before ? SymbolKind::Input : SymbolKind::Param,
                                 (before ? "before" : "once") + std::to_string(from.id), index, n.span);
        }
        if (n.op == Op::Read) {
          const int state = own_state(source(n));
          const Symbol& symbol = after_.cell.symbols[static_cast<std::size_t>(n.symbol)];
          return term[id] = state >= 0 ? lanes.updates[static_cast<std::size_t>(state)].value
                                       : read(s, lanes, f, source(n), symbol.kind, symbol.name, n.index, n.span);
        }
        std::vector<NodeId> args;
        for (const NodeId a : n.args) args.push_back(of(a));
        return term[id] = lanes.graph.rebuild(n, std::move(args));
      };
      lanes.updates.push_back({states + i, of(node(f.node).args[0]), node(f.node).span});
    }
    s.lanes = std::move(lanes);
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
    while (at < s.symbols.size() && !(s.symbols[at].source == from && s.symbols[at].channel_of_place == channels)) ++at;
    if (at == s.symbols.size()) {
      const bool has_lane = kind != SymbolKind::Param || !channels.empty();
      lanes.symbols.push_back(of_lanes(name, kind, has_lane, span));
      s.symbols.push_back({from, std::move(channels), has_lane});
    }
    std::vector<Index> index;
    if (s.symbols[at].has_lane) index.push_back({s.lane, 0});
    return lanes.graph.read(static_cast<int>(at), std::move(index), span);
  }

  const StatelessCell& after_;
  const StageCells& stage_;
  std::set<int> known_;  ///< updates of earlier stages: their trajectories are there
};

}  // namespace

std::optional<FusedStage> fuse_reductions(const StagedCell& staged, int stage) { return Summing(staged, stage).run(); }

StatelessCell with_reduced_outs(const StatelessCell& after, const std::vector<PartialSum>& sums) {
  StatelessCell result;
  result.cell = without_contents(after.cell);
  Graph& graph = result.cell.graph;
  const Graph& from = after.cell.graph;

  // What sums alone need is left out: from the outs down to sums.
  std::map<NodeId, int> first_part;
  int parts = 0;
  for (const PartialSum& s : sums) {
    first_part[s.node] = parts;
    parts += s.parts;
  }
  std::set<NodeId> needed;
  std::vector<NodeId> open;
  for (const Out& o : after.cell.outs) open.push_back(o.value);
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (!needed.insert(id).second || first_part.contains(id)) continue;
    for (const NodeId a : from[id].args) open.push_back(a);
  }

  std::map<int, int> symbol_of;
  std::map<NodeId, NodeId> image;
  for (const NodeId id : needed) {
    const Node& n = from[id];
    if (const auto it = first_part.find(id); it != first_part.end()) {
      const auto made = std::find_if(sums.begin(), sums.end(), [&](const PartialSum& s) { return s.node == id; });
      std::vector<Index> index;
      for (const AxisId a : n.axes) index.push_back({a, 0});
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
        const NodeId read = graph.read(symbol, index, n.span);
        image[id] = p == 0 ? read : graph.op(Op::Add, {image.at(id), read}, n.span);
      }
      continue;
    }
    if (n.op == Op::Read) {
      const auto [at, fresh] = symbol_of.emplace(n.symbol, static_cast<int>(result.cell.symbols.size()));
      if (fresh) {
        result.cell.symbols.push_back(after.cell.symbols[static_cast<std::size_t>(n.symbol)]);
        result.sources.push_back(after.sources[static_cast<std::size_t>(n.symbol)]);
      }
      image[id] = graph.read(at->second, n.index, n.span, n.lag, n.lag_axis);
      continue;
    }
    std::vector<NodeId> args;
    for (const NodeId a : n.args) args.push_back(image.at(a));
    image[id] = graph.rebuild(n, std::move(args));
  }
  for (const Out& o : after.cell.outs) result.cell.outs.push_back({o.name, o.index, image.at(o.value), o.span});
  return result;
}

}  // namespace cellc
