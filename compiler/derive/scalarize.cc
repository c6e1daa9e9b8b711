#include "compiler/derive/scalarize.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "compiler/derive/derivations.h"
#include "compiler/derive/scalar_builder.h"
#include "compiler/graph/graph_walk.h"

namespace cellc {

namespace {

std::int64_t length_of(const CellGraph& cell, AxisId axis, const std::map<AxisId, std::int64_t>& sizes) {
  const Axis& a = cell.graph.axis(axis);
  if (a.fixed) return *a.fixed;
  const auto found = sizes.find(a.extent_of);
  if (found == sizes.end())
    throw std::invalid_argument(
        fmt::format("scalar cell: the length of axis '{}' is not given", cell.graph.axis(a.extent_of).name));
  return found->second;
}

class Scalarizer {
 public:
  Scalarizer(const CellGraph& cell, AxisId lane, const ScalarizeOptions& options)
      : cell_(cell), graph_(cell.graph), lane_(lane), options_(options), scalars_(cell.name, options) {}

  ScalarizedCell run() {
    step([&](const SymbolEntry& state, int next) {
      if (options_.zero.contains(state)) return;
      result_.states.push_back(state);
      result_.next.push_back(next);
    });
    result_.scalars = scalars_.finish(result_.next);
    return std::move(result_);
  }

  /// Entries of `zero` that one step makes something else.
  std::vector<SymbolEntry> moved() {
    std::vector<SymbolEntry> entries;
    step([&](const SymbolEntry& state, int next) {
      if (options_.zero.contains(state) && !scalars_.is_zero(next)) entries.push_back(state);
    });
    return entries;
  }

 private:
  void step(const std::function<void(const SymbolEntry& state, int next)>& take) {
    std::vector<NodeId> roots;
    for (const StateUpdate& u : cell_.updates) roots.push_back(u.value);
    const std::vector<NodeId> of_step = needed(
        {roots.begin(), roots.begin() + (options_.own < 0 ? static_cast<std::ptrdiff_t>(roots.size()) : options_.own)});
    for (NodeId id : needed(roots)) {
      scalars_.begin(graph_[id].span, !std::binary_search(of_step.begin(), of_step.end(), id));
      evaluate(id);
    }
    for (const StateUpdate& u : cell_.updates) {
      const Symbol& s = cell_.symbols[u.symbol];
      if (s.index.empty() || s.index.back() != lane_) no_lane_cell(fmt::format("state '{}'", s.name));
      const std::vector<AxisId> axes = mixed(s.index);
      std::int64_t entry = 0;
      for_each(axes, [&](const std::vector<std::int64_t>& at) { take({u.symbol, entry++}, value(u.value, axes, at)); });
    }
  }

  [[noreturn]] void no_lane_cell(const std::string& what) const {
    throw std::logic_error(fmt::format("scalar cell of '{}': {} does not lie along the lane", cell_.name, what));
  }

  std::int64_t length(AxisId axis) const { return length_of(cell_, axis, options_.sizes); }

  std::vector<NodeId> needed(const std::vector<NodeId>& roots) const {
    return reachable(graph_, roots, DeclaredSlopes::LeftOut);
  }

  std::vector<AxisId> mixed(const std::vector<AxisId>& axes) const {
    std::vector<AxisId> rest;
    for (AxisId a : axes)
      if (a != lane_) rest.push_back(a);
    return rest;
  }

  /// Row-major over `axes`.
  template <typename Body>
  void for_each(const std::vector<AxisId>& axes, Body&& body) {
    std::vector<std::int64_t> shape, at(axes.size(), 0);
    for (AxisId a : axes) {
      shape.push_back(length(a));
      if (shape.back() == 0) return;
    }
    for (;;) {
      body(at);
      std::size_t d = axes.size();
      while (d > 0 && ++at[d - 1] == shape[d - 1]) at[--d] = 0;
      if (d == 0) return;
    }
  }

  /// The scalar of a node at positions `at` of `axes`, which has all its axes.
  int value(NodeId id, const std::vector<AxisId>& axes, const std::vector<std::int64_t>& at) const {
    std::int64_t offset = 0;
    for (AxisId a : graph_[id].axes) {
      if (a == lane_) continue;
      const auto place = std::find(axes.begin(), axes.end(), a);
      if (place == axes.end())
        throw std::logic_error(fmt::format("scalar cell of '{}': node {} has axis '{}', which its user lacks",
                                           cell_.name, id, graph_.axis(a).name));
      offset = offset * length(a) + at[static_cast<std::size_t>(place - axes.begin())];
    }
    return values_.at(id)[static_cast<std::size_t>(offset)];
  }

  std::int64_t checked(const Index& i, AxisId axis) const {
    if (i.literal >= length(axis))
      throw std::invalid_argument(fmt::format("scalar cell: entry {} of axis '{}', which has {}", i.literal,
                                              graph_.axis(axis).name, length(axis)));
    return i.literal;
  }

  static std::int64_t position(AxisId axis, const std::vector<AxisId>& axes, const std::vector<std::int64_t>& at) {
    return at[static_cast<std::size_t>(std::find(axes.begin(), axes.end(), axis) - axes.begin())];
  }

  void evaluate(NodeId id) {
    const Node& n = graph_[id];
    const std::vector<AxisId> axes = mixed(n.axes);
    std::int64_t count = 1;
    for (AxisId a : axes) {
      count *= length(a);
      if (count > scalars_.most_values()) scalars_.too_long();
    }
    std::vector<int> values;
    if (!n.bound.empty()) {
      if (std::find(n.bound.begin(), n.bound.end(), lane_) != n.bound.end()) no_lane_cell("a reduction");
      if (n.op == Op::Softmax || n.op == Op::MaxShare)
        values = shares(n, axes);
      else
        for_each(axes, [&](const auto& at) { values.push_back(scalars_.reduce(n.op, body(n, axes, at))); });
    } else {
      for_each(axes, [&](const auto& at) { values.push_back(entry(n, axes, at)); });
    }
    std::size_t i = 0;
    for_each(axes, [&](const std::vector<std::int64_t>& at) {
      Scalar& s = scalars_[values[i++]];
      if (s.node != kNoNode || s.op == Op::Constant) return;
      s.node = id;
      s.position = at;
      s.span = n.span;
    });
    values_.emplace(id, std::move(values));
  }

  int entry(const Node& n, const std::vector<AxisId>& axes, const std::vector<std::int64_t>& at) {
    switch (n.op) {
      case Op::Constant:
        return scalars_.constant(n.number);
      case Op::Size:
        return scalars_.constant(static_cast<double>(length(n.index[0].axis)));
      case Op::Surrogate:
      case Op::StopGradient:
        return value(n.args[0], axes, at);
      case Op::Read:
        return read(n, axes, at);
      case Op::Eye:
      case Op::OneHot: {
        for (const Index& i : n.index)
          if (i.is_axis() && i.axis == lane_) no_lane_cell("an identity");
        const std::int64_t a = position(n.index[0].axis, axes, at);
        const std::int64_t b =
            n.op == Op::Eye ? position(n.index[1].axis, axes, at) : checked(n.index[1], n.index[0].axis);
        return scalars_.constant(a == b);
      }
      case Op::Reindex: {
        const std::vector<AxisId>& source = graph_[n.args[0]].axes;
        std::vector<AxisId> over;
        std::vector<std::int64_t> there;
        for (AxisId a : source) {
          Index to{a, 0};
          for (const auto& [from, target] : n.map)
            if (from == a) to = target;
          if ((a == lane_) != (to.is_axis() && to.axis == lane_)) no_lane_cell("a value read elsewhere");
          if (a == lane_) continue;
          over.push_back(a);
          there.push_back(to.is_axis() ? position(to.axis, axes, at) : checked(to, a));
        }
        return value(n.args[0], over, there);
      }
      default: {
        int args[3] = {-1, -1, -1};
        for (std::size_t i = 0; i < n.args.size(); ++i) args[i] = value(n.args[i], axes, at);
        return scalars_.operation(n.op, args, static_cast<int>(n.args.size()));
      }
    }
  }

  int read(const Node& n, const std::vector<AxisId>& axes, const std::vector<std::int64_t>& at) {
    const Symbol& s = cell_.symbols[n.symbol];
    if (n.lag != 0 || n.lag_axis != kNoAxis)
      throw std::logic_error(fmt::format("scalar cell of '{}': '{}' is read at another step", cell_.name, s.name));
    SymbolEntry entry{n.symbol, 0};
    for (std::size_t p = 0; p < n.index.size(); ++p) {
      const bool lane_place = s.axes[p] == lane_, lane_index = n.index[p].is_axis() && n.index[p].axis == lane_;
      if (lane_place != lane_index) no_lane_cell(fmt::format("'{}'", s.name));
      if (lane_place) continue;
      entry.entry = entry.entry * length(s.axes[p]) +
                    (n.index[p].is_axis() ? position(n.index[p].axis, axes, at) : checked(n.index[p], s.axes[p]));
    }
    return scalars_.read(entry);
  }

  // Reductions -----------------------------------------------------------------------------------

  /// The operand's values over the bound axes, last axis fastest.
  std::vector<int> body(const Node& n, const std::vector<AxisId>& free, const std::vector<std::int64_t>& at) {
    std::vector<AxisId> axes = free;
    axes.insert(axes.end(), n.bound.begin(), n.bound.end());
    std::vector<int> all;
    for_each(n.bound, [&](const std::vector<std::int64_t>& inner) {
      std::vector<std::int64_t> there = at;
      there.insert(there.end(), inner.begin(), inner.end());
      all.push_back(value(n.args[0], axes, there));
    });
    return all;
  }

  /// exp(x - max)/sum, or (x == max)/sum, for every position of the free and the bound axes.
  std::vector<int> shares(const Node& n, const std::vector<AxisId>& axes) {
    std::vector<AxisId> free;
    for (AxisId a : axes)
      if (!std::binary_search(n.bound.begin(), n.bound.end(), a)) free.push_back(a);
    std::map<std::vector<std::int64_t>, std::vector<int>> of_free;
    for_each(free, [&](const std::vector<std::int64_t>& at) {
      const std::vector<int> x = body(n, free, at);
      const int most = scalars_.reduce(Op::ReduceMax, x);
      std::vector<int> weights;
      for (int v : x)
        weights.push_back(n.op == Op::Softmax ? scalars_.operation(Op::Exp, {scalars_.operation(Op::Sub, {v, most})})
                                              : scalars_.operation(Op::Eq, {v, most}));
      const int sum = scalars_.reduce(Op::ReduceSum, weights);
      for (int& w : weights) w = scalars_.operation(Op::Div, {w, sum});
      of_free.emplace(at, std::move(weights));
    });
    std::vector<int> values;
    for_each(axes, [&](const std::vector<std::int64_t>& at) {
      std::vector<std::int64_t> outer;
      for (AxisId a : free) outer.push_back(position(a, axes, at));
      std::int64_t inner = 0;
      for (AxisId b : n.bound) inner = inner * length(b) + position(b, axes, at);
      values.push_back(of_free.at(outer)[static_cast<std::size_t>(inner)]);
    });
    return values;
  }

  const CellGraph& cell_;
  const Graph& graph_;
  const AxisId lane_;
  const ScalarizeOptions& options_;
  ScalarBuilder scalars_;
  ScalarizedCell result_;
  std::map<NodeId, std::vector<int>> values_;  // by node: row-major over its axes but the lane
};

}  // namespace

namespace derivation {

ScalarizedCell scalarize(const CellGraph& cell, AxisId lane, const ScalarizeOptions& options) {
  return Scalarizer(cell, lane, options).run();
}

}  // namespace derivation

void verify(const ScalarizedCell& scalars) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::logic_error(std::string("scalars: ") + what);
  };
  const int count = static_cast<int>(scalars.scalars.size());
  for (int i = 0; i < count; ++i) {
    const Scalar& s = scalars.scalars[static_cast<std::size_t>(i)];
    require(s.op == Op::Constant || s.op == Op::Read || is_elementwise(s.op), "an operator that is none of scalars");
    require(s.arity == (is_elementwise(s.op) ? op_info(s.op).arity : 0), "wrong number of operands");
    require((s.op == Op::Read) == (s.entry.symbol >= 0), "reads no symbol");
    for (int k = 0; k < s.arity; ++k) require(s.args[k] >= 0 && s.args[k] < i, "an operand does not precede its user");
  }
  require(scalars.states.size() == scalars.next.size(), "not one value a state");
  for (const int next : scalars.next) require(next >= 0 && next < count, "a state becomes nothing");
}

std::int64_t entries_of(const CellGraph& cell, AxisId lane, int symbol, const std::map<AxisId, std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (AxisId a : cell.symbols[symbol].axes)
    if (a != lane) count *= length_of(cell, a, sizes);
  return count;
}

std::set<SymbolEntry> zero_transitions(const TransitionCell& transitions, AxisId lane, ScalarizeOptions options) {
  options.zero.clear();
  options.own = static_cast<int>(transitions.position.size());
  if (transitions.kind != Scannable::Affine) return {};
  // Least fixed point: all but the identity are zero until a step moves something there.
  for (std::size_t i = 0; i < transitions.position.size(); ++i) {
    for (std::size_t j = 0; j < transitions.position.size(); ++j) {
      if (transitions.position[i][j] < 0) continue;
      const int symbol = transitions.cell.updates[transitions.position[i][j]].symbol;
      const std::int64_t rows = entries_of(transitions.cell, lane, transitions.cell.updates[i].symbol, options.sizes);
      const std::int64_t columns =
          entries_of(transitions.cell, lane, transitions.cell.updates[j].symbol, options.sizes);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c)
          if (i != j || r != c) options.zero.insert({symbol, r * columns + c});
    }
  }
  for (;;) {
    const std::vector<SymbolEntry> moved = Scalarizer(transitions.cell, lane, options).moved();
    if (moved.empty()) return options.zero;
    for (const SymbolEntry& e : moved) options.zero.erase(e);
  }
}

}  // namespace cellc
