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
  const auto rounded = [this](double v) { return environment_.rounded ? environment_.rounded(v) : v; };
  const std::vector<NodeId> needed =
      walk_down(cell_.graph, {root}, [&](NodeId id) { return memo_.contains(id) ? Visit::Skip : Visit::Descend; });
  for (NodeId id : needed) {
    const Node& n = cell_.graph[id];
    Tensor t;
    t.axes = n.axes;
    for (AxisId a : n.axes) t.shape.push_back(length(a));
    const std::int64_t count = volume(t.shape);
    t.data.resize(static_cast<std::size_t>(count));
    const auto arg = [&](std::size_t i) -> const Tensor& { return memo_.at(n.args[i]); };
    const auto checked = [&](const Index& i, AxisId axis) {
      if (i.literal >= length(axis))
        throw std::invalid_argument(
            fmt::format("entry {} of axis '{}', which has {}", i.literal, cell_.graph.axis(axis).name, length(axis)));
      return i.literal;
    };
    // The place of each axis of this node among its positions.
    const auto place = [&](AxisId a) {
      return static_cast<std::size_t>(std::lower_bound(n.axes.begin(), n.axes.end(), a) - n.axes.begin());
    };

    if (is_elementwise(n.op)) {
      std::vector<std::vector<std::int64_t>> strides;
      for (std::size_t i = 0; i < n.args.size(); ++i) strides.push_back(strides_over(arg(i), t.axes));
      Walk walk(t.shape, std::move(strides));
      for (std::int64_t e = 0; e < count; ++e, walk.next()) {
        double x[3] = {};
        for (std::size_t i = 0; i < n.args.size(); ++i) x[i] = arg(i).data[walk.offset[i]];
        t.data[e] = rounded(operator_value(n.op, x));
      }
      memo_[id] = std::move(t);
      continue;
    }
    switch (n.op) {
      case Op::Constant:
        t.data[0] = rounded(n.number);
        break;
      case Op::Size:
        t.data[0] = static_cast<double>(length(n.index[0].axis));
        break;
      case Op::Surrogate: {
        t = arg(0);
        break;
      }
      case Op::Read: {
        const Symbol& symbol = cell_.symbols[n.symbol];
        std::vector<std::int64_t> position(n.index.size());
        Walk walk(t.shape, {});
        for (std::int64_t e = 0; e < count; ++e, walk.next()) {
          for (std::size_t p = 0; p < n.index.size(); ++p)
            position[p] =
                n.index[p].is_axis() ? walk.position[place(n.index[p].axis)] : checked(n.index[p], symbol.axes[p]);
          const std::int64_t more = n.lag_axis == kNoAxis ? 0 : walk.position[place(n.lag_axis)];
          t.data[e] = environment_.read(n.symbol, position, n.lag + static_cast<int>(more));
        }
        break;
      }
      case Op::Eye:
      case Op::OneHot: {
        Walk walk(t.shape, {});
        for (std::int64_t e = 0; e < count; ++e, walk.next()) {
          const std::int64_t a = walk.position[place(n.index[0].axis)];
          const std::int64_t b =
              n.op == Op::Eye ? walk.position[place(n.index[1].axis)] : checked(n.index[1], n.index[0].axis);
          t.data[e] = a == b;
        }
        break;
      }
      case Op::ReduceSum:
      case Op::ReduceMax:
      case Op::Softmax:
      case Op::MaxShare: {
        // Bound axes run innermost; each free position owns one run of them.
        std::vector<AxisId> free, axes;
        for (AxisId a : n.axes)
          if (!std::binary_search(n.bound.begin(), n.bound.end(), a)) free.push_back(a);
        axes = free;
        axes.insert(axes.end(), n.bound.begin(), n.bound.end());
        const Tensor body = value_over(n.args[0], axes);
        std::int64_t run = 1;
        for (AxisId b : n.bound) run *= length(b);
        std::int64_t runs = 1;
        for (AxisId a : free) runs *= length(a);
        Tensor soft = body;
        for (std::int64_t r = 0; r < runs; ++r) {
          const double* x = body.data.data() + r * run;
          double most = -std::numeric_limits<double>::infinity(), sum = 0;
          for (std::int64_t i = 0; i < run; ++i)
            if (x[i] > most || std::isnan(x[i])) most = std::isnan(most) ? most : x[i];
          if (n.op == Op::ReduceMax) {
            t.data[r] = most;
            continue;
          }
          auto weight = [&](std::int64_t i) -> double {
            if (n.op == Op::MaxShare) return x[i] == most;
            return n.op == Op::Softmax ? std::exp(x[i] - most) : x[i];
          };
          for (std::int64_t i = 0; i < run; ++i) sum = rounded(sum + weight(i));
          if (n.op == Op::ReduceSum) {
            t.data[r] = sum;
            continue;
          }
          for (std::int64_t i = 0; i < run; ++i) soft.data[r * run + i] = rounded(weight(i) / sum);
        }
        if (n.op == Op::ReduceSum || n.op == Op::ReduceMax) break;
        Walk walk(t.shape, {strides_over(soft, t.axes)});
        for (std::int64_t e = 0; e < count; ++e, walk.next()) t.data[e] = soft.data[walk.offset[0]];
        break;
      }
      case Op::Reindex: {
        const Tensor& body = arg(0);
        std::vector<Index> source;
        for (AxisId a : body.axes) {
          Index to{a, 0};
          for (const auto& [from, target] : n.map)
            if (from == a) to = target;
          source.push_back(to);
        }
        Walk walk(t.shape, {});
        for (std::int64_t e = 0; e < count; ++e, walk.next()) {
          std::int64_t at = 0;
          for (std::size_t p = 0; p < source.size(); ++p)
            at = at * body.shape[p] +
                 (source[p].is_axis() ? walk.position[place(source[p].axis)] : checked(source[p], body.axes[p]));
          t.data[e] = body.data[at];
        }
        break;
      }
      default:
        throw std::logic_error("evaluate: unknown operator");
    }
    memo_[id] = std::move(t);
  }
  return memo_.at(root);
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
