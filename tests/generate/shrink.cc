#include "tests/generate/shrink.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/parse.h"

namespace cellc::generate {
namespace {

std::string reason(const std::string& text) { return text.substr(0, text.find(':')); }

/// Applies the n-th of all possible edits to a tree.
class Editor {
 public:
  explicit Editor(int n) : left_(n) {}

  /// False where the tree has no n-th edit.
  bool apply(File& file) {
    for (std::size_t i = 0; i < file.functions.size(); ++i)
      if (take()) return file.functions.erase(file.functions.begin() + static_cast<std::ptrdiff_t>(i)), true;
    for (Cell& cell : file.cells) {
      for (std::size_t i = cell.lines.size(); i-- > 0;)
        if (take()) return cell.lines.erase(cell.lines.begin() + static_cast<std::ptrdiff_t>(i)), true;
      for (std::size_t i = 0; i < cell.declarations.size(); ++i) {
        if (take()) return drop_declaration(cell, i), true;
        if (cell.declarations[i].initial && take()) return cell.declarations[i].initial.reset(), true;
      }
      for (Line& line : cell.lines)
        if (edit(line.value)) return true;
    }
    for (Function& f : file.functions) {
      for (Line& line : f.lines)
        if (edit(line.value)) return true;
      for (ExprPtr& e : f.results)
        if (edit(e)) return true;
    }
    return false;
  }

 private:
  bool take() { return left_-- == 0; }

  static void drop_declaration(Cell& cell, std::size_t i) {
    const std::string name = cell.declarations[i].name;
    cell.declarations.erase(cell.declarations.begin() + static_cast<std::ptrdiff_t>(i));
    std::erase_if(cell.lines, [&](const Line& line) {
      return std::any_of(line.targets.begin(), line.targets.end(),
                         [&](const Target& t) { return t.primed && t.name == name; });
    });
    for (Line& line : cell.lines) forget(line.value, name);
  }

  /// Reads of a dropped name become 1.
  static void forget(ExprPtr& e, const std::string& name) {
    if (e->kind == ExprKind::Name && e->name == name) e = number(1);
    for (ExprPtr& arg : e->args) forget(arg, name);
  }

  static ExprPtr number(double value) {
    auto e = std::make_unique<Expr>();
    e->number = value;
    return e;
  }

  bool edit(ExprPtr& e) {
    for (std::size_t i = 0; i < e->args.size(); ++i)
      if (take()) {
        ExprPtr part = std::move(e->args[i]);
        e = std::move(part);
        return true;
      }
    if (e->kind != ExprKind::Number && take()) return e = number(1), true;
    if (e->kind == ExprKind::Name && e->primed && take()) return e->primed = false, true;
    for (ExprPtr& arg : e->args)
      if (edit(arg)) return true;
    return false;
  }

  int left_;
};

std::optional<std::string> edited(const std::string& text, int n, bool& exists) {
  const SourceText source("shrinking", text);
  Diagnostics diagnostics;
  File file = parse(source, diagnostics);
  exists = diagnostics.empty() && Editor(n).apply(file);
  if (!exists) return std::nullopt;
  return print_tree(file);
}

}  // namespace

std::string shrink(const std::string& text, const std::function<std::string(const std::string&)>& fails) {
  const std::string wanted = reason(fails(text));
  std::string best = text;
  int budget = 4000;  // tries; each may compile a cell
  // After a success the scan goes on where it was: earlier edits rarely start to work again, and a
  // last full round makes sure.
  for (bool improved = true; improved && budget > 0;) {
    improved = false;
    for (int n = 0; budget-- > 0;) {
      bool exists = false;
      const std::optional<std::string> candidate = edited(best, n, exists);
      if (!exists) break;
      if (*candidate != best && reason(fails(*candidate)) == wanted) {
        best = *candidate;
        improved = true;
      } else {
        ++n;
      }
    }
  }
  return best;
}

}  // namespace cellc::generate
