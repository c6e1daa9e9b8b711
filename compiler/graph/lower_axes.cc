// Axis names of index lists: what they stand for, renaming by place, picking entries.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/lower_internal.h"

namespace cellc::lowering {

std::string Lowering::list_of(const std::vector<AxisId>& axes) const {
  std::string text;
  for (AxisId a : axes) {
    if (!text.empty()) text += ',';
    // Copies exist only inside; a reader knows the axis by its plain name.
    const Axis& axis = graph_.axis(a);
    text += axis.copy_of == kNoAxis ? axis.name : graph_.axis(axis.copy_of).name;
  }
  return text;
}

std::string Lowering::describe(const Value& value) const {
  const std::string axes = value.shown.empty() ? "" : "[" + list_of(value.shown) + "]";
  if (!value.name.empty()) return value.name + axes;
  return value.shown.empty() ? "this value, which has no axes," : "this value, with the axes " + axes + ",";
}

bool Lowering::is_taken(const std::string& display, const Scope& scope) const {
  for (const Scope* s = &scope; s; s = s->caller)
    if (s->displayed.contains(display)) return true;
  return false;
}

AxisId Lowering::new_index_axis(const std::string& name, AxisId like, Span span, Scope& scope) {
  std::vector<AxisId>& known = scope.index_names[name];
  std::set<AxisId>& here = scope.in_line[name];
  for (AxisId a : known)
    if (graph_.same_length(a, like)) return *here.insert(a).first;
  if (graph_.axis_count() >= kMaxAxes) {
    fail(span, fmt::format("more than {} axes and index names in one cell", kMaxAxes), scope);
    stopped_ = true;
    return kNoAxis;
  }
  // In a function an index name must not catch an axis of its arguments that the caller happens
  // to call the same.
  std::string display = name;
  if (scope.caller)
    for (int n = 1; is_taken(display, *scope.caller) || (known.empty() && scope.displayed.contains(display)); ++n)
      display = fmt::format("{}_{}", name, n);
  const AxisId axis = graph_.renamed_axis(display, graph_.axis(like).extent_of);
  known.push_back(axis);
  here.insert(axis);
  scope.displayed.insert(display);
  scope.own_axes.insert(axis);
  return axis;
}

AxisId Lowering::index_axis(const IndexEntry& entry, AxisId like, const std::string& what, Scope& scope) {
  const auto own = scope.axes.find(entry.name);
  if (own == scope.axes.end()) return new_index_axis(entry.name, like, entry.span, scope);
  if (graph_.same_length(own->second, like)) return own->second;
  auto length = [&](AxisId a) {
    const auto& fixed = graph_.axis(a).fixed;
    return fixed ? fmt::format(" of length {}", *fixed) : std::string();
  };
  fail(entry.span,
       fmt::format("'{}' is an axis{} of the {}: it cannot rename the axis '{}'{} of {}", entry.name,
                   length(own->second), scope.function ? "function" : "header", list_of({like}), length(like), what),
       scope,
       fmt::format("write the axis '{}' itself, or a name that the {} does not use", list_of({like}),
                   scope.function ? "function's axis list" : "header"));
  return kNoAxis;
}

bool Lowering::is_index_of_value(AxisId axis, const Scope& scope) const {
  return graph_.axis(axis).extent_of != axis && scope.values.contains(axis_name(axis));
}

std::string Lowering::picked_by_value(AxisId axis, const std::string& from) const {
  const std::string name = axis_name(axis), of = from.empty() ? "E" : from.substr(0, from.find('['));
  return fmt::format(
      "'{0}' is a new name of an axis here, not the value {0}: no value picks entries; declare {0}[{1}], 1 at the "
      "entry "
      "that is meant and 0 elsewhere, and write sum[{1}]({0}*{2})",
      name, graph_.axis(graph_.axis(axis).extent_of).name, of);
}

AxisId Lowering::known_axis(const IndexEntry& entry, const std::vector<AxisId>* among, Scope& scope) {
  if (entry.integer) {
    fail(entry.span, fmt::format("an axis name was expected here, not {}", *entry.integer), scope);
    return kNoAxis;
  }
  if (auto own = scope.axes.find(entry.name); own != scope.axes.end()) return own->second;
  const auto found = scope.index_names.find(entry.name);
  if (found != scope.index_names.end() && !found->second.empty()) {
    const std::vector<AxisId>& candidates = found->second;
    if (among)
      for (AxisId a : candidates)
        if (std::find(among->begin(), among->end(), a) != among->end()) return a;
    if (candidates.size() == 1) return candidates[0];
    if (const auto here = scope.in_line.find(entry.name); here != scope.in_line.end() && here->second.size() == 1)
      return *here->second.begin();
    fail(entry.span, fmt::format("'{}' names axes of different lengths in this cell", entry.name), scope,
         "use one index name for one length");
    return kNoAxis;
  }
  // An index name without a length: what it indexes is wrong, and that is or will be said.
  if (partial_ || scope.mentioned.contains(entry.name)) return kNoAxis;
  if (!may_suggest()) {
    fail(entry.span, fmt::format("unknown axis '{}'", entry.name), scope);
    return kNoAxis;
  }
  std::vector<std::string> names;
  for (const auto& [name, axis] : scope.axes) names.push_back(name);
  for (const auto& [name, axes] : scope.index_names) names.push_back(name);
  const std::string near = closest_name(entry.name, names);
  std::string note;
  if (!near.empty()) {
    note = fmt::format("did you mean '{}'?", near);
  } else if (scope.values.contains(entry.name)) {
    note = fmt::format("'{}' is a value; only axis names stand inside [ ]", entry.name);
  } else if (scope.function) {
    note = fmt::format("a function knows only its own axes: write fn {}[{}](…)", scope.function->name, entry.name);
  } else if (!names.empty() && names.size() < 12) {
    note = "the axes here are ";
    for (std::size_t i = 0; i < names.size(); ++i) note += (i ? ", " : "") + names[i];
  }
  fail(entry.span, fmt::format("unknown axis '{}'", entry.name), scope, note);
  return kNoAxis;
}

Value Lowering::index_value(const Value& value, const std::vector<IndexEntry>& entries, Span span, Scope& scope) {
  if (value.poisoned) return poison();
  const std::string what = value.name.empty() ? "the value" : value.name;
  if (value.order.empty())
    return fail(span, fmt::format("'{}' has no axes and cannot be indexed", what), scope,
                fmt::format("write {} alone", what));
  if (!value.ordered)
    return fail(span,
                fmt::format("the axes of '{}' ({}) have no order, so they cannot be named by place", what,
                            list_of(value.shown)),
                scope, fmt::format("list them where it is given: {}[{}] = …", what, list_of(value.shown)));
  if (entries.size() != value.order.size())
    return fail(
        span,
        fmt::format("{} has {} {}, and {} {} given", describe(value), value.order.size(),
                    value.order.size() == 1 ? "axis" : "axes", entries.size(), entries.size() == 1 ? "is" : "are"),
        scope);
  std::vector<std::pair<AxisId, Index>> map;
  Value result;
  bool bad = false;
  for (std::size_t p = 0; p < entries.size(); ++p) {
    const IndexEntry& entry = entries[p];
    const AxisId place = value.shown[p];
    if (entry.integer) {
      const auto& fixed = graph_.axis(place).fixed;
      if (*entry.integer < 0 || (fixed && *entry.integer >= *fixed)) {
        fail(entry.span,
             fixed ? fmt::format("entry {} of the axis '{}', which has {} (0 to {})", *entry.integer, list_of({place}),
                                 *fixed, *fixed - 1)
                   : fmt::format("entry {} of the axis '{}': entries count from 0", *entry.integer, list_of({place})),
             scope);
        bad = true;
      }
      map.emplace_back(value.order[p], Index{kNoAxis, *entry.integer});
      continue;
    }
    const AxisId axis = index_axis(entry, place, what, scope);
    if (axis == kNoAxis) {
      bad = true;
      continue;
    }
    // One name for two lengths: A[i,i] of A[d,m].
    for (AxisId a : result.order)
      if (a != axis && axis_name(a) == axis_name(axis)) {
        fail(entry.span, fmt::format("'{}' stands for two axes of different lengths", entry.name), scope);
        bad = true;
      }
    map.emplace_back(value.order[p], Index{axis, 0});
    if (std::find(result.order.begin(), result.order.end(), axis) == result.order.end()) result.order.push_back(axis);
  }
  if (bad) return poison();
  result.node = graph_.reindex(value.node, std::move(map), span);
  result.shown = result.order;
  result.ordered = true;
  result.name = value.name;
  return result;
}

}  // namespace cellc::lowering
