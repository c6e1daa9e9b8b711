#include "compiler/graph/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace cellc {

namespace {

class Verifier {
 public:
  explicit Verifier(const CellGraph& cell) : cell_(cell), graph_(cell.graph) {}

  void run() {
    for (AxisId a = 0; a < graph_.axis_count(); ++a) axis(a);
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s) symbol(static_cast<int>(s));
    for (NodeId id = 0; id < graph_.size(); ++id) node(id);
    updates();
    for (const Out& out : cell_.outs) {
      where_ = fmt::format("out '{}'", out.name);
      laid_out(out.value, out.index);
    }
    for (const NamedValue& value : cell_.named) {
      where_ = fmt::format("value '{}'", value.name);
      laid_out(value.node, value.index);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::logic_error(fmt::format("graph of '{}': {}: {}", cell_.name, where_, what));
  }
  void require(bool holds, const char* what) const {
    if (!holds) fail(what);
  }
  void known_axis(AxisId a) const { require(a < graph_.axis_count(), "unknown axis"); }

  void axis(AxisId id) {
    const Axis& a = graph_.axis(id);
    where_ = fmt::format("axis {} '{}'", id, a.name);
    known_axis(a.extent_of);
    require(graph_.axis(a.extent_of).extent_of == a.extent_of, "its length is not that of a header axis");
    require(graph_.axis(a.extent_of).fixed == a.fixed, "its fixed length is not the header's");
    if (a.copy_of == kNoAxis) return;
    known_axis(a.copy_of);
    require(graph_.axis(a.copy_of).copy_of == kNoAxis, "a copy of a copy");
    require(a.copy_number >= 1, "copies count from 1");
    require(graph_.axis(a.copy_of).extent_of == a.extent_of, "a copy of another length");
  }

  void symbol(int number) {
    const Symbol& s = cell_.symbols[number];
    where_ = fmt::format("symbol '{}'", s.name);
    require(s.axes.size() == s.index.size(), "axes and index differ in number");
    std::set<AxisId> seen;
    for (std::size_t p = 0; p < s.axes.size(); ++p) {
      known_axis(s.axes[p]);
      known_axis(s.index[p]);
      require(graph_.axis(s.axes[p]).extent_of == s.axes[p], "declared over something that is no header axis");
      require(s.index[p] == s.axes[p] || graph_.axis(s.index[p]).copy_of == s.axes[p],
              "index is not a copy of its axis");
      require(seen.insert(s.index[p]).second, "its places are not distinct");
    }
    if (s.initial != kNoNode) {
      require(s.kind != SymbolKind::Input, "an input has a start");
      laid_out(s.initial, s.index);
    }
    if (s.line_of >= 0) {
      require(s.kind == SymbolKind::Input && s.max_lag > 0, "a delay line that is no lagged input");
      require(s.line_of < static_cast<int>(cell_.symbols.size()), "a delay line of nothing");
      const Symbol& of = cell_.symbols[s.line_of];
      require(of.kind == SymbolKind::State && of.lag_of < 0, "a delay line of something that is no state");
      require(of.index == s.index, "a delay line of another shape");
      require(of.max_lag + 1 == s.max_lag, "a delay line of another length than its state's history");
    }
    for (std::size_t later = static_cast<std::size_t>(number) + 1; s.line_of >= 0 && later < cell_.symbols.size();
         ++later)
      require(cell_.symbols[later].line_of >= 0, "something stands behind a delay line");
    if (s.lag_of < 0) return;
    require(s.kind == SymbolKind::State, "a companion that is no state");
    require(s.lag >= 1 && s.lag_of + s.lag == number, "a companion that does not follow its state");
    require(cell_.symbols[s.lag_of].index == s.index, "a companion of another shape");
  }

  void index(const Index& i) {
    if (!i.is_axis()) {
      require(i.literal >= 0, "a negative position");
      return;
    }
    known_axis(i.axis);
  }

  void node(NodeId id) {
    const Node& n = graph_[id];
    where_ = fmt::format("node {} ({})", id, op_name(n.op));
    for (NodeId a : n.args) require(a < id, "an operand does not precede it");
    require(std::is_sorted(n.axes.begin(), n.axes.end()) &&
                std::adjacent_find(n.axes.begin(), n.axes.end()) == n.axes.end(),
            "free axes are not sorted and distinct");
    require(std::is_sorted(n.bound.begin(), n.bound.end()), "bound axes are not sorted");
    for (const Index& i : n.index) index(i);
    for (AxisId a : n.axes) known_axis(a);
    const std::set<AxisId> free = free_axes(n);
    require(std::equal(free.begin(), free.end(), n.axes.begin(), n.axes.end()), "free axes are not what it defines");
  }

  // The free axes by the definition, which also checks the number and the kind of its parts.
  std::set<AxisId> free_axes(const Node& n) {
    std::set<AxisId> free;
    const auto take = [&](NodeId a) { free.insert(graph_[a].axes.begin(), graph_[a].axes.end()); };
    if (is_elementwise(n.op)) {
      require(static_cast<int>(n.args.size()) == op_info(n.op).arity, "wrong number of operands");
      for (NodeId a : n.args) take(a);
      return free;
    }
    switch (n.op) {
      case Op::Constant:
        require(n.args.empty(), "a constant with operands");
        break;
      case Op::Size:
        require(n.index.size() == 1 && n.index[0].is_axis(), "size of no axis");
        require(!graph_.axis(n.index[0].axis).fixed, "size of a fixed axis is a constant");
        break;
      case Op::Read:
        read(n, free);
        break;
      case Op::Eye:
        require(n.index.size() == 2 && n.index[0].is_axis() && n.index[1].is_axis(), "eye needs two axes");
        require(n.index[0].axis < n.index[1].axis, "eye's axes are not in order");
        require(graph_.same_length(n.index[0].axis, n.index[1].axis), "eye over different lengths");
        free = {n.index[0].axis, n.index[1].axis};
        break;
      case Op::OneHot:
        require(n.index.size() == 2 && n.index[0].is_axis() && !n.index[1].is_axis(), "one-hot needs axis and place");
        free = {n.index[0].axis};
        break;
      case Op::ReduceSum:
      case Op::ReduceMax:
      case Op::Softmax:
      case Op::MaxShare:
        require(n.args.size() == 1 && !n.bound.empty(), "a reduction of nothing");
        take(n.args[0]);
        for (AxisId b : n.bound) {
          require(free.contains(b), "binds an axis that its operand lacks");
          if (n.op == Op::ReduceSum || n.op == Op::ReduceMax) free.erase(b);
        }
        break;
      case Op::Reindex:
        reindex(n, free);
        break;
      case Op::Surrogate:
        require(n.args.size() >= 3 && n.args.size() % 2 == 1, "a surrogate needs one slope per argument");
        take(n.args[0]);
        for (std::size_t i = 1; i < n.args.size(); ++i)
          for (AxisId a : graph_[n.args[i]].axes)
            require(free.contains(a), "a slope or argument has an axis that the value lacks");
        break;
      default:
        fail("unknown operator");
    }
    return free;
  }

  void read(const Node& n, std::set<AxisId>& free) {
    require(n.symbol >= 0 && n.symbol < static_cast<int>(cell_.symbols.size()), "reads no symbol");
    const Symbol& s = cell_.symbols[n.symbol];
    require(n.index.size() == s.axes.size(), "one index per declared axis");
    require(n.lag >= 0 && (s.kind == SymbolKind::Input || (n.lag == 0 && n.lag_axis == kNoAxis)),
            "only inputs are read steps back");
    require(s.line_of < 0 || n.lag >= 1, "reads a row of a delay line that is not written yet");
    for (std::size_t p = 0; p < n.index.size(); ++p) {
      if (!n.index[p].is_axis()) {
        const auto& fixed = graph_.axis(s.axes[p]).fixed;
        require(!fixed || n.index[p].literal < *fixed, "reads past the end of an axis");
        continue;
      }
      require(graph_.same_length(n.index[p].axis, s.axes[p]), "an index of another length than the declared axis");
      free.insert(n.index[p].axis);
    }
    if (n.lag_axis == kNoAxis) return;
    known_axis(n.lag_axis);
    free.insert(n.lag_axis);
  }

  void reindex(const Node& n, std::set<AxisId>& free) {
    require(n.args.size() == 1 && !n.map.empty(), "a reindex of nothing");
    std::set<AxisId> source(graph_[n.args[0]].axes.begin(), graph_[n.args[0]].axes.end());
    for (std::size_t i = 0; i < n.map.size(); ++i) {
      const auto& [from, to] = n.map[i];
      require(i == 0 || n.map[i - 1].first < from, "its map is not sorted");
      require(source.erase(from) == 1, "maps an axis that its operand lacks");
      require(!(to == Index{from, 0}), "maps an axis to itself");
      index(to);
      if (!to.is_axis()) continue;
      require(graph_.same_length(from, to.axis), "maps an axis to one of another length");
      free.insert(to.axis);
    }
    free.insert(source.begin(), source.end());
  }

  void laid_out(NodeId id, const std::vector<AxisId>& over) const {
    require(id < graph_.size(), "unknown node");
    for (AxisId a : graph_[id].axes)
      require(std::find(over.begin(), over.end(), a) != over.end(), "its value has an axis that it lacks");
  }

  void updates() {
    std::size_t next = 0;
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s) {
      if (cell_.symbols[s].kind != SymbolKind::State) continue;
      where_ = fmt::format("state '{}'", cell_.symbols[s].name);
      require(next < cell_.updates.size() && cell_.updates[next].symbol == static_cast<int>(s),
              "its update is not in the order of declarations");
      laid_out(cell_.updates[next++].value, cell_.symbols[s].index);
    }
    where_ = "updates";
    require(next == cell_.updates.size(), "more updates than states");
  }

  const CellGraph& cell_;
  const Graph& graph_;
  std::string where_;
};

}  // namespace

void verify(const CellGraph& cell) { Verifier(cell).run(); }

}  // namespace cellc
