#include "compiler/graph/logsumexp.h"

namespace cellc {

NodeId logsumexp(Graph& g, const std::vector<AxisId>& bound, NodeId body, Span span) {
  const NodeId most = g.op(Op::StopGradient, {g.reduce_max(bound, body, span)}, span);
  const NodeId sum = g.reduce_sum(bound, g.op(Op::Exp, {g.op(Op::Sub, {body, most}, span)}, span), span);
  const NodeId plain = g.op(Op::Lt, {g.op(Op::Abs, {most}, span), g.constant(kSumIsGreatest, span)}, span);
  return g.op(Op::Where, {plain, g.op(Op::Add, {most, g.op(Op::Log, {sum}, span)}, span), most}, span);
}

}  // namespace cellc
