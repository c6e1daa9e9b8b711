// Scratch graph -> the cell's graph: primes become the updates that they stand for, lags of states
// become companion states, and what nothing needs stays behind.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/lower_internal.h"

namespace cellc::lowering {

namespace {

/// What a scratch node reads apart from its operands: a prime reads the update behind it.
template <typename IsPrime>
void push_operands(const Node& node, const std::vector<NodeId>& updates, IsPrime is_prime,
                   std::vector<NodeId>& stack) {
  stack.insert(stack.end(), node.args.begin(), node.args.end());
  if (node.op == Op::Read && is_prime(node.symbol)) stack.push_back(updates[node.symbol % updates.size()]);
}

}  // namespace

std::optional<CellGraph> Lowering::finish(const Cell& cell) {
  const auto prime = [&](int symbol) { return is_prime(symbol); };
  // What the step computes, starts included.
  std::vector<char> alive(graph_.size(), 0);
  std::vector<NodeId> stack;
  for (std::size_t s = 0; s < symbols_.size(); ++s) {
    if (updates_[s] != kNoNode) stack.push_back(updates_[s]);
    if (symbols_[s].initial != kNoNode) stack.push_back(symbols_[s].initial);
  }
  for (const Out& out : outs_) stack.push_back(out.value);
  const auto follow = [&] {
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (alive[id]) continue;
      alive[id] = 1;
      push_operands(graph_[id], updates_, prime, stack);
    }
  };
  follow();

  // Depth of each history. -1: the length of an axis that is known only at run time.
  std::vector<int> depth(symbols_.size(), 0);
  const auto depth_of = [&](const Node& n) {
    if (n.lag_axis == kNoAxis) return n.lag;
    const auto fixed = graph_.axis(n.lag_axis).fixed;
    return fixed ? n.lag + static_cast<int>(*fixed) - 1 : -1;
  };
  // What is there whatever the lengths of open axes (1 at least), and by open axis what lies beyond.
  std::vector<int> sure(symbols_.size(), 0);
  std::map<std::pair<int, AxisId>, int> beyond;
  for (NodeId id = 0; id < graph_.size(); ++id) {
    const Node& n = graph_[id];
    if (!alive[id] || n.op != Op::Read || is_prime(n.symbol)) continue;
    int& d = depth[n.symbol];
    const int here = depth_of(n);
    d = d < 0 || here < 0 ? -1 : std::max(d, here);
    sure[n.symbol] = std::max(sure[n.symbol], here < 0 ? n.lag : here);
    if (here >= 0) continue;
    const auto [it, fresh] = beyond.emplace(std::pair(n.symbol, graph_.axis(n.lag_axis).extent_of), n.lag);
    if (!fresh) it->second = std::max(it->second, n.lag);
  }
  const auto has_history = [&](const Node& n) {
    const int here = depth_of(n);
    if (here >= 0) return here <= sure[n.symbol];
    const auto found = beyond.find({n.symbol, graph_.axis(n.lag_axis).extent_of});
    return found != beyond.end() && n.lag <= found->second;
  };

  std::size_t symbol_count = symbols_.size();
  for (std::size_t s = 0; s < symbols_.size(); ++s)
    if (symbols_[s].kind == SymbolKind::State) symbol_count += static_cast<std::size_t>(depth[s]);
  if (symbol_count > kMaxSymbols) {
    fail(cell.span,
         fmt::format("'{}' has more than {} states, inputs and params, lagged states included", cell.name,
                     kMaxSymbols),
         {});
    return std::nullopt;
  }

  // A named value that nothing uses is still printed, but must not add history to the cell.
  std::vector<char> too_deep(graph_.size(), 0);
  for (NodeId id = 0; id < graph_.size(); ++id) {
    const Node& n = graph_[id];
    for (NodeId a : n.args) too_deep[id] = too_deep[id] || too_deep[a];
    if (n.op != Op::Read || alive[id]) continue;
    if (is_prime(n.symbol)) {
      too_deep[id] = too_deep[updates_[n.symbol % symbols_.size()]];
    } else {
      too_deep[id] = !has_history(n);
    }
  }
  for (const NamedValue& v : named_)
    if (!too_deep[v.node]) stack.push_back(v.node);
  follow();

  CellGraph result;
  result.name = cell.name;
  result.span = cell.span;
  for (AxisId a = 0; a < graph_.axis_count(); ++a) {
    const Axis& axis = graph_.axis(a);
    AxisId copy;
    if (axis.copy_of != kNoAxis) {
      copy = result.graph.copy_axis(axis.copy_of, axis.copy_number);
    } else if (axis.extent_of == a) {
      copy = result.graph.add_header_axis(axis.name, axis.fixed);
      result.header.push_back(copy);
    } else {
      copy = result.graph.renamed_axis(axis.name, axis.extent_of);
    }
    if (copy != a) throw std::logic_error("lower: axis '" + axis.name + "' changed its number");
  }

  std::vector<int> number(symbols_.size());
  for (std::size_t s = 0; s < symbols_.size(); ++s) {
    number[s] = static_cast<int>(result.symbols.size());
    Symbol symbol = symbols_[s];
    symbol.max_lag = symbol.kind == SymbolKind::Param ? 0 : depth[s];
    result.symbols.push_back(symbol);
    if (symbol.kind != SymbolKind::State) continue;
    for (int n = 1; n <= depth[s]; ++n) {
      Symbol companion = symbols_[s];
      companion.name = fmt::format("lag({}, {})", symbol.name, n);
      companion.lag_of = number[s];
      companion.lag = n;
      companion.range = symbol.range;
      result.symbols.push_back(std::move(companion));
    }
  }

  std::vector<NodeId> image(graph_.size(), kNoNode);
  const auto plain_index = [&](const Symbol& symbol) {
    std::vector<Index> index;
    for (AxisId a : symbol.index) index.push_back({a, 0});
    return index;
  };
  const auto copy = [&](NodeId id) {
    Node node = graph_[id];
    if (node.op == Op::Read) {
      const int s = node.symbol % static_cast<int>(symbols_.size());
      if (is_prime(node.symbol)) {
        std::vector<std::pair<AxisId, Index>> map;
        for (std::size_t p = 0; p < node.index.size(); ++p)
          map.emplace_back(symbols_[s].index[p], node.index[p]);
        return result.graph.reindex(image[updates_[s]], std::move(map), node.span);
      }
      node.symbol = number[s];
      if (symbols_[s].kind == SymbolKind::State) {
        node.symbol += node.lag;
        node.lag = 0;
      }
    }
    std::vector<NodeId> args = node.args;
    for (NodeId& a : args) a = image[a];
    return result.graph.rebuild(node, std::move(args));
  };
  // In the order of ids, in which operands come first, but for the read of a prime: lag(h', 1) makes one
  // above the line that gives h', and a read of h' below that line is the same node. No update reads its
  // own prime, so that to go for the update first comes to an end.
  for (NodeId id = 0; id < graph_.size(); ++id) {
    if (!alive[id]) continue;
    stack.assign(1, id);
    while (!stack.empty()) {
      const NodeId next = stack.back();
      if (image[next] != kNoNode) {
        stack.pop_back();
        continue;
      }
      std::vector<NodeId> needed;
      push_operands(graph_[next], updates_, prime, needed);
      std::erase_if(needed, [&](NodeId n) { return image[n] != kNoNode; });
      if (needed.empty()) image[next] = copy(next);
      stack.insert(stack.end(), needed.begin(), needed.end());
    }
  }

  for (std::size_t s = 0; s < symbols_.size(); ++s) {
    const int first = number[s];
    const NodeId initial = symbols_[s].initial == kNoNode ? kNoNode : image[symbols_[s].initial];
    result.symbols[first].initial = initial;
    if (symbols_[s].kind != SymbolKind::State) continue;
    result.updates.push_back({first, image[updates_[s]], update_spans_[s]});
    for (int n = 1; n <= depth[s]; ++n) {
      result.symbols[first + n].initial = initial;
      const NodeId before = result.graph.read(first + n - 1, plain_index(symbols_[s]), symbols_[s].span);
      result.updates.push_back({first + n, before, symbols_[s].span});
    }
  }
  for (const Out& out : outs_) result.outs.push_back({out.name, out.index, image[out.value], out.span});
  for (const NamedValue& v : named_)
    if (image[v.node] != kNoNode && !too_deep[v.node])
      result.named.push_back({v.name, image[v.node], v.index, v.span, v.ordered});
  return result;
}

}  // namespace cellc::lowering
