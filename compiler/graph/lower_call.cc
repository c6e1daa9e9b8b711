// Calls of built-in functions: elementwise ones, reductions, size, eye.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/logsumexp.h"
#include "compiler/graph/lower_internal.h"

namespace cellc::lowering {

const std::vector<std::string>& builtin_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list = {"sum", "mean", "softmax", "logsumexp", "size", "eye", "lag", "solve"};
#define CELLC_CALL(Name, text, ...) list.push_back(#text);
#include "compiler/graph/ops.def"
    return list;
  }();
  return names;
}

bool is_builtin(const std::string& name) {
  const std::vector<std::string>& names = builtin_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_reduction(const std::string& name) {
  return name == "sum" || name == "mean" || name == "softmax" || name == "logsumexp";
}

namespace {

std::string count_of(std::size_t n, const std::string& noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

}  // namespace

std::vector<Value> Lowering::lower_args(const Expr& e, Scope& scope) {
  std::vector<Value> args;
  for (const ExprPtr& arg : e.args) args.push_back(lower(*arg, scope));
  return args;
}

Value Lowering::unknown_function(const Expr& e, Scope& scope) {
  std::vector<std::string> known;
  if (may_suggest()) {
    known = builtin_names();
    for (const auto& [name, function] : file_.functions) known.push_back(name);
  }
  std::string note;
  if (scope.values.contains(e.name)) {
    note = fmt::format("'{}' is a value: a product is written {}*(…)", e.name, e.name);
  } else if (const std::string there = function_elsewhere(e.name); !there.empty()) {
    note = there;
  } else if (const std::string near = closest_name(e.name, known); !near.empty()) {
    note = fmt::format("did you mean '{}'?", near);
  }
  lower_args(e, scope);
  if (!file_.syntax_errors.empty()) {
    ++file_.errors;  // the parser may have lost the function, and said why
    return poison();
  }
  return fail(e.name_span, fmt::format("unknown function '{}'", e.name), scope, note);
}

Value Lowering::lower_call(const Expr& e, Scope& scope) {
  const std::string& name = e.name;
  if (name == "size") return lower_size(e, scope);
  if (name == "eye") return lower_eye(e, scope);
  if (name == "lag") return lower_lag(e, scope);
  if (is_reduction(name) || (name == "max" && e.has_index)) return lower_reduction(e, scope);
  if (name == "solve") {
    lower_args(e, scope);
    return fail(e.name_span, "solve is not supported yet", scope);
  }
  if (const std::optional<Op> op = op_by_call_name(name)) return lower_elementwise_call(e, *op, scope);
  const auto found = file_.functions.find(name);
  if (found == file_.functions.end()) return unknown_function(e, scope);
  std::vector<Value> results = call_function(e, *found->second, scope);
  if (results.size() == 1) return std::move(results[0]);
  if (results.empty()) return poison();
  return fail(e.span, fmt::format("'{}' gives {} results and cannot stand inside an expression", name, results.size()),
              scope, fmt::format("give each a name on a line of its own: p, q = {}(…)", name));
}

Value Lowering::lower_elementwise_call(const Expr& e, Op op, Scope& scope) {
  const std::vector<Value> args = lower_args(e, scope);
  const OpInfo& info = op_info(op);
  if (e.has_index)
    return fail(e.name_span, fmt::format("'{}' works entry by entry and takes no axes", e.name), scope,
                op == Op::Min ? "the least entry along an axis is -max[k](-x)" : fmt::format("write {}(…)", e.name));
  if (static_cast<int>(args.size()) != info.arity) {
    const bool reduction = op == Op::Max && args.size() == 1;
    return fail(
        e.span,
        fmt::format("'{}' takes {}, and {} given", e.name, count_of(static_cast<std::size_t>(info.arity), "argument"),
                    args.size() == 1 ? "1 is" : fmt::format("{} are", args.size())),
        scope, reduction ? "the greatest entry along an axis is max[k](x)" : "");
  }
  std::vector<Span> places;
  for (const ExprPtr& arg : e.args) places.push_back(arg->span);
  return elementwise(op, args, places, e.span, scope);
}

Value Lowering::lower_reduction(const Expr& e, Scope& scope) {
  const std::vector<Value> args = lower_args(e, scope);
  if (!e.has_index || e.index.empty())
    return fail(e.name_span, fmt::format("'{}' needs the axes that it runs over", e.name), scope,
                fmt::format("write {}[k](…) with an axis k", e.name));
  if (args.size() != 1)
    return fail(e.span, fmt::format("'{}[…]' takes 1 argument, and {} are given", e.name, args.size()), scope);
  const Value& body = args[0];
  bool good = plain(body, e.args[0]->span, scope);
  std::vector<AxisId> bound;
  for (const IndexEntry& entry : e.index) {
    // Which of several lengths is meant could only be seen from the argument.
    if (body.poisoned && scope.index_names.contains(entry.name)) continue;
    const AxisId axis = known_axis(entry, body.poisoned ? nullptr : &body.order, scope);
    if (axis == kNoAxis) {
      good = false;
    } else if (std::find(bound.begin(), bound.end(), axis) != bound.end()) {
      fail(entry.span, fmt::format("'{}' names the axis '{}' twice", e.name, entry.name), scope);
      good = false;
    } else {
      bound.push_back(axis);
    }
  }
  if (!good) return poison();
  std::vector<AxisId> rest;
  for (AxisId a : body.order)
    if (std::find(bound.begin(), bound.end(), a) == bound.end()) rest.push_back(a);
  if (e.name == "sum") {
    const NodeId sum = sum_of_lags(bound, body.node, e.span, scope);
    return sum == kNoNode ? poison() : expression_value(sum, rest);
  }
  if (e.name == "max") return expression_value(graph_.reduce_max(bound, body.node, e.span), rest);
  if (e.name == "logsumexp") return expression_value(logsumexp(graph_, bound, body.node, e.span), rest);
  if (e.name == "softmax") {
    for (AxisId b : bound)
      if (std::find(body.order.begin(), body.order.end(), b) == body.order.end()) {
        return fail(e.args[0]->span, fmt::format("softmax over the axis '{}', which its argument lacks", axis_name(b)),
                    scope, body.order.empty() ? "" : fmt::format("the argument has the axes {}", list_of(body.order)));
      }
    return expression_value(graph_.softmax(bound, body.node, e.span), body.order);
  }
  NodeId count = graph_.size(bound[0], e.span);
  for (std::size_t i = 1; i < bound.size(); ++i)
    count = graph_.op(Op::Mul, {count, graph_.size(bound[i], e.span)}, e.span);
  const NodeId sum = sum_of_lags(bound, body.node, e.span, scope);
  if (sum == kNoNode) return poison();
  return expression_value(graph_.op(Op::Div, {sum, count}, e.span), rest);
}

Value Lowering::lower_size(const Expr& e, Scope& scope) {
  if (!e.has_index || e.index.size() != 1 || !e.args.empty()) {
    lower_args(e, scope);
    return fail(e.span, "size takes one axis and no arguments", scope, "write size[k] with an axis k");
  }
  const AxisId axis = known_axis(e.index[0], nullptr, scope);
  if (axis == kNoAxis) return poison();
  return expression_value(graph_.size(axis, e.span), {});
}

Value Lowering::lower_eye(const Expr& e, Scope& scope) {
  if (!e.has_index || e.index.size() != 2 || !e.args.empty()) {
    lower_args(e, scope);
    return fail(e.span, "eye takes two axes and no arguments", scope, "write eye[i,j]");
  }
  // One place may be an index name met here first: it then has the length of the other.
  AxisId axes[2] = {kNoAxis, kNoAxis};
  auto is_new = [&](const IndexEntry& entry) {
    return !entry.integer && !scope.axes.contains(entry.name) && !scope.index_names.contains(entry.name);
  };
  for (int first : {0, 1})
    if (!e.index[first].integer && !is_new(e.index[first])) {
      axes[first] = known_axis(e.index[first], nullptr, scope);
      if (axes[first] == kNoAxis) return poison();
    }
  for (int p : {0, 1}) {
    if (e.index[p].integer || axes[p] != kNoAxis) continue;
    axes[p] = axes[1 - p] != kNoAxis ? new_index_axis(e.index[p].name, axes[1 - p], e.index[p].span, scope)
                                     : known_axis(e.index[p], nullptr, scope);
    if (axes[p] == kNoAxis) return poison();
  }
  for (int p : {0, 1})
    if (axes[p] == kNoAxis && axes[1 - p] != kNoAxis) {
      const auto& fixed = graph_.axis(axes[1 - p]).fixed;
      if (*e.index[p].integer < 0 || (fixed && *e.index[p].integer >= *fixed))
        return fail(e.index[p].span,
                    fmt::format("entry {} is outside the axis '{}'", *e.index[p].integer, axis_name(axes[1 - p])),
                    scope);
    }
  if (axes[0] != kNoAxis && axes[1] != kNoAxis && !graph_.same_length(axes[0], axes[1]))
    return fail(e.span,
                fmt::format("the axes '{}' and '{}' of eye have different lengths", e.index[0].name, e.index[1].name),
                scope);
  Value value;
  value.name = "eye";
  value.ordered = true;
  Index index[2];
  for (int p : {0, 1}) {
    if (axes[p] == kNoAxis) {
      index[p] = Index{kNoAxis, *e.index[p].integer};
      continue;
    }
    value.shown.push_back(axes[p]);
    const bool repeats = p == 1 && axes[0] == axes[1];
    value.order.push_back(repeats ? graph_.copy_axis(axes[1], 1) : axes[p]);
    index[p] = Index{value.order.back(), 0};
  }
  value.node = graph_.eye(index[0], index[1], e.span);
  return value;
}

}  // namespace cellc::lowering
