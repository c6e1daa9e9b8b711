#pragma once
// One link of a chain of derivatives: the slope of an operator times the derivative of, or by, what stands behind it.
// Walks that go forwards (differentiate.cc, tangent) and backwards (reverse_mode.cc) multiply here.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compiler/analysis/jacobian.h"

namespace cellc {

/// a * b, with factors of 0 and 1 worked out.
NodeId product_of(Graph& graph, NodeId a, NodeId b);

class ChainRule {
 public:
  enum class Walk : std::uint8_t {
    Forwards,   ///< coefficients are derivatives of operands
    Backwards,  ///< coefficients are cotangents of results: a choice comes before what it did not take
  };
  /// `graph` may grow between calls and must outlive this.
  ChainRule(Graph& graph, SlopeRule rule, Walk walk = Walk::Forwards) : g_(graph), rule_(rule), walk_(walk) {}

  /// slope * coefficient, for the i-th operand of `node`. A slope that chooses is 0 for what is not taken, and then the
  /// coefficient must not count, though 0 times what is singular is no number; and so where it is the coefficient that
  /// was not taken, and the slope is singular: sqrt(max(h, 0)). Elsewhere, and always for proofs, a product is better:
  /// it can be taken apart.
  NodeId operator()(NodeId node, int i, NodeId slope, NodeId coefficient);

  /// Whether some product was written as a choice.
  bool chooses() const { return chooses_; }

 private:
  /// May the value be infinite or no number where what it reads is finite? Operands precede their users.
  bool may_be_singular(NodeId node);
  /// May the value be infinite at a point where what it reads is an ordinary number: 1/x, log(x) at 0? (That exp
  /// overflows is another matter, and would put conditions into every gate of an sLSTM.)
  bool has_pole(NodeId node);
  /// What is 0 where a coefficient is 0 because something was not taken: a branch, an operand of max. kNoNode: nothing
  /// of the kind. It is found among the coefficient's factors, and is small beside them.
  NodeId taken(NodeId coefficient, int depth = 0);
  NodeId find_taken(NodeId coefficient, int depth);

  Graph& g_;
  const SlopeRule rule_;
  const Walk walk_;
  std::vector<bool> singular_, poles_;  ///< by node
  std::unordered_map<NodeId, NodeId> taken_;
  bool chooses_ = false;
};

}  // namespace cellc
