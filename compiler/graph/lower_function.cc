// Functions of the file, inlined: their names and axes are their own.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/lower_internal.h"

namespace cellc::lowering {

std::vector<Value> Lowering::call_function(const Expr& e, const Function& function, Scope& scope) {
  std::vector<Value> args = lower_args(e, scope);
  const std::vector<Value> bad(std::max<std::size_t>(1, function.results.size()), poison());
  if (const auto cycle = file_.recursive.find(&function); cycle != file_.recursive.end()) {
    file_.error(function.span, cycle->second, "functions are inlined, so none may need itself");
    return bad;
  }
  bool good = true;
  if (args.size() != function.params.size()) {
    std::string list;
    for (const auto& [name, span] : function.params) list += (list.empty() ? "" : ", ") + name;
    fail(e.span,
         fmt::format("'{}({})' takes {} argument{}, and {} {} given", function.name, list, function.params.size(),
                     function.params.size() == 1 ? "" : "s", args.size(), args.size() == 1 ? "is" : "are"),
         scope);
    good = false;
  }
  if (e.index.size() != function.axes.size()) {
    std::string list;
    for (const HeaderAxis& axis : function.axes) list += (list.empty() ? "" : ",") + axis.name;
    fail(e.name_span,
         function.axes.empty() ? fmt::format("'{}' takes no axes", function.name)
                               : fmt::format("'{}[{}]' takes {} {}, and {} {} given", function.name, list,
                                             function.axes.size(), function.axes.size() == 1 ? "axis" : "axes",
                                             e.index.size(), e.index.size() == 1 ? "is" : "are"),
         scope,
         function.axes.empty() ? fmt::format("write {}(…)", function.name)
                               : fmt::format("write {}[{}](…)", function.name, list));
    good = false;
  }
  std::vector<AxisId> among;
  for (const Value& v : args) {
    if (v.poisoned) good = false;
    among.insert(among.end(), v.shown.begin(), v.shown.end());
  }
  Scope body;
  body.kind = Scope::Kind::Function;
  if (scope.kind == Scope::Kind::Start || scope.kind == Scope::Kind::Default) body.kind = scope.kind;
  for (std::size_t i = 0; i < e.index.size() && i < function.axes.size(); ++i) {
    const AxisId axis = known_axis(e.index[i], &among, scope);
    if (axis == kNoAxis) {
      good = false;
      continue;
    }
    const auto& wanted = function.axes[i].length;
    const auto& fixed = graph_.axis(axis).fixed;
    if (wanted && fixed && *wanted != *fixed) {
      fail(e.index[i].span,
           fmt::format("'{}' has an axis '{}' of length {}, and '{}' has length {}", function.name,
                       function.axes[i].name, *wanted, e.index[i].name, *fixed),
           scope);
      good = false;
    }
    body.axes[function.axes[i].name] = axis;
  }
  if (scope.depth >= kMaxCallDepth) {
    fail(e.span, fmt::format("functions call each other more than {} deep here", kMaxCallDepth), scope);
    good = false;
    stopped_ = true;
  }
  if (file_.is_partial(function.span.offset)) {
    ++file_.errors;  // said by the parser
    return bad;
  }
  if (!good || standalone_ || stopped_) return bad;
  body.function = &function;
  body.caller = &scope;
  body.call_span = e.span;
  body.depth = scope.depth + 1;
  return function_body(function, args, e.span, body);
}

std::vector<Value> Lowering::function_body(const Function& function, const std::vector<Value>& args, Span span,
                                           Scope& scope) {
  for (std::size_t i = 0; i < function.params.size(); ++i) {
    const auto& [name, at] = function.params[i];
    if (!check_new_name(name, at, scope)) continue;
    Value value = i < args.size() ? args[i] : poison();
    // Known to the body under the parameter's name, and no longer read anew for its span.
    value.name = name;
    value.symbol = -1;
    scope.values[name] = {value, at};
  }
  for (const Line& line : function.lines) lower_line(line, scope);
  std::vector<Value> results;
  for (const ExprPtr& result : function.results) {
    learn_index_names(*result, scope);
    Value value = lower(*result, scope);
    if (value.poisoned) {
      results.push_back(poison());
      continue;
    }
    for (AxisId a : value.order)
      if (scope.own_axes.contains(a)) {
        std::string name = axis_name(a);
        for (const auto& [text, ids] : scope.index_names)
          if (std::find(ids.begin(), ids.end(), a) != ids.end()) name = text;
        value =
            fail(result->span,
                 fmt::format("the result of '{}' has the axis '{}', which exists only inside it", function.name, name),
                 scope, fmt::format("make it an axis of the function: fn {}[{}](…)", function.name, name));
        break;
      }
    if (!value.poisoned && !value.repeated()) value = expression_value(value.node, value.order);
    value.name.clear();
    results.push_back(std::move(value));
  }
  if (!function.derivative.empty()) {
    if (function.results.size() != 1 || function.derivative.size() != function.params.size()) {
      file_.error(function.span,
                  function.results.size() != 1
                      ? fmt::format("'{}' gives {} results; a derivative belongs to one", function.name,
                                    function.results.size())
                      : fmt::format("'{}' has {} parameter{} and a derivative of {} slope{}", function.name,
                                    function.params.size(), function.params.size() == 1 ? "" : "s",
                                    function.derivative.size(), function.derivative.size() == 1 ? "" : "s"),
                  "derivative lists one slope per parameter, in their order");
      return std::vector<Value>(results.size(), poison());
    }
    results[0] = with_slopes(function, results[0], args, span, scope);
  }
  return results;
}

Value Lowering::with_slopes(const Function& function, const Value& value, const std::vector<Value>& args, Span span,
                            Scope& scope) {
  std::vector<NodeId> arguments, slopes;
  bool good = !value.poisoned, varies = false;
  for (std::size_t i = 0; i < function.derivative.size(); ++i) {
    const Expr& e = *function.derivative[i];
    learn_index_names(e, scope);
    const Value slope = lower(e, scope);
    if (i >= args.size() || args[i].poisoned || !plain(slope, e.span, scope) || !plain(args[i], span, scope) ||
        value.poisoned) {
      good = false;
      continue;
    }
    // A slope says how an entry of the result follows the same entry of an argument, so neither
    // may have an axis along which the result has one entry only.
    for (const auto& [node, what] : {std::pair{args[i].node, "parameter"}, std::pair{slope.node, "slope for"}})
      for (AxisId a : graph_[node].axes)
        if (good && !graph_.has_axis(value.node, a)) {
          fail(e.span,
               fmt::format("the {} '{}' of '{}' has the axis '{}', which its result lacks", what,
                           function.params[i].first, function.name, axis_name(a)),
               scope, "a declared derivative belongs to a function that works entry by entry");
          good = false;
        }
    arguments.push_back(args[i].node);
    slopes.push_back(slope.node);
    varies = varies || graph_[args[i].node].op != Op::Constant;
  }
  if (!good) return poison();
  if (!varies) return value;
  return expression_value(graph_.surrogate(value.node, std::move(arguments), std::move(slopes), span), value.order);
}

void Lowering::check_function(const Function& function) {
  if (file_.errors > kMaxErrors) return;
  standalone_ = true;
  partial_ = file_.is_partial(function.span.offset);
  Scope scope;
  scope.kind = Scope::Kind::Function;
  scope.function = &function;
  declare_axes(function.axes, scope);
  function_body(function, {}, function.span, scope);
}

}  // namespace cellc::lowering
