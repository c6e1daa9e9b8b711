#include "compiler/derive/scalarize.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <tuple>

#include "compiler/derive/derivations.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/operator_value.h"

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
      : cell_(cell), graph_(cell.graph), lane_(lane), options_(options) {
    Scalar zero;  // number 0 of the list: a zero by proof, which no other operand can make anything else
    result_.scalars.push_back(zero);
  }

  ScalarizedCell run() {
    step([&](const SymbolEntry& state, int next) {
      if (options_.zero.contains(state)) return;
      result_.states.push_back(state);
      result_.next.push_back(next);
    });
    drop_unused();
    return std::move(result_);
  }

  /// Entries of `zero` that one step makes something else.
  std::vector<SymbolEntry> moved() {
    std::vector<SymbolEntry> entries;
    step([&](const SymbolEntry& state, int next) {
      if (options_.zero.contains(state) &&
          !(is_constant(next) && result_.scalars[static_cast<std::size_t>(next)].number == 0))
        entries.push_back(state);
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
      carries_ = !std::binary_search(of_step.begin(), of_step.end(), id);
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

  static constexpr int kProvedZero = 0;

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
    span_ = n.span;
    std::int64_t count = 1;
    for (AxisId a : axes) {
      count *= length(a);
      if (count > most_values()) too_long();
    }
    std::vector<int> values;
    if (!n.bound.empty()) {
      if (std::find(n.bound.begin(), n.bound.end(), lane_) != n.bound.end()) no_lane_cell("a reduction");
      if (n.op == Op::Softmax || n.op == Op::MaxShare)
        values = shares(n, axes);
      else
        for_each(axes, [&](const auto& at) { values.push_back(reduce(n.op, body(n, axes, at))); });
    } else {
      for_each(axes, [&](const auto& at) { values.push_back(entry(n, axes, at)); });
    }
    std::size_t i = 0;
    for_each(axes, [&](const std::vector<std::int64_t>& at) {
      Scalar& s = result_.scalars[static_cast<std::size_t>(values[i++])];
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
        return constant(n.number);
      case Op::Size:
        return constant(static_cast<double>(length(n.index[0].axis)));
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
        return constant(a == b);
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
        return operation(n.op, args, static_cast<int>(n.args.size()));
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
    if (options_.zero.contains(entry)) return kProvedZero;
    Scalar r;
    r.op = Op::Read;
    r.entry = entry;
    return intern(std::move(r));
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

  int reduce(Op op, const std::vector<int>& values) {
    // From zero and from -infinity, as the CPU's kernels: a sum of nothing but -0 is +0. The sign of a
    // transition's zero says nothing.
    if (op == Op::ReduceSum) {
      if (values.empty()) return constant(0);
      if (std::all_of(values.begin(), values.end(), [](int v) { return v == kProvedZero; })) return kProvedZero;
      std::size_t first = 0;
      int sum = carries_ || positive_zero(values[0]) ? values[first++] : constant(0);
      for (; first < values.size(); ++first) sum = operation(Op::Add, {sum, values[first]});
      return sum;
    }
    if (values.empty()) return constant(-std::numeric_limits<double>::infinity());
    int most = values[0];
    for (std::size_t i = 1; i < values.size(); ++i) most = operation(Op::Max, {most, values[i]});
    return most;
  }

  /// A value that is never -0: adding it to zero changes nothing.
  bool positive_zero(int id) const {
    const Op op = result_.scalars[static_cast<std::size_t>(id)].op;
    return is_elementwise(op) && op_info(op).zero == Zero::Plus;
  }

  /// exp(x - max)/sum, or (x == max)/sum, for every position of the free and the bound axes.
  std::vector<int> shares(const Node& n, const std::vector<AxisId>& axes) {
    std::vector<AxisId> free;
    for (AxisId a : axes)
      if (!std::binary_search(n.bound.begin(), n.bound.end(), a)) free.push_back(a);
    std::map<std::vector<std::int64_t>, std::vector<int>> of_free;
    for_each(free, [&](const std::vector<std::int64_t>& at) {
      const std::vector<int> x = body(n, free, at);
      const int most = reduce(Op::ReduceMax, x);
      std::vector<int> weights;
      for (int v : x)
        weights.push_back(n.op == Op::Softmax ? operation(Op::Exp, {operation(Op::Sub, {v, most})})
                                              : operation(Op::Eq, {v, most}));
      const int sum = reduce(Op::ReduceSum, weights);
      for (int& w : weights) w = operation(Op::Div, {w, sum});
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

  // Scalars --------------------------------------------------------------------------------------

  int constant(double number) {
    Scalar s;
    s.number = options_.f64 ? number : static_cast<float>(number);
    return intern(std::move(s));
  }

  int operation(Op op, std::initializer_list<int> args) {
    int list[3] = {-1, -1, -1};
    std::copy(args.begin(), args.end(), list);
    return operation(op, list, static_cast<int>(args.size()));
  }

  bool is_constant(int id) const { return result_.scalars[static_cast<std::size_t>(id)].op == Op::Constant; }
  bool is_number(int id, double number) const {
    const Scalar& s = result_.scalars[static_cast<std::size_t>(id)];
    return id != kProvedZero && s.op == Op::Constant &&
           std::bit_cast<std::uint64_t>(s.number) == std::bit_cast<std::uint64_t>(number);
  }

  int operation(Op op, const int (&args)[3], int arity) {
    const int a = args[0], b = args[1];
    if (op == Op::Mul && (a == kProvedZero || b == kProvedZero)) return kProvedZero;
    if (op == Op::Mul && carries_ && (zero_by_form(a) || zero_by_form(b))) return kProvedZero;
    if (op == Op::Add && a == kProvedZero) return b;
    if ((op == Op::Add || op == Op::Sub) && b == kProvedZero) return a;
    if (op == Op::Neg && a == kProvedZero) return kProvedZero;
    if (op == Op::Mul && is_number(a, 1)) return b;
    if (op == Op::Mul && is_number(b, 1)) return a;
    if (op == Op::Where && is_constant(a))
      return result_.scalars[static_cast<std::size_t>(a)].number != 0 ? b : args[2];
    if (std::all_of(args, args + arity, [&](int x) { return is_constant(x); }) && op_info(op).bits == Bits::Exact) {
      double x[3] = {};
      for (int i = 0; i < arity; ++i) x[i] = result_.scalars[static_cast<std::size_t>(args[i])].number;
      return constant(operator_value(op, x));
    }
    Scalar s;
    s.op = op;
    s.arity = arity;
    std::copy(args, args + 3, s.args.begin());
    return intern(std::move(s));
  }

  /// Zero whatever finite values it is made of: 0*w, of an identity's entry.
  bool zero_by_form(int id) const {
    const Scalar& s = result_.scalars[static_cast<std::size_t>(id)];
    switch (s.op) {
      case Op::Constant:
        return s.number == 0;
      case Op::Mul:
        return zero_by_form(s.args[0]) || zero_by_form(s.args[1]);
      case Op::Neg:
        return zero_by_form(s.args[0]);
      default:
        return false;
    }
  }

  using Key = std::tuple<Op, std::array<int, 3>, std::uint64_t, SymbolEntry>;

  int intern(Scalar s) {
    const Key key{s.op, s.args, std::bit_cast<std::uint64_t>(s.number), s.entry};
    const auto [it, fresh] = table_.emplace(key, static_cast<int>(result_.scalars.size()));
    if (!fresh) return it->second;
    if (static_cast<std::int64_t>(result_.scalars.size()) > most_values()) too_long();
    s.span = span_;
    result_.scalars.push_back(std::move(s));
    return it->second;
  }

  /// Not all that is made need be used, but most is: a guard on time and memory, well above the limit.
  std::int64_t most_values() const { return 16 * options_.limit + 1024; }

  [[noreturn]] void too_long() const {
    throw ScalarizedTooLong(
        fmt::format("a step of '{}' takes more than {} scalar operations", cell_.name, options_.limit));
  }

  void drop_unused() {
    std::vector<char> used(result_.scalars.size(), 0);
    for (int r : result_.next) used[static_cast<std::size_t>(r)] = 1;
    std::int64_t operations = 0;
    for (std::size_t i = used.size(); i-- > 0;) {
      if (!used[i]) continue;
      const Scalar& s = result_.scalars[i];
      operations += s.arity > 0;
      for (int k = 0; k < s.arity; ++k) used[static_cast<std::size_t>(s.args[k])] = 1;
    }
    if (operations > options_.limit) too_long();
    std::vector<int> image(used.size(), -1);
    std::vector<Scalar> kept;
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      image[i] = static_cast<int>(kept.size());
      Scalar s = std::move(result_.scalars[i]);
      for (int k = 0; k < s.arity; ++k) s.args[k] = image[static_cast<std::size_t>(s.args[k])];
      kept.push_back(std::move(s));
    }
    result_.scalars = std::move(kept);
    for (int& r : result_.next) r = image[static_cast<std::size_t>(r)];
  }

  const CellGraph& cell_;
  const Graph& graph_;
  const AxisId lane_;
  const ScalarizeOptions& options_;
  ScalarizedCell result_;
  std::map<NodeId, std::vector<int>> values_;  // by node: row-major over its axes but the lane
  std::map<Key, int> table_;
  Span span_;
  bool carries_ = false;  // what is computed now is for transitions alone
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
