// A cell's declarations and lines. Expressions are in lower_expression.cc.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/lower_internal.h"

namespace cellc::lowering {

namespace {

const char* kind_name(SymbolKind kind) {
  switch (kind) {
    case SymbolKind::State:
      return "a state";
    case SymbolKind::Input:
      return "an input";
    case SymbolKind::Param:
      return "a param";
  }
  return "";
}

}  // namespace

void Lowering::declare_axes(const std::vector<HeaderAxis>& axes, Scope& scope) {
  for (const HeaderAxis& axis : axes) {
    if (graph_.axis_count() >= kMaxAxes) {
      fail(axis.span, fmt::format("more than {} axes", kMaxAxes), scope);
      stopped_ = true;
      return;
    }
    if (scope.axes.contains(axis.name)) {
      fail(axis.span, fmt::format("axis '{}' stands twice in the header", axis.name), scope);
      continue;
    }
    if (axis.length && *axis.length < 1)
      fail(axis.span, fmt::format("axis '{}' has the length {}; a length is 1 or more", axis.name, *axis.length),
           scope);
    scope.axes[axis.name] = graph_.add_header_axis(axis.name, axis.length);
    scope.displayed.insert(axis.name);
  }
}

bool Lowering::check_new_name(const std::string& name, Span span, const Scope& scope) {
  if (name == "initial" || name == "final" || name == "lag") {
    fail(span, fmt::format("'{}' is a reserved name", name), scope, "choose another name");
    return false;
  }
  if (is_builtin(name)) {
    fail(span, fmt::format("'{}' is a built-in function and cannot name a value", name), scope, "choose another name");
    return false;
  }
  const auto found = scope.values.find(name);
  if (found == scope.values.end()) return true;
  const int symbol = found->second.value.symbol;
  if (symbol >= 0 && scope.kind == Scope::Kind::Cell)
    fail(span, fmt::format("'{}' is {} already", name, kind_name(base_symbol(symbol).kind)), scope, "declared here",
         found->second.span);
  else
    fail(span, fmt::format("'{}' is given twice", name), scope, "first given here", found->second.span);
  return false;
}

void Lowering::declare(const Declaration& d, Scope& scope) {
  const bool good_name = check_new_name(d.name, d.span, scope);
  Symbol symbol;
  symbol.name = d.name;
  symbol.kind = d.kind;
  symbol.span = d.span;
  bool good = true;
  for (const IndexEntry& entry : d.axes) {
    const AxisId axis = known_axis(entry, nullptr, scope);
    if (axis == kNoAxis) {
      good = false;
      continue;
    }
    const int copies = static_cast<int>(std::count(symbol.axes.begin(), symbol.axes.end(), axis));
    symbol.axes.push_back(axis);
    symbol.index.push_back(copies ? graph_.copy_axis(axis, copies) : axis);
  }
  if (d.range) {
    if (!(d.range->low < d.range->high))
      fail(d.span, fmt::format("the range of '{}' is empty: {} is not below {}", d.name, d.range->low, d.range->high),
           scope, "write in (low, high)");
    symbol.range = d.range;
  }
  Value value;
  value.poisoned = !good;
  value.symbol = static_cast<int>(symbols_.size());
  value.order = symbol.index;
  value.shown = symbol.axes;
  value.ordered = true;
  value.name = d.name;
  symbol_of_.emplace(d.name, value.symbol);
  symbols_.push_back(std::move(symbol));
  updates_.push_back(kNoNode);
  update_spans_.push_back({});
  assigned_.emplace_back();
  value.poisoned = value.poisoned || !good_name;
  scope.values.emplace(d.name, BoundName{std::move(value), d.span});
}

int Lowering::find_symbol(const std::string& name) const {
  const auto found = symbol_of_.find(name);
  return found == symbol_of_.end() ? -1 : found->second;
}

// Starts are lowered when every declaration is known: a learned start may be declared below.
void Lowering::lower_starts(const Cell& cell, const Scope& scope) {
  Scope start;
  start.axes = scope.axes;
  start.displayed = scope.displayed;
  start.values = scope.values;
  for (std::size_t i = 0; i < cell.declarations.size(); ++i) {
    const Declaration& d = cell.declarations[i];
    if (!d.initial || stopped_) continue;
    start.kind = d.kind == SymbolKind::State ? Scope::Kind::Start : Scope::Kind::Default;
    start.index_names.clear();
    learn_index_names(*d.initial, start);
    lower_start(d, static_cast<int>(i), start);
  }
}

void Lowering::lower_start(const Declaration& d, int index, Scope& scope) {
  if (d.kind == SymbolKind::Input) {
    fail(d.initial->span, fmt::format("the input '{}' cannot have a value here", d.name), scope,
         "a state has a start and a param a default; an input is given at each step");
    return;
  }
  const Value value = lower(*d.initial, scope);
  if (value.poisoned) return;
  const Symbol& symbol = symbols_[index];
  const char* what = d.kind == SymbolKind::State ? "start" : "default";
  for (AxisId a : value.order)
    if (std::find(symbol.index.begin(), symbol.index.end(), a) == symbol.index.end()) {
      fail(d.initial->span,
           fmt::format("the {} of '{}' has the axis '{}', which '{}' lacks", what, d.name, list_of({a}), d.name),
           scope);
      return;
    }
  // A vector over d does not say along which of the two places of P[d,d] it lies.
  for (AxisId a : value.order)
    for (std::size_t p = 0; p < symbol.index.size(); ++p) {
      const bool same_axis = symbol.axes[p] == a || symbol.axes[p] == graph_.axis(a).copy_of;
      if (same_axis && std::find(value.order.begin(), value.order.end(), symbol.index[p]) == value.order.end()) {
        fail(d.initial->span,
             fmt::format("'{}' has the axis '{}' more than once, and its {} once", d.name, list_of({a}), what), scope,
             fmt::format("give a {} with the axes [{}], such as eye, or one without axes", what, list_of(symbol.axes)));
        return;
      }
    }
  symbols_[index].initial = value.node;
}

// Index names get their length from the tensor that they index, wherever in the line that stands:
// eye[i,j] + A[i,j] is as good as the other way round. What they stood for in another line counts only
// where this one does not say.
void Lowering::learn_index_names(const Expr& root, Scope& scope, const std::vector<Target>& targets) {
  scope.in_line.clear();
  for (const Target& t : targets)
    if (const int s = find_symbol(t.name); scope.kind == Scope::Kind::Cell && t.primed && t.has_index && s >= 0) {
      const std::vector<AxisId> axes = symbols_[s].axes;
      for (std::size_t p = 0; p < t.index.size() && axes.size() == t.index.size() && !stopped_; ++p)
        if (!t.index[p].integer && !scope.axes.contains(t.index[p].name))
          new_index_axis(t.index[p].name, axes[p], t.index[p].span, scope);
    }
  walk(root, [&](const Expr& e) {
    if (e.kind != ExprKind::Name || !e.has_index || stopped_) return;
    for (const IndexEntry& entry : e.index)
      if (!entry.integer) scope.mentioned.insert(entry.name);
    const auto& table = e.primed ? scope.primes : scope.values;
    const auto found = table.find(e.name);
    if (found == table.end()) return;
    const Value& value = found->second.value;
    if (value.poisoned || !value.ordered || value.shown.size() != e.index.size()) return;
    const std::vector<AxisId> shown = value.shown;
    for (std::size_t p = 0; p < shown.size(); ++p)
      if (!e.index[p].integer && !scope.axes.contains(e.index[p].name))
        new_index_axis(e.index[p].name, shown[p], e.index[p].span, scope);
  });
}

void Lowering::lower_line(const Line& line, Scope& scope) {
  if (stopped_ || line.targets.empty() || !line.value) return;
  learn_index_names(*line.value, scope, line.targets);
  if (line.targets.size() == 1) {
    assign(line, line.targets[0], lower(*line.value, scope), scope);
    return;
  }
  const auto function =
      line.value->kind == ExprKind::Call ? file_.functions.find(line.value->name) : file_.functions.end();
  std::vector<Value> results(line.targets.size(), poison());
  if (function == file_.functions.end()) {
    lower(*line.value, scope);
    fail(line.value->span, fmt::format("{} names are given at once, and this is one value", line.targets.size()), scope,
         "only a function with as many results gives several names a value");
  } else if (function->second->results.size() != line.targets.size()) {
    const std::size_t count = function->second->results.size();
    lower_args(*line.value, scope);
    fail(line.value->span,
         fmt::format("'{}' gives {} result{}, and {} names are given", line.value->name, count, count == 1 ? "" : "s",
                     line.targets.size()),
         scope);
  } else {
    results = call_function(*line.value, *function->second, scope);
  }
  for (std::size_t i = 0; i < line.targets.size(); ++i) assign(line, line.targets[i], results[i], scope);
}

void Lowering::assign(const Line& line, const Target& target, const Value& value, Scope& scope) {
  if (scope.kind != Scope::Kind::Cell) {
    // Primes and outs in a function have been refused by the parser.
    assign_value(line, target, value, scope);
    return;
  }
  const int symbol = find_symbol(target.name);
  if (target.primed) {
    if (symbol < 0 && partial_) return;
    if (symbol < 0 || symbols_[symbol].kind != SymbolKind::State) {
      std::vector<std::string> states;
      for (const Symbol& s : symbols_)
        if (s.kind == SymbolKind::State) states.push_back(s.name);
      const std::string near = symbol < 0 && may_suggest() ? closest_name(target.name, states) : "";
      fail(target.span,
           symbol < 0 ? fmt::format("'{}' is not a declared state", target.name)
                      : fmt::format("'{}' is {}, not a state: it has no value after the step", target.name,
                                    kind_name(symbols_[symbol].kind)),
           scope,
           symbol >= 0    ? "choose another name, or declare it as a state"
           : near.empty() ? fmt::format("declare it: state {}", target.name)
                          : fmt::format("did you mean {}'?", near));
      return;
    }
    if (line.is_out) {
      fail(target.span, fmt::format("'{}' is a state, which is written without 'out'", target.name), scope,
           fmt::format("write {}' = …", target.name));
      assigned_[symbol] = target.span;
      scope.primes[target.name] = {poison(), target.span};
      return;
    }
    assign_state(line, target, value, scope);
    return;
  }
  if (symbol >= 0) {
    const bool state = symbols_[symbol].kind == SymbolKind::State;
    fail(target.span,
         line.is_out ? fmt::format("the out '{}' has the name of {}", target.name, kind_name(symbols_[symbol].kind))
                     : fmt::format("'{}' is {} and is not assigned", target.name, kind_name(symbols_[symbol].kind)),
         scope,
         !line.is_out && state ? fmt::format("declared here; the value after the step is {}' = …", target.name)
                               : "declared here; choose another name",
         symbols_[symbol].span);
    // The line was most likely meant for the state: one error for it is enough.
    if (state && !line.is_out && !assigned_[symbol] && !line_of_.contains(target.name + "'")) {
      assigned_[symbol] = target.span;
      scope.primes[target.name] = {poison(), target.span};
    }
    return;
  }
  assign_value(line, target, value, scope);
}

bool Lowering::is_fixed_number(NodeId root) const {
  const std::vector<NodeId> all = reachable(graph_, {root});
  return std::none_of(all.begin(), all.end(), [&](NodeId id) { return graph_[id].op == Op::Read; });
}

std::string Lowering::source_of_axis(const Expr& root, AxisId axis, Scope& scope) {
  std::string found;
  walk(root, [&](const Expr& e) {
    if (!found.empty() || e.kind != ExprKind::Name) return;
    const auto& table = e.primed ? scope.primes : scope.values;
    const auto binding = table.find(e.name);
    if (binding == table.end() || binding->second.value.poisoned) return;
    Value value = binding->second.value;
    value.name = e.primed ? e.name + "'" : e.name;
    if (e.has_index) {
      for (const IndexEntry& entry : e.index)
        if (entry.name == axis_name(axis)) found = value.name;
    } else if (std::find(value.shown.begin(), value.shown.end(), axis) != value.shown.end()) {
      found = describe(value);
    }
  });
  return found;
}

Value Lowering::next_value(int symbol) const {
  Value next;
  next.symbol = prime_symbol(symbol);
  next.order = symbols_[symbol].index;
  next.shown = symbols_[symbol].axes;
  next.ordered = true;
  next.name = symbols_[symbol].name + "'";
  return next;
}

void Lowering::assign_state(const Line& line, const Target& target, const Value& value, Scope& scope) {
  const int s = find_symbol(target.name);
  const Symbol& symbol = symbols_[s];
  if (assigned_[s]) {
    fail(target.span, fmt::format("state '{}' is assigned twice", target.name), scope, "first assigned here",
         *assigned_[s]);
    return;
  }
  assigned_[s] = target.span;
  Value after = next_value(s);
  after.poisoned = true;
  const auto bind = [&] { scope.primes[target.name] = {after, target.span}; };

  // The index variable of each place as the line calls it.
  std::vector<AxisId> places = symbol.axes;
  const std::string shown = symbol.name + (symbol.axes.empty() ? "" : "[" + list_of(symbol.axes) + "]");
  bool good = !value.poisoned;
  if (target.has_index) {
    places.clear();
    if (target.index.size() != symbol.axes.size()) {
      fail(target.span,
           fmt::format("{} has {} {}, and {} {} listed", shown, symbol.axes.size(),
                       symbol.axes.size() == 1 ? "axis" : "axes", target.index.size(),
                       target.index.size() == 1 ? "is" : "are"),
           scope);
      return bind();
    }
    for (std::size_t p = 0; p < target.index.size(); ++p) {
      const IndexEntry& entry = target.index[p];
      if (entry.integer) {
        fail(entry.span,
             fmt::format("all entries of '{}' are assigned at once, not entry {}", target.name, *entry.integer), scope,
             fmt::format("use where(eye[{},{}], …, …) to treat one entry apart", list_of({symbol.axes[p]}),
                         *entry.integer));
        return bind();
      }
      const AxisId axis = index_axis(entry, symbol.axes[p], shown, scope);
      if (axis == kNoAxis) return bind();
      if (std::find(places.begin(), places.end(), axis) != places.end()) {
        fail(entry.span, fmt::format("'{}' names two places of '{}'", entry.name, target.name), scope,
             "each place needs a name of its own: only the diagonal would be given");
        return bind();
      }
      places.push_back(axis);
    }
  }
  if (!good || !plain(value, line.value->span, scope)) return bind();
  if (!target.has_index && symbol.index != symbol.axes && !value.order.empty()) {
    std::string names;
    for (std::size_t p = 0; p < symbol.axes.size(); ++p)
      names += (p ? "," : "") + std::string(1, static_cast<char>('i' + p % 18));
    fail(target.span,
         fmt::format("{} has the axis '{}' more than once, so the line must say which place is which", shown,
                     list_of({symbol.axes.back()})),
         scope, fmt::format("write {}'[{}] = …", target.name, names));
    return bind();
  }
  std::vector<AxisId> missing;
  for (AxisId a : value.order)
    if (std::find(places.begin(), places.end(), a) == places.end()) {
      const std::string from = source_of_axis(*line.value, a, scope);
      fail(line.value->span,
           fmt::format("the value of {}' has the axis '{}', which {} lacks", target.name, axis_name(a), shown), scope,
           is_index_of_value(a, scope) ? picked_by_value(a, from)
           : from.empty()              ? fmt::format("sum over it, sum[{}](…), or contract it with '@'", axis_name(a))
                          : fmt::format("'{}' comes from {}: contract it, W@{}, or sum over it, sum[{}](…)",
                                        axis_name(a), from, from.substr(0, from.find('[')), axis_name(a)));
      return bind();
    }
  for (AxisId a : places)
    if (std::find(value.order.begin(), value.order.end(), a) == value.order.end()) missing.push_back(a);
  if (!missing.empty() && !is_fixed_number(value.node)) {
    fail(line.value->span,
         fmt::format("the value of {}' lacks the {} '{}': a state takes all of its axes or a constant", target.name,
                     missing.size() > 1 ? "axes" : "axis", list_of(missing)),
         scope,
         fmt::format("if all entries are meant to be equal, say so on a line of its own: a[{}] = …, then {}' = a",
                     list_of(symbol.axes), target.name));
    return bind();
  }
  std::vector<std::pair<AxisId, Index>> map;
  for (std::size_t p = 0; p < places.size(); ++p) map.emplace_back(places[p], Index{symbol.index[p], 0});
  updates_[s] = graph_.reindex(value.node, std::move(map), line.value->span);
  update_spans_[s] = line.span;
  after.poisoned = false;
  bind();
}

std::optional<std::vector<AxisId>> Lowering::listed_axes(const Target& target, const Value& value, Scope& scope) {
  std::vector<AxisId> listed;
  bool good = true;
  for (const IndexEntry& entry : target.index) {
    if (entry.integer) {
      fail(entry.span, fmt::format("the axes of '{}' are listed here by name, not {}", target.name, *entry.integer),
           scope);
      good = false;
      continue;
    }
    const AxisId axis = known_axis(entry, &value.order, scope);
    if (axis == kNoAxis) {
      good = false;
    } else if (std::find(listed.begin(), listed.end(), axis) != listed.end()) {
      fail(entry.span, fmt::format("'{}' lists the axis '{}' twice", target.name, entry.name), scope);
      good = false;
    } else {
      listed.push_back(axis);
    }
  }
  if (!good) return std::nullopt;
  return listed;
}

void Lowering::assign_value(const Line& line, const Target& target, Value value, Scope& scope) {
  if (!check_new_name(target.name, target.span, scope)) {
    // A name that may not be given is still known from here on: one error is enough.
    scope.values.emplace(target.name, BoundName{poison(), target.span});
    return;
  }
  const auto bind_poison = [&] { scope.values[target.name] = {poison(), target.span}; };
  if (value.poisoned) return bind_poison();
  if (!plain(value, line.value->span, scope)) return bind_poison();
  std::vector<AxisId> order = value.order;
  std::sort(order.begin(), order.end());
  if (target.has_index) {
    const auto listed = listed_axes(target, value, scope);
    if (!listed) return bind_poison();
    for (AxisId a : order)
      if (std::find(listed->begin(), listed->end(), a) == listed->end()) {
        const std::string from = source_of_axis(*line.value, a, scope);
        fail(line.value->span,
             fmt::format("the value of '{}' has the axis '{}', which is not listed", target.name, axis_name(a)), scope,
             is_index_of_value(a, scope) ? picked_by_value(a, from)
             : from.empty()              ? fmt::format("list it, or sum over it: sum[{}](…)", axis_name(a))
                            : fmt::format("'{}' comes from {}: list it, or sum over it, sum[{}](…)", axis_name(a), from,
                                          axis_name(a)));
        return bind_poison();
      }
    order = *listed;
  } else if (line.is_out && order.size() >= 2) {
    fail(
        target.span,
        fmt::format("the out '{}' has {} axes and must say in which order they are written", target.name, order.size()),
        scope, fmt::format("write out {}[{}] = …", target.name, list_of(order)));
    return bind_poison();
  }
  value.symbol = -1;
  value.order = order;
  value.shown = order;
  value.ordered = target.has_index || order.size() <= 1;
  value.name = target.name;
  if (scope.kind == Scope::Kind::Cell) {
    if (line.is_out) outs_.push_back({target.name, order, value.node, line.span});
    named_.push_back({target.name, value.node, order, line.span, value.ordered});
  }
  scope.values[target.name] = {std::move(value), target.span};
}

void Lowering::report_unassigned(const Cell& cell) {
  Scope scope;
  bool any = false;
  for (std::size_t s = 0; s < symbols_.size(); ++s) {
    if (symbols_[s].kind != SymbolKind::State) continue;
    any = true;
    // A second declaration of the name has been refused already.
    if (!assigned_[s] && symbol_of_.at(symbols_[s].name) == static_cast<int>(s))
      fail(symbols_[s].span, fmt::format("state '{}' is never assigned", symbols_[s].name), scope,
           fmt::format("add a line {}' = …", symbols_[s].name));
  }
  if (!any) fail(cell.span, fmt::format("the cell '{}' has no state", cell.name), scope, "declare one: state h[…]");
}

std::optional<CellGraph> Lowering::cell(const Cell& cell) {
  if (file_.errors > kMaxErrors) return std::nullopt;
  cell_ = &cell;
  partial_ = file_.is_partial(cell.span.offset);
  const std::size_t errors_before = file_.errors;
  Scope scope;
  declare_axes(cell.axes, scope);
  if (cell.declarations.size() > kMaxSymbols) {
    fail(cell.declarations[kMaxSymbols].span, fmt::format("more than {} declared names in one cell", kMaxSymbols),
         scope);
    return std::nullopt;
  }
  for (const Declaration& d : cell.declarations) declare(d, scope);
  // Symbols keep their numbers from here on: primes count on from the last.
  lower_starts(cell, scope);
  collect_definitions(cell);
  for (std::size_t i = 0; i < cell.lines.size(); ++i) {
    line_ = static_cast<int>(i);
    lower_line(cell.lines[i], scope);
  }
  if (!stopped_ && !partial_) report_unassigned(cell);
  if (stopped_ || partial_ || file_.errors != errors_before) return std::nullopt;
  return finish(cell);
}

}  // namespace cellc::lowering
