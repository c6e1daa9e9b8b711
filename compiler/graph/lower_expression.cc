// Expressions: names, operators, contraction. Calls are in lower_call.cc.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "compiler/graph/lower_internal.h"

namespace cellc::lowering {

Value Lowering::poison() {
  Value v;
  v.poisoned = true;
  return v;
}

Value Lowering::fail(Span span, std::string message, const Scope& scope, std::string note,
                     std::optional<Span> related) {
  // An error that shows only with the axes of one call is told with that call.
  if (!related && scope.function && scope.caller) {
    const Scope* outer = &scope;
    while (outer->caller->caller) outer = outer->caller;
    related = outer->call_span;
    const std::string where = fmt::format("this call of '{}'", outer->function->name);
    note = note.empty() ? "in " + where : note + " (in " + where + ")";
  }
  file_.error(span, std::move(message), std::move(note), related);
  stopped_ = stopped_ || file_.errors > kMaxErrors;
  return poison();
}

bool Lowering::too_large(Span span, const Scope& scope) {
  if (graph_.size() <= kMaxNodes) return false;
  if (!stopped_)
    fail(span, fmt::format("the cell has more than {} operations once functions are inlined", kMaxNodes), scope);
  return stopped_ = true;
}

bool Lowering::spend(std::size_t work, Span span, const Scope& scope) {
  file_.work += work;
  if (file_.work <= kMaxWork) return true;
  if (!stopped_) fail(span, "the functions of this file take too long to inline", scope);
  stopped_ = true;
  return false;
}

Value Lowering::lower(const Expr& e, Scope& scope) {
  if (stopped_ || too_large(e.span, scope)) return poison();
  if (scope.caller && !spend(1, e.span, scope)) return poison();
  if (depth_ >= kMaxDepth) {
    fail(e.span, "the expression is nested too deeply once functions are inlined", scope);
    stopped_ = true;
    return poison();
  }
  ++depth_;
  Value result;
  switch (e.kind) {
    case ExprKind::Number:
      result = expression_value(graph_.constant(e.number, e.span), {});
      break;
    case ExprKind::Name:
      result = lower_name(e, scope);
      break;
    case ExprKind::Call:
      result = lower_call(e, scope);
      break;
    case ExprKind::Binary:
      result = lower_binary(e, scope);
      break;
    case ExprKind::Negate:
      result = elementwise(Op::Neg, {lower(*e.args[0], scope)}, {e.args[0]->span}, e.span, scope);
      break;
    case ExprKind::Power:
      result = lower_power(e, scope);
      break;
  }
  --depth_;
  return result;
}

Value Lowering::expression_value(NodeId node, std::vector<AxisId> axes) const {
  Value v;
  v.node = node;
  std::sort(axes.begin(), axes.end());
  v.order = std::move(axes);
  v.shown = v.order;
  v.ordered = v.order.size() <= 1;
  return v;
}

Value Lowering::lower_name(const Expr& e, Scope& scope) {
  if (e.has_index && !e.primed && (e.name == "size" || e.name == "eye")) return lower_call(e, scope);
  const std::map<std::string, BoundName>& table = e.primed ? scope.primes : scope.values;
  const auto found = table.find(e.name);
  // Some steps back h' is known, wherever the line is that gives it.
  const int symbol =
      found == table.end() && e.primed && steps_back_ > 0 && scope.kind == Scope::Kind::Cell ? find_symbol(e.name) : -1;
  if (symbol >= 0 && symbols_[symbol].kind == SymbolKind::State) return read_name(e, next_value(symbol), scope);
  if (found == table.end()) return undefined_name(e, scope);
  return read_name(e, found->second.value, scope);
}

Value Lowering::read_name(const Expr& e, Value value, Scope& scope) {
  if (value.poisoned) return poison();
  if (value.symbol >= 0) {
    const Symbol& symbol = base_symbol(value.symbol);
    if (scope.kind == Scope::Kind::Start && symbol.kind != SymbolKind::Param)
      return fail(e.span,
                  fmt::format("a start is made of numbers, size, eye, functions and params; '{}' is {}", e.name,
                              symbol.kind == SymbolKind::State ? "a state" : "an input"),
                  scope);
    if (scope.kind == Scope::Kind::Default)
      return fail(e.span,
                  fmt::format("a default is made of numbers, size, eye and functions; '{}' is declared", e.name),
                  scope);
    std::vector<Index> index;
    for (AxisId a : value.order) index.push_back({a, 0});
    value.node = graph_.read(value.symbol, std::move(index), e.span);
  }
  return e.has_index ? index_value(value, e.index, e.span, scope) : value;
}

bool Lowering::plain(const Value& value, Span span, Scope& scope) {
  if (value.poisoned) return false;
  // A start is laid out like the state itself, so that there the places do stay apart.
  if (!value.repeated() || scope.kind == Scope::Kind::Start || scope.kind == Scope::Kind::Default) return true;
  std::string twice, named;
  char letter = 'i';
  for (std::size_t p = 0; p < value.shown.size(); ++p) {
    const bool repeats = std::count(value.shown.begin(), value.shown.end(), value.shown[p]) > 1;
    if (repeats && twice.empty()) twice = axis_name(value.shown[p]);
    named += (p ? "," : "") + (repeats ? std::string(1, letter++) : axis_name(value.shown[p]));
  }
  const std::string name = value.name.empty() ? "A" : value.name;
  fail(span,
       fmt::format("{} has the axis '{}' more than once, so its places cannot be told apart here", describe(value),
                   twice),
       scope, fmt::format("write {}[{}] …, or use it in {}@x", name, named, name));
  return false;
}

bool Lowering::all_places(const Value& value, const std::vector<AxisId>& axes, Span span, Scope& scope) {
  const auto base = [&](AxisId a) { return graph_.axis(a).copy_of == kNoAxis ? a : graph_.axis(a).copy_of; };
  for (AxisId own : value.order)
    for (AxisId other : axes) {
      if (base(other) != base(own) || std::find(value.order.begin(), value.order.end(), other) != value.order.end())
        continue;
      fail(span,
           fmt::format(
               "{} has the axis '{}' fewer times than what stands beside it, so its places cannot be told apart here",
               describe(value), axis_name(base(own))),
           scope, "what has the axis at all must have all of its places here, as eye has");
      return false;
    }
  return true;
}

bool Lowering::unite(std::vector<AxisId>& axes, const std::vector<AxisId>& more, Span span, Scope& scope) {
  for (AxisId a : more) {
    if (std::find(axes.begin(), axes.end(), a) != axes.end()) continue;
    for (AxisId other : axes)
      if (axis_name(other) == axis_name(a)) {
        const auto like = [&](AxisId axis) { return axis_name(graph_.axis(axis).extent_of); };
        fail(span,
             fmt::format("'{}' has the length of '{}' on one side and of '{}' on the other", axis_name(a), like(other),
                         like(a)),
             scope, "use one index name for one length");
        return false;
      }
    axes.push_back(a);
  }
  return true;
}

namespace {

/// 1/(1 + exp(u)) and exp(u)/(1 + exp(u)) are the logistic function, as which they do not overflow, cost one
/// call and are known to lie between 0 and 1. Most cells that are written out from a paper have one.
std::optional<NodeId> logistic(Graph& graph, NodeId above, NodeId below, Span span) {
  const auto is_one = [&](NodeId n) { return graph[n].op == Op::Constant && graph[n].number == 1; };
  if (graph[below].op != Op::Add) return std::nullopt;
  NodeId one = graph[below].args[0], power = graph[below].args[1];
  if (is_one(power)) std::swap(one, power);
  if (!is_one(one) || graph[power].op != Op::Exp) return std::nullopt;
  const NodeId u = graph[power].args[0];
  if (above == power) return graph.op(Op::Sigmoid, {u}, span);
  if (!is_one(above)) return std::nullopt;
  if (graph[u].op == Op::Neg) return graph.op(Op::Sigmoid, {graph[u].args[0]}, span);
  return graph.op(Op::Sigmoid, {graph.op(Op::Neg, {u}, span)}, span);
}

}  // namespace

Value Lowering::elementwise(Op op, const std::vector<Value>& args, const std::vector<Span>& places, Span span,
                            Scope& scope) {
  bool good = true;
  std::vector<NodeId> nodes;
  std::vector<AxisId> axes;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const Value& v = args[i];
    if (!plain(v, places[i], scope)) {
      good = false;
      continue;
    }
    nodes.push_back(v.node);
    if (good) good = unite(axes, v.order, span, scope);
  }
  for (std::size_t i = 0; i < args.size() && good; ++i) good = all_places(args[i], axes, places[i], scope);
  if (!good) return poison();
  if (op == Op::Div)
    if (const auto gate = logistic(graph_, nodes[0], nodes[1], span)) return expression_value(*gate, std::move(axes));
  return expression_value(graph_.op(op, std::move(nodes), span), std::move(axes));
}

Value Lowering::lower_power(const Expr& e, Scope& scope) {
  const Value base = lower(*e.args[0], scope);
  const Span at = e.args[0]->span;
  if (e.number == 2) return elementwise(Op::Square, {base}, {at}, e.span, scope);
  const Value exponent = expression_value(graph_.constant(e.number, e.name_span), {});
  return elementwise(Op::Pow, {base, exponent}, {at, at}, e.span, scope);
}

namespace {

Op binary_op(const std::string& sign) {
  const std::optional<Op> found = op_by_sign(sign);
  if (!found) throw std::logic_error("lower: unknown operator sign " + sign);
  return *found;
}

bool is_operator(const Expr& e, bool contraction) {
  return e.kind == ExprKind::Binary && (e.name == "@") == contraction;
}

}  // namespace

// Chains of operators are as deep as the text is long: a + b + … leans left, A @ B @ … right.
// Both spines are walked in a loop; what hangs off them is bounded by the parser's nesting.
Value Lowering::lower_binary(const Expr& e, Scope& scope) {
  std::vector<const Expr*> spine;
  if (is_operator(e, true)) {
    const Expr* last = &e;
    for (; is_operator(*last, true); last = last->args[1].get()) spine.push_back(last);
    std::vector<Value> lefts;
    for (const Expr* at : spine) lefts.push_back(lower(*at->args[0], scope));
    Value value = lower(*last, scope);
    for (std::size_t i = spine.size(); i-- > 0 && !too_large(e.span, scope);)
      value = contract(*spine[i], lefts[i], value, scope);
    return stopped_ ? poison() : value;
  }
  const Expr* first = &e;
  for (; is_operator(*first, false); first = first->args[0].get()) spine.push_back(first);
  Value value = lower(*first, scope);
  for (std::size_t i = spine.size(); i-- > 0 && !too_large(e.span, scope);) {
    const Value right = lower(*spine[i]->args[1], scope);
    value = elementwise(binary_op(spine[i]->name), {value, right}, {spine[i]->args[0]->span, spine[i]->args[1]->span},
                        spine[i]->span, scope);
  }
  return stopped_ ? poison() : value;
}

// The right side lacks the last axis of the left side. Says so in the terms that help most: the
// tensor that would have fitted, or the order of the sides that would.
Value Lowering::missing_axis(const Expr& at, const Value& a, const Value& b, Scope& scope) {
  const AxisId last = a.shown.back();
  std::string note;
  if (!a.name.empty() && scope.kind == Scope::Kind::Cell) {
    // A declared tensor that differs from this one in the last axis only.
    int best = -1, best_score = -1;
    for (std::size_t s = 0; s < symbols_.size(); ++s) {
      const std::vector<AxisId>& axes = symbols_[s].axes;
      if (axes.size() != a.shown.size() || symbols_[s].name == a.name) continue;
      if (!std::equal(axes.begin(), axes.end() - 1, a.shown.begin())) continue;
      if (std::find(b.shown.begin(), b.shown.end(), axes.back()) == b.shown.end()) continue;
      int score = symbols_[s].kind == SymbolKind::Param ? 1 : 0;
      for (std::size_t i = 0; i < std::min(symbols_[s].name.size(), a.name.size()); ++i)
        score += symbols_[s].name[i] == a.name[i] ? 2 : 0;
      if (score > best_score) {
        best = static_cast<int>(s);
        best_score = score;
      }
    }
    if (best >= 0) note = fmt::format("did you mean {}?", symbols_[best].name);
  }
  // The left side's places were renamed where it was given; the right side has that length under its own name.
  if (const Axis& axis = graph_.axis(last); note.empty() && !b.name.empty() && b.ordered && axis.extent_of != last) {
    const auto same =
        std::find_if(b.shown.begin(), b.shown.end(), [&](AxisId x) { return graph_.same_length(x, last); });
    if (same != b.shown.end()) {
      std::string places;
      for (auto at_place = b.shown.begin(); at_place != b.shown.end(); ++at_place)
        places += (places.empty() ? "" : ",") + (at_place == same ? axis_name(last) : list_of({*at_place}));
      note = fmt::format("'{}' has the length of '{}': name the place that it contracts with, {}@{}[{}]",
                         axis_name(last), list_of({*same}), a.name.empty() ? "…" : a.name, b.name, places);
    }
  }
  const bool one = b.order.size() == 1;
  const std::string b_name = b.name.empty() ? "the right side" : b.name;
  if (note.empty() && one && std::find(a.shown.begin(), a.shown.end(), b.shown[0]) != a.shown.end() && !a.name.empty())
    note = fmt::format("{}@{} contracts the axis '{}'", b.name.empty() ? "x" : b.name, a.name, list_of(b.shown));
  if (b.order.empty()) {
    if (note.empty()) note = "a value without axes is multiplied by '*'";
    return fail(at.name_span, fmt::format("{} has no axes: '@' has nothing to contract with {}", b_name, describe(a)),
                scope, note);
  }
  if (one && std::find(a.shown.begin(), a.shown.end(), b.shown[0]) == a.shown.end())
    return fail(at.name_span,
                fmt::format("axis '{}' of {} is not an axis of {}", list_of(b.shown), b_name, describe(a)), scope,
                note);
  return fail(at.name_span,
              fmt::format("'@' contracts the last axis of {}, '{}', which {} lacks", describe(a), list_of({last}),
                          b.name.empty() ? "the right side [" + list_of(b.shown) + "]" : describe(b)),
              scope, note);
}

Value Lowering::contract(const Expr& at, const Value& a, const Value& b, Scope& scope) {
  if (a.poisoned || b.poisoned) return poison();
  if (a.order.empty()) return fail(at.args[0]->span, "the left side of '@' has no axes", scope, "multiply by '*'");
  if (!a.ordered)
    return fail(
        at.args[0]->span,
        fmt::format("the left side of '@' has the axes {} in no order, so it has no last axis", list_of(a.shown)),
        scope,
        fmt::format("write sum[k](a*b) over the axis k that is meant, or list the axes where {} is "
                    "given: {}[{}] = …",
                    a.name.empty() ? "the left side" : a.name, a.name.empty() ? "a" : a.name, list_of(a.shown)));
  const AxisId last = a.shown.back();
  const auto found = std::find(b.shown.begin(), b.shown.end(), last);
  if (found == b.shown.end()) return missing_axis(at, a, b, scope);
  const std::size_t place = static_cast<std::size_t>(found - b.shown.begin());

  std::vector<AxisId> rest_a(a.shown.begin(), a.shown.end() - 1), rest_b = b.shown;
  rest_b.erase(rest_b.begin() + static_cast<std::ptrdiff_t>(place));
  for (const auto* side : {&rest_a, &rest_b})
    for (std::size_t i = 0; i < side->size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if ((*side)[i] == (*side)[j])
          return fail(at.span,
                      fmt::format("what is left of {} has the axis '{}' more than once",
                                  describe(side == &rest_a ? a : b), list_of({(*side)[i]})),
                      scope, fmt::format("name its places: {}[i,j,…]", side == &rest_a ? a.name : b.name));
  std::vector<AxisId> axes = rest_a;
  if (!unite(axes, rest_b, at.span, scope)) return poison();
  for (AxisId other : axes)
    if (other != last && axis_name(other) == axis_name(last)) {
      std::vector<AxisId> one{last};
      unite(one, {other}, at.span, scope);
      return poison();
    }

  // The contracted axis is bound under its own name unless that name stays free beside it.
  AxisId bound = last;
  for (int n = 1; std::find(axes.begin(), axes.end(), bound) != axes.end(); ++n) bound = graph_.copy_axis(last, n);
  std::vector<std::pair<AxisId, Index>> map_a, map_b;
  for (std::size_t p = 0; p < rest_a.size(); ++p) map_a.emplace_back(a.order[p], Index{rest_a[p], 0});
  map_a.emplace_back(a.order.back(), Index{bound, 0});
  for (std::size_t p = 0; p < b.order.size(); ++p)
    map_b.emplace_back(b.order[p], Index{p == place ? bound : b.shown[p], 0});
  const NodeId left = graph_.reindex(a.node, std::move(map_a), at.args[0]->span);
  const NodeId right = graph_.reindex(b.node, std::move(map_b), at.args[1]->span);
  const NodeId sum = sum_of_lags({bound}, graph_.op(Op::Mul, {left, right}, at.span), at.span, scope);
  return sum == kNoNode ? poison() : expression_value(sum, std::move(axes));
}

}  // namespace cellc::lowering
