#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/analysis/derivative_rules.h"
#include "compiler/analysis/structure_rules.h"

namespace cellc {
namespace {

/// Of affine operands: are the slopes by what moves free of what moves?
bool is_affine(const Node& n, std::unordered_map<NodeId, int>& degree) {
  for (int i = 0; i < static_cast<int>(n.args.size()); ++i) {
    if (!degree[n.args[i]]) continue;
    const Formula& slope = slope_formula(n.op, i);
    if (slope.jumps() || slope.reads_value()) return false;
    for (int k = 0; k < static_cast<int>(n.args.size()); ++k)
      if (degree[n.args[k]] && slope.reads_operand(k)) return false;
  }
  return true;
}

}  // namespace

std::string state_names(const CellGraph& cell, const std::vector<int>& states) {
  std::string text;
  for (std::size_t i = 0; i < states.size(); ++i)
    text += (i == 0 ? "" : i + 1 == states.size() ? " and " : ", ") + cell.symbol_of(cell.updates[states[i]]).name;
  return text;
}

void blame_nonlinear(const StageView& stage, int number, StageReads& reads, std::vector<Reason>& why) {
  const CellGraph& cell = stage.cell;
  std::set<std::uint32_t> told;
  for (int u : stage.states) {
    std::unordered_map<NodeId, int> degree;  // 0 free, 1 affine, 2 neither
    for (NodeId id : reads.own_part({cell.updates[u].value}, number)) {
      const Node& n = cell.graph[id];
      int top = 0;
      for (NodeId a : n.args) top = std::max(top, degree[a]);
      int d = top;
      if (n.op == Op::Read)
        d = 1;
      else if (top == 1 && is_elementwise(n.op)) {
        d = is_affine(n, degree) ? 1 : 2;
      } else if (top == 1 && (n.op == Op::Softmax || n.op == Op::ReduceMax || n.op == Op::MaxShare)) {
        d = 2;
      } else if (top == 1 && n.op == Op::Surrogate) {
        d = degree[n.args[0]];
      }
      degree[id] = d;
      if (d == 2 && top == 1 && n.span.length && told.insert(n.span.offset).second && told.size() <= 4) {
        const bool step = is_elementwise(n.op) && op_info(n.op).slope != Slope::Smooth;
        why.push_back({n.span, "nonlinear in " + state_names(cell, stage.states) +
                                   (step ? ": the value has a step or a kink there, whatever its slope" : "")});
      }
    }
  }
}

void blame_mixing(const StageView& stage, int number, const std::string& kind, StageReads& reads,
                  std::vector<Reason>& why) {
  const CellGraph& cell = stage.cell;
  std::set<std::uint32_t> told;
  for (int u : stage.states)
    for (NodeId id : reads.own_part({cell.updates[u].value}, number)) {
      const Node& n = cell.graph[id];
      if (n.bound.empty() || !n.span.length) continue;
      if (!told.insert(n.span.offset).second || told.size() > 6) continue;
      why.push_back({n.span, kind + ": mixes the entries of " + state_names(cell, stage.states) + " along " +
                                 cell.graph.axis(cell.graph.axis(n.bound[0]).extent_of).name});
    }
}

}  // namespace cellc
