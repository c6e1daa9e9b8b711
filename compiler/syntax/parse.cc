#include "compiler/syntax/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler/syntax/parser.h"

namespace cellc {

// Spans that later stages point at: a cell and a function by their name, a declaration and a
// target by name and axes, a line as a whole.

Parser::Parser(const SourceText& source, std::vector<Token> tokens, Diagnostics& diagnostics)
    : source_(source), tokens_(std::move(tokens)), diagnostics_(diagnostics) {}

// Tokens -------------------------------------------------------------------------------------------

const Token& Parser::peek() {
  if (brackets_ > 0) skip_newlines();
  return tokens_[at_];
}

const Token& Parser::peek_after(std::size_t n) {
  peek();
  return tokens_[std::min(at_ + n, tokens_.size() - 1)];
}

const Token& Parser::take() {
  const Token& token = peek();
  last_ = at_;
  if (token.kind != TokenKind::End) ++at_;
  return token;
}

bool Parser::accept(TokenKind kind) {
  if (!at(kind)) return false;
  take();
  return true;
}

void Parser::skip_newlines() {
  while (tokens_[at_].kind == TokenKind::Newline) ++at_;
}

bool Parser::ends_line(const Token& token) const {
  return token.kind == TokenKind::Newline || token.kind == TokenKind::End || token.kind == TokenKind::RightBrace;
}

bool Parser::starts_line(std::size_t position) const {
  return position == 0 || tokens_[position - 1].kind == TokenKind::Newline;
}

// Where a '=' follows the first name of a line (`h'[i] =`), the position of that name, else 0: an
// expression that meets it has run over from the line above.
std::size_t Parser::line_begun_before(std::size_t assign) const {
  if (tokens_[assign].kind != TokenKind::Assign || assign == 0) return 0;
  std::size_t i = assign - 1;
  if (tokens_[i].kind == TokenKind::RightBracket) {
    while (i > 0 && tokens_[i].kind != TokenKind::LeftBracket && tokens_[i].kind != TokenKind::Newline) --i;
    if (i > 0) --i;
  }
  if (tokens_[i].kind == TokenKind::Prime && i > 0) --i;
  return i > 0 && tokens_[i].kind == TokenKind::Name && starts_line(i) ? i : 0;
}

Span Parser::span_from(std::uint32_t offset) const { return {offset, tokens_[last_].end() - offset}; }

std::string Parser::line_of(std::uint32_t offset) const {
  return fmt::format("line {}", source_.position(offset).line);
}

// Errors and recovery --------------------------------------------------------------------------------

void Parser::fail(Span span, std::string message, std::string note) {
  diagnostics_.error(span, std::move(message), std::move(note));
  throw SyntaxError{};
}

void Parser::fail_expected(const std::string& what, std::string note) {
  const Token& found = peek();
  if (found.kind == TokenKind::Error) throw SyntaxError{};
  if (note.empty()) note = hint(found, what.starts_with("an operator"));
  // "Found the end of the line" is shown after the last character of that line, not below it.
  Span span = found.span;
  if ((found.kind == TokenKind::Newline || found.kind == TokenKind::End) && at_ > 0) {
    span = {tokens_[last_].end(), 1};
  }
  fail(span, fmt::format("expected {}, found {}", what, describe(found)), std::move(note));
}

void Parser::fail_unclosed(const Token& open, const std::string& what) {
  if (at(TokenKind::Error)) throw SyntaxError{};
  if (const std::size_t begun = line_begun_before(at_)) at_ = begun;
  const Token& found = tokens_[at_];
  const char* close = open.kind == TokenKind::LeftBracket ? "]" : ")";
  // Where a line end was passed over, the mistake is most likely the bracket that hid it.
  if (found.kind == TokenKind::End || starts_line(at_)) {
    fail(open.span, fmt::format("this '{}' is not closed", open.text),
         fmt::format("expected '{}', found {}{}", close, describe(found),
                     found.kind == TokenKind::End ? "" : fmt::format(" on {}", line_of(found.span.offset))));
  }
  fail_expected(what);
}

std::string Parser::describe(const Token& token) const {
  switch (token.kind) {
    case TokenKind::End:
      return "the end of the file";
    case TokenKind::Newline:
      return "the end of the line";
    case TokenKind::Keyword:
      return fmt::format("the reserved word '{}'", token.text);
    default:
      break;
  }
  if (token.text.size() > 60) return fmt::format("'{}...'", token.text.substr(0, 57));
  return fmt::format("'{}'", token.text);
}

// After an error in the line that began at `start`: on to the next line, or to where the body ends.
void Parser::recover(std::size_t start) {
  brackets_ = 0;
  nesting_ = 0;
  // The error lies on a line that has only just begun (an unclosed parenthesis above it): that
  // line is read as one of its own.
  if (at_ > start && starts_line(at_)) return;
  // Braces within the broken line (`if (x) {`) are passed over with all they hold, so that their
  // end is not taken for the end of the cell.
  int open = 0;
  for (std::size_t i = start; i < at_; ++i) open += tokens_[i].kind == TokenKind::LeftBrace;
  std::size_t first_line_end = 0;
  while (tokens_[at_].kind != TokenKind::End) {
    // Far from closed: the brace was a slip, and looking further for each of many would take the
    // square of the file's length.
    if (first_line_end != 0 && at_ - first_line_end > 2000) break;
    const Token& token = tokens_[at_];
    const bool column_one = token.span.offset == 0 || source_.text()[token.span.offset - 1] == '\n';
    if (first_line_end != 0 && column_one && token.kind == TokenKind::Keyword) break;
    if (token.kind == TokenKind::LeftBrace) ++open;
    if (token.kind == TokenKind::RightBrace && open-- == 0) return;
    if (token.kind == TokenKind::Newline) {
      if (open == 0) return;
      if (first_line_end == 0) first_line_end = at_;
    }
    ++at_;
  }
  if (open > 0 && first_line_end != 0) at_ = first_line_end;
}

void Parser::skip_to_top_level() {
  brackets_ = 0;
  nesting_ = 0;
  while (tokens_[at_].kind != TokenKind::End) {
    ++at_;
    const Token& token = tokens_[at_];
    if (starts_line(at_) && token.kind == TokenKind::Keyword && (token.text == "cell" || token.text == "fn")) return;
  }
}

// The file -------------------------------------------------------------------------------------------

File Parser::parse_file() {
  File file;
  try {
    for (skip_newlines(); !at(TokenKind::End); skip_newlines()) {
      if (diagnostics_.list().size() >= 500) throw GiveUp{};
      parse_top_level(file);
    }
  } catch (const GiveUp&) {
    // Hundreds of errors: this is no cell file, and more of them would help nobody.
  }
  return file;
}

void Parser::parse_top_level(File& file) {
  if (at_keyword("cell")) return parse_cell(file);
  if (at_keyword("fn")) return parse_function(file);
  try {
    const Token& found = peek();
    if (found.kind == TokenKind::RightBrace) {
      diagnostics_.error(found.span, "this '}' closes nothing", "a '}' above it already closed the cell or function");
      take();
      return;
    }
    const bool body_word = found.kind == TokenKind::Keyword || peek_after(1).kind == TokenKind::Assign;
    fail_expected("'cell' or 'fn'", body_word
                                        ? "declarations and lines stand in the braces of a cell: cell name[d] { … }"
                                        : std::string());
  } catch (const SyntaxError&) {
    // A misspelled `cel lstm[d] {`: its body is read all the same.
    if (tokens_[at_].kind == TokenKind::Name && tokens_[at_ + 1].kind == TokenKind::Name) {
      const std::string meant = closest_name(std::string(tokens_[at_].text), {"cell", "fn"});
      if (meant == "cell") return parse_cell(file);
      if (meant == "fn") return parse_function(file);
    }
    skip_to_top_level();
  }
}

// After an error in a header: true if a body follows, which is then next.
bool Parser::skip_to_body() {
  brackets_ = 0;
  nesting_ = 0;
  while (tokens_[at_].kind != TokenKind::End && tokens_[at_].kind != TokenKind::LeftBrace &&
         tokens_[at_].kind != TokenKind::Newline) {
    ++at_;
  }
  return tokens_[at_].kind == TokenKind::LeftBrace;
}

void Parser::parse_cell(File& file) {
  Cell cell;
  take();
  try {
    const Token name = expect_name("a name for the cell");
    cell.name = name.text;
    cell.span = name.span;
    if (at(TokenKind::LeftBracket)) cell.axes = parse_header_axes(true);
    skip_newlines();
    if (!at(TokenKind::LeftBrace)) fail_expected("'{'", "a cell is: cell name[axis, …] { declarations and lines }");
  } catch (const SyntaxError&) {
    if (!skip_to_body()) return skip_to_top_level();
  }
  const Token open = take();
  parse_cell_body(cell, open);
  file.cells.push_back(std::move(cell));
}

// True at the '}' of a body, which is taken, or where it is missing, which is reported.
bool Parser::body_ends(const Token& open, const std::string& what) {
  skip_newlines();
  if (diagnostics_.list().size() >= 500) throw GiveUp{};
  if (accept(TokenKind::RightBrace)) return true;
  const Token& found = peek();
  const bool header = at_keyword("fn") || at_keyword("cell");
  const bool column_one = source_.position(found.span.offset).column == 1;
  if (!at(TokenKind::End) && !(header && column_one)) return false;
  // Shown at the open brace: what is missing could stand on any line below it.
  diagnostics_.error(open.span, fmt::format("this '{{' of {} is not closed", what),
                     fmt::format("expected '}}', found {}{}", describe(found),
                                 at(TokenKind::End) ? "" : " on " + line_of(found.span.offset)));
  return true;
}

void Parser::parse_cell_body(Cell& cell, const Token& open) {
  const std::string what = cell.name.empty() ? "the cell" : fmt::format("cell '{}'", cell.name);
  while (!body_ends(open, what)) {
    const std::size_t start = at_;
    try {
      if (at_keyword("state") || at_keyword("input") || at_keyword("param")) {
        parse_declarations(cell.declarations);
      } else if (at_keyword("out") || (at(TokenKind::Name) && peek_after(1).kind != TokenKind::Name &&
                                       peek_after(1).kind != TokenKind::Keyword)) {
        cell.lines.push_back(parse_line());
      } else {
        fail_statement();
      }
      end_of_line();
    } catch (const SyntaxError&) {
      recover(start);
      // A line that was not even begun must still be left behind.
      if (at_ == start && !ends_line(tokens_[at_])) ++at_;
    }
  }
}

// Nothing that may begin a line of a cell: says what it looks like.
void Parser::fail_statement() {
  const Token& found = peek();
  const Token& next = peek_after(1);
  if (at_keyword("cell")) {
    if (next.kind == TokenKind::Name && peek_after(2).kind == TokenKind::Assign) {
      fail(found.span, "a cell as part of a cell is not supported yet",
           "write the inner cell's states and lines here; two layers can stand side by side in one cell");
    }
    fail(found.span, "cells do not stand inside one another", "close the cell above with '}' first");
  }
  if (at_keyword("fn")) {
    fail(found.span, "functions stand outside of cells", "move it above the cell: every cell of the file can use it");
  }
  if (at_keyword("return")) {
    fail(found.span, "'return' belongs to a function", "what a cell gives is written 'out y = …'");
  }
  if (at_keyword("reverse")) {
    fail(found.span, "'reverse' is not supported yet",
         "run the cell itself backwards in time with 'cellc run --reverse'");
  }
  if (at_keyword("derivative")) {
    fail(found.span, "'derivative' belongs to a function", "write: fn f(x) = … derivative …");
  }
  if (found.kind == TokenKind::Name) {
    std::string note = hint(found);
    fail(found.span, fmt::format("expected 'state', 'input', 'param', 'out' or NAME = …, found '{}'", found.text),
         std::move(note));
  }
  fail_expected("'state', 'input', 'param', 'out', NAME = … or '}'");
}

void Parser::end_of_line() {
  if (ends_line(tokens_[at_])) return;
  fail_expected("an operator or the end of the line");
}

// Functions --------------------------------------------------------------------------------------------

void Parser::parse_function(File& file) {
  Function function;
  const std::size_t start = at_;
  bool in_header = true;
  take();
  try {
    const Token name = expect_name("a name for the function");
    function.name = name.text;
    function.span = name.span;
    if (at(TokenKind::LeftBracket)) function.axes = parse_header_axes(false);
    if (!at(TokenKind::LeftParen)) fail_expected("'(' and the function's arguments", "write: fn f(x, y) = …");
    const Token open = take();
    ++brackets_;
    if (at(TokenKind::RightParen)) {
      fail_expected("the name of an argument", "a constant needs no function: give it a name in the cell");
    }
    do {
      const Token argument = expect_name("the name of an argument");
      function.params.emplace_back(std::string(argument.text), argument.span);
    } while (accept(TokenKind::Comma));
    if (!at(TokenKind::RightParen)) fail_unclosed(open, "',' or ')'");
    take();
    --brackets_;
    in_header = false;
    if (accept(TokenKind::Assign)) {
      skip_newlines();
      function.results = parse_expressions();
    } else {
      std::size_t brace = at_;
      while (tokens_[brace].kind == TokenKind::Newline) ++brace;
      if (tokens_[brace].kind != TokenKind::LeftBrace) {
        fail_expected("'=' or '{'", "a function is: fn f(x) = …, or lines in braces that end with 'return …'");
      }
      at_ = brace;
      const Token body = take();
      parse_function_body(function, body);
    }
    parse_derivative(function);
    end_of_line();
    file.functions.push_back(std::move(function));
  } catch (const SyntaxError&) {
    if (in_header && skip_to_body()) {
      parse_function_body(function, take());
    } else {
      recover(start);
      if (!starts_line(at_) && tokens_[at_].kind == TokenKind::RightBrace) ++at_;
    }
  }
}

void Parser::parse_function_body(Function& function, const Token& open) {
  const std::string what = function.name.empty() ? "the function" : fmt::format("function '{}'", function.name);
  bool returned = false;
  while (!body_ends(open, what)) {
    const std::size_t start = at_;
    try {
      if (returned) fail(peek().span, "nothing may follow 'return'", "'return' is the last line of a function");
      if (at_keyword("return")) {
        take();
        returned = true;
        function.results = parse_expressions();
      } else if (at(TokenKind::Name) && peek_after(1).kind != TokenKind::Name) {
        function.lines.push_back(parse_line());
        for (const Target& target : function.lines.back().targets) {
          if (target.primed) {
            fail(target.span, fmt::format("a function cannot give a state its value: '{}''", target.name),
                 "return the value, and assign it in the cell");
          }
        }
      } else if (at(TokenKind::Keyword)) {
        fail(peek().span, fmt::format("'{}' cannot stand in a function", peek().text),
             "a function has lines NAME = … and a last line 'return …'");
      } else {
        fail_expected("NAME = …, 'return' or '}'");
      }
      end_of_line();
    } catch (const SyntaxError&) {
      recover(start);
      if (at_ == start && !ends_line(tokens_[at_])) ++at_;
    }
  }
  if (!returned) {
    diagnostics_.error(function.span.length > 0 ? function.span : open.span, fmt::format("{} has no 'return'", what),
                       "the last line of a function in braces is 'return …'");
  }
}

void Parser::parse_derivative(Function& function) {
  std::size_t word = at_;
  while (tokens_[word].kind == TokenKind::Newline) ++word;
  if (tokens_[word].kind != TokenKind::Keyword || tokens_[word].text != "derivative") return;
  at_ = word;
  const Token keyword = take();
  function.derivative = parse_expressions();
  if (function.results.size() > 1) {
    fail(
        keyword.span,
        fmt::format("a function with a derivative has one result, '{}' has {}", function.name, function.results.size()),
        "split it into functions with one result each");
  }
  if (function.derivative.size() != function.params.size()) {
    fail(keyword.span,
         fmt::format("'{}' has {} argument{} and {} slope{} after 'derivative'", function.name, function.params.size(),
                     function.params.size() == 1 ? "" : "s", function.derivative.size(),
                     function.derivative.size() == 1 ? "" : "s"),
         "give one slope per argument, separated by commas");
  }
}

File parse(const SourceText& source, Diagnostics& diagnostics) {
  if (source.text().size() > kMaxFileBytes) {
    diagnostics.error({0, 0}, fmt::format("the file has {} bytes", source.text().size()),
                      fmt::format("a cell file has at most {} bytes", kMaxFileBytes));
    return {};
  }
  return Parser(source, lex(source, diagnostics), diagnostics).parse_file();
}

}  // namespace cellc
