#include "compiler/graph/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>

#include "compiler/graph/graph_walk.h"
#include "compiler/graph/operator_value.h"

namespace cellc {

namespace {

std::int64_t volume(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  // More than can be counted in bytes is more than there is; an axis without entries makes it nothing.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(sizeof(double));
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (std::int64_t s : shape)
    if (__builtin_mul_overflow(n, s, &n) || n > kMost) throw std::bad_alloc();
  return n;
}

/// Walks all positions of `shape` in row-major order, carrying offsets into tensors along.
class Walk {
 public:
  Walk(const std::vector<std::int64_t>& shape, std::vector<std::vector<std::int64_t>> strides)
      : shape_(shape), strides_(std::move(strides)), position(shape.size(), 0), offset(strides_.size(), 0) {}
  void next() {
    for (std::size_t d = shape_.size(); d-- > 0;) {
      ++position[d];
      for (std::size_t t = 0; t < strides_.size(); ++t) offset[t] += strides_[t][d];
      if (position[d] < shape_[d]) return;
      for (std::size_t t = 0; t < strides_.size(); ++t) offset[t] -= strides_[t][d] * shape_[d];
      position[d] = 0;
    }
  }

 private:
  const std::vector<std::int64_t>& shape_;
  std::vector<std::vector<std::int64_t>> strides_;

 public:
  std::vector<std::int64_t> position;
  std::vector<std::int64_t> offset;
};

/// Per axis of `over`, how far `t` moves in its data; 0 where it lacks the axis.
std::vector<std::int64_t> strides_over(const Tensor& t, const std::vector<AxisId>& over) {
  std::vector<std::int64_t> strides(over.size(), 0);
  std::int64_t stride = 1;
  for (std::size_t d = t.axes.size(); d-- > 0;) {
    for (std::size_t i = 0; i < over.size(); ++i)
      if (over[i] == t.axes[d]) strides[i] += stride;
    stride *= t.shape[d];
  }
  return strides;
}

/// The place of an axis among those of a node.
std::size_t place(const Node& node, AxisId axis) {
  return static_cast<std::size_t>(std::lower_bound(node.axes.begin(), node.axes.end(), axis) - node.axes.begin());
}

}  // namespace

Evaluator::Evaluator(const CellGraph& cell, Environment environment)
    : cell_(cell), environment_(std::move(environment)) {}

void Evaluator::reset() { memo_.clear(); }

std::int64_t Evaluator::length(AxisId axis) const {
  const Axis& a = cell_.graph.axis(axis);
  if (a.fixed) return *a.fixed;
  const auto found = environment_.sizes.find(a.extent_of);
  if (found == environment_.sizes.end())
    throw std::invalid_argument(
        fmt::format("the length of axis '{}' is not given", cell_.graph.axis(a.extent_of).name));
  return found->second;
}

const Tensor& Evaluator::value(NodeId root) {
  const std::vector<NodeId> needed =
      walk_down(cell_.graph, {root}, [&](NodeId id) { return memo_.contains(id) ? Visit::Skip : Visit::Descend; });
  for (NodeId id : needed) {
    const Node& n = cell_.graph[id];
    Tensor t;
    t.axes = n.axes;
    for (AxisId a : n.axes) t.shape.push_back(length(a));
    t.data.resize(static_cast<std::size_t>(volume(t.shape)));
    compute(n, t);
    memo_[id] = std::move(t);
  }
  return memo_.at(root);
}

void Evaluator::compute(const Node& node, Tensor& to) {
  if (is_elementwise(node.op)) return compute_elementwise(node, to);
  switch (node.op) {
    case Op::Constant:
      to.data[0] = rounded(node.number);
      return;
    case Op::Size:
      to.data[0] = static_cast<double>(length(node.index[0].axis));
      return;
    case Op::Surrogate:
      to = argument(node, 0);
      return;
    case Op::Read:
      return compute_read(node, to);
    case Op::Eye:
    case Op::OneHot:
      return compute_equal(node, to);
    case Op::ReduceSum:
    case Op::ReduceMax:
    case Op::Softmax:
    case Op::MaxShare:
      return compute_reduced(node, to);
    case Op::Reindex:
      return compute_reindexed(node, to);
    default:
      throw std::logic_error("evaluate: unknown operator");
  }
}

void Evaluator::compute_elementwise(const Node& node, Tensor& to) const {
  std::vector<std::vector<std::int64_t>> strides;
  for (std::size_t i = 0; i < node.args.size(); ++i) strides.push_back(strides_over(argument(node, i), to.axes));
  Walk walk(to.shape, std::move(strides));
  for (double& entry : to.data) {
    double x[3] = {};
    for (std::size_t i = 0; i < node.args.size(); ++i) x[i] = argument(node, i).data[walk.offset[i]];
    entry = rounded(operator_value(node.op, x));
    walk.next();
  }
}

/// The entry that an index without an axis names.
std::int64_t Evaluator::entry(const Index& index, AxisId axis) const {
  if (index.literal >= length(axis))
    throw std::invalid_argument(
        fmt::format("entry {} of axis '{}', which has {}", index.literal, cell_.graph.axis(axis).name, length(axis)));
  return index.literal;
}

void Evaluator::compute_read(const Node& node, Tensor& to) const {
  const Symbol& symbol = cell_.symbols[node.symbol];
  std::vector<std::int64_t> position(node.index.size());
  Walk walk(to.shape, {});
  for (double& value : to.data) {
    for (std::size_t p = 0; p < node.index.size(); ++p)
      position[p] = node.index[p].is_axis() ? walk.position[place(node, node.index[p].axis)]
                                            : entry(node.index[p], symbol.axes[p]);
    const std::int64_t more = node.lag_axis == kNoAxis ? 0 : walk.position[place(node, node.lag_axis)];
    value = environment_.read(node.symbol, position, node.lag + static_cast<int>(more));
    walk.next();
  }
}

/// Eye: two axes; OneHot: an axis and an entry of it.
void Evaluator::compute_equal(const Node& node, Tensor& to) const {
  Walk walk(to.shape, {});
  for (double& value : to.data) {
    const std::int64_t a = walk.position[place(node, node.index[0].axis)];
    value = a == (node.op == Op::Eye ? walk.position[place(node, node.index[1].axis)]
                                     : entry(node.index[1], node.index[0].axis));
    walk.next();
  }
}

void Evaluator::compute_reduced(const Node& node, Tensor& to) {
  // Bound axes run innermost; each free position owns one run of them.
  std::vector<AxisId> axes;
  for (AxisId a : node.axes)
    if (!std::binary_search(node.bound.begin(), node.bound.end(), a)) axes.push_back(a);
  std::int64_t run = 1, runs = 1;
  for (AxisId b : node.bound) run *= length(b);
  for (AxisId a : axes) runs *= length(a);
  axes.insert(axes.end(), node.bound.begin(), node.bound.end());
  const Tensor body = value_over(node.args[0], axes);
  Tensor soft = body;
  for (std::int64_t r = 0; r < runs; ++r) {
    const double* x = body.data.data() + r * run;
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t i = 0; i < run; ++i)
      if (x[i] > most || std::isnan(x[i])) most = std::isnan(most) ? most : x[i];
    if (node.op == Op::ReduceMax) {
      to.data[r] = most;
      continue;
    }
    auto weight = [&](std::int64_t i) -> double {
      if (node.op == Op::MaxShare) return x[i] == most;
      return node.op == Op::Softmax ? std::exp(x[i] - most) : x[i];
    };
    for (std::int64_t i = 0; i < run; ++i) sum = rounded(sum + weight(i));
    if (node.op == Op::ReduceSum) {
      to.data[r] = sum;
      continue;
    }
    for (std::int64_t i = 0; i < run; ++i) soft.data[r * run + i] = rounded(weight(i) / sum);
  }
  if (node.op == Op::ReduceSum || node.op == Op::ReduceMax) return;
  Walk walk(to.shape, {strides_over(soft, to.axes)});
  for (double& value : to.data) {
    value = soft.data[walk.offset[0]];
    walk.next();
  }
}

void Evaluator::compute_reindexed(const Node& node, Tensor& to) const {
  const Tensor& body = argument(node, 0);
  std::vector<Index> source;
  for (AxisId a : body.axes) {
    Index index{a, 0};
    for (const auto& [from, target] : node.map)
      if (from == a) index = target;
    source.push_back(index);
  }
  Walk walk(to.shape, {});
  for (double& value : to.data) {
    std::int64_t at = 0;
    for (std::size_t p = 0; p < source.size(); ++p)
      at = at * body.shape[p] +
           (source[p].is_axis() ? walk.position[place(node, source[p].axis)] : entry(source[p], body.axes[p]));
    value = body.data[at];
    walk.next();
  }
}

Tensor Evaluator::value_over(NodeId node, const std::vector<AxisId>& axes) {
  const Tensor& source = value(node);
  for (AxisId a : source.axes)
    if (std::find(axes.begin(), axes.end(), a) == axes.end())
      throw std::logic_error("evaluate: a value has an axis that its layout lacks");
  Tensor t;
  t.axes = axes;
  for (AxisId a : axes) t.shape.push_back(length(a));
  t.data.resize(static_cast<std::size_t>(volume(t.shape)));
  Walk walk(t.shape, {strides_over(source, axes)});
  for (double& x : t.data) {
    x = source.data[walk.offset[0]];
    walk.next();
  }
  return t;
}

}  // namespace cellc
