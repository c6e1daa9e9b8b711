// Coefficients in terms of what the step computes anyway.
//
// Proofs want one canonical form of a value, and derivatives come in it: a*h + x may stand there as
// x + a*h, a product in another order. Run beside the step, such a value would be computed twice,
// transcendental functions included: a GRU with its transitions would evaluate six a step instead of three.
#include <map>

#include "compiler/analysis/jacobian.h"
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
  std::map<NodeId, NodeId> image;
  for (JacobianBlock& block : jacobian.blocks)
    for (JacobianTerm& term : block.terms) {
      for (NodeId id : reachable(g, {term.coefficient})) {
        if (image.count(id)) continue;
        if (const auto it = step.find(id); it != step.end()) {
          image[id] = it->second;
          continue;
        }
        const Node n = g[id];
        std::vector<NodeId> args;
        for (NodeId a : n.args) args.push_back(image.at(a));
        image[id] = args == n.args ? id : g.rebuild(n, std::move(args));
      }
      term.coefficient = image.at(term.coefficient);
    }
}

}  // namespace cellc
