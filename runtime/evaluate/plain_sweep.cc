#include "runtime/evaluate/plain_sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/evaluate/plain_slopes.h"

namespace cellc {
namespace {

/// All positions of some axes, the last one fastest, and where each of some tensors has its entry for them.
class Positions {
 public:
  Positions(const Evaluator& evaluator, const std::vector<AxisId>& axes, const std::vector<const Tensor*>& tensors)
      : at_(axes.size()), strides_(axes.size(), std::vector<std::int64_t>(tensors.size())), entries_(tensors.size()) {
    for (const AxisId a : axes) lengths_.push_back(evaluator.length(a)), left_ *= lengths_.back();
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      std::int64_t stride = 1;
      for (std::size_t k = tensors[t]->axes.size(); k-- > 0; stride *= tensors[t]->shape[k])
        for (std::size_t i = 0; i < axes.size(); ++i)
          if (axes[i] == tensors[t]->axes[k]) strides_[i][t] = stride;
    }
  }
  bool more() const { return left_ > 0; }
  std::int64_t at(std::size_t axis) const { return at_[axis]; }
  std::int64_t entry(std::size_t tensor) const { return entries_[tensor]; }
  void next() {
    --left_;
    for (std::size_t i = at_.size(); i-- > 0;) {
      const bool wraps = ++at_[i] == lengths_[i];
      for (std::size_t t = 0; t < entries_.size(); ++t)
        entries_[t] += wraps ? strides_[i][t] * (1 - lengths_[i]) : strides_[i][t];
      if (!wraps) return;
      at_[i] = 0;
    }
  }

 private:
  std::vector<std::int64_t> lengths_, at_;
  std::vector<std::vector<std::int64_t>> strides_;
  std::vector<std::int64_t> entries_;
  std::int64_t left_ = 1;
};

std::size_t place_of(const std::vector<AxisId>& axes, AxisId axis) {
  return static_cast<std::size_t>(std::find(axes.begin(), axes.end(), axis) - axes.begin());
}

}  // namespace

PlainSweep::Cotangent& PlainSweep::cotangent_of(NodeId node) {
  const auto [at, fresh] = pending_.try_emplace(node);
  if (fresh) {
    const std::size_t count = evaluator_.value(node).data.size();
    at->second.numbers.resize(count);
    at->second.reached.resize(count);
  }
  return at->second;
}

void PlainSweep::seed(NodeId node, const std::vector<AxisId>& index, const std::vector<double>& cotangent) {
  Positions at(evaluator_, index, {&evaluator_.value(node)});
  Cotangent& to = cotangent_of(node);
  for (std::size_t i = 0; at.more(); at.next(), ++i) to.add(at.entry(0), cotangent[i]);
}

void PlainSweep::run(const Visit& visit) {
  // Users have larger ids than operands: when a node's turn comes, all that is passed to it is there.
  while (!pending_.empty()) {
    const auto last = std::prev(pending_.end());
    const NodeId id = last->first;
    const Cotangent c = std::move(last->second);
    pending_.erase(last);
    if (cell_.graph[id].op == Op::Read)
      visit_reads(id, c, visit);
    else
      pass(id, c);
  }
}

void PlainSweep::pass(NodeId id, const Cotangent& c) {
  switch (cell_.graph[id].op) {
    case Op::Constant:
    case Op::Size:
    case Op::Eye:
    case Op::OneHot:
    case Op::MaxShare:
      return;
    case Op::ReduceSum:
    case Op::ReduceMax:
    case Op::Softmax:
      return pass_over_bound(id, c);
    case Op::Reindex:
      return pass_reindexed(id, c);
    case Op::Surrogate:
      return pass_declared(id, c);
    default:
      return pass_elementwise(id, c);
  }
}

void PlainSweep::pass_elementwise(NodeId id, const Cotangent& c) {
  const Node& n = cell_.graph[id];
  const Tensor& y = evaluator_.value(id);
  std::vector<const Tensor*> operands;
  std::vector<Cotangent*> to;
  for (const NodeId a : n.args) {
    operands.push_back(&evaluator_.value(a));
    to.push_back(&cotangent_of(a));
  }
  Positions at(evaluator_, y.axes, operands);
  for (std::size_t e = 0; at.more(); at.next(), ++e) {
    if (!c.reached[e]) continue;
    double x[3] = {};
    for (std::size_t i = 0; i < operands.size(); ++i) x[i] = operands[i]->data[static_cast<std::size_t>(at.entry(i))];
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (const auto slope = plain_slope(n.op, static_cast<int>(i), x, y.data[e]))
        to[i]->add(at.entry(i), *slope * c.numbers[e]);
  }
}

/// Sums, maxima and softmax: for each place of the free axes those of the bound ones.
void PlainSweep::pass_over_bound(NodeId id, const Cotangent& c) {
  const Node& n = cell_.graph[id];
  const Tensor &y = evaluator_.value(id), &body = evaluator_.value(n.args[0]);
  std::vector<AxisId> free;
  for (const AxisId a : n.axes)
    if (std::find(n.bound.begin(), n.bound.end(), a) == n.bound.end()) free.push_back(a);
  std::vector<AxisId> axes = free;
  axes.insert(axes.end(), n.bound.begin(), n.bound.end());
  Cotangent& to = cotangent_of(n.args[0]);
  std::int64_t run = 1;
  for (const AxisId b : n.bound) run *= evaluator_.length(b);
  struct Entry {
    std::int64_t body;
    std::size_t y;
  };
  std::vector<Entry> entries;
  for (Positions at(evaluator_, axes, {&body, &y}); at.more(); at.next()) {
    entries.push_back({at.entry(0), static_cast<std::size_t>(at.entry(1))});
    if (static_cast<std::int64_t>(entries.size()) < run) continue;
    double along = 0;  // softmax: Σ y c
    int largest = 0;   // max: how many share it
    bool any = false;
    for (const Entry& e : entries) {
      any = any || c.reached[e.y];
      along += y.data[e.y] * c.numbers[e.y];
      largest += body.data[static_cast<std::size_t>(e.body)] == y.data[e.y];
    }
    for (const Entry& e : entries) {
      if (!any) break;
      if (n.op == Op::ReduceSum)
        to.add(e.body, c.numbers[e.y]);
      else if (n.op == Op::Softmax)
        to.add(e.body, y.data[e.y] * (c.numbers[e.y] - along));
      else if (largest == 0)  // the largest is no number
        to.add(e.body, std::numeric_limits<double>::quiet_NaN());
      else if (body.data[static_cast<std::size_t>(e.body)] == y.data[e.y])
        to.add(e.body, c.numbers[e.y] / largest);
    }
    entries.clear();
  }
}

void PlainSweep::pass_reindexed(NodeId id, const Cotangent& c) {
  const Node& n = cell_.graph[id];
  const Tensor& body = evaluator_.value(n.args[0]);
  Cotangent& to = cotangent_of(n.args[0]);
  Positions at(evaluator_, n.axes, {});
  for (std::size_t e = 0; at.more(); at.next(), ++e) {
    if (!c.reached[e]) continue;
    std::int64_t entry = 0;
    for (std::size_t k = 0; k < body.axes.size(); ++k) {
      Index read{body.axes[k], 0};
      for (const auto& [from, target] : n.map)
        if (from == body.axes[k]) read = target;
      entry = entry * body.shape[k] + (read.is_axis() ? at.at(place_of(n.axes, read.axis)) : read.literal);
    }
    to.add(entry, c.numbers[e]);
  }
}

/// A function with declared slopes: its arguments get those, and what computes its value gets nothing.
void PlainSweep::pass_declared(NodeId id, const Cotangent& c) {
  const Node& n = cell_.graph[id];
  const std::size_t count = (n.args.size() - 1) / 2;
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor &argument = evaluator_.value(n.args[1 + i]), &slope = evaluator_.value(n.args[1 + count + i]);
    Cotangent& to = cotangent_of(n.args[1 + i]);
    std::vector<AxisId> axes = n.axes;
    for (const AxisId a : slope.axes)
      if (std::find(axes.begin(), axes.end(), a) == axes.end()) axes.push_back(a);
    for (Positions at(evaluator_, axes, {&argument, &slope, &evaluator_.value(id)}); at.more(); at.next()) {
      const auto e = static_cast<std::size_t>(at.entry(2));
      if (c.reached[e]) to.add(at.entry(0), slope.data[static_cast<std::size_t>(at.entry(1))] * c.numbers[e]);
    }
  }
}

void PlainSweep::visit_reads(NodeId id, const Cotangent& c, const Visit& visit) {
  const Node& n = cell_.graph[id];
  std::vector<std::int64_t> position(n.index.size());
  Positions at(evaluator_, n.axes, {});
  for (std::size_t e = 0; at.more(); at.next(), ++e) {
    if (!c.reached[e]) continue;
    for (std::size_t p = 0; p < n.index.size(); ++p)
      position[p] = n.index[p].is_axis() ? at.at(place_of(n.axes, n.index[p].axis)) : n.index[p].literal;
    const std::int64_t more = n.lag_axis == kNoAxis ? 0 : at.at(place_of(n.axes, n.lag_axis));
    visit(n.symbol, position, n.lag + static_cast<int>(more), c.numbers[e]);
  }
}

}  // namespace cellc
