// What stands in and above a body, line by line: header axes, declarations with their ranges and
// starts, and lines that give names their values.
#include <fmt/format.h>

#include <utility>

#include "compiler/syntax/parser.h"

namespace cellc {

Token Parser::expect_name(const std::string& what) {
  const Token& found = peek();
  if (found.kind == TokenKind::Keyword) {
    fail(found.span, fmt::format("expected {}, found the reserved word '{}'", what, found.text),
         "choose another name: this one is part of the language");
  }
  if (found.kind != TokenKind::Name) fail_expected(what);
  return take();
}

std::vector<HeaderAxis> Parser::parse_header_axes(bool fixed_allowed) {
  std::vector<HeaderAxis> axes;
  const Token open = take();
  ++brackets_;
  do {
    axes.push_back(parse_header_axis(fixed_allowed));
  } while (accept(TokenKind::Comma));
  if (!at(TokenKind::RightBracket)) fail_unclosed(open, "',' or ']'");
  take();
  --brackets_;
  return axes;
}

HeaderAxis Parser::parse_header_axis(bool fixed_allowed) {
  HeaderAxis axis;
  if (at(TokenKind::RightBracket)) fail_expected("the name of an axis", "without axes, leave the brackets out");
  if (at(TokenKind::Number)) {
    fail_expected("the name of an axis", "axes have names; a fixed length is written n=" + std::string(peek().text));
  }
  const Token name = expect_name("the name of an axis");
  axis.name = name.text;
  axis.span = name.span;
  if (!at(TokenKind::Assign)) return axis;
  const Token sign = take();
  if (!fixed_allowed) {
    fail(sign.span, "a function's axes have no fixed length", "it takes the axes of the cell that uses it");
  }
  const Token& length = peek();
  if (length.kind != TokenKind::Number || !length.is_integer) {
    fail_expected(fmt::format("the length of axis '{}', a whole number", name.text));
  }
  if (length.number < 1 || length.number > static_cast<double>(kMaxAxisLength)) {
    fail(length.span, fmt::format("axis '{}' cannot have the length {}", name.text, length.text),
         fmt::format("a length is a whole number from 1 to {}", kMaxAxisLength));
  }
  axis.length = static_cast<std::int64_t>(length.number);
  take();
  axis.span = span_from(name.span.offset);
  return axis;
}

void Parser::parse_declarations(std::vector<Declaration>& into) {
  const Token word = take();
  const SymbolKind kind = word.text == "state"   ? SymbolKind::State
                          : word.text == "input" ? SymbolKind::Input
                                                 : SymbolKind::Param;
  do {
    into.push_back(parse_declaration(kind, std::string(word.text)));
    if (!at(TokenKind::Comma)) break;
    take();
    skip_newlines();
  } while (true);
  if (ends_line(tokens_[at_])) return;
  const std::string after = into.back().range     ? "','"
                            : into.back().initial ? "an operator, ',', 'in'"
                                                  : "',', '=', 'in'";
  fail_expected(after + " or the end of the line",
                at(TokenKind::Name) && !into.back().initial ? "separate several declarations with commas" : "");
}

Declaration Parser::parse_declaration(SymbolKind kind, const std::string& word) {
  Declaration declaration;
  declaration.kind = kind;
  const Token name = expect_name(fmt::format("the name of {} {}", kind == SymbolKind::Input ? "an" : "a", word));
  declaration.name = name.text;
  if (at(TokenKind::Prime)) {
    fail(peek().span, fmt::format("'{}' is declared without the prime", name.text),
         fmt::format("'{}' is the value before the step, {}' the one after it", name.text, name.text));
  }
  if (at(TokenKind::LeftBracket)) declaration.axes = parse_index_list(std::string(name.text), false).entries;
  declaration.span = span_from(name.span.offset);
  if (at(TokenKind::Assign)) {
    if (kind == SymbolKind::Input) {
      fail(peek().span, fmt::format("input '{}' cannot have a default", name.text),
           "a value that does not change over time is a param");
    }
    take();
    skip_newlines();
    declaration.initial = parse_whole_expression();
  }
  if (at_keyword("in")) declaration.range = parse_range();
  return declaration;
}

Range Parser::parse_range() {
  const Token word = take();
  if (!at(TokenKind::LeftParen)) fail_expected("'('", "a range is written: in (-1, 1)");
  const Token open = take();
  ++brackets_;
  Range range{};
  range.low = parse_range_bound();
  if (!accept(TokenKind::Comma)) fail_unclosed(open, "','");
  range.high = parse_range_bound();
  if (!at(TokenKind::RightParen)) fail_unclosed(open, "')'");
  take();
  --brackets_;
  if (!(range.low < range.high)) {
    fail(span_from(word.span.offset), "the range is empty", "the lower bound comes first and is the smaller one");
  }
  return range;
}

double Parser::parse_range_bound() {
  const bool negative = accept(TokenKind::Minus);
  if (!at(TokenKind::Number))
    fail_expected("a number", "the bounds of a range are plain numbers, such as in (-1, 0.5)");
  const double number = take().number;
  return negative ? -number : number;
}

Line Parser::parse_line() {
  Line line;
  const std::uint32_t begin = peek().span.offset;
  line.is_out = at_keyword("out");
  if (line.is_out) take();
  do {
    line.targets.push_back(parse_target());
    if (!at(TokenKind::Comma)) break;
    take();
    skip_newlines();
  } while (true);
  if (!at(TokenKind::Assign)) {
    const Token& found = peek();
    const std::string& name = line.targets.back().name;
    std::string note;
    if (name == "if" || name == "for" || name == "while") note = hint(tokens_[last_]);
    if (found.kind == TokenKind::EqualEqual) note = "an assignment is written '='; '==' compares";
    if (found.kind == TokenKind::LeftParen && note.empty()) note = fmt::format("a line names a value: y = {}(…)", name);
    if (peek_after(1).kind == TokenKind::Assign && found.kind != TokenKind::Comma) {
      note = fmt::format("write the whole assignment: {} = … {} …", name, found.text);
    }
    fail_expected(fmt::format("'=' after '{}{}'", name, line.targets.back().primed ? "'" : ""), note);
  }
  take();
  skip_newlines();
  line.value = parse_whole_expression();
  line.span = span_from(begin);
  return line;
}

Target Parser::parse_target() {
  Target target;
  const Token name = expect_name("the name of a value");
  target.name = name.text;
  if (at(TokenKind::Prime)) {
    if (peek().span.offset != name.span.offset + name.span.length) {
      fail(peek().span, "the prime stands directly after the name", fmt::format("write {}'", name.text));
    }
    take();
    target.primed = true;
    if (at(TokenKind::Prime)) {
      fail(peek().span, fmt::format("one prime only: {}' is the value after the step", name.text));
    }
  }
  if (at(TokenKind::LeftBracket)) {
    IndexList list = parse_index_list(target.name, true);
    target.has_index = true;
    target.index = std::move(list.entries);
    if (at(TokenKind::Prime)) {
      fail(peek().span, "the prime stands before the axes", fmt::format("write {}'[…]", name.text));
    }
  }
  target.span = span_from(name.span.offset);
  return target;
}

}  // namespace cellc
