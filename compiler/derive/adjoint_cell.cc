#include "compiler/derive/adjoint_cell.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/derive/derivations.h"
#include "compiler/derive/substitute_states.h"
#include "compiler/graph/axes.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/graph/rewriter.h"

namespace cellc {

namespace {

std::vector<AxisId> axes_together(const Graph& g, const std::vector<NodeId>& nodes) {
  std::set<AxisId> all;
  for (const NodeId n : nodes) all.insert(g[n].axes.begin(), g[n].axes.end());
  return {all.begin(), all.end()};
}

bool has_all(const std::vector<AxisId>& of, const std::vector<AxisId>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](AxisId a) { return contains(of, a); });
}

/// left·right, summed over whatever the param lacks; without `right`, one value that has been summed.
struct Factors {
  NodeId left = kNoNode, right = kNoNode;
};

/// The factors of a product, however it is nested, without its signs.
void flatten(const Graph& g, NodeId node, std::vector<NodeId>& factors, bool& negative) {
  const Node& n = g[node];
  if (n.op == Op::Neg) {
    negative = !negative;
    flatten(g, n.args[0], factors, negative);
  } else if (n.op == Op::Mul) {
    flatten(g, n.args[0], factors, negative);
    flatten(g, n.args[1], factors, negative);
  } else {
    factors.push_back(node);
  }
}

/// Whether what is summed has the name of an axis of the param: outside of its sum it would be taken for that.
bool captures(const Node& sum, const std::vector<AxisId>& index) {
  return std::any_of(sum.bound.begin(), sum.bound.end(), [&](AxisId b) { return contains(index, b); });
}

/// Two factors of which none has all axes, where `term`, over `index`, is such a product; else the term as it is.
Factors take_apart(Graph& g, NodeId term, const std::vector<AxisId>& index) {
  bool negative = false;
  NodeId body = term;
  std::vector<AxisId> bound;
  for (;;) {
    if (g[body].op == Op::Neg) {
      negative = !negative;
    } else if (g[body].op == Op::ReduceSum) {
      if (captures(g[body], index)) return {term, kNoNode};
      bound.insert(bound.end(), g[body].bound.begin(), g[body].bound.end());
    } else {
      break;
    }
    body = g[body].args[0];
  }
  std::vector<NodeId> factors;
  flatten(g, body, factors, negative);
  const std::vector<AxisId> all = axes_together(g, factors);
  const auto widest = std::max_element(factors.begin(), factors.end(),
                                       [&](NodeId a, NodeId b) { return g[a].axes.size() < g[b].axes.size(); });
  const std::vector<AxisId> left_axes = g[*widest].axes;
  std::vector<NodeId> left, right;
  for (const NodeId f : factors) (has_all(left_axes, g[f].axes) ? left : right).push_back(f);
  const std::vector<AxisId> right_axes = axes_together(g, right);
  if (right.empty() || has_all(left_axes, all) || has_all(right_axes, all)) return {term, kNoNode};
  const auto product = [&](const std::vector<NodeId>& of, const std::vector<AxisId>& other) {
    NodeId result = of.front();
    for (std::size_t i = 1; i < of.size(); ++i) result = g.op(Op::Mul, {result, of[i]});
    std::vector<AxisId> alone;  // what only this factor has is summed before
    for (const AxisId b : bound)
      if (g.has_axis(result, b) && !contains(other, b)) alone.push_back(b);
    return alone.empty() ? result : g.reduce_sum(alone, result);
  };
  NodeId one = product(left, right_axes);
  const NodeId other = product(right, left_axes);
  if (negative) one = g.op(Op::Neg, {one});
  return {one, other};
}

struct ParamParts {
  int symbol;
  std::vector<Factors> products;
};

/// Symbols of the work: what a step contributes through a delay line, and the line that brings it.
struct InFlight {
  ArrayRead read;
  int state, line;
};

std::string name_of(const CellGraph& work, const ArrayRead& read) {
  const Symbol& symbol = work.symbols[static_cast<std::size_t>(read.symbol)];
  if (symbol.line_of >= 0)
    return fmt::format("{}.{}", work.symbols[static_cast<std::size_t>(symbol.line_of)].name, read.lag - 1);
  const std::string& name = symbol.name;
  return read.lag_axis == kNoAxis ? fmt::format("{}.{}", name, read.lag)
                                  : fmt::format("{}.{}.{}", name, read.lag, work.graph.axis(read.lag_axis).name);
}

int update_of(const CellGraph& cell, int symbol) {
  for (std::size_t u = 0; u < cell.updates.size(); ++u)
    if (cell.updates[u].symbol == symbol) return static_cast<int>(u);
  return -1;
}

/// An input as it lies, where the value is no more than that; else an out.
StepFactor factor_of(AdjointCell& result, const std::string& param, int& factors, NodeId value) {
  CellGraph& cell = result.adjoint.cell;
  const Node& n = cell.graph[value];
  if (n.op == Op::Read && cell.symbols[static_cast<std::size_t>(n.symbol)].kind == SymbolKind::Input) {
    StepFactor as_it_lies{false, n.symbol, {}};
    std::set<AxisId> met;
    for (const Index& i : n.index)
      if (i.is_axis() && met.insert(i.axis).second) as_it_lies.index.push_back(i.axis);
    if (as_it_lies.index.size() == n.index.size()) return as_it_lies;
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    if (cell.outs[o].value == value && has_all(n.axes, cell.outs[o].index))
      return {true, static_cast<int>(o), cell.outs[o].index};
  const int number = factors++;
  cell.outs.push_back({fmt::format("factor.{}.{}", param, number), n.axes, value, {}});
  result.adjoint.sinks.push_back({ArraySink::Kind::Factor, number});
  return {true, static_cast<int>(cell.outs.size()) - 1, n.axes};
}

/// How a state is read through its delay line.
std::set<ArrayRead> reads_of_line(const CellGraph& work, int state) {
  std::set<ArrayRead> reads;
  if (std::none_of(work.symbols.begin(), work.symbols.end(), [&](const Symbol& s) { return s.line_of == state; }))
    return reads;  // soon, for cells of many states
  for (NodeId id = 0; id < work.graph.size(); ++id)
    if (const Node& n = work.graph[id];
        n.op == Op::Read && work.symbols[static_cast<std::size_t>(n.symbol)].line_of == state)
      reads.insert({n.symbol, n.lag, kNoAxis});
  return reads;
}

class AdjointBuilder {
 public:
  AdjointBuilder(const CellGraph& cell, const AdjointOf& of) : cell_(cell), of_(of), work_(without_contents(cell)) {}

  AdjointCell run() {
    copy_step();
    seed();
    ReverseMode::Terms reads = reverse_->run();
    sort(reads);
    finish();
    return std::move(result_);
  }

 private:
  Graph& w() { return work_.graph; }
  int states() const { return static_cast<int>(cell_.updates.size()); }

  /// The step alone, in a graph of its own: the cell's also holds its Jacobian.
  void copy_step() {
    work_.symbols = cell_.symbols;
    std::vector<NodeId> roots;
    for (const StateUpdate& u : cell_.updates) roots.push_back(u.value);
    for (const Out& o : cell_.outs) roots.push_back(o.value);
    Images images;
    values_ = Rewriter(cell_.graph, w(), {}, &images)(roots);
    for (const NamedValue& n : cell_.named)
      if (const auto image = images.find(n.node); image != images.end())
        work_.named.push_back({n.name, image->second, n.index, n.span, n.ordered});
    reverse_.emplace(work_);
  }

  /// A symbol of the work, behind the whole cell's, which the adjoint has too.
  int add_symbol(const std::string& name, SymbolKind kind, const std::vector<AxisId>& axes,
                 const std::vector<AxisId>& index, ArraySource source) {
    Symbol s;
    s.name = name;
    s.kind = kind;
    s.axes = axes;
    s.index = index;
    work_.symbols.push_back(std::move(s));
    extra_sources_.push_back(source);
    return static_cast<int>(work_.symbols.size()) - 1;
  }

  void seed() {
    for (int u = 0; u < states(); ++u) {
      const Symbol& state = cell_.symbol_of(cell_.updates[u]);
      const std::vector<Index> at = plain_index(state.index);
      const int lambda = add_symbol("adjoint." + state.name, SymbolKind::State, state.axes, state.index,
                                    {ArraySource::Kind::Adjoint, u});
      lambdas_.push_back(lambda);
      NodeId total = w().read(lambda, at, state.span);
      for (const NodeId term : from_delay_lines(cell_.updates[u].symbol)) total = w().op(Op::Add, {total, term});
      if (state.lag_of < 0 && (of_.states.empty() || of_.states[u])) {
        const int given = add_symbol("cotangent." + state.name, SymbolKind::Input, state.axes, state.index,
                                     {ArraySource::Kind::Cotangent, u});
        total = w().op(Op::Add, {total, w().read(given, at, state.span)});
      }
      reverse_->seed(values_[static_cast<std::size_t>(u)], state.index, total);
    }
    for (int o = 0; o < static_cast<int>(cell_.outs.size()); ++o) {
      if (!of_.outs.empty() && !of_.outs[o]) continue;
      const Out& out = cell_.outs[o];
      std::vector<AxisId> axes;
      for (const AxisId a : out.index) axes.push_back(w().axis(a).extent_of);
      // An out may be written over renamed axes; an input is declared over the header's.
      const int given = add_symbol("cotangent." + out.name, SymbolKind::Input, axes, distinct_axes(w(), axes),
                                   {ArraySource::Kind::OutCotangent, o});
      reverse_->seed(values_[static_cast<std::size_t>(states() + o)], out.index,
                     w().read(given, plain_index(out.index), out.span));
    }
  }

  /// What later steps, which read the state through its delay line, have contributed: a state of the adjoint holds what
  /// a step contributes, and its own delay line brings that to the step which it is due at.
  std::vector<NodeId> from_delay_lines(int symbol) {
    std::vector<NodeId> terms;
    for (const ArrayRead& read : reads_of_line(work_, symbol)) {
      const Symbol& line = cell_.symbols[static_cast<std::size_t>(read.symbol)];
      const ArraySource nothing{ArraySource::Kind::Start, 0};
      InFlight sent{read, add_symbol("sent." + name_of(work_, read), SymbolKind::State, line.axes, line.index, nothing),
                    0};
      sent.line = add_symbol(fmt::format("line(sent.{})", name_of(work_, read)), SymbolKind::Input, line.axes,
                             line.index, nothing);
      work_.symbols[static_cast<std::size_t>(sent.line)].max_lag = read.lag;
      terms.push_back(w().read(sent.line, plain_index(line.index), line.span, read.lag));
      in_flight_.push_back(sent);
    }
    return terms;
  }

  NodeId sum(const std::vector<NodeId>& terms) { return terms.empty() ? w().constant(0) : sum_of(w(), terms); }

  /// What was found for each array that is read, by what it is for. Values are nodes of the work still.
  void sort(const ReverseMode::Terms& reads) {
    for (int u = 0; u < states(); ++u) {
      const auto found = reads.find({cell_.updates[u].symbol, 0, kNoAxis});
      updates_.push_back(found == reads.end() ? w().constant(0) : sum(found->second));
    }
    for (const InFlight& sent : in_flight_) {
      const auto found = reads.find(sent.read);
      updates_.push_back(found == reads.end() ? w().constant(0) : sum(found->second));
    }
    for (const auto& [read, terms] : reads)
      if (const Symbol& symbol = cell_.symbols[static_cast<std::size_t>(read.symbol)];
          symbol.kind == SymbolKind::Input && symbol.line_of < 0)
        add_gradient(read, symbol, sum(terms));
    for (const auto& [read, terms] : reads)
      if (cell_.symbols[static_cast<std::size_t>(read.symbol)].kind == SymbolKind::Param) add_param(read.symbol, terms);
  }

  void add_out(const std::string& name, std::vector<AxisId> index, NodeId value, ArraySink sink) {
    outs_.push_back({name, std::move(index), value, {}});
    out_sinks_.push_back(sink);
  }

  int number_of(const ArrayRead& read) {
    for (std::size_t i = 0; i < result_.lagged.size(); ++i)
      if (!(result_.lagged[i] < read) && !(read < result_.lagged[i])) return static_cast<int>(i);
    result_.lagged.push_back(read);
    return static_cast<int>(result_.lagged.size()) - 1;
  }

  void add_gradient(const ArrayRead& read, const Symbol& symbol, NodeId value) {
    if (read.lag == 0 && read.lag_axis == kNoAxis) {
      add_out("gradient." + symbol.name, symbol.index, value, {ArraySink::Kind::Gradient, read.symbol});
      return;
    }
    std::vector<AxisId> index = symbol.index;
    if (read.lag_axis != kNoAxis) index.push_back(read.lag_axis);
    const int number = number_of(read);
    add_out(fmt::format("gradient.{}", name_of(work_, read)), std::move(index), value,
            {ArraySink::Kind::LaggedGradient, number});
  }

  void add_param(int number, const std::vector<NodeId>& terms) {
    ParamParts parts{number, {}};
    std::vector<NodeId> whole;
    for (const NodeId term : terms) {
      Factors f = take_apart(w(), term, cell_.symbols[static_cast<std::size_t>(number)].index);
      if (f.right == kNoNode && !of_.multiplies_factors) f = of_known(term);
      if (f.right == kNoNode)
        whole.push_back(f.left);
      else
        parts.products.push_back(f);
    }
    if (!whole.empty()) parts.products.push_back({sum(whole), kNoNode});
    params_.push_back(std::move(parts));
  }

  /// h·x̄ is two arrays that there are anyway: multiplied where they are summed, they need no third.
  Factors of_known(NodeId term) {
    const Node& n = w()[term];
    if (n.op != Op::Mul || w()[n.args[0]].axes != w()[n.args[1]].axes) return {term, kNoNode};
    const auto is_known = [&](NodeId value) {
      const Node& v = w()[value];
      if (v.op == Op::Read) return work_.symbols[static_cast<std::size_t>(v.symbol)].kind != SymbolKind::Param;
      return std::any_of(outs_.begin(), outs_.end(), [&](const Out& o) { return o.value == value; });
    };
    return is_known(n.args[0]) && is_known(n.args[1]) ? Factors{n.args[0], n.args[1]} : Factors{term, kNoNode};
  }

  // The result, which reads trajectories in the states' place ---------------------------------------

  void finish() {
    CellGraph& cell = result_.adjoint.cell = without_contents(work_);
    cell.name = cell_.name + ".adjoint";
    result_.adjoint.role = Role::Adjoint;
    result_.adjoint.reverse = true;
    for (int u = 0; u < states(); ++u) {  // states first, so that updates and symbols have the same order
      cell.symbols.push_back(work_.symbols[static_cast<std::size_t>(lambdas_[u])]);
      result_.adjoint.sources.push_back({ArraySource::Kind::Adjoint, u});
      symbol_of_[{lambdas_[u], 0, kNoAxis}] = u;
    }
    for (const InFlight& sent : in_flight_) {
      symbol_of_[{sent.state, 0, kNoAxis}] = static_cast<int>(cell.symbols.size());
      cell.symbols.push_back(work_.symbols[static_cast<std::size_t>(sent.state)]);
      cell.symbols.back().max_lag = sent.read.lag - 1;
      result_.adjoint.sources.push_back({ArraySource::Kind::Start, 0});
    }
    RewriteRules rules;
    rules.replace = [this](NodeId, const Node& n) {
      if (n.op != Op::Read) return kNoNode;
      if (const auto line = lines_.find(n.symbol); line != lines_.end())
        return result_.adjoint.cell.graph.read(line->second, n.index, n.span, n.lag);
      std::vector<Index> index = n.index;
      if (n.lag_axis != kNoAxis) index.push_back({n.lag_axis, 0});
      return result_.adjoint.cell.graph.read(symbol_for({n.symbol, n.lag, n.lag_axis}), std::move(index), n.span);
    };
    Images images;
    Rewriter moved(w(), cell.graph, std::move(rules), &images);
    std::vector<NodeId> roots = updates_;
    for (const Out& o : outs_) roots.push_back(o.value);
    for (const ParamParts& p : params_)
      for (const Factors& f : p.products)
        for (const NodeId n : {f.left, f.right})
          if (n != kNoNode) roots.push_back(n);
    add_lines(roots);
    moved(roots);
    for (const NamedValue& n : work_.named)
      if (const auto image = images.find(n.node); image != images.end())
        cell.named.push_back({n.name, image->second, n.index, n.span, n.ordered});
    for (int u = 0; u < states(); ++u) {
      cell.updates.push_back({u, moved.image(updates_[static_cast<std::size_t>(u)]), cell_.updates[u].span});
      result_.adjoint.sinks.push_back({ArraySink::Kind::Adjoint, u});
    }
    for (std::size_t i = 0; i < in_flight_.size(); ++i) {
      const int symbol = states() + static_cast<int>(i);
      cell.updates.push_back({symbol, moved.image(updates_[static_cast<std::size_t>(symbol)]), {}});
      result_.adjoint.sinks.push_back({ArraySink::Kind::LaggedGradient, number_of(in_flight_[i].read)});
    }
    for (std::size_t o = 0; o < outs_.size(); ++o) {
      cell.outs.push_back({outs_[o].name, outs_[o].index, moved.image(outs_[o].value), {}});
      result_.adjoint.sinks.push_back(out_sinks_[o]);
    }
    for (const ParamParts& p : params_) {
      ParamGradient gradient{p.symbol, {}};
      for (const Factors& f : p.products) {
        const auto factor = [&](NodeId of) {
          return factor_of(result_, cell_.symbols[static_cast<std::size_t>(p.symbol)].name, factors_, moved.image(of));
        };
        StepProduct product{factor(f.left), std::nullopt};
        if (f.right != kNoNode) product.right = factor(f.right);
        gradient.products.push_back(std::move(product));
      }
      result_.params.push_back(std::move(gradient));
    }
  }

  /// Delay lines are the last symbols, so whatever else is read has to have its symbol before.
  void add_lines(const std::vector<NodeId>& roots) {
    if (in_flight_.empty()) return;
    const auto is_line = [&](int symbol) {
      return std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& f) { return f.line == symbol; });
    };
    for (const NodeId id : reachable(w(), roots))
      if (const Node& n = w()[id]; n.op == Op::Read && is_line(n.symbol) == in_flight_.end())
        symbol_for({n.symbol, n.lag, n.lag_axis});
    for (const InFlight& sent : in_flight_) {
      CellGraph& cell = result_.adjoint.cell;
      lines_[sent.line] = static_cast<int>(cell.symbols.size());
      cell.symbols.push_back(work_.symbols[static_cast<std::size_t>(sent.line)]);
      cell.symbols.back().line_of = symbol_of_.at({sent.state, 0, kNoAxis});
      result_.adjoint.sources.push_back({ArraySource::Kind::Start, 0});
    }
  }

  /// The adjoint's symbol for what the step reads; made when it is first read.
  int symbol_for(ArrayRead read) {
    const Symbol& from = work_.symbols[static_cast<std::size_t>(read.symbol)];
    const bool own = read.symbol < static_cast<int>(cell_.symbols.size());
    if (read.lag_axis != kNoAxis)
      for (int copy = 1; contains(from.index, read.lag_axis); ++copy)
        read.lag_axis = w().copy_axis(read.lag_axis, copy);
    CellGraph& cell = result_.adjoint.cell;
    const auto [at, fresh] = symbol_of_.emplace(read, static_cast<int>(cell.symbols.size()));
    if (!fresh) return at->second;
    Symbol s = from;
    s.initial = kNoNode;
    s.lag_of = s.line_of = -1;
    s.lag = s.max_lag = 0;
    ArraySource source{ArraySource::Kind::Symbol, read.symbol};
    if (!own) {
      source = extra_sources_[static_cast<std::size_t>(read.symbol) - cell_.symbols.size()];
    } else if (from.kind == SymbolKind::State) {
      s.kind = SymbolKind::Input;
      source = {ArraySource::Kind::Previous, update_of(cell_, read.symbol)};
    } else if (read.lag != 0 || read.lag_axis != kNoAxis) {
      s.name = name_of(work_, read);
      if (read.lag_axis != kNoAxis) {
        s.axes.push_back(w().axis(read.lag_axis).extent_of);
        s.index.push_back(read.lag_axis);
      }
      source = {ArraySource::Kind::Lagged, number_of(read)};
    }
    cell.symbols.push_back(std::move(s));
    result_.adjoint.sources.push_back(source);
    return at->second;
  }

  const CellGraph& cell_;
  const AdjointOf of_;
  CellGraph work_;  ///< symbols: the whole cell's, then adjoints and cotangents
  std::vector<ArraySource> extra_sources_;
  std::vector<NodeId> values_;  ///< of updates, then of outs
  std::vector<int> lambdas_;    ///< by update: symbol of the work
  std::optional<ReverseMode> reverse_;
  std::vector<NodeId> updates_;
  std::vector<Out> outs_;
  std::vector<ArraySink> out_sinks_;
  std::vector<ParamParts> params_;
  std::map<ArrayRead, int> symbol_of_;
  std::vector<InFlight> in_flight_;
  std::map<int, int> lines_;  ///< the adjoint's symbol by the work's
  int factors_ = 0;
  AdjointCell result_;
};

std::string text_of(const AdjointCell& a, const StepFactor& f) {
  const CellGraph& cell = a.adjoint.cell;
  std::string text =
      f.is_out ? cell.outs[static_cast<std::size_t>(f.id)].name : cell.symbols[static_cast<std::size_t>(f.id)].name;
  std::vector<std::string> names;
  for (const AxisId x : f.index) names.push_back(cell.graph.axis(x).name);
  return names.empty() ? text : fmt::format("{}[{}]", text, fmt::join(names, ","));
}

}  // namespace

namespace derivation {

AdjointCell adjoint_of(const CellGraph& cell, const AdjointOf& of) { return AdjointBuilder(cell, of).run(); }

}  // namespace derivation

std::string print_adjoint(const CellGraph& whole, const AdjointCell& a) {
  std::string text = print_arrays(whole, a.adjoint);
  for (const ParamGradient& g : a.params) {
    const Symbol& param = whole.symbols[static_cast<std::size_t>(g.symbol)];
    std::vector<std::string> axes, terms;
    for (const AxisId x : param.index) axes.push_back(whole.graph.axis(x).name);
    for (const StepProduct& p : g.products)
      terms.push_back(p.right ? text_of(a, p.left) + " * " + text_of(a, *p.right) : text_of(a, p.left));
    text += fmt::format("  gradient of {}{} = sum over steps and sequences of {}\n", param.name,
                        axes.empty() ? "" : fmt::format("[{}]", fmt::join(axes, ",")), fmt::join(terms, " + "));
  }
  return text;
}

}  // namespace cellc
