#include "compiler/graph/graph.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "compiler/graph/axes.h"
#include "compiler/graph/operator_value.h"

namespace cellc {

namespace {

constexpr OpInfo kOps[] = {
#define CELLC_ROW(Name, text, arity, call, slope, values, cost, bits, zero, latex) \
  {#Name, text, arity, call, Slope::slope, ValueKind::values, Cost::cost, Bits::bits, Zero::zero, latex},
#define CELLC_OP(Name, text, arity, slope, values, cost, bits, zero, range, llvm, cuda, latex, ...) \
  CELLC_ROW(Name, text, arity, false, slope, values, cost, bits, zero, latex)
#define CELLC_CALL(Name, text, arity, slope, values, cost, bits, zero, range, llvm, cuda, latex, ...) \
  CELLC_ROW(Name, #text, arity, true, slope, values, cost, bits, zero, latex)
#include "compiler/graph/ops.def"
#undef CELLC_ROW
};
constexpr std::size_t kOpCount = std::size(kOps);

constexpr const char* kNames[] = {
#define CELLC_OP(Name, ...) #Name,
#define CELLC_NODE(Name) #Name,
#include "compiler/graph/ops.def"
};

// A multiplication, so that small neighbouring numbers (and ids are such) spread over all bits: with
// shifts and additions only, thousands of sums of neighbouring nodes fell on the same value.
std::size_t mix(std::size_t h, std::size_t v) {
  h = (h ^ v) * 0xbf58476d1ce4e5b9ull;
  return h ^ (h >> 29);
}

std::size_t hash_of(const Node& n) {
  std::size_t h = static_cast<std::size_t>(n.op);
  for (NodeId a : n.args) h = mix(h, a);
  h = mix(h, std::bit_cast<std::uint64_t>(n.number));
  h = mix(h, static_cast<std::size_t>(n.symbol + 1));
  for (const Index& i : n.index) h = mix(mix(h, i.axis), static_cast<std::size_t>(i.literal));
  h = mix(mix(h, n.lag), n.lag_axis);
  for (const auto& [from, to] : n.map) h = mix(mix(mix(h, from), to.axis), static_cast<std::size_t>(to.literal));
  for (AxisId b : n.bound) h = mix(h, b);
  return h;
}

bool same(const Node& a, const Node& b) {
  // Numbers are compared by bits: 0 and -0 differ, and a NaN constant equals itself.
  return a.op == b.op && a.args == b.args &&
         std::bit_cast<std::uint64_t>(a.number) == std::bit_cast<std::uint64_t>(b.number) && a.symbol == b.symbol &&
         a.index == b.index && a.lag == b.lag && a.lag_axis == b.lag_axis && a.map == b.map && a.bound == b.bound;
}

void sort_unique(std::vector<AxisId>& axes) {
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
}

}  // namespace

bool is_elementwise(Op op) { return static_cast<std::size_t>(op) < kOpCount; }

const OpInfo& op_info(Op op) {
  if (!is_elementwise(op)) throw std::logic_error("op_info: not an elementwise operator");
  return kOps[static_cast<std::size_t>(op)];
}

const char* op_name(Op op) { return kNames[static_cast<std::size_t>(op)]; }

std::optional<Op> op_by_call_name(const std::string& name) {
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (kOps[i].call && name == kOps[i].text) return static_cast<Op>(i);
  return std::nullopt;
}

std::optional<Op> op_by_sign(const std::string& sign) {
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (!kOps[i].call && kOps[i].arity == 2 && sign == kOps[i].text) return static_cast<Op>(i);
  return std::nullopt;
}

Graph::Graph() = default;

AxisId Graph::add_header_axis(const std::string& name, std::optional<std::int64_t> fixed) {
  const AxisId id = static_cast<AxisId>(axes_.size());
  axes_.push_back({name, id, fixed, kNoAxis, 0});
  return id;
}

AxisId Graph::renamed_axis(const std::string& name, AxisId like) {
  const AxisId extent = axes_[like].extent_of;
  for (AxisId i = 0; i < axes_.size(); ++i)
    if (axes_[i].name == name && axes_[i].extent_of == extent && axes_[i].copy_of == kNoAxis) return i;
  axes_.push_back({name, extent, axes_[extent].fixed, kNoAxis, 0});
  return static_cast<AxisId>(axes_.size() - 1);
}

AxisId Graph::copy_axis(AxisId axis, int number) {
  // A copy of a copy is a copy of the original, so that numbers stay small and names readable.
  if (axes_[axis].copy_of != kNoAxis) axis = axes_[axis].copy_of;
  for (AxisId i = 0; i < axes_.size(); ++i)
    if (axes_[i].copy_of == axis && axes_[i].copy_number == number) return i;
  const Axis base = axes_[axis];
  axes_.push_back({base.name + "#" + std::to_string(number), base.extent_of, base.fixed, axis, number});
  return static_cast<AxisId>(axes_.size() - 1);
}

bool Graph::same_length(AxisId a, AxisId b) const {
  const Axis &x = axes_[axes_[a].extent_of], &y = axes_[axes_[b].extent_of];
  return axes_[a].extent_of == axes_[b].extent_of || (x.fixed && y.fixed && *x.fixed == *y.fixed);
}

Graph Graph::without_nodes() const {
  Graph result;
  result.axes_ = axes_;
  return result;
}

NodeId Graph::intern(Node node) {
  const std::size_t h = hash_of(node);
  auto [begin, end] = table_.equal_range(h);
  for (auto it = begin; it != end; ++it) {
    if (!same(nodes_[it->second], node)) continue;
    if (nodes_[it->second].span.length == 0) nodes_[it->second].span = node.span;
    return it->second;
  }
  const NodeId id = static_cast<NodeId>(nodes_.size());
  nodes_.push_back(std::move(node));
  table_.emplace(h, id);
  return id;
}

NodeId Graph::constant(double value, Span span) {
  Node n;
  n.op = Op::Constant;
  n.number = value;
  n.span = span;
  return intern(std::move(n));
}

NodeId Graph::size(AxisId axis, Span span) {
  const Axis& extent = axes_[axes_[axis].extent_of];
  if (extent.fixed) return constant(static_cast<double>(*extent.fixed), span);
  Node n;
  n.op = Op::Size;
  n.index = {Index{axes_[axis].extent_of, 0}};
  n.span = span;
  return intern(std::move(n));
}

NodeId Graph::read(int symbol, std::vector<Index> index, Span span, int lag, AxisId lag_axis) {
  Node n;
  n.op = Op::Read;
  n.symbol = symbol;
  n.lag = lag;
  n.lag_axis = lag_axis;
  n.span = span;
  for (const Index& i : index)
    if (i.is_axis()) n.axes.push_back(i.axis);
  if (lag_axis != kNoAxis) n.axes.push_back(lag_axis);
  sort_unique(n.axes);
  n.index = std::move(index);
  return intern(std::move(n));
}

NodeId Graph::eye(Index a, Index b, Span span) {
  if (a.is_axis() && b.is_axis() && a.axis == b.axis) return constant(1, span);
  if (!a.is_axis() && !b.is_axis()) return constant(a.literal == b.literal ? 1 : 0, span);
  Node n;
  n.span = span;
  if (a.is_axis() && b.is_axis()) {
    n.op = Op::Eye;
    if (b.axis < a.axis) std::swap(a, b);
    n.axes = {a.axis, b.axis};
  } else {
    n.op = Op::OneHot;
    if (b.is_axis()) std::swap(a, b);
    n.axes = {a.axis};
  }
  n.index = {a, b};
  return intern(std::move(n));
}

NodeId Graph::op(Op op, std::vector<NodeId> args, Span span) {
  const OpInfo& info = op_info(op);
  if (static_cast<int>(args.size()) != info.arity)
    throw std::logic_error(std::string("graph: wrong number of operands for ") + info.name);
  if (std::all_of(args.begin(), args.end(), [&](NodeId a) { return nodes_[a].op == Op::Constant; })) {
    double x[3] = {};
    for (std::size_t i = 0; i < args.size(); ++i) x[i] = nodes_[args[i]].number;
    return constant(operator_value(op, x), span);
  }
  Node n;
  n.op = op;
  n.span = span;
  for (NodeId a : args) n.axes.insert(n.axes.end(), nodes_[a].axes.begin(), nodes_[a].axes.end());
  sort_unique(n.axes);
  n.args = std::move(args);
  return intern(std::move(n));
}

NodeId Graph::reduce_sum(std::vector<AxisId> bound, NodeId body, Span span) {
  sort_unique(bound);
  Node n;
  n.op = Op::ReduceSum;
  n.span = span;
  NodeId factor = kNoNode;
  for (AxisId b : bound) {
    if (has_axis(body, b)) {
      n.bound.push_back(b);
    } else {
      const NodeId length = size(b, span);
      factor = factor == kNoNode ? length : op(Op::Mul, {factor, length}, span);
    }
  }
  NodeId result = body;
  if (!n.bound.empty()) {
    for (AxisId a : nodes_[body].axes)
      if (!contains(n.bound, a)) n.axes.push_back(a);
    n.args = {body};
    result = intern(std::move(n));
  }
  return factor == kNoNode ? result : op(Op::Mul, {factor, result}, span);
}

NodeId Graph::reduce_max(std::vector<AxisId> bound, NodeId body, Span span) {
  sort_unique(bound);
  Node n;
  n.op = Op::ReduceMax;
  n.span = span;
  for (AxisId b : bound)
    if (has_axis(body, b)) n.bound.push_back(b);
  if (n.bound.empty()) return body;
  for (AxisId a : nodes_[body].axes)
    if (!contains(n.bound, a)) n.axes.push_back(a);
  n.args = {body};
  return intern(std::move(n));
}

NodeId Graph::softmax(std::vector<AxisId> bound, NodeId body, Span span) {
  return normalised(Op::Softmax, std::move(bound), body, span);
}

NodeId Graph::max_share(std::vector<AxisId> bound, NodeId body, Span span) {
  return normalised(Op::MaxShare, std::move(bound), body, span);
}

NodeId Graph::normalised(Op op, std::vector<AxisId> bound, NodeId body, Span span) {
  sort_unique(bound);
  Node n;
  n.op = op;
  n.span = span;
  // Along an axis that the body lacks all entries are equal: each gets its share of one.
  NodeId share = kNoNode;
  for (AxisId b : bound) {
    if (has_axis(body, b)) {
      n.bound.push_back(b);
    } else {
      const NodeId length = size(b, span);
      share = share == kNoNode ? length : this->op(Op::Mul, {share, length}, span);
    }
  }
  NodeId result;
  if (n.bound.empty()) {
    result = constant(1, span);
  } else {
    n.axes = nodes_[body].axes;
    n.args = {body};
    result = intern(std::move(n));
  }
  return share == kNoNode ? result : this->op(Op::Div, {result, share}, span);
}

NodeId Graph::reindex(NodeId node, std::vector<std::pair<AxisId, Index>> map, Span span) {
  const Node source = nodes_[node];  // a copy: interning may move the table
  auto image = [&](AxisId axis) {
    for (const auto& [from, to] : map)
      if (from == axis) return to;
    return Index{axis, 0};
  };
  std::vector<std::pair<AxisId, Index>> used;
  for (AxisId a : source.axes) {
    const Index to = image(a);
    if (!(to == Index{a, 0})) used.emplace_back(a, to);
  }
  if (used.empty()) return node;
  if (source.span.length) span = source.span;

  auto through = [&](Index i) { return i.is_axis() ? image(i.axis) : i; };
  switch (source.op) {
    case Op::Read: {
      std::vector<Index> index = source.index;
      for (Index& i : index) i = through(i);
      AxisId lag_axis = source.lag_axis;
      int lag = source.lag;
      if (lag_axis != kNoAxis) {
        const Index to = image(lag_axis);
        if (!to.is_axis()) lag += static_cast<int>(to.literal);
        lag_axis = to.is_axis() ? to.axis : kNoAxis;
      }
      return read(source.symbol, std::move(index), span, lag, lag_axis);
    }
    case Op::Eye:
    case Op::OneHot:
      return eye(through(source.index[0]), through(source.index[1]), span);
    case Op::Reindex: {
      std::vector<std::pair<AxisId, Index>> composed;
      for (AxisId a : nodes_[source.args[0]].axes) {
        Index to{a, 0};
        for (const auto& [from, target] : source.map)
          if (from == a) to = target;
        composed.emplace_back(a, through(to));
      }
      return reindex(source.args[0], std::move(composed), span);
    }
    default:
      break;
  }
  Node n;
  n.op = Op::Reindex;
  n.span = span;
  n.args = {node};
  for (AxisId a : source.axes) {
    const Index to = image(a);
    if (to.is_axis()) n.axes.push_back(to.axis);
  }
  sort_unique(n.axes);
  std::sort(used.begin(), used.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  n.map = std::move(used);
  return intern(std::move(n));
}

NodeId Graph::surrogate(NodeId value, std::vector<NodeId> arguments, std::vector<NodeId> slopes, Span span) {
  if (arguments.size() != slopes.size()) throw std::logic_error("graph: one slope per argument");
  Node n;
  n.op = Op::Surrogate;
  n.span = span;
  n.args = {value};
  n.args.insert(n.args.end(), arguments.begin(), arguments.end());
  n.args.insert(n.args.end(), slopes.begin(), slopes.end());
  // The value alone decides the axes: arguments and slopes only describe its gradient.
  n.axes = nodes_[value].axes;
  return intern(std::move(n));
}

NodeId Graph::contract(AxisId axis, NodeId a, NodeId b, Span span) {
  return reduce_sum({axis}, op(Op::Mul, {a, b}, span), span);
}

bool Graph::has_axis(NodeId node, AxisId axis) const { return contains(nodes_[node].axes, axis); }

bool Graph::is_constant(NodeId node, double value) const {
  return nodes_[node].op == Op::Constant && nodes_[node].number == value;
}

int CellGraph::find_symbol(const std::string& name) const {
  for (std::size_t i = 0; i < symbols.size(); ++i)
    if (symbols[i].name == name) return static_cast<int>(i);
  return -1;
}

NodeId Graph::rebuild(const Node& node, std::vector<NodeId> args) {
  switch (node.op) {
    case Op::Constant:
      return constant(node.number, node.span);
    case Op::Size:
      return size(node.index[0].axis, node.span);
    case Op::Read:
      return read(node.symbol, node.index, node.span, node.lag, node.lag_axis);
    case Op::Eye:
    case Op::OneHot:
      return eye(node.index[0], node.index[1], node.span);
    case Op::ReduceSum:
      return reduce_sum(node.bound, args[0], node.span);
    case Op::ReduceMax:
      return reduce_max(node.bound, args[0], node.span);
    case Op::Softmax:
      return softmax(node.bound, args[0], node.span);
    case Op::MaxShare:
      return max_share(node.bound, args[0], node.span);
    case Op::Reindex:
      return reindex(args[0], node.map, node.span);
    case Op::Surrogate: {
      const auto half = args.begin() + 1 + static_cast<std::ptrdiff_t>(args.size() - 1) / 2;
      return surrogate(args[0], {args.begin() + 1, half}, {half, args.end()}, node.span);
    }
    default:
      return op(node.op, std::move(args), node.span);
  }
}

}  // namespace cellc
