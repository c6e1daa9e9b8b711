// What people write when they mean something that the language spells another way.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "compiler/syntax/parser.h"

namespace cellc {
namespace {

struct Habit {
  std::string_view word;
  std::string_view note;
};

constexpr Habit kHabits[] = {
    {"if", "a choice is where(condition, a, b)"},
    {"else", "a choice is where(condition, a, b)"},
    {"then", "a choice is where(condition, a, b)"},
    {"and", "both of two conditions is their product: (a > 0)*(b > 0)"},
    {"or", "one of two conditions is their maximum: max(a > 0, b > 0)"},
    {"not", "not of a condition c is 1 - c"},
    {"for", "there are no loops: a cell is one step, and sum[k](e) runs over an axis"},
    {"while", "there are no loops: a cell is one step, and sum[k](e) runs over an axis"},
    {"lambda", "a function is written on the file's top level: fn f(x) = …"},
    {"let", "a value needs no word before it: NAME = …"},
    {"var", "a value needs no word before it: NAME = …"},
    {"const", "a value needs no word before it: NAME = …"},
    {"float", "a value needs no word before it: NAME = …"},
    {"double", "a value needs no word before it: NAME = …"},
    {"output", "did you mean 'out'?"},
    {"outputs", "did you mean 'out'?"},
    {"weight", "did you mean 'param'?"},
    {"weights", "did you mean 'param'?"},
    {"hidden", "did you mean 'state'?"},
    {"def", "did you mean 'fn'?"},
    {"func", "did you mean 'fn'?"},
    {"function", "did you mean 'fn'?"},
    {"layer", "did you mean 'cell'?"},
    {"model", "did you mean 'cell'?"},
    {"module", "did you mean 'cell'?"},
    {"class", "did you mean 'cell'?"},
};

}  // namespace

std::string Parser::hint(const Token& found, bool after_value) const {
  const char* const product = after_value ? "multiplication is written with '*'" : "";
  const auto position = static_cast<std::size_t>(&found - tokens_.data());
  switch (found.kind) {
    case TokenKind::Semicolon:
      return "a line ends with the line: put the next one on a line of its own";
    case TokenKind::Colon:
      return "blocks are written in braces, and a choice is where(condition, a, b)";
    case TokenKind::Assign: {
      if (std::size_t before = line_begun_before(position)) {
        while (before > 0 && tokens_[before - 1].kind == TokenKind::Newline) --before;
        if (before > 0) {
          return fmt::format("the line above ends in '{}' and so goes on here", tokens_[before - 1].text);
        }
      }
      return "one '=' a line; '==' compares";
    }
    case TokenKind::EqualEqual:
      return "an assignment is written '='";
    case TokenKind::Prime:
      return "a prime stands directly after the name of a state: h'";
    case TokenKind::Comma:
      return "only a function gives several values: p, q = f(x)";
    case TokenKind::LeftBrace:
      return "braces enclose the lines of a cell or of a function";
    case TokenKind::RightParen:
      return brackets_ > 0 ? "" : "there is a ')' without its '('";
    case TokenKind::RightBracket:
      return brackets_ > 0 ? "" : "there is a ']' without its '['";
    case TokenKind::LeftParen:
    case TokenKind::Number:
      return product;
    case TokenKind::Plus:
    case TokenKind::Minus:
    case TokenKind::Star:
    case TokenKind::Slash:
    case TokenKind::At:
      return starts_line(position) ? "a line goes on after an operator at its end: put the operator on the line before"
                                   : "";
    case TokenKind::Keyword:
      if (found.text == "in") return "a range belongs to a declaration: state h[d] in (-1, 1)";
      if (found.text == "reverse")
        return "'reverse' is not supported yet; 'cellc run --reverse' runs a whole cell backwards";
      return "begin a new line before it";
    case TokenKind::Name:
      break;
    default:
      return {};
  }
  for (const Habit& habit : kHabits) {
    if (found.text == habit.word) return std::string(habit.note);
  }
  if (starts_line(position)) {
    const std::string meant = closest_name(std::string(found.text), keywords());
    return meant.empty() ? std::string() : fmt::format("did you mean '{}'?", meant);
  }
  return product;
}

}  // namespace cellc
