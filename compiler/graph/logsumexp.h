#pragma once
// logsumexp[k](e): written out, since its parts are operators that all else knows.
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

/// Maxima of this size and more are the sum itself, to rounding in every type; so are infinities and NaN.
inline constexpr double kSumIsGreatest = 3e38;

/// log(sum[bound](exp(body))) without overflow: where(|m| < 3e38, m + log(sum(exp(body - m))), m) with m the greatest
/// entry. m is no part of the slope, which is softmax.
NodeId logsumexp(Graph& graph, const std::vector<AxisId>& bound, NodeId body, Span span = {});

}  // namespace cellc
