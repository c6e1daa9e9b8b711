// Cuts a cell where values cross from step to step or from channel to channel (stage_cells.h).
//
// Larger than most (Splitter): all cells of a stage are cut from one table of what is known where.
#include "compiler/derive/stage_cells.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "compiler/derive/derivations.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/axes.h"

namespace cellc {

namespace {

class Splitter {
 public:
  Splitter(const CellGraph& cell, const Structure& structure, bool repeats_innermost)
      : cell_(cell),
        structure_(structure),
        repeats_innermost_(repeats_innermost),
        symbols_(with_trajectories(cell)),
        table_(cell) {}

  StagedCell run() {
    StagedCell result;
    for (int k = 0; k < static_cast<int>(structure_.stages.size()); ++k) {
      std::optional<StageCells> stage = split(k, structure_.stages[k].channel_axes);
      // Proved free of each other, but written across channels (a sum against an identity): then the
      // whole block is one lane.
      if (!stage) stage = split(k, {});
      result.stages.push_back(std::move(*stage));
    }
    remake(result);
    const auto all = [](int) { return true; };
    const auto none = [](int) { return false; };
    Graph after = cell_.graph.without_nodes();
    KnownStates known(cell_, table_, cell_.graph, after, all, all);
    std::vector<Out> outs = cell_.outs;
    for (Out& o : outs) o.value = known(o.value);
    result.after = stateless(Role::After, cell_, symbols_, after, std::move(outs),
                             numbered(ArraySink::Kind::Out, cell_.outs.size()));
    Graph step = cell_.graph.without_nodes();
    KnownStates about(cell_, table_, cell_.graph, step, none, all);
    std::vector<Out> values;
    for (const StateUpdate& u : cell_.updates)
      values.push_back({cell_.symbols[u.symbol].name, cell_.symbols[u.symbol].index, about(u.value), u.span});
    result.step = stateless(Role::Step, cell_, symbols_, step, std::move(values),
                            numbered(ArraySink::Kind::Step, cell_.updates.size()));
    return result;
  }

 private:
  // One stage ----------------------------------------------------------------------------------

  struct Flags {
    bool own = false;         ///< depends on the stage's states
    bool varies = false;      ///< changes from step to step though it does not
    bool local = true;        ///< can be computed for one lane alone
    bool takes_long = false;  ///< it, or what it is made of
  };

  std::optional<StageCells> split(int number, const std::vector<AxisId>& channels) {
    const Stage& stage = structure_.stages[number];
    std::set<int> own;
    for (int u : stage.states) own.insert(cell_.updates[u].symbol);
    channels_ = channels;
    Graph g = cell_.graph.without_nodes();
    const auto earlier = [&](int u) { return structure_.stage_of[u] < number; };
    KnownStates known(cell_, table_, cell_.graph, g, earlier, earlier, may_be_remade(structure_, number));
    std::vector<NodeId> roots;
    for (int u : stage.states) roots.push_back(known(cell_.updates[u].value));

    const std::vector<NodeId> order = reachable(g, roots);
    std::map<NodeId, Flags> flags;
    for (NodeId id : order) flags[id] = flags_of(g[id], own, flags);
    for (NodeId id : order)
      if (flags[id].own && !flags[id].local) return std::nullopt;

    // What crosses lanes or needs other steps is cut out, from the top.
    std::map<NodeId, int> cut_once, cut_before;
    std::vector<NodeId> once, before;
    walk_down(g, roots, [&](NodeId id) {
      const Flags& f = flags[id];
      if (f.own || (f.local && !is_shared(g[id], f))) return Visit::Descend;
      if (f.varies)
        cut_before.emplace(id, static_cast<int>(before.size())), before.push_back(id);
      else
        cut_once.emplace(id, static_cast<int>(once.size())), once.push_back(id);
      return Visit::Stop;
    });

    StageCells result;
    result.states = stage.states;
    result.channels = channels;
    result.once = cut_cell(Role::Once, ArraySink::Kind::Once, g, once);
    result.before = cut_cell(Role::Before, ArraySink::Kind::Before, g, before);
    make_lanes(result, g, roots, own, cut_once, cut_before);
    return result;
  }

  /// Whether it is worth an array of its own. Where channels have several axes and a value that takes long has fewer of
  /// them (softplus(dt[d]) beside a state h[d,n]; the gates of a head), every lane along the others would make it anew,
  /// in each run of a segment, and a scan twice; the array is a small part of what the states take. A cell of one
  /// channel axis goes without: there a value of fewer is a number a step, and a kernel more before the stage costs
  /// more than it saves.
  bool is_shared(const Node& n, const Flags& f) const {
    if (!f.varies || !f.takes_long || channels_.size() < 2) return false;
    const auto end = channels_.end() - (repeats_innermost_ ? 1 : 0);
    return !std::all_of(channels_.begin(), end, [&](AxisId c) { return contains(n.axes, c); });
  }

  bool natural(const Node& n) const {
    std::set<AxisId> met;
    for (const Index& i : n.index)
      if (i.is_axis() && contains(channels_, i.axis) && !met.insert(i.axis).second) return false;
    return n.lag == 0 && n.lag_axis == kNoAxis;
  }

  Flags flags_of(const Node& n, const std::set<int>& own, const std::map<NodeId, Flags>& known) const {
    Flags f;
    f.takes_long = is_long(n.op);
    for (NodeId a : n.args) {
      const Flags& below = known.at(a);
      f.takes_long |= below.takes_long;
      f.own |= below.own;
      f.varies |= below.varies;
      f.local &= below.local || !below.own;  // what is not local and not ours is cut below this node
    }
    switch (n.op) {
      case Op::Read: {
        const Symbol& s = symbols_[n.symbol];
        f.own = own.count(n.symbol) > 0;
        f.varies = s.kind == SymbolKind::Input;
        f.local = natural(n);
        if (f.own) {
          // The state's own lane, at its own places.
          for (std::size_t p = 0; p < n.index.size(); ++p) {
            const bool channel = contains(channels_, s.index[p]);
            const bool here = n.index[p].is_axis() && n.index[p].axis == s.index[p];
            const bool foreign = n.index[p].is_axis() && contains(channels_, n.index[p].axis);
            if (channel ? !here : foreign) f.local = false;
          }
        }
        break;
      }
      case Op::Eye:
      case Op::OneHot:
        for (const Index& i : n.index)
          if (i.is_axis() && contains(channels_, i.axis)) f.local = false;
        break;
      case Op::ReduceSum:
      case Op::ReduceMax:
      case Op::Softmax:
      case Op::MaxShare:
        // Sums over inputs are done once for all lanes.
        if (!f.own) f.local = false;
        for (AxisId b : n.bound)
          if (contains(channels_, b)) f.local = false;
        break;
      case Op::Reindex:
        if (!f.own) f.local = false;
        for (const auto& [from, to] : n.map)
          if (contains(channels_, from) || (to.is_axis() && contains(channels_, to.axis))) f.local = false;
        break;
      default:
        if (!f.own) f.local = true;  // computed in the lane, from operands that may be cut
        break;
    }
    return f;
  }

  DerivedCell cut_cell(Role role, ArraySink::Kind sink, const Graph& work, const std::vector<NodeId>& values) const {
    std::vector<Out> outs;
    for (std::size_t i = 0; i < values.size(); ++i)
      outs.push_back({to_string(role) + std::to_string(i), work[values[i]].axes, values[i], work[values[i]].span});
    return stateless(role, cell_, symbols_, work, std::move(outs), numbered(sink, values.size()));
  }

  struct LaneKey {
    ArraySource source;
    std::vector<int> pattern;
    bool operator<(const LaneKey& o) const {
      return std::tie(source.kind, source.id, pattern) < std::tie(o.source.kind, o.source.id, o.pattern);
    }
  };

  void make_lanes(StageCells& result, const Graph& work, const std::vector<NodeId>& roots, const std::set<int>& own,
                  const std::map<NodeId, int>& cut_once, const std::map<NodeId, int>& cut_before) {
    CellGraph lanes = without_contents(cell_);
    std::string name = "lane";
    for (bool taken = true; taken;) {
      taken = false;
      for (AxisId a = 0; a < lanes.graph.axis_count(); ++a) taken |= lanes.graph.axis(a).name == name;
      if (taken) name += "_";
    }
    const AxisId lane = result.lane = lanes.graph.add_header_axis(name, std::nullopt);
    lanes.header.push_back(lane);
    std::map<LaneKey, int> symbol_of;

    // A read of `source`, whose places hold `index`, as the lane sees it.
    auto lane_read = [&](ArraySource source, SymbolKind kind, const std::string& text, const std::vector<AxisId>& axes,
                         const std::vector<Index>& index, Span span) {
      LaneKey key{source, {}};
      bool has_lane = kind != SymbolKind::Param;
      for (const Index& i : index) {
        int channel = -1;
        for (std::size_t c = 0; i.is_axis() && c < channels_.size(); ++c)
          if (channels_[c] == i.axis) channel = static_cast<int>(c);
        has_lane |= channel >= 0;
        key.pattern.push_back(channel);
      }
      const auto [it, fresh] = symbol_of.emplace(key, static_cast<int>(lanes.symbols.size()));
      if (fresh) {
        Symbol s;
        s.name = text;
        s.kind = kind;
        s.span = span;
        for (std::size_t p = 0; p < axes.size(); ++p)
          if (key.pattern[p] < 0) s.axes.push_back(lanes.graph.axis(axes[p]).extent_of);
        if (has_lane) s.axes.push_back(lane);
        s.index = distinct_axes(lanes.graph, s.axes);
        if (kind == SymbolKind::State) {
          // Its update is written over the state's own index variables.
          s.index.clear();
          for (std::size_t p = 0; p < index.size(); ++p)
            if (key.pattern[p] < 0) s.index.push_back(index[p].axis);
          s.index.push_back(lane);
        }
        lanes.symbols.push_back(std::move(s));
        result.lanes.sources.push_back(source);
        result.layouts.push_back({key.pattern, has_lane});
      }
      std::vector<Index> kept;
      for (std::size_t p = 0; p < index.size(); ++p)
        if (key.pattern[p] < 0) kept.push_back(index[p]);
      if (has_lane) kept.push_back({lane, 0});
      return lanes.graph.read(it->second, std::move(kept), span);
    };

    // States first, so that updates and symbols have the same order.
    for (int u : result.states) {
      const Symbol& s = cell_.symbols[cell_.updates[u].symbol];
      lane_read({ArraySource::Kind::Trajectory, u}, SymbolKind::State, s.name, s.axes, index_of(cell_, u), s.span);
    }
    const auto cut_read = [&](ArraySource source, SymbolKind as, const char* stem, const Node& n) {
      return lane_read(source, as, stem + std::to_string(source.id), n.axes, plain_index(n.axes), n.span);
    };
    RewriteRules rules;
    rules.ends = [&](NodeId id) { return cut_once.contains(id) || cut_before.contains(id); };
    rules.replace = [&](NodeId id, const Node& n) {
      if (auto it = cut_once.find(id); it != cut_once.end())
        return cut_read({ArraySource::Kind::Once, it->second}, SymbolKind::Param, "once", n);
      if (auto it = cut_before.find(id); it != cut_before.end())
        return cut_read({ArraySource::Kind::Before, it->second}, SymbolKind::Input, "before", n);
      if (n.op != Op::Read) return kNoNode;
      const Symbol& s = symbols_[n.symbol];
      const bool state = own.count(n.symbol) > 0;
      const ArraySource source =
          state ? ArraySource{ArraySource::Kind::Trajectory, table_.of_symbol(n.symbol)} : source_of(cell_, n.symbol);
      return lane_read(source, state ? SymbolKind::State : s.kind, s.name, s.axes, n.index, n.span);
    };
    const std::vector<NodeId> values = Rewriter(work, lanes.graph, std::move(rules))(roots);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Span span = cell_.updates[result.states[i]].span;
      lanes.updates.push_back({static_cast<int>(i), values[i], span});
      result.lanes.sinks.push_back({ArraySink::Kind::Trajectory, result.states[i]});
    }
    result.lanes.cell = std::move(lanes);
    result.lanes.role = Role::Lanes;
  }

  // States before each step, for new values made again -----------------------------------------------------

  bool is_copy(int update) const { return cell_.symbol_of(cell_.updates[update]).lag_of >= 0; }

  /// What later stages read of each stage, once all of them are there.
  void remake(StagedCell& staged) const {
    std::set<int> read;
    for (const StageCells& stage : staged.stages)
      for (const DerivedCell* part : {&stage.before, &stage.lanes})
        for (const ArraySource& s : part->sources)
          if (s.kind == ArraySource::Kind::Remade) read.insert(s.id);
    for (StageCells& stage : staged.stages) {
      const std::vector<int>& states = stage.states;
      if (std::none_of(states.begin(), states.end(), [&](int u) { return read.contains(u); })) continue;
      std::map<int, std::vector<int>> copies;  // by lag: each is the row before of the one that lags a step less
      for (const int u : states)
        if (is_copy(u)) copies[cell_.symbol_of(cell_.updates[u]).lag].push_back(u);
      for (const auto& [lag, of] : copies) {
        StepStarts pass(cell_);
        for (const int u : of) {
          const int before = table_.of_symbol(cell_.updates[u].symbol - 1);
          pass.add(*this, u, before, {ArraySink::Kind::Step, u});
        }
        stage.remade.push_back(std::move(pass.made));
      }
      StepStarts pass(cell_);
      for (const int u : states) pass.add(*this, u, u, {ArraySink::Kind::Default, cell_.updates[u].symbol});
      stage.remade.push_back(std::move(pass.made));
    }
  }

  /// Rows of states, a step later: of a copy as it was made again, of any other state as it was written.
  struct StepStarts {
    DerivedCell made;
    std::map<int, int> number;
    explicit StepStarts(const CellGraph& cell) {
      made.role = Role::Remade;
      made.cell = without_contents(cell);
    }
    void add(const Splitter& of, int update, int before, ArraySink sink) {
      const CellGraph& cell = of.cell_;
      const std::size_t first = cell.symbols.size() + (of.is_copy(before) ? cell.updates.size() : 0);
      const int symbol = static_cast<int>(first) + before;
      const auto [it, fresh] = number.emplace(symbol, static_cast<int>(made.sources.size()));
      if (fresh) {
        made.cell.symbols.push_back(of.symbols_[symbol]);
        made.cell.symbols.back().initial = kNoNode;
        made.sources.push_back(source_of(cell, symbol));
      }
      const StateUpdate& u = cell.updates[update];
      made.cell.outs.push_back({cell.symbol_of(u).name, cell.symbol_of(u).index,
                                made.cell.graph.read(it->second, index_of(cell, update), u.span, 1), u.span});
      made.sinks.push_back(sink);
    }
  };

  const CellGraph& cell_;
  const Structure& structure_;
  const bool repeats_innermost_;
  const std::vector<Symbol> symbols_;  ///< the cell's, and the trajectories and new values behind them
  const UpdateTable table_;
  std::vector<AxisId> channels_;
};

}  // namespace

namespace derivation {

StagedCell split_stages(const CellGraph& cell, const Structure& structure, bool repeats_innermost) {
  return Splitter(cell, structure, repeats_innermost).run();
}

}  // namespace derivation

}  // namespace cellc
