#include "compiler/graph/lower.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/lower_internal.h"

namespace cellc {

namespace lowering {

namespace {

void for_each_call(const Function& function, const auto& visit) {
  const auto look = [&](const ExprPtr& e) {
    if (e)
      walk(*e, [&](const Expr& x) {
        if (x.kind == ExprKind::Call) visit(x.name);
      });
  };
  for (const Line& line : function.lines) look(line.value);
  for (const ExprPtr& e : function.results) look(e);
  for (const ExprPtr& e : function.derivative) look(e);
}

// Depth first through the calls, in a loop: a chain of functions may be as long as the file. Every
// cycle has a call back into the current path, and the whole path from there on is marked.
void find_cycles(FileContext& file) {
  struct Frame {
    const Function* function;
    std::vector<const Function*> calls;
    std::size_t next = 0;
  };
  const auto open = [&](const Function* f) {
    Frame frame{f, {}, 0};
    std::set<const Function*> seen;
    for_each_call(*f, [&](const std::string& name) {
      const auto found = file.functions.find(name);
      if (found != file.functions.end() && seen.insert(found->second).second) frame.calls.push_back(found->second);
    });
    return frame;
  };
  std::map<const Function*, int> place;  // in the current path; -1 when done
  for (const Function& start : file.file.functions) {
    if (place.contains(&start)) continue;
    std::vector<Frame> path{open(&start)};
    place[&start] = 0;
    while (!path.empty()) {
      Frame& top = path.back();
      if (top.next == top.calls.size()) {
        place[top.function] = -1;
        path.pop_back();
        continue;
      }
      const Function* callee = top.calls[top.next++];
      const auto found = place.find(callee);
      if (found == place.end()) {
        place[callee] = static_cast<int>(path.size());
        path.push_back(open(callee));
      } else if (found->second >= 0) {
        std::string way;
        for (std::size_t i = static_cast<std::size_t>(found->second); i < path.size(); ++i)
          if (way.size() < 200) way += path[i].function->name + " calls ";
        for (std::size_t i = static_cast<std::size_t>(found->second); i < path.size(); ++i)
          file.recursive.emplace(path[i].function, fmt::format("function '{}' needs itself: {}{}",
                                                               path[i].function->name, way, callee->name));
      }
    }
  }
}

}  // namespace

FileContext::FileContext(const File& file, Diagnostics& diagnostics) : file(file), diagnostics(diagnostics) {
  for (const Function& f : file.functions) functions.emplace(f.name, &f);
  find_cycles(*this);
  for (const Diagnostic& d : diagnostics.list()) syntax_errors.push_back(d.span.offset);
  for (const Cell& c : file.cells) items.push_back(c.span.offset);
  for (const Function& f : file.functions) items.push_back(f.span.offset);
  std::sort(syntax_errors.begin(), syntax_errors.end());
  std::sort(items.begin(), items.end());
}

bool FileContext::is_partial(std::uint32_t offset) const {
  const auto next = std::upper_bound(items.begin(), items.end(), offset);
  const auto error = std::lower_bound(syntax_errors.begin(), syntax_errors.end(), offset);
  return error != syntax_errors.end() && (next == items.end() || *error < *next);
}

void FileContext::error(Span span, std::string message, std::string note, std::optional<Span> related) {
  ++errors;
  if (!said.emplace(span.offset, span.length, message).second) return;
  diagnostics.error(span, std::move(message), std::move(note), related);
}

void FileContext::check_names() {
  std::map<std::string, Span> seen;
  for (const Cell& c : file.cells)
    if (const auto [at, fresh] = seen.emplace(c.name, c.span); !fresh)
      error(c.span, fmt::format("cell '{}' is given twice", c.name), "first given here", at->second);
  seen.clear();
  for (const Function& f : file.functions) {
    if (is_builtin(f.name)) error(f.span, fmt::format("'{}' is a built-in function", f.name), "choose another name");
    if (const auto [at, fresh] = seen.emplace(f.name, f.span); !fresh)
      error(f.span, fmt::format("function '{}' is given twice", f.name), "first given here", at->second);
    if (const auto cycle = recursive.find(&f); cycle != recursive.end())
      error(f.span, cycle->second, "functions are inlined, so none may need itself");
  }
}

}  // namespace lowering

std::optional<CellGraph> lower(const File& file, const Cell& cell, Diagnostics& diagnostics) {
  lowering::FileContext context(file, diagnostics);
  return lowering::Lowering(context).cell(cell);
}

std::vector<CellGraph> lower_all(const File& file, Diagnostics& diagnostics) {
  lowering::FileContext context(file, diagnostics);
  context.check_names();
  // Functions first: what is wrong with one by itself is then said without the call that met it.
  for (const Function& f : file.functions) lowering::Lowering(context).check_function(f);
  std::vector<CellGraph> cells;
  for (const Cell& c : file.cells)
    if (std::optional<CellGraph> graph = lowering::Lowering(context).cell(c)) cells.push_back(std::move(*graph));
  return cells;
}

}  // namespace cellc
