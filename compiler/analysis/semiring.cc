#include "compiler/analysis/semiring.h"

#include <limits>

#include "compiler/graph/logsumexp.h"

namespace cellc {

double semiring_zero(Scannable kind) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  return kind == Scannable::MinPlus ? infinite : -infinite;
}

NodeId semiring_sum(Graph& g, Scannable kind, NodeId a, NodeId b) {
  if (kind == Scannable::MaxPlus) return g.op(Op::Max, {a, b});
  if (kind == Scannable::MinPlus) return g.op(Op::Min, {a, b});
  // max(a, b) + log(1 + exp(-|a - b|)); of two infinities the difference is no number.
  const NodeId most = g.op(Op::Max, {a, b});
  const NodeId apart = g.op(Op::Neg, {g.op(Op::Abs, {g.op(Op::Sub, {a, b})})});
  const NodeId equal = g.op(Op::Eq, {a, b});
  return g.op(Op::Add, {most, g.op(Op::Softplus, {g.op(Op::Where, {equal, g.constant(0), apart})})});
}

NodeId semiring_sum_over(Graph& g, Scannable kind, const std::vector<AxisId>& bound, NodeId body) {
  if (bound.empty()) return body;
  if (kind == Scannable::MaxPlus) return g.reduce_max(bound, body);
  if (kind == Scannable::MinPlus) return g.op(Op::Neg, {g.reduce_max(bound, g.op(Op::Neg, {body}))});
  return logsumexp(g, bound, body);
}

}  // namespace cellc
