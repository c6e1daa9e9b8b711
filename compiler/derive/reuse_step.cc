// Coefficients in terms of what the step computes anyway.
//
// Proofs want one canonical form of a value, and derivatives come in it: a*h + x may stand there as
// x + a*h, a product in another order. Run beside the step, such a value would be computed twice,
// transcendental functions included: a GRU with its transitions would evaluate six a step instead of three.
#include <map>

#include "compiler/analysis/jacobian.h"
#include "compiler/graph/rewriter.h"
#include "compiler/graph/simplify.h"

namespace cellc {

void reuse_step(CellGraph& cell, Jacobian& jacobian) {
  Graph& g = cell.graph;
  std::vector<NodeId> roots;
  for (const StateUpdate& u : cell.updates) roots.push_back(u.value);
  Simplifier simplifier(g);
  std::map<NodeId, NodeId> step;  // canonical form -> the value as the step has it
  for (NodeId id : reachable(g, roots)) {
    if (g[id].args.empty()) continue;
    // A form that has lost an axis (0*p) may stand where the value itself, which has it, may not.
    const NodeId form = simplifier.simplify(id);
    if (g[form].axes == g[id].axes) step.emplace(form, id);
  }
  // What a replaced value was made of is rewritten, too: the values of a graph, and so the order of the code, are the
  // same whichever coefficient comes first.
  Rewriter reused(g, g, {.replace = [&](NodeId id, const Node&) {
                    const auto known = step.find(id);
                    return known == step.end() ? kNoNode : known->second;
                  }});
  for (JacobianBlock& block : jacobian.blocks)
    for (JacobianTerm& term : block.terms) term.coefficient = reused(term.coefficient);
}

}  // namespace cellc
