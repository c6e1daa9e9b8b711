#pragma once
// Text -> tokens. Line ends are tokens. The parser decides which of them end a line and which only
// continue it, because only the parser knows where an unclosed parenthesis was meant
// to end.
#include <cstdint>
#include <string_view>
#include <vector>

#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/source.h"

namespace cellc {

enum class TokenKind : std::uint8_t {
  End,
  Newline,
  Error,  ///< already reported: the parser gives up the line without a word
  Name,
  Keyword,
  Number,
  Prime,
  LeftParen,
  RightParen,
  LeftBracket,
  RightBracket,
  LeftBrace,
  RightBrace,
  Comma,
  Dot,
  Colon,
  Semicolon,
  Assign,
  Plus,
  Minus,
  Star,
  Slash,
  At,
  Caret,
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  EqualEqual,
  NotEqual,
};

struct Token {
  TokenKind kind = TokenKind::End;
  Span span;
  std::string_view text;    ///< into the source text; for a mended sign (`**`), the right one
  double number = 0;        ///< of a Number
  bool is_integer = false;  ///< a Number written with digits only

  std::uint32_t end() const { return span.offset + span.length; }
};

/// The tokens of a whole file; the last is End, standing directly after the last visible token.
std::vector<Token> lex(const SourceText& source, Diagnostics& diagnostics);

/// The reserved words.
const std::vector<std::string>& keywords();

}  // namespace cellc
