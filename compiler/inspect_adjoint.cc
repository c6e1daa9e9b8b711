#include "compiler/inspect_adjoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "compiler/analysis/structure.h"
#include "compiler/break_latex.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/print_expression.h"

namespace cellc {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxPrinted = 20'000;  // printed nodes, with names
constexpr int kWorthAName = 4;               // operators of what is read twice

/// Something that has a name and a formula.
struct Equation {
  enum class Kind : std::uint8_t { Value, Factor, Gradient } kind;
  std::string name;
  NodeId node;
  std::vector<AxisId> index;
  int id = -1;  ///< out, of Factor and Gradient
};

class Formulas {
 public:
  Formulas(const CellGraph& whole, const AdjointCell& adjoint, Notation notation)
      : whole_(whole),
        made_(adjoint),
        cell_(adjoint.adjoint.cell),
        printer_(cell_, notation, true),
        latex_(notation == Notation::Latex) {
    spell_symbols();
    find_lines();
  }

  /// In an order in which each reads those before it. Several may have one value.
  const std::vector<Equation>& lines() const { return lines_; }

  std::string left(const Equation& line) {
    if (!latex_) return line.name + printer_.index_list(line.index);
    const bool natural = std::none_of(line.index.begin(), line.index.end(),
                                      [&](AxisId a) { return cell_.graph.axis(a).copy_of != kNoAxis; });
    return with_places(base(line), natural ? std::vector<AxisId>() : line.index);
  }
  std::string right(const Equation& line) {
    // Its own name must not stand for it, unless that was told: two lines may have one value.
    const bool first = told_.insert(line.node).second;
    if (first) printer_.forget(line.node);
    std::string text = shorten(printer_.print_within(line.node, kMaxPrinted));
    if (first && named_.contains(line.node)) add_name(*named_.at(line.node));
    return text;
  }

  std::string state_left(int update) {
    const Symbol& state = cell_.symbol_of(cell_.updates[static_cast<std::size_t>(update)]);
    if (latex_ && update >= static_cast<int>(whole_.updates.size())) {
      const ArrayRead& read =
          made_.lagged[static_cast<std::size_t>(made_.adjoint.sinks[static_cast<std::size_t>(update)].id)];
      return with_places(fmt::format("\\bar{{{}}}^{{({})}}\\big|_{{t}}", array_of(read), time_of(read)), {});
    }
    return latex_ ? lambda(update) + "^{(t-1)}" : state.name + "'" + printer_.index_list(state.index);
  }
  std::string state_right(int update) {
    return shorten(printer_.print_within(cell_.updates[static_cast<std::size_t>(update)].value, kMaxPrinted));
  }

  std::string param_left(const ParamGradient& g) {
    const Symbol& param = whole_.symbols[static_cast<std::size_t>(g.symbol)];
    if (!latex_) return "gradient." + param.name + printer_.index_list(param.index);
    return with_places(barred(param.name), param.index);
  }
  std::string param_right(const ParamGradient& g) {
    const std::vector<AxisId>& own = whole_.symbols[static_cast<std::size_t>(g.symbol)].index;
    std::string text;
    for (const StepProduct& p : g.products) {
      std::vector<AxisId> summed;
      for (const StepFactor* f : {&p.left, p.right ? &*p.right : &p.left})
        for (const AxisId a : f->index)
          if (std::find(own.begin(), own.end(), a) == own.end() &&
              std::find(summed.begin(), summed.end(), a) == summed.end())
            summed.push_back(a);
      const std::string product = factor(p.left) + (p.right ? (latex_ ? "\\, " : "*") + factor(*p.right) : "");
      std::string over = latex_ ? "t" : "steps";
      for (const AxisId a : summed)
        over += (latex_ ? "," : ", ") + (latex_ ? latex_name(printer_.axis_name(a)) : printer_.axis_name(a));
      text += (text.empty() ? "" : " + ") +
              (latex_ ? "\\sum_{" + over + "} " + product : "sum over " + over + " of " + product);
    }
    return text.empty() ? "0" : text;
  }

 private:
  std::string shorten(std::string text) const {
    if (!text.empty()) return text;
    return latex_ ? "\\text{(longer than can be printed)}" : "(longer than can be printed)";
  }

  /// In LaTeX, without places.
  std::string base(const Equation& line) {
    if (line.kind != Equation::Kind::Gradient) return latex_name(line.name) + "^{(t)}";
    const ArraySink& sink = made_.adjoint.sinks[cell_.updates.size() + static_cast<std::size_t>(line.id)];
    if (sink.kind == ArraySink::Kind::Gradient)
      return barred(whole_.symbols[static_cast<std::size_t>(sink.id)].name) + "^{(t)}";
    // What step t contributes.
    const ArrayRead& read = made_.lagged[static_cast<std::size_t>(sink.id)];
    return fmt::format("\\bar{{{}}}^{{({})}}\\big|_{{t}}", array_of(read), time_of(read));
  }

  /// Of a delay line, the state.
  std::string array_of(const ArrayRead& read) const {
    const Symbol& symbol = whole_.symbols[static_cast<std::size_t>(read.symbol)];
    return latex_name(symbol.line_of < 0 ? symbol.name : whole_.symbols[static_cast<std::size_t>(symbol.line_of)].name);
  }

  static std::string barred(const std::string& name) { return "\\bar{" + latex_name(name) + "}"; }

  std::string time_of(const ArrayRead& read) {
    return fmt::format("t-{}{}", read.lag,
                       read.lag_axis == kNoAxis ? "" : "-" + latex_name(printer_.axis_name(read.lag_axis)));
  }

  /// λ of a state; of a copy that lags, with its lag.
  std::string lambda(int update) const {
    const Symbol& state = whole_.symbol_of(whole_.updates[static_cast<std::size_t>(update)]);
    if (state.lag_of < 0) return "\\lambda_{" + latex_name(state.name) + "}";
    return fmt::format("\\lambda_{{{},{}}}", latex_name(whole_.symbols[static_cast<std::size_t>(state.lag_of)].name),
                       state.lag);
  }

  std::string with_places(const std::string& base, const std::vector<AxisId>& index) {
    std::string list;
    for (const AxisId a : index) list += (list.empty() ? "" : ",") + latex_name(printer_.axis_name(a));
    return list.empty() ? base : "{" + base + "}_{" + list + "}";
  }

  /// Of inputs of the adjoint, what the forward run calls them.
  void spell_symbols() {
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s) {
      const ArraySource& source = made_.adjoint.sources[s];
      const auto id = static_cast<std::size_t>(source.id);
      const auto spell = [&](const std::string& latex) { spelled_[static_cast<int>(s)] = latex; };
      switch (source.kind) {
        case ArraySource::Kind::Adjoint:
          spell(lambda(source.id) + "^{(t)}");
          break;
        case ArraySource::Kind::Previous: {
          const Symbol& state = whole_.symbol_of(whole_.updates[id]);
          const bool copy = state.lag_of >= 0;
          spell(fmt::format("{}^{{(t-{})}}",
                            latex_name(copy ? whole_.symbols[static_cast<std::size_t>(state.lag_of)].name : state.name),
                            1 + (copy ? state.lag : 0)));
          break;
        }
        case ArraySource::Kind::Lagged: {
          const ArrayRead& read = made_.lagged[id];
          spell(fmt::format("{}^{{({})}}", array_of(read), time_of(read)));
          break;
        }
        case ArraySource::Kind::Start: {
          // What is sent through a delay line and comes out of it; the state in between is read through that alone.
          const int sent = cell_.symbols[s].line_of;
          for (std::size_t u = whole_.updates.size(); u < cell_.updates.size(); ++u)
            if (cell_.updates[u].symbol == sent) {
              const ArrayRead& read = made_.lagged[static_cast<std::size_t>(made_.adjoint.sinks[u].id)];
              spell(fmt::format("\\bar{{{}}}^{{(t)}}\\big|_{{t+{}}}", array_of(read), read.lag));
            }
          break;
        }
        case ArraySource::Kind::Cotangent:
          spell(barred(whole_.symbol_of(whole_.updates[id]).name) + "^{(t)}");
          break;
        case ArraySource::Kind::OutCotangent:
          spell(barred(whole_.outs[id].name) + "^{(t)}");
          break;
        default:
          break;
      }
    }
    for (const auto& [symbol, text] : spelled_) printer_.spell(symbol, text);
  }

  void find_lines() {
    const Graph& g = cell_.graph;
    std::vector<NodeId> roots;
    for (const StateUpdate& u : cell_.updates) roots.push_back(u.value);
    for (const Out& o : cell_.outs) roots.push_back(o.value);
    const std::vector<NodeId> order = reachable(g, roots);
    const std::set<NodeId> reached(order.begin(), order.end());
    std::map<NodeId, std::vector<Equation>> lines;
    for (const NamedValue& n : cell_.named)
      if (reached.contains(n.node) && !g[n.node].args.empty())
        lines[n.node].push_back({Equation::Kind::Value, n.name, n.node, n.index});
    for (const NodeId value : roots) printer_.forget(value);  // adjoint.h' has its formula, not its name
    int factors = 0;
    for (std::size_t o = 0; o < cell_.outs.size(); ++o) {
      const Out& out = cell_.outs[o];
      const bool factor = made_.adjoint.sinks[cell_.updates.size() + o].kind == ArraySink::Kind::Factor;
      lines[out.value].push_back({factor ? Equation::Kind::Factor : Equation::Kind::Gradient,
                                  factor && latex_ ? fresh("g", factors) : out.name, out.value, out.index,
                                  static_cast<int>(o)});
    }
    std::map<NodeId, int> uses, weight;
    for (const NodeId r : roots) ++uses[r];
    for (const NodeId id : order)
      for (const NodeId a : g[id].args) ++uses[a];
    int number = 0;
    for (const NodeId id : order) {
      int w = g[id].args.empty() ? 0 : 1;
      for (const NodeId a : g[id].args) w += weight[a];
      w = std::min(w, 1000);
      const bool shared = uses[id] > 1 && w >= kWorthAName && g[id].op != Op::Reindex;
      if (shared && !lines.contains(id))
        lines[id].push_back({Equation::Kind::Value, fresh(latex_ ? "a" : "t", number), id, g[id].axes});
      weight[id] = lines.contains(id) ? 1 : w;
    }
    for (auto& [node, of_node] : lines)
      for (Equation& line : of_node) lines_.push_back(std::move(line));
    for (const Equation& line : lines_)
      if (!g[line.node].args.empty() && !named_.contains(line.node) &&
          !(latex_ && line.kind == Equation::Kind::Gradient)) {
        named_.emplace(line.node, &line);
        add_name(line);
      }
  }

  /// Beside the values t1, t2, … of the Jacobian in the same document.
  std::string fresh(const std::string& base, int& number) const {
    for (;;) {
      const std::string name = base + std::to_string(++number);
      const auto is = [&](const auto& named) { return named.name == name; };
      if (std::none_of(whole_.symbols.begin(), whole_.symbols.end(), is) &&
          std::none_of(whole_.named.begin(), whole_.named.end(), is))
        return name;
    }
  }

  void add_name(const Equation& line) {
    // Every place is listed where one is not its own: only a value over all of its index can be read so.
    printer_.add_name(line.node, line.name, line.index, true);
  }

  std::string factor(const StepFactor& f) {
    const auto id = static_cast<std::size_t>(f.id);
    if (!latex_) return (f.is_out ? cell_.outs[id].name : cell_.symbols[id].name) + printer_.index_list(f.index);
    if (!f.is_out) {
      const auto at = spelled_.find(f.id);
      return with_places(at == spelled_.end() ? latex_name(cell_.symbols[id].name) + "^{(t)}" : at->second, f.index);
    }
    for (const Equation& line : lines_)
      if (line.id == f.id) return with_places(base(line), f.index);
    return {};
  }

  const CellGraph& whole_;
  const AdjointCell& made_;
  const CellGraph& cell_;
  ExpressionPrinter printer_;
  const bool latex_;
  std::map<int, std::string> spelled_;
  std::vector<Equation> lines_;
  std::map<NodeId, const Equation*> named_;
  std::set<NodeId> told_;
};

}  // namespace

std::string adjoint_text(const CellGraph& whole, const AdjointCell& adjoint) {
  Formulas formulas(whole, adjoint, Notation::Language);
  std::string text = fmt::format("Adjoint of {}, from the last step to the first\n", whole.name);
  for (const Equation& line : formulas.lines()) {
    const std::string left = formulas.left(line);
    text += fmt::format("  {} = {}\n", left, formulas.right(line));
  }
  for (int u = 0; u < static_cast<int>(adjoint.adjoint.cell.updates.size()); ++u)
    text += fmt::format("  {} = {}\n", formulas.state_left(u), formulas.state_right(u));
  for (const ParamGradient& g : adjoint.params)
    text += fmt::format("  {} = {}\n", formulas.param_left(g), formulas.param_right(g));
  return text + "\n";
}

std::string adjoint_latex(const CellGraph& whole, const AdjointCell& adjoint) {
  Formulas formulas(whole, adjoint, Notation::Latex);
  std::string text =
      "\\subsection*{Adjoint}\nFrom the last step to the first. Bars are cotangents of results and\n"
      "gradients of what is read; sums are over all steps and sequences.\n";
  for (const Equation& line : formulas.lines())
    if (line.kind != Equation::Kind::Gradient) {
      const std::string left = formulas.left(line);
      text += latex_equation(left, formulas.right(line));
    }
  for (int u = 0; u < static_cast<int>(adjoint.adjoint.cell.updates.size()); ++u)
    text += latex_equation(formulas.state_left(u), formulas.state_right(u));
  for (const Equation& line : formulas.lines())
    if (line.kind == Equation::Kind::Gradient) {
      const std::string left = formulas.left(line);
      text += latex_equation(left, formulas.right(line));
    }
  for (const ParamGradient& g : adjoint.params) text += latex_equation(formulas.param_left(g), formulas.param_right(g));
  return text;
}

Json adjoint_json(const CellGraph& whole, AdjointCell adjoint) {
  CellGraph& cell = adjoint.adjoint.cell;
  const Structure structure = analyse(cell, differentiate(cell));
  Json j;
  j["linear"] = structure.linear;
  j["class"] = structure.widest >= 0 ? Json(to_string(structure.stages[structure.widest].kind)) : Json(nullptr);
  j["stages"] = Json::array();
  for (const Stage& s : structure.stages) {
    std::vector<std::string> states;
    // What is sent through a delay line is no state's adjoint: it has a name of its own.
    for (const int u : s.states) {
      const bool sent = u >= static_cast<int>(whole.updates.size());
      states.push_back(sent ? cell.symbol_of(cell.updates[u]).name : whole.symbol_of(whole.updates[u]).name);
    }
    j["stages"].push_back(
        {{"states", states}, {"class", to_string(s.kind)}, {"block", s.block.text}, {"linear", s.linear}});
  }
  Formulas formulas(whole, adjoint, Notation::Language);
  j["definitions"] = j["states"] = j["gradients"] = Json::array();
  for (const Equation& line : formulas.lines()) {
    const std::string left = formulas.left(line);
    j[line.kind == Equation::Kind::Gradient ? "gradients" : "definitions"].push_back(
        {{"name", left}, {"text", formulas.right(line)}});
  }
  for (int u = 0; u < static_cast<int>(cell.updates.size()); ++u)
    j["states"].push_back({{"name", formulas.state_left(u)}, {"text", formulas.state_right(u)}});
  for (const ParamGradient& g : adjoint.params)
    j["gradients"].push_back({{"name", formulas.param_left(g)}, {"text", formulas.param_right(g)}});
  return j;
}

}  // namespace cellc
