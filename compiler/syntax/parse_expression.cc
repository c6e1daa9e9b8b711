// Expressions. Loosest first: comparisons (which do not chain), + -, * /, unary minus, @ (which
// groups to the right), ^ (with an integer), names and calls. A line goes on after a binary
// operator or a comma.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler/syntax/parser.h"

namespace cellc {
namespace {

bool is_comparison(TokenKind kind) {
  switch (kind) {
    case TokenKind::Less:
    case TokenKind::LessEqual:
    case TokenKind::Greater:
    case TokenKind::GreaterEqual:
    case TokenKind::EqualEqual:
    case TokenKind::NotEqual:
      return true;
    default:
      return false;
  }
}

bool begins_value(TokenKind kind) {
  return kind == TokenKind::Name || kind == TokenKind::Number || kind == TokenKind::LeftParen;
}

}  // namespace

struct Parser::Nested {
  explicit Nested(Parser& p, Span span) : parser(p) {
    if (++parser.nesting_ > kMaxNesting) {
      --parser.nesting_;
      parser.fail(span, fmt::format("more than {} parentheses, calls and signs inside one another", kMaxNesting),
                  "give inner parts names on lines of their own");
    }
  }
  ~Nested() { --parser.nesting_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  Parser& parser;
};

ExprPtr Parser::parse_whole_expression() {
  nodes_ = 0;
  return parse_expression().expr;
}

std::vector<ExprPtr> Parser::parse_expressions() {
  std::vector<ExprPtr> list;
  do {
    skip_newlines();
    list.push_back(parse_whole_expression());
  } while (accept(TokenKind::Comma));
  return list;
}

// Every node is counted here, the moment it exists, so that no chain grows past the limits.
Parser::Sub Parser::node(Sub made) {
  const char* remedy = "give parts of it names on lines of their own";
  if (++nodes_ > kMaxExpressionNodes) {
    fail(made.expr->name_span, fmt::format("an expression of more than {} operators and names", kMaxExpressionNodes),
         remedy);
  }
  // A name or number alone is one deep already.
  if (made.depth > kMaxExpressionDepth + 1) {
    fail(made.expr->name_span, fmt::format("a chain of more than {} operators", kMaxExpressionDepth), remedy);
  }
  return made;
}

Parser::Sub Parser::leaf(ExprKind kind, const Token& token) {
  Sub sub{std::make_unique<Expr>(), 1};
  sub.expr->kind = kind;
  sub.expr->span = sub.expr->name_span = token.span;
  if (kind == ExprKind::Number) sub.expr->number = token.number;
  if (kind == ExprKind::Name) sub.expr->name = token.text;
  return node(std::move(sub));
}

Parser::Sub Parser::binary(const Token& sign, Sub left, Sub right, std::uint32_t begin) {
  Sub sub{std::make_unique<Expr>(), 1 + std::max(left.depth, right.depth)};
  sub.expr->kind = ExprKind::Binary;
  sub.expr->name = sign.text;
  sub.expr->name_span = sign.span;
  sub.expr->span = span_from(begin);
  sub.expr->args.push_back(std::move(left.expr));
  sub.expr->args.push_back(std::move(right.expr));
  return node(std::move(sub));
}

Parser::Sub Parser::parse_comparison() {
  const std::uint32_t begin = peek().span.offset;
  Sub left = parse_sum();
  if (!is_comparison(peek().kind)) return left;
  const Token sign = take();
  skip_newlines();
  left = binary(sign, std::move(left), parse_sum(), begin);
  if (is_comparison(peek().kind)) {
    fail(peek().span, fmt::format("comparisons do not chain: '{}' follows '{}'", peek().text, sign.text),
         "both of two conditions is their product: (a < b)*(b < c)");
  }
  return left;
}

Parser::Sub Parser::parse_sum() {
  const std::uint32_t begin = peek().span.offset;
  Sub left = parse_product();
  while (at(TokenKind::Plus) || at(TokenKind::Minus)) {
    const Token sign = take();
    skip_newlines();
    left = binary(sign, std::move(left), parse_product(), begin);
  }
  return left;
}

Parser::Sub Parser::parse_product() {
  const std::uint32_t begin = peek().span.offset;
  Sub left = parse_unary();
  while (at(TokenKind::Star) || at(TokenKind::Slash)) {
    const Token sign = take();
    skip_newlines();
    left = binary(sign, std::move(left), parse_unary(), begin);
  }
  return left;
}

Parser::Sub Parser::parse_unary() {
  if (!at(TokenKind::Minus)) return parse_contraction();
  const Token sign = take();
  skip_newlines();
  Nested nested(*this, sign.span);
  Sub operand = parse_unary();
  Sub sub{std::make_unique<Expr>(), 1 + operand.depth};
  sub.expr->kind = ExprKind::Negate;
  sub.expr->name = sign.text;
  sub.expr->name_span = sign.span;
  sub.expr->span = span_from(sign.span.offset);
  sub.expr->args.push_back(std::move(operand.expr));
  return node(std::move(sub));
}

// A@B@x is A@(B@x). The operands are gathered first: a chain of any length takes no stack.
Parser::Sub Parser::parse_contraction() {
  struct Left {
    Sub operand;
    Token sign;
    std::uint32_t begin;
  };
  std::vector<Left> lefts;
  std::uint32_t begin = peek().span.offset;
  Sub right = parse_power();
  while (at(TokenKind::At)) {
    const Token sign = take();
    skip_newlines();
    lefts.push_back({std::move(right), sign, begin});
    begin = peek().span.offset;
    // A sign may stand at the right end; it then takes all that follows: A@-B@x is A@(-(B@x)).
    right = at(TokenKind::Minus) ? parse_unary() : parse_power();
    if (static_cast<int>(lefts.size()) > kMaxExpressionDepth) break;  // reported by the next node
  }
  for (; !lefts.empty(); lefts.pop_back()) {
    Left& left = lefts.back();
    right = binary(left.sign, std::move(left.operand), std::move(right), left.begin);
  }
  return right;
}

Parser::Sub Parser::parse_power() {
  const std::uint32_t begin = peek().span.offset;
  Sub base = parse_primary();
  if (!at(TokenKind::Caret)) return base;
  const Token sign = take();
  Sub sub{std::make_unique<Expr>(), 1 + base.depth};
  sub.expr->number = parse_exponent();
  sub.expr->kind = ExprKind::Power;
  sub.expr->name = sign.text;
  sub.expr->name_span = sign.span;
  sub.expr->span = span_from(begin);
  sub.expr->args.push_back(std::move(base.expr));
  if (at(TokenKind::Caret)) fail(peek().span, "powers do not chain", "write (x^2)^3, or x^6");
  return node(std::move(sub));
}

double Parser::parse_exponent() {
  static const char* const kNote = "'^' takes a whole number, as in x^2 or x^-1; pow(x, y) takes any exponent";
  skip_newlines();
  const bool parenthesised = at(TokenKind::LeftParen);
  if (parenthesised) {
    const TokenKind after = peek_after(1).kind;
    const Token& number = after == TokenKind::Minus ? peek_after(2) : peek_after(1);
    const Token& close = after == TokenKind::Minus ? peek_after(3) : peek_after(2);
    if (number.kind != TokenKind::Number || close.kind != TokenKind::RightParen) {
      fail(peek().span, "expected a whole number as exponent, found '('", kNote);
    }
    take();
  }
  const bool negative = accept(TokenKind::Minus);
  if (!at(TokenKind::Number) || !peek().is_integer) fail_expected("a whole number as exponent", kNote);
  const Token number = take();
  if (number.number > kMaxExponent) {
    fail(number.span, fmt::format("the exponent {} is too large", number.text),
         fmt::format("'^' takes whole numbers up to {}; pow(x, y) takes any exponent", kMaxExponent));
  }
  if (parenthesised) take();
  return negative ? -number.number : number.number;
}

Parser::Sub Parser::parse_primary() {
  const Token& token = peek();
  // `y = a +` at the end of the cell: what is missing is missing on that line.
  if (brackets_ == 0 && starts_line(at_) && !begins_value(token.kind) && token.kind != TokenKind::Error) {
    fail({tokens_[last_].end(), 1}, "expected a value, found the end of the line");
  }
  switch (token.kind) {
    case TokenKind::Number: {
      Sub number = leaf(ExprKind::Number, take());
      if (at(TokenKind::LeftBracket)) fail(peek().span, "a number has no axes");
      return number;
    }
    case TokenKind::LeftParen:
      return parse_parenthesised();
    case TokenKind::Name:
      return parse_named();
    case TokenKind::Plus:
      fail_expected("a value",
                    "a leading '+' is not needed; an operator that goes on to the next line stands at the "
                    "end of the line before");
    case TokenKind::LeftBracket:
      fail_expected("a value", "there are no lists of numbers: give the entries as a param");
    case TokenKind::Keyword:
      if (token.text == "reverse") {
        fail(token.span, "'reverse' is not supported yet",
             "run the cell itself backwards in time with 'cellc run --reverse'");
      }
      fail_expected("a value", "reserved words cannot be names of values");
    default:
      fail_expected("a value");
  }
}

Parser::Sub Parser::parse_parenthesised() {
  const Token open = take();
  Nested nested(*this, open.span);
  ++brackets_;
  Sub inner = parse_expression();
  if (!at(TokenKind::RightParen)) {
    if (at(TokenKind::Comma)) fail_expected("')'", "parentheses hold one value; several belong to a call: f(x, y)");
    fail_unclosed(open, "an operator or ')'");
  }
  take();
  --brackets_;
  if (at(TokenKind::LeftBracket)) {
    fail(peek().span, "only a name takes an index list", "give the value in parentheses a name on a line of its own");
  }
  return inner;
}

Parser::Sub Parser::parse_named() {
  const Token name = take();
  Sub sub = leaf(ExprKind::Name, name);
  Expr& expr = *sub.expr;
  if (at(TokenKind::Prime)) {
    if (peek().span.offset != name.end()) {
      fail(peek().span, "the prime stands directly after the name", fmt::format("write {}'", name.text));
    }
    take();
    expr.primed = true;
    if (at(TokenKind::Prime)) {
      fail(peek().span, fmt::format("one prime only: {}' is the value after the step", name.text));
    }
  }
  if (at(TokenKind::LeftBracket)) {
    expr.index = parse_index_list(expr.name, true).entries;
    expr.has_index = true;
  }
  const bool called = at(TokenKind::LeftParen);
  check_named(expr, called);
  if (expr.name == "size" || expr.name == "eye") expr.kind = ExprKind::Call;
  if (called) {
    expr.kind = ExprKind::Call;
    parse_arguments(expr, sub.depth);
  }
  expr.span = span_from(name.span.offset);
  const Token& after = peek();
  if (after.kind == TokenKind::Prime) {
    fail(after.span, "the prime stands directly after the name",
         called ? "only a state has a value after the step" : fmt::format("write {}'[…]", name.text));
  }
  if (after.kind == TokenKind::LeftBracket) {
    fail(after.span, called ? "only a name takes an index list" : "a name takes one index list",
         called ? "give the call's value a name on a line of its own" : fmt::format("write {}[i, j]", name.text));
  }
  if (after.kind == TokenKind::Dot) {
    const Token& member = peek_after(1);
    if (member.text == "T") {
      fail(after.span, "there is no '.T'", fmt::format("a transpose renames the axes by place: {}[j,i]", name.text));
    }
    std::size_t last = 1;  // np.linalg.norm
    while (peek_after(last + 1).kind == TokenKind::Dot) last += 2;
    if (peek_after(last + 1).kind == TokenKind::LeftParen)
      fail(after.span, fmt::format("there is no '.{}'", peek_after(last).text),
           "a function has nothing before its name: tanh(x), sum[k](x)");
    fail(after.span, "values of a cell inside a cell are not supported yet",
         "write the inner cell's states and lines in this cell");
  }
  return sub;
}

void Parser::check_named(const Expr& named, bool called) {
  const bool bracketed = named.name == "size" || named.name == "eye";
  if (bracketed && (!named.has_index || called || named.primed)) {
    fail(
        named.name_span, fmt::format("'{}' takes axes in brackets and no arguments", named.name),
        named.name == "size" ? "write size[k] for the length of axis k" : "write eye[i,j]: 1 where i equals j, else 0");
  }
  if (called && named.primed) {
    fail(peek().span, fmt::format("{}' is a value and cannot be called", named.name),
         "multiplication is written with '*'");
  }
  const bool word = named.name == "if" || named.name == "for" || named.name == "while" || named.name == "lambda";
  if (word && begins_value(peek().kind)) {
    fail(named.name_span, fmt::format("'{}' is not part of the cell language", named.name), hint(tokens_[last_]));
  }
}

void Parser::parse_arguments(Expr& call, int& depth) {
  const Token open = take();
  Nested nested(*this, open.span);
  ++brackets_;
  if (at(TokenKind::RightParen))
    fail_expected(fmt::format("an argument of '{}'", call.name),
                  call.name.starts_with("rand")
                      ? "a cell has no random numbers of its own: declare an input, and give it the noise as an array"
                      : "a constant is a name: write it without parentheses");
  do {
    Sub argument = parse_expression();
    depth = std::max(depth, 1 + argument.depth);
    call.args.push_back(std::move(argument.expr));
  } while (accept(TokenKind::Comma));
  if (!at(TokenKind::RightParen)) {
    if (at(TokenKind::Assign) && line_begun_before(at_) == 0)
      fail_expected("an operator, ',' or ')'", "arguments are given by place, without names; '==' compares");
    fail_unclosed(open, "an operator, ',' or ')'");
  }
  take();
  --brackets_;
}

Parser::IndexList Parser::parse_index_list(const std::string& of, bool integers_allowed) {
  IndexList list;
  list.present = true;
  const Token open = take();
  ++brackets_;
  do {
    const Token& token = peek();
    IndexEntry entry;
    entry.span = token.span;
    if (token.kind == TokenKind::Name) {
      entry.name = token.text;
    } else if (token.kind == TokenKind::Number && !integers_allowed) {
      fail_expected("the name of an axis",
                    fmt::format("axes have names; a length is fixed in the header: cell c[n={}]", token.text));
    } else if (token.kind == TokenKind::Number && token.is_integer &&
               token.number <= static_cast<double>(kMaxAxisLength)) {
      entry.integer = static_cast<std::int64_t>(token.number);
    } else if (token.kind == TokenKind::RightBracket) {
      fail_expected("the name of an axis", "without axes, leave the brackets out");
    } else if (token.kind == TokenKind::Keyword) {
      fail_expected("the name of an axis", "choose another name: this one is part of the language");
    } else {
      std::string note;
      if (token.kind == TokenKind::Colon)
        note = "there are no slices: name every axis, or pick one entry with an integer";
      if (token.kind == TokenKind::Minus) note = "entries are counted from 0, not from the end";
      if (token.kind == TokenKind::Number) note = "an entry is picked with a whole number, counted from 0";
      fail_expected(integers_allowed ? "the name of an axis or an integer" : "the name of an axis", note);
    }
    take();
    list.entries.push_back(std::move(entry));
  } while (accept(TokenKind::Comma));
  if (!at(TokenKind::RightBracket)) {
    if (at(TokenKind::Colon))
      fail_expected("',' or ']'", "there are no slices: name the axis, or pick one entry with an integer");
    if (at(TokenKind::Plus) || at(TokenKind::Minus) || at(TokenKind::Star)) {
      fail_expected("',' or ']'", fmt::format("an index is a name or an integer; earlier steps are lag({}, 1)", of));
    }
    fail_unclosed(open, "',' or ']'");
  }
  take();
  --brackets_;
  return list;
}

}  // namespace cellc
