// The tree as canonical source: one construct a line, and only the parentheses that the tree
// needs. Reading it again gives the same tree, and never nests deeper than what was read first.
#include <fmt/format.h>

#include <iterator>
#include <string>

#include "compiler/syntax/parse.h"

namespace cellc {
namespace {

// Binding strength, loosest first: where an operand binds more loosely than its place demands,
// it needs parentheses.
enum Strength { kComparison, kSum, kProduct, kUnary, kContraction, kPower, kPrimary };

Strength strength(const Expr& e) {
  switch (e.kind) {
    case ExprKind::Negate:
      return kUnary;
    case ExprKind::Power:
      return kPower;
    case ExprKind::Binary:
      if (e.name == "+" || e.name == "-") return kSum;
      if (e.name == "*" || e.name == "/") return kProduct;
      if (e.name == "@") return kContraction;
      return kComparison;
    default:
      return kPrimary;
  }
}

class Printer {
 public:
  std::string text;

  void file(const File& file) {
    for (const Function& f : file.functions) function(f);
    for (const Cell& c : file.cells) cell(c);
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  }

  void cell(const Cell& cell) {
    put("cell {}", cell.name);
    header(cell.axes);
    put(" {{\n");
    for (const Declaration& d : cell.declarations) declaration(d);
    for (const Line& l : cell.lines) line(l);
    put("}}\n");
  }

  void function(const Function& function) {
    put("fn {}", function.name);
    header(function.axes);
    put("(");
    const char* separator = "";
    for (const auto& [name, span] : function.params) {
      put("{}{}", separator, name);
      separator = ", ";
    }
    put(")");
    if (function.lines.empty()) {
      put(" = ");
      list(function.results);
    } else {
      put(" {{\n");
      for (const Line& l : function.lines) line(l);
      put("  return ");
      list(function.results);
      put("\n}}");
    }
    if (!function.derivative.empty()) {
      put(" derivative ");
      list(function.derivative);
    }
    put("\n");
  }

  void header(const std::vector<HeaderAxis>& axes) {
    const char* separator = "[";
    for (const HeaderAxis& a : axes) {
      put("{}{}", separator, a.name);
      if (a.length) put("={}", *a.length);
      separator = ", ";
    }
    if (!axes.empty()) put("]");
  }

  void declaration(const Declaration& d) {
    put("  {} {}", d.kind == SymbolKind::State ? "state" : d.kind == SymbolKind::Input ? "input" : "param", d.name);
    if (!d.axes.empty()) index(d.axes);
    if (d.initial) {
      put(" = ");
      expression(*d.initial, kComparison);
    }
    if (d.range) put(" in ({}, {})", d.range->low, d.range->high);
    put("\n");
  }

  void line(const Line& line) {
    put("  {}", line.is_out ? "out " : "");
    const char* separator = "";
    for (const Target& t : line.targets) {
      put("{}{}{}", separator, t.name, t.primed ? "'" : "");
      if (t.has_index) index(t.index);
      separator = ", ";
    }
    put(" = ");
    expression(*line.value, kComparison);
    put("\n");
  }

  void index(const std::vector<IndexEntry>& entries) {
    const char* separator = "[";
    for (const IndexEntry& e : entries) {
      put("{}", separator);
      if (e.integer) {
        put("{}", *e.integer);
      } else {
        put("{}", e.name);
      }
      separator = ",";
    }
    put("]");
  }

  void list(const std::vector<ExprPtr>& expressions) {
    const char* separator = "";
    for (const ExprPtr& e : expressions) {
      put("{}", separator);
      expression(*e, kComparison);
      separator = ", ";
    }
  }

  void expression(const Expr& e, Strength place) {
    const bool parenthesised = strength(e) < place;
    if (parenthesised) put("(");
    bare(e);
    if (parenthesised) put(")");
  }

  void bare(const Expr& e) {
    switch (e.kind) {
      case ExprKind::Number:
        put("{}", e.number);
        break;
      case ExprKind::Name:
      case ExprKind::Call:
        put("{}{}", e.name, e.primed ? "'" : "");
        if (e.has_index) index(e.index);
        if (!e.args.empty()) {
          put("(");
          list(e.args);
          put(")");
        }
        break;
      case ExprKind::Negate:
        put("-");
        expression(*e.args[0], kUnary);
        break;
      case ExprKind::Power:
        expression(*e.args[0], kPrimary);
        put("^{}", static_cast<long long>(e.number));
        break;
      case ExprKind::Binary:
        binary(e);
        break;
    }
  }

  void binary(const Expr& e) {
    const Expr& left = *e.args[0];
    const Expr& right = *e.args[1];
    switch (strength(e)) {
      case kSum:
        expression(left, kSum);
        put(" {} ", e.name);
        expression(right, kProduct);
        break;
      case kProduct:
        expression(left, kProduct);
        put("{}", e.name);
        expression(right, kUnary);
        break;
      case kContraction:
        expression(left, kPower);
        put("@");
        // The right end may be a sign (A@-x), which reads back as it stands.
        expression(right, right.kind == ExprKind::Negate ? kUnary : kContraction);
        break;
      default:
        expression(left, kSum);
        put(" {} ", e.name);
        expression(right, kSum);
        break;
    }
  }
};

}  // namespace

std::string print_tree(const File& file) {
  Printer printer;
  printer.file(file);
  return std::move(printer.text);
}

}  // namespace cellc
