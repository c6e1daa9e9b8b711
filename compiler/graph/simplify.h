#pragma once
// Algebra for proofs: a canonical form in which equal expressions are equal nodes, so that terms that
// cancel are found to be zero. Used by differentiate and structure. What *runs* is the graph as
// written, because these rules reassociate sums and products and cancel x/x and x - x, which
// floating point does not (NaN, infinities, rounding).
//
// The form is a sum of monomials over atoms, coefficient * atom^power * …. A sum inside a product
// stays one atom (nothing is multiplied out); a number times a sum is distributed so that signs
// cancel. Sums over an axis are split, freed of factors that do not run along it, and eliminated
// against identities: sum[k](eye[k,j]*f[k]) = f[j]. Reindexing is pushed to the leaves.
// stop_gradient and declared derivatives are dropped: they change gradients, never values.
//
// Laws (tests/laws): idempotent; value-preserving up to rounding where everything is finite.
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

/// coefficient * Π atom^power, atoms sorted by id.
using Monomial = std::vector<std::pair<NodeId, int>>;
using Polynomial = std::map<Monomial, double>;

class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : graph_(graph) {}

  NodeId simplify(NodeId node);
  /// The canonical form of a node as a sum of monomials.
  Polynomial polynomial(NodeId node);
  /// A node for a sum of monomials; the inverse of `polynomial` on canonical nodes.
  NodeId build(const Polynomial& p);
  NodeId build(const Monomial& m, double coefficient);
  bool is_zero(NodeId node) { return graph_.is_constant(simplify(node), 0); }

 private:
  const Polynomial& form(NodeId node);
  Polynomial form_of(NodeId node);
  Polynomial multiply(const Polynomial& a, const Polynomial& b);
  Polynomial power(const Polynomial& a, int exponent);
  Polynomial sum_over(const std::vector<AxisId>& bound, const Polynomial& body);
  std::pair<double, Monomial> as_factor(const Polynomial& p);
  Monomial product(const Monomial& a, const Monomial& b);
  /// (atom^power)^exponent with atom^power as one atom.
  Monomial raised_atom(std::pair<NodeId, int> factor, int exponent);
  void settle(NodeId node);  ///< canonical forms of all that is below
  NodeId canonical(NodeId node);
  NodeId substitute(NodeId node, std::vector<std::pair<AxisId, Index>> map);
  /// What `root` needs, ascending, without what only reductions read.
  std::vector<NodeId> above_reductions(NodeId root) const;
  NodeId substitute_under(NodeId reduction, std::vector<std::pair<AxisId, Index>> map);
  std::vector<AxisId> canonical_bound(std::vector<AxisId> bound, NodeId& body);
  static bool picks_from(const Node& n, const std::vector<std::pair<AxisId, Index>>& map);

  Graph& graph_;
  std::unordered_map<NodeId, Polynomial> forms_;
  std::unordered_map<NodeId, NodeId> canonical_;
  std::map<std::vector<std::int64_t>, NodeId> substituted_;  ///< by node and renaming
};

}  // namespace cellc
