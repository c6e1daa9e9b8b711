// Dumps of the graph, Jacobian and structure stages: `inspect --stage`, and the golden files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "compiler/derive/pipeline.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/history_length.h"
#include "compiler/graph/print_expression.h"
#include "compiler/inspect.h"

namespace cellc {

namespace {

std::string index_text(const Graph& g, const Index& i) {
  return i.is_axis() ? g.axis(i.axis).name : std::to_string(i.literal);
}

std::string axes_text(const Graph& g, const std::vector<AxisId>& axes) {
  std::string text;
  for (AxisId a : axes) text += (text.empty() ? "" : ",") + g.axis(a).name;
  return "[" + text + "]";
}

const char* kind_text(SymbolKind k) {
  return k == SymbolKind::State ? "state" : k == SymbolKind::Input ? "input" : "param";
}

/// Normal forms, a line a part.
std::string print_forms(const CellGraph& cell, const Stage& stage) {
  ExpressionPrinter printer(cell, Notation::Language, false);
  const auto spelled = [&](NodeId node) {
    const Node& n = cell.graph[node];
    if (n.op == Op::Constant && std::isinf(n.number)) return std::string(n.number < 0 ? "-infinity" : "infinity");
    const std::string text = printer.print_within(node, 256);
    return text.empty() ? fmt::format("%{}", node) : text;
  };
  const auto name = [&](int update) { return cell.symbol_of(cell.updates[update]).name; };
  std::string text;
  if (stage.clip)
    text += fmt::format("  clip(a*s + b, low, high): a = {}; b = {}; low = {}; high = {}\n", spelled(stage.clip->a),
                        spelled(stage.clip->b), spelled(stage.clip->low), spelled(stage.clip->high));
  if (stage.moebius)
    text += fmt::format("  (a*s + b)/(c*s + d): a = {}; b = {}; c = {}; d = {}\n", spelled(stage.moebius->a),
                        spelled(stage.moebius->b), spelled(stage.moebius->c), spelled(stage.moebius->d));
  if (stage.semiring) {
    for (const SemiringMap::Term& t : stage.semiring->terms) {
      std::string at, over;
      for (const Index& i : t.at)
        at += (at.empty() ? "" : ",") + (i.is_axis() ? cell.graph.axis(i.axis).name : std::to_string(i.literal));
      for (const AxisId a : t.bound) over += (over.empty() ? ", over " : ", ") + cell.graph.axis(a).name;
      text += fmt::format("  {} term {}'/{}[{}]: {}{}\n", semiring_text(stage.scannable), name(t.row), name(t.column),
                          at, spelled(t.coefficient), over);
    }
    for (const SemiringMap::Offset& o : stage.semiring->offsets)
      text += fmt::format("  {} offset {}': {}\n", semiring_text(stage.scannable), name(o.row), spelled(o.value));
  }
  if (!stage.low_rank) return text;
  for (const LowRankForm::Diagonal& d : stage.low_rank->diagonal)
    text += fmt::format("  diagonal {}'/{}: {}\n", name(d.row), name(d.column), spelled(d.coefficient));
  for (const LowRankForm::OuterProduct& p : stage.low_rank->products)
    text += fmt::format("  outer product {}'/{}: {} * ({}) * ({}){}\n", name(p.row), name(p.column), spelled(p.scale),
                        spelled(p.left), spelled(p.right),
                        p.through == kNoAxis ? "" : ", summed over " + cell.graph.axis(p.through).name);
  return text;
}

}  // namespace

std::string print_graph(const CellGraph& cell) {
  const Graph& g = cell.graph;
  std::string text = "cell " + cell.name + axes_text(g, cell.header) + "\n";
  std::vector<NodeId> roots;
  for (const Symbol& s : cell.symbols) {
    std::string declared;
    for (AxisId a : s.axes) declared += (declared.empty() ? "" : ",") + g.axis(a).name;
    text += fmt::format("{} {}[{}]", kind_text(s.kind), s.name, declared);
    if (s.initial != kNoNode) {
      text += fmt::format(" = %{}", s.initial);
      roots.push_back(s.initial);
    }
    if (s.range) text += fmt::format(" in ({}, {})", s.range->low, s.range->high);
    if (s.max_lag) text += " lag " + history_length(cell, s);
    text += "\n";
  }
  for (const StateUpdate& u : cell.updates) roots.push_back(u.value);
  for (const Out& o : cell.outs) roots.push_back(o.value);
  for (NodeId id : reachable(g, roots)) {
    const Node& n = g[id];
    text += fmt::format("%{} = {}", id, op_name(n.op));
    if (n.op == Op::Constant) text += fmt::format(" {}", n.number);
    if (n.op == Op::Read) text += " " + cell.symbols[n.symbol].name;
    if (!n.index.empty()) {
      text += "[";
      for (std::size_t i = 0; i < n.index.size(); ++i) text += (i ? "," : "") + index_text(g, n.index[i]);
      text += "]";
    }
    if (n.lag) text += fmt::format(" lag {}", n.lag);
    if (n.lag_axis != kNoAxis) text += " lag along " + g.axis(n.lag_axis).name;
    if (!n.bound.empty()) text += axes_text(g, n.bound);
    for (const auto& [from, to] : n.map) text += " " + g.axis(from).name + "->" + index_text(g, to);
    for (NodeId a : n.args) text += fmt::format(" %{}", a);
    text += " : " + axes_text(g, n.axes) + "\n";
  }
  for (const StateUpdate& u : cell.updates)
    text +=
        fmt::format("{}'{} = %{}\n", cell.symbols[u.symbol].name, axes_text(g, cell.symbols[u.symbol].index), u.value);
  for (const Out& o : cell.outs) text += fmt::format("out {}{} = %{}\n", o.name, axes_text(g, o.index), o.value);
  return text;
}

std::string print_jacobian(CellGraph& cell, const Jacobian& jacobian) {
  ExpressionPrinter printer(cell, Notation::Language, true);
  std::string text;
  for (const JacobianBlock& b : jacobian.blocks) {
    const Symbol &row = cell.symbol_of(cell.updates[b.row]), &column = cell.symbol_of(cell.updates[b.column]);
    text += fmt::format("d {}'{} / d {}{}\n", row.name, printer.index_list(row.index), column.name,
                        printer.index_list(b.column_axes));
    for (const JacobianTerm& t : b.terms) {
      text += "  ";
      for (const auto& [place, axis] : t.identities)
        text += fmt::format("[{}={}] ", printer.axis_name(axis), printer.axis_name(b.column_axes[place]));
      const std::string coefficient = printer.print_within(t.coefficient, 4096);
      text += (coefficient.empty() ? fmt::format("%{}", t.coefficient) : coefficient) + "\n";
    }
  }
  return text;
}

std::string print_structure(const CellGraph& cell, const Structure& s) {
  const Graph& g = cell.graph;
  std::string text;
  auto names = [&](const std::vector<AxisId>& axes) {
    std::string t;
    for (AxisId a : axes) t += (t.empty() ? "" : ",") + g.axis(g.axis(a).extent_of).name;
    return t.empty() ? "none" : t;
  };
  for (std::size_t i = 0; i < s.stages.size(); ++i) {
    const Stage& t = s.stages[i];
    std::string states, mask, inputs;
    for (int u : t.states) states += (states.empty() ? "" : ", ") + cell.symbol_of(cell.updates[u]).name;
    for (const std::string& row : mask_text(t.mask)) mask += (mask.empty() ? "" : "; ") + row;
    constexpr std::size_t kMostInputs = 64;  // a chain of thousands of stages is read by nobody as n²/2 lines
    for (std::size_t k = 0; k < t.inputs_from.size() && k < kMostInputs; ++k)
      inputs += fmt::format(" {}:{}", t.inputs_from[k].stage, to_string(t.inputs_from[k].kind));
    if (t.inputs_from.size() > kMostInputs) inputs += fmt::format(" and {} more", t.inputs_from.size() - kMostInputs);
    text += fmt::format("stage {} {{{}}}{}\n", i, states, static_cast<int>(i) == s.widest ? "  widest" : "");
    text += fmt::format("  class {}, block {}{}\n", to_string(t.kind), t.block.text,
                        t.rank ? ", rank " + t.rank->text : "");
    text += fmt::format("  {}{}; scannable {}\n", t.linear ? "linear" : "nonlinear",
                        t.time_invariant ? ", time-invariant" : "", to_string(t.scannable));
    text += fmt::format("  lanes {}; mixed {}; mask [{}]; coefficients {}\n", names(t.channel_axes),
                        names(t.coupled_axes), mask, names(t.coefficient_axes));
    if (!inputs.empty()) text += "  inputs from" + inputs + "\n";
    if (t.rotation) text += "  scaled rotation\n";
    text += print_forms(cell, t);
    if (t.norm_bound) text += fmt::format("  norm of the block at most {:.6g}\n", *t.norm_bound);
    ExpressionPrinter printer(cell, Notation::Language, false);
    for (NodeId h : t.hoisted) {
      const std::string e = printer.print_within(h, 2048);
      text += "  before: " + (e.empty() ? fmt::format("%{}", h) : e) + "\n";
    }
  }
  return text;
}

std::string print_staged(const StagedCell& staged) {
  std::string text;
  const auto section = [&](const std::string& title, const CellGraph& cell) {
    text += (text.empty() ? "" : "\n") + title + "\n" + print_graph(cell);
  };
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const StageCells& s = staged.stages[k];
    const std::string stage = "stage " + std::to_string(k + 1);
    if (!s.once.cell.outs.empty()) section(stage + ", once", s.once.cell);
    if (!s.before.cell.outs.empty()) section(stage + ", before it", s.before.cell);
    section(stage + ", lanes", s.lanes.cell);
    for (const DerivedCell& pass : s.remade) section(stage + ", states before each step", pass.cell);
  }
  if (!staged.after.cell.outs.empty()) section("after", staged.after.cell);
  // And as it is where stages sum up.
  std::vector<PartialSum> made;
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const std::optional<FusedStage> summed = fuse_reductions(staged, static_cast<int>(k));
    if (!summed) continue;
    const StageCells &s = summed->stage, &plain = staged.stages[k];
    const std::string stage = "stage " + std::to_string(k + 1);
    if (s.once.cell.outs.size() > plain.once.cell.outs.size()) section(stage + ", once, for sums", s.once.cell);
    if (s.before.cell.outs.size() > plain.before.cell.outs.size())
      section(stage + ", before it, for sums", s.before.cell);
    section(stage + ", lanes with sums", s.lanes.cell);
    for (const NodeId sum : summed->sums) made.push_back({sum, 1});
  }
  if (!made.empty()) section("after, with sums", with_reduced_outs(staged.after, made).cell);
  return text;
}

std::string print_derived(const CellGraph& whole, const std::vector<NumberedCell>& all) {
  std::string text;
  for (const NumberedCell& n : all)
    text +=
        fmt::format("{}{}{}\n{}{}", text.empty() ? "" : "\n", n.stage < 0 ? "" : fmt::format("stage {}, ", n.stage + 1),
                    to_string(n.derived.role), print_graph(n.derived.cell), print_arrays(whole, n.derived));
  return text;
}

std::string flops_per_step(const CellGraph& cell) {
  const Graph& g = cell.graph;
  std::vector<NodeId> roots;
  for (const StateUpdate& u : cell.updates) roots.push_back(u.value);
  for (const Out& o : cell.outs) roots.push_back(o.value);
  std::map<std::vector<AxisId>, std::int64_t> terms;
  for (NodeId id : reachable(g, roots)) {
    const Node& n = g[id];
    const bool reduces = !n.bound.empty();
    if (!reduces && (!is_elementwise(n.op) || op_info(n.op).cost == Cost::Free)) continue;
    std::int64_t number = n.op == Op::Softmax || n.op == Op::MaxShare ? 4 : 1;  // maximum, exp or ==, sum, division
    std::vector<AxisId> symbolic;
    for (AxisId a : reduces ? g[n.args[0]].axes : n.axes) {
      if (const auto fixed = g.axis(a).fixed)
        number *= *fixed;
      else
        symbolic.push_back(g.axis(a).extent_of);
    }
    std::sort(symbolic.begin(), symbolic.end());
    terms[symbolic] += number;
  }
  std::string text;
  std::vector<std::pair<std::vector<AxisId>, std::int64_t>> order(terms.begin(), terms.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& [axes, number] : order) {
    if (!text.empty()) text += " + ";
    if (number != 1 || axes.empty()) text += std::to_string(number) + (axes.empty() ? "" : "*");
    for (std::size_t i = 0; i < axes.size();) {
      std::size_t j = i;
      while (j < axes.size() && axes[j] == axes[i]) ++j;
      text += (i ? "*" : "") + g.axis(axes[i]).name;
      if (j - i > 1) text += "^" + std::to_string(j - i);
      i = j;
    }
  }
  return text.empty() ? "0" : text;
}

}  // namespace cellc
