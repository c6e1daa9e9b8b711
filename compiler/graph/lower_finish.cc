// Scratch graph -> the cell's graph: primes become the updates that they stand for, lags of states
// become companion states or reads of a delay line, and what nothing needs stays behind.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "compiler/graph/lower_internal.h"

namespace cellc::lowering {

namespace {

/// What the lines of a cell became.
struct Scratch {
  const Graph& graph;
  const std::vector<Symbol>& symbols;
  const std::vector<NodeId>& updates;  ///< by symbol
  const std::vector<Span>& update_spans;
  const std::vector<Out>& outs;
  const std::vector<NamedValue>& named;
};

class Finisher {
 public:
  explicit Finisher(const Scratch& from)
      : from_(from), graph_(from.graph), symbols_(from.symbols), alive_(graph_.size(), 0) {
    find_alive();
    find_depths();
  }

  /// Companions of lagged states included.
  std::size_t symbol_count() const {
    std::size_t count = symbols_.size();
    for (std::size_t s = 0; s < symbols_.size(); ++s)
      if (symbols_[s].kind == SymbolKind::State)
        count += static_cast<std::size_t>(companions_[s] + (depth_[s] > companions_[s]));
    return count;
  }

  CellGraph run(const Cell& cell) {
    keep_named();
    result_.name = cell.name;
    result_.span = cell.span;
    copy_axes();
    copy_symbols();
    copy_nodes();
    write_updates();
    for (const Out& out : from_.outs) result_.outs.push_back({out.name, out.index, image_.at(out.value), out.span});
    for (const NamedValue& v : from_.named)
      if (alive_[v.node] && !too_deep_[v.node])
        result_.named.push_back({v.name, image_.at(v.node), v.index, v.span, v.ordered});
    return std::move(result_);
  }

 private:
  bool is_prime(int symbol) const { return symbol >= static_cast<int>(symbols_.size()); }
  NodeId update_behind(int symbol) const { return from_.updates[static_cast<std::size_t>(symbol) % symbols_.size()]; }

  /// What a scratch node reads; a prime reads the update behind it.
  void push_operands(const Node& node, std::vector<NodeId>& stack) const {
    stack.insert(stack.end(), node.args.begin(), node.args.end());
    if (node.op == Op::Read && is_prime(node.symbol)) stack.push_back(update_behind(node.symbol));
  }

  // What is needed -----------------------------------------------------------------------------------

  // A walk of its own: through primes it leads to updates, which no walk of graph_walk.h knows of.
  void keep(std::vector<NodeId> stack) {
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (alive_[id]) continue;
      alive_[id] = 1;
      push_operands(graph_[id], stack);
    }
  }

  /// What the step computes, starts included.
  void find_alive() {
    std::vector<NodeId> roots;
    for (std::size_t s = 0; s < symbols_.size(); ++s) {
      if (from_.updates[s] != kNoNode) roots.push_back(from_.updates[s]);
      if (symbols_[s].initial != kNoNode) roots.push_back(symbols_[s].initial);
    }
    for (const Out& out : from_.outs) roots.push_back(out.value);
    keep(std::move(roots));
  }

  int depth_of(const Node& n) const {
    if (n.lag_axis == kNoAxis) return n.lag;
    const auto fixed = graph_.axis(n.lag_axis).fixed;
    return fixed ? n.lag + static_cast<int>(*fixed) - 1 : -1;
  }

  void find_depths() {
    depth_.assign(symbols_.size(), 0);
    sure_.assign(symbols_.size(), 0);
    companions_.assign(symbols_.size(), 0);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& n = graph_[id];
      if (!alive_[id] || n.op != Op::Read || is_prime(n.symbol)) continue;
      int& d = depth_[n.symbol];
      const int here = depth_of(n);
      d = d < 0 || here < 0 ? -1 : std::max(d, here);
      if (here <= kMostCompanions) companions_[n.symbol] = std::max(companions_[n.symbol], here);
      sure_[n.symbol] = std::max(sure_[n.symbol], here < 0 ? n.lag : here);
      if (here >= 0) continue;
      const auto [it, fresh] = beyond_.emplace(std::pair(n.symbol, graph_.axis(n.lag_axis).extent_of), n.lag);
      if (!fresh) it->second = std::max(it->second, n.lag);
    }
  }

  bool has_history(const Node& n) const {
    const int here = depth_of(n);
    if (here >= 0) return here <= sure_[n.symbol];
    const auto found = beyond_.find({n.symbol, graph_.axis(n.lag_axis).extent_of});
    return found != beyond_.end() && n.lag <= found->second;
  }

  /// A named value that nothing uses is still printed, but must not add history to the cell.
  void keep_named() {
    too_deep_.assign(graph_.size(), 0);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& n = graph_[id];
      for (NodeId a : n.args) too_deep_[id] = too_deep_[id] || too_deep_[a];
      if (n.op != Op::Read || alive_[id]) continue;
      too_deep_[id] = is_prime(n.symbol) ? too_deep_[update_behind(n.symbol)] : !has_history(n);
    }
    std::vector<NodeId> roots;
    for (const NamedValue& v : from_.named)
      if (!too_deep_[v.node]) roots.push_back(v.node);
    keep(std::move(roots));
  }

  // The cell's graph ---------------------------------------------------------------------------------

  void copy_axes() {
    for (AxisId a = 0; a < graph_.axis_count(); ++a) {
      const Axis& axis = graph_.axis(a);
      AxisId copy;
      if (axis.copy_of != kNoAxis) {
        copy = result_.graph.copy_axis(axis.copy_of, axis.copy_number);
      } else if (axis.extent_of == a) {
        copy = result_.graph.add_header_axis(axis.name, axis.fixed);
        result_.header.push_back(copy);
      } else {
        copy = result_.graph.renamed_axis(axis.name, axis.extent_of);
      }
      if (copy != a) throw std::logic_error("lower: axis '" + axis.name + "' changed its number");
    }
  }

  void copy_symbols() {
    for (std::size_t s = 0; s < symbols_.size(); ++s) {
      number_.push_back(static_cast<int>(result_.symbols.size()));
      Symbol symbol = symbols_[s];
      symbol.max_lag = symbol.kind == SymbolKind::Param ? 0 : depth_[s];
      result_.symbols.push_back(symbol);
      if (symbol.kind != SymbolKind::State) continue;
      for (int n = 1; n <= companions_[s]; ++n) {
        Symbol companion = symbols_[s];
        companion.name = fmt::format("lag({}, {})", symbol.name, n);
        companion.lag_of = number_[s];
        companion.lag = n;
        result_.symbols.push_back(std::move(companion));
      }
    }
    line_.assign(symbols_.size(), -1);
    for (std::size_t s = 0; s < symbols_.size(); ++s) {
      if (symbols_[s].kind != SymbolKind::State || depth_[s] <= companions_[s]) continue;
      line_[s] = static_cast<int>(result_.symbols.size());
      Symbol line = symbols_[s];
      line.name = fmt::format("line({})", line.name);
      line.kind = SymbolKind::Input;
      line.initial = kNoNode;
      line.line_of = number_[s];
      line.max_lag = depth_[s] + 1;
      result_.symbols.push_back(std::move(line));
    }
  }

  /// lag(h', 1) makes a prime above the line that gives h', and a read of h' below that line is the same node: the
  /// update that it stands for may have a larger id. No update reads its own prime, so to go for the update first
  /// comes to an end.
  void copy_nodes() {
    RewriteRules rules;
    rules.also_needs = [&](const Node& node, std::vector<NodeId>& needed) {
      if (node.op == Op::Read && is_prime(node.symbol)) needed.push_back(update_behind(node.symbol));
    };
    rules.replace = [&](NodeId, const Node& node) {
      if (node.op != Op::Read) return kNoNode;
      const std::size_t s = static_cast<std::size_t>(node.symbol) % symbols_.size();
      if (is_prime(node.symbol)) {
        std::vector<std::pair<AxisId, Index>> map;
        for (std::size_t p = 0; p < node.index.size(); ++p) map.emplace_back(symbols_[s].index[p], node.index[p]);
        return result_.graph.reindex(image_.at(update_behind(node.symbol)), std::move(map), node.span);
      }
      // Inputs keep their lags. A state lagged by a few steps is a companion of its own; its line has what it is
      // itself one step back.
      const bool state = symbols_[s].kind == SymbolKind::State;
      if (state && node.lag > companions_[s]) return result_.graph.read(line_[s], node.index, node.span, node.lag + 1);
      return result_.graph.read(number_[s] + (state ? node.lag : 0), node.index, node.span, state ? 0 : node.lag,
                                node.lag_axis);
    };
    std::vector<NodeId> nodes;
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (alive_[id]) nodes.push_back(id);
    Rewriter(graph_, result_.graph, std::move(rules), &image_).make(nodes);
  }

  void write_updates() {
    for (std::size_t s = 0; s < symbols_.size(); ++s) {
      const int first = number_[s];
      const NodeId initial = symbols_[s].initial == kNoNode ? kNoNode : image_.at(symbols_[s].initial);
      result_.symbols[first].initial = initial;
      if (symbols_[s].kind != SymbolKind::State) continue;
      result_.updates.push_back({first, image_.at(from_.updates[s]), from_.update_spans[s]});
      std::vector<Index> plain;
      for (AxisId a : symbols_[s].index) plain.push_back({a, 0});
      for (int n = 1; n <= companions_[s]; ++n) {
        result_.symbols[first + n].initial = initial;
        const NodeId before = result_.graph.read(first + n - 1, plain, symbols_[s].span);
        result_.updates.push_back({first + n, before, symbols_[s].span});
      }
    }
  }

  const Scratch& from_;
  const Graph& graph_;
  const std::vector<Symbol>& symbols_;
  std::vector<char> alive_, too_deep_;  ///< by scratch node
  std::vector<int> depth_;              ///< of each history; -1: the length of an axis that is known only at run time
  std::vector<int> companions_;         ///< of states: the deepest of the lags that are states
  std::vector<int> sure_;               ///< what is there whatever the lengths of open axes (1 at least),
  std::map<std::pair<int, AxisId>, int> beyond_;  ///< and by open axis what lies beyond
  CellGraph result_;
  std::vector<int> number_, line_;  ///< by scratch symbol; line -1: no lag goes beyond companions
  Images image_;
};

}  // namespace

std::optional<CellGraph> Lowering::finish(const Cell& cell) {
  const Scratch scratch{graph_, symbols_, updates_, update_spans_, outs_, named_};
  Finisher finisher(scratch);
  if (finisher.symbol_count() > kMaxSymbols) {
    fail(cell.span,
         fmt::format("'{}' has more than {} states, inputs and params, lagged states included", cell.name, kMaxSymbols),
         {});
    return std::nullopt;
  }
  return finisher.run(cell);
}

}  // namespace cellc::lowering
