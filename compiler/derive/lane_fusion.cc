#include "compiler/derive/lane_fusion.h"

#include <algorithm>

#include "compiler/derive/substitute_states.h"
#include "compiler/graph/axes.h"

namespace cellc {

LaneFusion::LaneFusion(const StagedCell& staged, int stage, bool reads_before, bool repeats_innermost)
    : after_(staged.after),
      stage_(staged.stages[static_cast<std::size_t>(stage)]),
      reads_before_(reads_before),
      repeats_innermost_(repeats_innermost) {
  for (int k = 0; k < stage; ++k) {
    const std::vector<int>& states = staged.stages[static_cast<std::size_t>(k)].states;
    known_.insert(states.begin(), states.end());
  }
}

// What lanes can make ------------------------------------------------------------------------------------

ArraySource LaneFusion::source(const Node& read) const {
  const ArraySource& from = after_.sources[static_cast<std::size_t>(read.symbol)];
  if (from.kind != ArraySource::Kind::Trajectory || read.lag != 0 || read.lag_axis != kNoAxis) return from;
  const ArraySource remade{ArraySource::Kind::Remade, from.id};
  const std::vector<ArraySource>& lanes = stage_.lanes.sources;
  return std::find(lanes.begin(), lanes.end(), remade) == lanes.end() ? from : remade;
}

int LaneFusion::own_state(const ArraySource& s) const {
  if (s.kind != ArraySource::Kind::Trajectory) return -1;
  const auto it = std::find(stage_.states.begin(), stage_.states.end(), s.id);
  return it == stage_.states.end() ? -1 : static_cast<int>(it - stage_.states.begin());
}

std::optional<LaneValue> LaneFusion::find(NodeId root, bool of_others) const {
  LaneValue found;
  found.root = root;
  const std::vector<NodeId> body = reachable(after_.cell.graph, {root});
  // Which axis is which channel: as the stage's own states are read.
  bool reads_own = false;
  const auto follow = [&](const Node& n, std::size_t symbol) {
    const std::vector<int>& channels = stage_.layouts[symbol].channel_of_place;
    for (std::size_t p = 0; p < n.index.size(); ++p) {
      if (channels[p] < 0 || !n.index[p].is_axis()) return false;
      const auto [it, fresh] = found.channel_of.emplace(n.index[p].axis, channels[p]);
      if (!fresh && it->second != channels[p]) return false;
    }
    return true;
  };
  for (const NodeId b : body) {
    const Node& n = node(b);
    if (n.op != Op::Read) continue;
    const int state = own_state(source(n));
    if (state < 0) continue;
    reads_own = true;
    if (!follow(n, static_cast<std::size_t>(state))) return std::nullopt;
  }
  if (!reads_own && !of_others) return std::nullopt;
  // What the lanes read anyway says which channel is which, too.
  for (std::size_t i = 0; i < body.size() && !reads_own; ++i) {
    const Node& n = node(body[i]);
    if (n.op != Op::Read) continue;
    const auto at = std::find(stage_.lanes.sources.begin(), stage_.lanes.sources.end(), source(n));
    if (at != stage_.lanes.sources.end() && !follow(n, static_cast<std::size_t>(at - stage_.lanes.sources.begin())))
      return std::nullopt;
  }
  if (found.channel_of.size() != stage_.channels.size()) return std::nullopt;
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
  if (!is_of_a_lane(root, found, met)) return std::nullopt;
  return found;
}

std::optional<LaneValue> LaneFusion::find_along(NodeId root, const std::map<AxisId, int>& channel_of) const {
  LaneValue found;
  found.root = root;
  found.channel_of = channel_of;
  for (const NodeId b : reachable(after_.cell.graph, {root}))
    if (node(b).op == Op::Read && own_state(source(node(b))) >= 0) return std::nullopt;
  std::set<NodeId> met;
  if (!is_of_a_lane(root, found, met)) return std::nullopt;
  return found;
}

/// Whether a lane has it when its step is done, or can have it from before the stage.
bool LaneFusion::is_of_a_lane(NodeId id, LaneValue& found, std::set<NodeId>& met) const {
  if (!met.insert(id).second) return true;
  const Node& n = node(id);
  const auto args = [&] {
    return std::all_of(n.args.begin(), n.args.end(), [&](NodeId a) { return is_of_a_lane(a, found, met); });
  };
  if (found.own.contains(id))
    return n.op == Op::Read ? is_natural(n, found, reads_before_ ? 1 : 0) : is_elementwise(n.op) && args();
  if (n.op == Op::Constant || n.op == Op::Size) return true;
  if (n.op == Op::Read ? is_natural(n, found, 0) && is_known(id)
                       : is_elementwise(n.op) && !is_shared(id, found) && args())
    return true;
  if (!is_known(id) ||
      !std::all_of(n.axes.begin(), n.axes.end(), [&](AxisId a) { return found.channel_of.contains(a); }))
    return false;
  found.cut.insert(id);
  return true;
}

bool LaneFusion::is_natural(const Node& n, const LaneValue& found, int most_lag) const {
  std::set<AxisId> met;
  return n.lag <= most_lag && n.lag_axis == kNoAxis && std::all_of(n.index.begin(), n.index.end(), [&](const Index& i) {
           return i.is_axis() && found.channel_of.contains(i.axis) && met.insert(i.axis).second;
         });
}

/// Inputs, params and states of earlier stages are all that it is made of.
bool LaneFusion::is_known(NodeId id) const {
  const std::vector<NodeId> all = reachable(after_.cell.graph, {id});
  return std::all_of(all.begin(), all.end(), [&](NodeId a) {
    return node(a).op != Op::Read || source(node(a)).kind != ArraySource::Kind::Trajectory ||
           known_.contains(source(node(a)).id);
  });
}

/// As for steps (stage_cells.cc): lanes along the axes that it lacks would each make it anew.
bool LaneFusion::is_shared(NodeId id, const LaneValue& found) const {
  if (stage_.channels.size() < 2 || node(id).axes.size() == found.channel_of.size()) return false;
  const int innermost = static_cast<int>(stage_.channels.size()) - 1;
  if (repeats_innermost_ && std::all_of(found.channel_of.begin(), found.channel_of.end(), [&](const auto& of) {
        return of.second == innermost || contains(node(id).axes, of.first);
      }))
    return false;
  const std::vector<NodeId> all = reachable(after_.cell.graph, {id});
  return std::any_of(all.begin(), all.end(), [&](NodeId a) { return is_long(node(a).op); });
}

bool LaneFusion::varies(NodeId id) const {
  const std::vector<NodeId> all = reachable(after_.cell.graph, {id});
  return std::any_of(all.begin(), all.end(), [&](NodeId a) {
    return node(a).op == Op::Read &&
           after_.cell.symbols[static_cast<std::size_t>(node(a).symbol)].kind == SymbolKind::Input;
  });
}

// And how ------------------------------------------------------------------------------------------------

/// One more out of what is made before the stage; its number.
int LaneFusion::append(DerivedCell& to, NodeId root, Role role, ArraySink::Kind sink) const {
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

Symbol LaneFusion::of_lanes(const std::string& name, SymbolKind kind, bool has_lane, Span span) const {
  Symbol symbol;
  symbol.name = name;
  symbol.kind = kind;
  symbol.span = span;
  if (has_lane) symbol.axes = symbol.index = {stage_.lane};
  return symbol;
}

/// A value that the lane may read already, of the same array at the same channels.
NodeId LaneFusion::read(StageCells& s, const LaneValue& f, const ArraySource& from, SymbolKind kind,
                        const std::string& name, const std::vector<Index>& places, Span span) const {
  CellGraph& lanes = s.lanes.cell;
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

NodeId LaneFusion::term(StageCells& s, const LaneValue& f) {
  for (const NodeId id : f.cut) {
    if (cut_.contains(id)) continue;
    cut_[id] = varies(id)
                   ? ArraySource{ArraySource::Kind::Before, append(s.before, id, Role::Before, ArraySink::Kind::Before)}
                   : ArraySource{ArraySource::Kind::Once, append(s.once, id, Role::Once, ArraySink::Kind::Once)};
  }
  CellGraph& lanes = s.lanes.cell;
  RewriteRules rules;
  rules.ends = [&](NodeId id) { return f.cut.contains(id); };
  rules.replace = [&](NodeId id, const Node& n) {
    if (f.cut.contains(id)) {
      const ArraySource& from = cut_.at(id);
      const bool before = from.kind == ArraySource::Kind::Before;
      return read(s, f, from, before ? SymbolKind::Input : SymbolKind::Param,
                  (before ? "before" : "once") + std::to_string(from.id), plain_index(n.axes), n.span);
    }
    if (n.op != Op::Read) return kNoNode;
    const int state = own_state(source(n));
    const Symbol& symbol = after_.cell.symbols[static_cast<std::size_t>(n.symbol)];
    if (state < 0) return read(s, f, source(n), symbol.kind, symbol.name, n.index, n.span);
    const StateUpdate& update = lanes.updates[static_cast<std::size_t>(state)];
    return n.lag == 0 ? update.value : lanes.graph.read(update.symbol, {{s.lane, 0}}, n.span);
  };
  return Rewriter(after_.cell.graph, lanes.graph, std::move(rules))(f.root);
}

}  // namespace cellc
