// Names that mean nothing yet: unknown, used before they are given, or given in a circle.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "compiler/graph/lower_internal.h"

namespace cellc::lowering {

namespace {

std::string key_of(const std::string& name, bool primed) { return primed ? name + "'" : name; }

}  // namespace

void Lowering::collect_definitions(const Cell& cell) {
  for (std::size_t i = 0; i < cell.lines.size(); ++i)
    for (const Target& t : cell.lines[i].targets) line_of_.emplace(key_of(t.name, t.primed), static_cast<int>(i));
}

// The lines from `from` to `to`, each needing what the next one gives; empty if there is no such way.
// Every line of a hostile file may ask, so that all searches of a cell share one budget.
std::vector<int> Lowering::path_between_lines(int from, int to) {
  std::map<int, int> reached_from{{from, -1}};
  std::deque<int> queue{from};
  while (!queue.empty() && ++searched_ < kMaxNodes) {
    const int line = queue.front();
    queue.pop_front();
    if (line == to) {
      std::vector<int> path;
      for (int l = to; l != -1; l = reached_from[l]) path.push_back(l);
      std::reverse(path.begin(), path.end());
      return path;
    }
    if (!cell_->lines[line].value) continue;
    walk(*cell_->lines[line].value, [&](const Expr& e) {
      if (e.kind != ExprKind::Name) return;
      const auto found = line_of_.find(key_of(e.name, e.primed));
      if (found != line_of_.end() && reached_from.emplace(found->second, line).second) queue.push_back(found->second);
    });
  }
  return {};
}

Value Lowering::undefined_name(const Expr& e, Scope& scope) {
  const std::string key = key_of(e.name, e.primed);
  if (scope.kind == Scope::Kind::Cell) {
    const auto given = line_of_.find(key);
    const int symbol = find_symbol(e.name);
    if (e.primed && symbol >= 0 && symbols_[symbol].kind != SymbolKind::State)
      return fail(e.span,
                  fmt::format("'{}' is {}: only a state has a value after the step", e.name,
                              symbols_[symbol].kind == SymbolKind::Input ? "an input" : "a param"),
                  scope, fmt::format("write {}", e.name));
    if (e.primed && symbol < 0 && (line_of_.contains(e.name) || scope.values.contains(e.name)))
      return fail(e.span, fmt::format("'{}' is not a state: only a state has a value after the step", e.name), scope,
                  fmt::format("write {}", e.name));
    // The state that has no line gets an error of its own.
    if (e.primed && symbol >= 0 && given == line_of_.end()) return poison();
    if (given != line_of_.end()) {
      const int later = given->second;
      const Span place = cell_->lines[later].targets[0].span;
      if (told_cycle_.contains(line_) && told_cycle_.contains(later)) return poison();
      if (later == line_)
        return fail(
            e.span, fmt::format("cyclic definition: '{}' is given by itself", key), scope,
            e.primed ? fmt::format("the value before the step is {}", e.name) : "only a state has a value from before");
      const std::vector<int> path = path_between_lines(later, line_);
      if (!path.empty()) {
        std::string way = key_of(cell_->lines[line_].targets[0].name, cell_->lines[line_].targets[0].primed);
        for (std::size_t i = 0; i < path.size(); ++i) {
          told_cycle_.insert(path[i]);
          const bool last = i + 1 == path.size();
          if (i >= 6 && !last) {
            if (i == 6) way += " needs …, which";
            continue;
          }
          const Target& t = cell_->lines[path[i]].targets[0];
          way += " needs " + key_of(t.name, t.primed) + (last ? "" : ", which");
        }
        return fail(e.span, fmt::format("cyclic definition: {}", way), scope,
                    "a state's value from before the step is written without '", place);
      }
      const char* how = e.primed ? "read before the line that gives it" : "used before it is given";
      return fail(e.span, fmt::format("'{}' is {}", key, how), scope, "it is given here; move that line up", place);
    }
  }
  if (scope.kind == Scope::Kind::Function && e.primed)
    return fail(e.span, fmt::format("'{}': a function has no states; it sees its parameters only", key), scope,
                "pass the value as an argument");

  if (partial_) return poison();
  if (!may_suggest()) return fail(e.span, fmt::format("unknown name '{}'", key), scope);
  std::vector<std::string> known;
  // Only what could stand there: a start takes params, a default none, and no line its own state's h'.
  for (const auto& [name, binding] : e.primed ? scope.primes : scope.values) {
    const int symbol = find_symbol(name);
    const bool param = symbol >= 0 && symbols_[symbol].kind == SymbolKind::Param;
    if (scope.kind != Scope::Kind::Default && (scope.kind != Scope::Kind::Start || param)) known.push_back(name);
  }
  if (scope.kind == Scope::Kind::Cell && e.primed) {
    known.clear();
    const std::vector<Target>& own = cell_->lines[line_].targets;
    for (const Symbol& s : symbols_)
      if (s.kind == SymbolKind::State &&
          std::none_of(own.begin(), own.end(), [&](const Target& t) { return t.name == s.name; }))
        known.push_back(s.name);
  }
  if (scope.kind == Scope::Kind::Function && scope.function)
    for (const Line& line : scope.function->lines)
      for (const Target& t : line.targets)
        if (t.name == e.name)
          return fail(e.span, fmt::format("'{}' is used before it is given", e.name), scope, "it is given here",
                      t.span);
  std::string note;
  const std::string there = e.primed || scope.kind != Scope::Kind::Cell ? "" : name_elsewhere(e.name);
  if (const std::string near = closest_name(e.name, known); !near.empty()) {
    note = fmt::format("did you mean '{}'?", key_of(near, e.primed));
  } else if (!there.empty() && !scope.axes.contains(e.name)) {
    note = there;
  } else if (scope.axes.contains(e.name)) {
    note = fmt::format("'{}' is an axis; its length as a number is size[{}]", e.name, e.name);
  } else if (is_builtin(e.name) || file_.functions.contains(e.name)) {
    const bool reduces = is_reduction(e.name);
    note = fmt::format("'{}' is a function: write {}{}(…)", e.name, e.name, reduces ? "[k]" : "");
  } else if (scope.function) {
    note = "a function sees its parameters and its own lines only";
  } else if (scope.kind != Scope::Kind::Cell) {
    note = scope.kind == Scope::Kind::Start ? "a start is made of numbers, size, eye, functions and params"
                                            : "a default is made of numbers, size, eye and functions";
  }
  return fail(e.span, fmt::format("unknown name '{}'", key), scope, note);
}

}  // namespace cellc::lowering
