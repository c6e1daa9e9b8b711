#include "compiler/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "compiler/break_latex.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/delay_lines.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/history_length.h"
#include "compiler/graph/print_expression.h"
#include "compiler/graph/simplify.h"
#include "compiler/inspect_adjoint.h"

namespace cellc {

namespace {

using Json = nlohmann::ordered_json;

// A text longer than this is given with shared subexpressions named instead of spelled out.
constexpr std::size_t kMaxSpelledOut = 1500;  // printed nodes
constexpr std::size_t kMaxPrinted = 100'000;  // even with names
constexpr const char* kTooLong = "\\text{(longer than can be printed)}";

struct Shared {
  std::string name;
  NodeId node;
};

// What the Jacobian reads more than once and is more than a leaf or a cheap factor gets a name of
// its own, so that the printed formulas grow with the graph and not with its paths.
std::vector<Shared> shared_values(const CellGraph& cell, const Jacobian& jacobian, ExpressionPrinter& printer,
                                  const std::set<NodeId>& named, const std::vector<NodeId>& others = {}) {
  const Graph& g = cell.graph;
  std::vector<NodeId> roots = others;
  for (const JacobianBlock& b : jacobian.blocks)
    for (const JacobianTerm& t : b.terms) roots.push_back(t.coefficient);
  std::map<NodeId, int> uses, weight;
  for (NodeId r : roots) ++uses[r];
  // Values below a named one are printed by that name: what only it reads is not shared here.
  const std::vector<NodeId> seen = walk_down(g, roots, [&](NodeId id) {
    if (named.count(id)) return Visit::Stop;
    for (NodeId a : g[id].args) ++uses[a];
    return Visit::Descend;
  });
  std::vector<Shared> result;
  for (NodeId id : seen) {
    const Node& n = g[id];
    int w = n.args.empty() ? 0 : 1;
    if (!named.count(id))
      for (NodeId a : n.args) w += weight[a];
    w = named.count(id) ? 1 : std::min(w, 1000);
    const bool indexed =
        std::any_of(n.axes.begin(), n.axes.end(), [&](AxisId a) { return g.axis(a).copy_of != kNoAxis; });
    if (uses[id] > 1 && w >= 4 && !named.count(id) && !indexed) {
      result.push_back({"t" + std::to_string(result.size() + 1), id});
      w = 1;
    }
    weight[id] = w;
  }
  std::set<std::string> taken;
  for (const Symbol& s : cell.symbols) taken.insert(s.name);
  for (const NamedValue& v : cell.named) taken.insert(v.name);
  int number = 0;
  for (Shared& s : result) {
    do s.name = "t" + std::to_string(++number);
    while (taken.count(s.name));
    printer.add_name(s.node, s.name, g[s.node].axes, false);
  }
  return result;
}

// Column indices are named before all else: every printer of a cell then gives them the same names,
// the first free ones, so a text and its list of axes agree whichever printer wrote them.
void name_columns(const Jacobian& jacobian, ExpressionPrinter& printer) {
  for (const JacobianBlock& b : jacobian.blocks) printer.index_list(b.column_axes);
}

// A printer that knows the cell's own names, also of values after simplification, whole and read
// at the column's index.
std::set<NodeId> register_names(CellGraph& cell, ExpressionPrinter& printer) {
  Simplifier simplifier(cell.graph);
  std::set<NodeId> named;
  auto add = [&](NodeId node, const std::string& name, const std::vector<AxisId>& index, bool ordered) {
    named.insert(node);
    const NodeId simple = simplifier.simplify(node);
    printer.add_name(simple, name, index, ordered);
    if (!cell.graph[simple].args.empty()) named.insert(simple);
    if (!ordered) return;
    // The value as contractions and columns read it: r[d1] instead of its formula at d1.
    for (std::size_t place = 0; place < index.size(); ++place)
      for (AxisId a = 0; a < cell.graph.axis_count(); ++a) {
        if (cell.graph.axis(a).copy_of != index[place] || !cell.graph.has_axis(node, index[place])) continue;
        const NodeId moved = simplifier.simplify(cell.graph.reindex(node, {{index[place], Index{a, 0}}}));
        std::vector<AxisId> at = index;
        at[place] = a;
        printer.add_name(moved, name, at, true);
        if (!cell.graph[moved].args.empty()) named.insert(moved);
      }
  };
  for (const StateUpdate& u : cell.updates)
    if (cell.symbols[u.symbol].lag_of < 0)
      add(u.value, cell.symbols[u.symbol].name + "'", cell.symbols[u.symbol].index, true);
  for (const NamedValue& n : cell.named) add(n.node, n.name, n.index, n.ordered);
  return named;
}

// Identity along every column place: the block is its coefficient, entry by entry.
bool is_straight(const CellGraph& cell, const JacobianBlock& b) {
  const auto& column = cell.symbols[cell.updates[b.column].symbol];
  return b.terms.size() == 1 && b.terms[0].identities.size() == column.index.size() &&
         std::all_of(b.terms[0].identities.begin(), b.terms[0].identities.end(),
                     [&](const auto& i) { return i.second == column.index[i.first]; });
}

std::string block_text(CellGraph& cell, const JacobianBlock& b, ExpressionPrinter& printer, std::size_t limit) {
  return printer.print_within(is_straight(cell, b) ? b.terms[0].coefficient : block_as_node(cell, b), limit);
}

std::string declared(const CellGraph& cell, const Symbol& s) {
  std::string axes;
  for (AxisId a : s.axes) axes += (axes.empty() ? "" : ",") + cell.graph.axis(a).name;
  return s.name + (axes.empty() ? "" : "[" + axes + "]");
}

// Header axes as the header has them: "n=256" where it fixes the length.
std::vector<std::string> header_text(const CellGraph& cell) {
  std::vector<std::string> texts;
  for (AxisId a : cell.header) {
    const Axis& axis = cell.graph.axis(a);
    texts.push_back(axis.fixed ? fmt::format("{}={}", axis.name, *axis.fixed) : axis.name);
  }
  return texts;
}

/// The start of a state or the default of a param, as the cell language writes it; "": none is given.
std::string initial_text(const CellGraph& cell, const Symbol& s) {
  if (s.initial == kNoNode) return "";
  ExpressionPrinter printer(cell, Notation::Language, false);
  const std::string text = printer.print_within(s.initial, kMaxSpelledOut);
  return text.empty() ? "…" : text;
}

/// What a declaration says beside the axes: " = 0.5 in (-1, 1)".
std::string start_and_range(const CellGraph& cell, const Symbol& s) {
  const std::string initial = initial_text(cell, s);
  return (initial.empty() ? "" : " = " + initial) +
         (s.range ? fmt::format(" in ({}, {})", s.range->low, s.range->high) : "");
}

// " (w - 1 steps of history)", where a run takes and writes NAME.lag.
std::string history_text(const CellGraph& cell, const Symbol& s) {
  if (s.max_lag == 0) return "";
  const std::string length = history_length(cell, s);
  return fmt::format(" ({} step{} of history)", length, length == "1" ? "" : "s");
}

std::vector<std::string> axis_names(const CellGraph& cell, const std::vector<AxisId>& axes) {
  std::vector<std::string> names;
  for (AxisId a : axes) names.push_back(cell.graph.axis(cell.graph.axis(a).extent_of).name);
  return names;
}

// Stages name the states that the cell declares; a lagged copy is listed only where its source
// is in another stage.
std::vector<std::string> stage_states(const CellGraph& cell, const Stage& stage) {
  std::vector<std::string> names;
  for (int u : stage.states) {
    const Symbol& s = cell.symbol_of(cell.updates[u]);
    const bool follows = s.lag_of >= 0 && std::any_of(stage.states.begin(), stage.states.end(),
                                                      [&](int v) { return cell.updates[v].symbol == s.lag_of; });
    if (!follows) names.push_back(s.name);
  }
  return names;
}

Json number_or_text(const std::string& text) {
  const bool digits =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits ? Json(std::stoll(text)) : Json(text);
}

Json structure_json(const CellGraph& cell, const Stage& s) {
  Json j;
  j["class"] = to_string(s.kind);
  j["block"] = number_or_text(s.block.text);
  j["rank"] = s.rank ? number_or_text(s.rank->text) : Json(nullptr);
  j["channel_axes"] = axis_names(cell, s.channel_axes);
  j["mixed_axes"] = axis_names(cell, s.coupled_axes);
  j["mask"] = mask_text(s.mask);
  j["coefficient_axes"] = axis_names(cell, s.coefficient_axes);
  return j;
}

std::string places_text(const CellGraph& cell, const std::vector<Index>& at) {
  std::string text;
  for (const Index& i : at)
    text += (text.empty() ? "" : ",") + (i.is_axis() ? cell.graph.axis(i.axis).name : std::to_string(i.literal));
  return text;
}

/// The parts that the stage was proved to consist of, as texts of the cell language; null where it has no such form.
Json normal_form_json(const CellGraph& cell, const Stage& stage, ExpressionPrinter& printer) {
  const auto text = [&](NodeId node) {
    const Node& n = cell.graph[node];
    if (n.op == Op::Constant && std::isinf(n.number)) return Json(n.number < 0 ? "-infinity" : "infinity");
    const std::string spelled = printer.print_within(node, kMaxSpelledOut);
    return spelled.empty() ? Json(nullptr) : Json(spelled);
  };
  const auto name = [&](int update) { return cell.symbol_of(cell.updates[update]).name; };
  if (const auto& m = stage.clip)
    return {{"kind", "clip"}, {"a", text(m->a)}, {"b", text(m->b)}, {"low", text(m->low)}, {"high", text(m->high)}};
  if (const auto& m = stage.moebius)
    return {{"kind", "moebius"}, {"a", text(m->a)}, {"b", text(m->b)}, {"c", text(m->c)}, {"d", text(m->d)}};
  if (const auto& m = stage.semiring) {
    Json form{{"kind", to_string(stage.scannable)}, {"terms", Json::array()}, {"offsets", Json::array()}};
    for (const SemiringMap::Term& t : m->terms) {
      Json over = Json::array();
      for (const AxisId a : t.bound) over.push_back(cell.graph.axis(a).name);
      form["terms"].push_back({{"row", name(t.row)},
                               {"col", name(t.column)},
                               {"text", text(t.coefficient)},
                               {"at", places_text(cell, t.at)},
                               {"over", over}});
    }
    for (const SemiringMap::Offset& o : m->offsets)
      form["offsets"].push_back({{"row", name(o.row)}, {"text", text(o.value)}});
    return form;
  }
  if (!stage.low_rank) return nullptr;
  Json form{{"kind", "low-rank"}, {"diagonal", Json::array()}, {"products", Json::array()}};
  for (const LowRankForm::Diagonal& d : stage.low_rank->diagonal)
    form["diagonal"].push_back({{"row", name(d.row)}, {"col", name(d.column)}, {"text", text(d.coefficient)}});
  for (const LowRankForm::OuterProduct& p : stage.low_rank->products)
    form["products"].push_back(
        {{"row", name(p.row)},
         {"col", name(p.column)},
         {"scale", text(p.scale)},
         {"left", text(p.left)},
         {"right", text(p.right)},
         {"through", p.through == kNoAxis ? Json(nullptr) : Json(cell.graph.axis(p.through).name)}});
  return form;
}

const char* scan_name(Scannable s) { return s == Scannable::No ? nullptr : to_string(s); }

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& p : parts) text += (text.empty() ? "" : separator) + p;
  return text;
}

/// What fits on a line; where that is not all, it says so.
std::string on_a_line(std::string_view source) {
  constexpr std::size_t kMost = 60;
  std::string line(source.substr(0, kMost));
  if (source.size() > kMost) {
    const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(source[i]) & 0xc0) == 0x80; };
    while (!line.empty() && continues(line.size())) line.pop_back();  // letters of comments stay whole
    line += "…";
  }
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

/// What the cell declares: in full under "declarations", and the names of each kind.
void add_declarations(const CellGraph& cell, Json& j) {
  Json declarations = Json::array();
  for (SymbolKind kind : {SymbolKind::State, SymbolKind::Input, SymbolKind::Param}) {
    std::vector<std::string> names;
    for (const Symbol& s : cell.symbols) {
      if (s.kind != kind || s.lag_of >= 0 || s.line_of >= 0) continue;
      names.push_back(s.name);
      Json d{{"name", s.name},
             {"kind", kind == SymbolKind::State   ? "state"
                      : kind == SymbolKind::Input ? "input"
                                                  : "param"},
             {"axes", axis_names(cell, s.axes)},
             {"lag", number_or_text(history_length(cell, s))}};
      if (kind != SymbolKind::Input) {
        const std::string initial = initial_text(cell, s);
        d[kind == SymbolKind::State ? "start" : "default"] = initial.empty() ? Json(nullptr) : Json(initial);
      }
      if (s.range) d["range"] = {s.range->low, s.range->high};
      declarations.push_back(std::move(d));
    }
    j[kind == SymbolKind::State ? "states" : kind == SymbolKind::Input ? "inputs" : "params"] = names;
  }
  std::vector<std::string> outs;
  for (const Out& o : cell.outs) {
    outs.push_back(o.name);
    declarations.push_back({{"name", o.name}, {"kind", "out"}, {"axes", axis_names(cell, o.index)}, {"lag", 0}});
  }
  j["outs"] = outs;
  j["declarations"] = std::move(declarations);
}

/// The stages, and what each of them and all of them compute ahead of the steps.
void add_stages(const CellGraph& cell, const Structure& structure, ExpressionPrinter& plain, ExpressionPrinter& named,
                Json& j) {
  j["stages"] = Json::array();
  std::vector<std::string> hoisted;
  for (const Stage& s : structure.stages) {
    Json stage{{"states", stage_states(cell, s)}, {"linear", s.linear}, {"time_invariant", s.time_invariant}};
    stage["scannable"] = scan_name(s.scannable) ? Json(scan_name(s.scannable)) : Json(nullptr);
    stage["inputs_from"] = Json::array();
    for (const StageInput& in : s.inputs_from)
      stage["inputs_from"].push_back({{"stage", in.stage}, {"class", to_string(in.kind)}});
    stage.update(structure_json(cell, s));
    stage["normal_form"] = normal_form_json(cell, s, plain);
    stage["rotation"] = s.rotation;
    stage["norm_bound"] = s.norm_bound ? Json(*s.norm_bound) : Json(nullptr);
    stage["hoisted"] = Json::array();
    for (NodeId h : s.hoisted) {
      std::string text = plain.print_within(h, kMaxSpelledOut);
      if (text.empty()) text = named.print_within(h, kMaxPrinted);
      stage["hoisted"].push_back(text);
      if (std::find(hoisted.begin(), hoisted.end(), text) == hoisted.end()) hoisted.push_back(text);
    }
    j["stages"].push_back(std::move(stage));
  }
  j["delay_lines"] = Json::array();
  for (const DelayLine& line : delay_lines(cell))
    j["delay_lines"].push_back({{"state", cell.symbols[static_cast<std::size_t>(line.state)].name},
                                {"nearest", line.nearest - 1},
                                {"deepest", line.deepest - 1}});
  j["independent_steps"] = cell.has_lines() ? Json(independent_steps(cell)) : Json(nullptr);
  j["linear"] = structure.linear;
  j["hoisted"] = hoisted;
}

}  // namespace

std::string inspect_json(CellGraph& cell, const Jacobian& jacobian, const Structure& structure,
                         const SourceText& source) {
  Json j;
  j["cell"] = cell.name;
  j["axes"] = axis_names(cell, cell.header);
  j["lengths"] = Json::object();
  for (AxisId a : cell.header)
    if (const Axis& axis = cell.graph.axis(a); axis.fixed) j["lengths"][axis.name] = *axis.fixed;
  add_declarations(cell, j);
  if (structure.widest >= 0)
    j["structure"] = structure_json(cell, structure.stages[structure.widest]);
  else
    j["structure"] = nullptr;
  ExpressionPrinter plain(cell, Notation::Language, false), named(cell, Notation::Language, true);
  ExpressionPrinter latex(cell, Notation::Latex, true);
  for (ExpressionPrinter* p : {&plain, &named, &latex}) name_columns(jacobian, *p);
  add_stages(cell, structure, plain, named, j);

  const std::set<NodeId> known = register_names(cell, named);
  register_names(cell, latex);
  const std::vector<Shared> shared = shared_values(cell, jacobian, named, known);
  shared_values(cell, jacobian, latex, known);
  bool used_shared = false;
  j["jacobian"] = Json::array();
  for (const JacobianBlock& b : jacobian.blocks) {
    std::string text = block_text(cell, b, plain, kMaxSpelledOut);
    if (text.empty()) text = block_text(cell, b, named, kMaxPrinted), used_shared = true;
    std::vector<std::string> axes;
    for (AxisId a : cell.symbol_of(cell.updates[b.row]).index) axes.push_back(plain.axis_name(a));
    if (!is_straight(cell, b))
      for (AxisId a : b.column_axes) axes.push_back(plain.axis_name(a));
    j["jacobian"].push_back({{"row", cell.symbol_of(cell.updates[b.row]).name},
                             {"col", cell.symbol_of(cell.updates[b.column]).name},
                             {"text", text},
                             {"latex", block_text(cell, b, latex, kMaxPrinted)},
                             {"axes", axes}});
  }
  // Names that long texts and all of LaTeX refer to, in order; each is a line to write before them.
  const auto define = [&](ExpressionPrinter& printer, const char* list, const char* as) {
    j[list] = Json::array();
    for (const Shared& s : shared) {
      printer.forget(s.node);
      j[list].push_back({{"name", s.name}, {as, printer.print_within(s.node, kMaxPrinted)}});
      printer.add_name(s.node, s.name, cell.graph[s.node].axes, false);
    }
  };
  j["definitions"] = Json::array();
  if (used_shared) define(named, "definitions", "text");
  define(latex, "latex_definitions", "latex");
  j["adjoint"] = adjoint_json(cell, adjoint_of(cell));
  j["why"] = Json::array();
  for (const Reason& r : structure.why) {
    const Position p = source.position(r.span.offset);
    j["why"].push_back({{"line", p.line}, {"column", p.column}, {"text", r.text}});
  }
  j["flops_per_step"] = flops_per_step(cell);
  return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string inspect_text(CellGraph& cell, const Jacobian& jacobian, const Structure& structure,
                         const SourceText& source) {
  ExpressionPrinter printer(cell, Notation::Language, true);
  name_columns(jacobian, printer);
  const std::set<NodeId> known = register_names(cell, printer);
  const std::vector<Shared> shared = shared_values(cell, jacobian, printer, known);
  std::string text =
      "cell " + cell.name + (cell.header.empty() ? "" : "[" + join(header_text(cell), ", ") + "]") + "\n";
  for (SymbolKind kind : {SymbolKind::State, SymbolKind::Input, SymbolKind::Param}) {
    std::vector<std::string> names;
    for (const Symbol& s : cell.symbols)
      if (s.kind == kind && s.lag_of < 0 && s.line_of < 0)
        names.push_back(declared(cell, s) + start_and_range(cell, s) + history_text(cell, s));
    if (!names.empty())
      text += fmt::format("  {:<7} {}\n",
                          kind == SymbolKind::State   ? "states"
                          : kind == SymbolKind::Input ? "inputs"
                                                      : "params",
                          join(names, ", "));
  }
  std::vector<std::string> outs, values;
  for (const Out& o : cell.outs) outs.push_back(o.name + printer.index_list(o.index));
  if (!outs.empty()) text += fmt::format("  {:<7} {}\n", "outs", join(outs, ", "));
  for (const NamedValue& n : cell.named) values.push_back(n.name + printer.index_list(n.index));
  if (!values.empty()) text += fmt::format("  {:<7} {}\n", "values", join(values, ", "));

  if (structure.widest >= 0) {
    const Stage& w = structure.stages[structure.widest];
    text += fmt::format("\nStructure: {}, N = {}{}; {}\n", to_string(w.kind), w.block.text,
                        w.rank ? ", rank " + w.rank->text : "", structure.linear ? "linear" : "nonlinear");
  }
  for (std::size_t i = 0; i < structure.stages.size(); ++i) {
    const Stage& s = structure.stages[i];
    std::vector<std::string> facts{to_string(s.kind), "N = " + s.block.text};
    if (s.rank) facts.push_back("rank " + s.rank->text);
    facts.push_back(s.linear ? (s.time_invariant ? "linear, time-invariant" : "linear") : "nonlinear");
    const auto lanes = axis_names(cell, s.channel_axes);
    facts.push_back("lanes " + (lanes.empty() ? "none" : join(lanes, ", ")));
    constexpr std::size_t kMostRows = 32;  // of a mask that anybody reads
    if (s.states.size() > kMostRows)
      facts.push_back(fmt::format("mask of {0} x {0}", s.states.size()));
    else if (s.states.size() > 1)
      facts.push_back("mask " + join(mask_text(s.mask), " "));
    if (is_semiring(s.scannable)) facts.push_back(std::string("linear over ") + semiring_text(s.scannable));
    if (scan_name(s.scannable)) facts.push_back(std::string("scan: ") + scan_name(s.scannable));
    if (s.rotation) facts.push_back("scaled rotation");
    facts.push_back(s.norm_bound ? fmt::format("block norm at most {:.4g}", *s.norm_bound)
                                 : "no bound on the block's norm");
    text += fmt::format("  stage {} {{{}}}: {}\n", i + 1, join(stage_states(cell, s), ", "), join(facts, "; "));
    std::vector<std::string> before;
    for (NodeId h : s.hoisted) {
      std::string e = printer.print_within(h, 400);
      before.push_back(e.empty() ? "(a long expression)" : e);
    }
    if (!before.empty()) text += "    computed before it: " + join(before, ", ") + "\n";
  }
  for (const DelayLine& line : delay_lines(cell))
    text += fmt::format("  delay line {}: lags from {} to {} are read from the rows that were written\n",
                        cell.symbols[static_cast<std::size_t>(line.state)].name, line.nearest - 1, line.deepest - 1);
  if (cell.has_lines())
    text += fmt::format("  {0} steps at a time wait for nothing that a delay line brings\n", independent_steps(cell));
  text += "\nJacobian (where a pair is left out it is proved zero)\n";
  std::string formulas;
  for (const JacobianBlock& b : jacobian.blocks) {
    const Symbol &row = cell.symbol_of(cell.updates[b.row]), &column = cell.symbol_of(cell.updates[b.column]);
    const bool straight = is_straight(cell, b);
    std::string e = block_text(cell, b, printer, kMaxPrinted);
    if (e.empty()) e = "(longer than can be printed)";
    formulas += fmt::format("  d {}'{} / d {}{} = {}\n", row.name, printer.index_list(row.index), column.name,
                            printer.index_list(straight ? column.index : b.column_axes), e);
  }
  if (jacobian.blocks.empty()) formulas = "  none: no state depends on a state\n";
  for (const Shared& s : shared) {
    printer.forget(s.node);
    const std::string e = printer.print_within(s.node, kMaxPrinted);
    printer.add_name(s.node, s.name, cell.graph[s.node].axes, false);
    text += fmt::format("  {} = {}\n", s.name, e);
  }
  text += formulas;
  text += "\nWhy\n";
  for (const Reason& r : structure.why) {
    const Position p = source.position(r.span.offset);
    text += fmt::format("  line {}: {}   `{}`\n", p.line, r.text, on_a_line(source.slice(r.span)));
  }
  text += "\nWork: " + flops_per_step(cell) + " operations per step and batch row\n";
  return text;
}

std::string inspect_latex(CellGraph& cell, const Jacobian& jacobian, const Structure& structure) {
  ExpressionPrinter printer(cell, Notation::Latex, true);
  name_columns(jacobian, printer);
  const std::set<NodeId> known = register_names(cell, printer);
  std::vector<NodeId> step;  // what the values with names are made of
  const auto made_of = [&](NodeId node) {
    const std::vector<NodeId>& args = cell.graph[node].args;
    step.insert(step.end(), args.begin(), args.end());
  };
  for (const NamedValue& n : cell.named) made_of(n.node);
  for (const StateUpdate& u : cell.updates) made_of(u.value);
  const std::vector<Shared> shared = shared_values(cell, jacobian, printer, known, step);
  std::string text =
      "\\documentclass{article}\n\\usepackage{amsmath}\n\\usepackage[margin=2cm]{geometry}\n\\allowdisplaybreaks\n"
      "\\begin{document}\n";
  std::string title;
  for (char c : cell.name) title += c == '_' ? std::string("\\_") : std::string(1, c);
  text += "\\section*{" + title + "}\n\\subsection*{Step}\n";
  auto define = [&](NodeId node, const std::string& name, const std::vector<AxisId>& index) {
    // The definition itself is spelled out; everything in it keeps its name.
    printer.forget(node);
    const std::string right = printer.print_within(node, kMaxPrinted);
    printer.add_name(node, name, index, true);
    std::string base = name;
    if (!base.empty() && base.back() == '\'') base.pop_back();
    text += latex_equation(latex_name(base) + "^{(t)}", right.empty() ? kTooLong : right);
  };
  std::set<NodeId> told;
  // Shared parts that a value reads stand before it.
  auto define_parts = [&](const std::vector<NodeId>& roots) {
    const std::vector<NodeId> read =
        walk_down(cell.graph, roots, [&](NodeId id) { return known.count(id) ? Visit::Stop : Visit::Descend; });
    for (const Shared& s : shared)
      if (std::binary_search(read.begin(), read.end(), s.node) && told.insert(s.node).second)
        define(s.node, s.name, cell.graph[s.node].axes);
  };
  for (const NamedValue& n : cell.named)
    if (!cell.graph[n.node].args.empty() && told.insert(n.node).second) {
      define_parts(cell.graph[n.node].args);
      define(n.node, n.name, n.index);
    }
  for (const StateUpdate& u : cell.updates) {
    const Symbol& s = cell.symbols[u.symbol];
    if (s.lag_of >= 0 || !told.insert(u.value).second) continue;
    define_parts(cell.graph[u.value].args);
    define(u.value, s.name + "'", s.index);
  }
  text += "\\subsection*{Jacobian}\n";
  for (const Shared& s : shared)
    if (told.insert(s.node).second) define(s.node, s.name, cell.graph[s.node].axes);
  for (const JacobianBlock& b : jacobian.blocks) {
    const Symbol &row = cell.symbol_of(cell.updates[b.row]), &column = cell.symbol_of(cell.updates[b.column]);
    auto side = [&](const Symbol& s, const std::vector<AxisId>& index, bool next) {
      std::string base = latex_name(s.lag_of >= 0 ? cell.symbols[s.lag_of].name : s.name);
      const int back = s.lag + (next ? 0 : 1);
      base += "^{(t" + (back ? "-" + std::to_string(back) : std::string()) + ")}";
      if (index.empty()) return base;
      std::string list;
      for (AxisId a : index) list += (list.empty() ? "" : ",") + latex_name(printer.axis_name(a));
      return "{" + base + "}_{" + list + "}";
    };
    const bool straight = is_straight(cell, b);
    std::string right = block_text(cell, b, printer, kMaxPrinted);
    if (right.empty()) right = kTooLong;
    text += latex_equation("\\frac{\\partial " + side(row, row.index, true) + "}{\\partial " +
                               side(column, straight ? column.index : b.column_axes, false) + "}",
                           right);
  }
  if (structure.widest >= 0) {
    const Stage& w = structure.stages[structure.widest];
    text += fmt::format("Structure: {}, $N = {}$.\n", to_string(w.kind), w.block.text);
  }
  return text + adjoint_latex(cell, adjoint_of(cell)) + "\\end{document}\n";
}

}  // namespace cellc
