#include "compiler/syntax/lex.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

namespace cellc {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A character that people type, or paste, for one the language has. The parser goes on with
// `meant`, so that the rest of the line is checked too.
struct Lookalike {
  std::string_view text;
  std::string_view meant;
  TokenKind kind;
  std::string_view name;
};

constexpr Lookalike kLookalikes[] = {
    {"**", "^", TokenKind::Caret, "'**'"},
    {":=", "=", TokenKind::Assign, "':='"},
    {"\u2019", "'", TokenKind::Prime, "a typographic quote"},
    {"\u2018", "'", TokenKind::Prime, "a typographic quote"},
    {"\u2032", "'", TokenKind::Prime, "a typographic prime"},
    {"\u00B4", "'", TokenKind::Prime, "an acute accent"},
    {"`", "'", TokenKind::Prime, "a grave accent"},
    {"\u2212", "-", TokenKind::Minus, "a typographic minus"},
    {"\u2013", "-", TokenKind::Minus, "a dash"},
    {"\u00D7", "*", TokenKind::Star, "a multiplication sign"},
    {"\u00B7", "*", TokenKind::Star, "a centred dot"},
    {"\u22C5", "*", TokenKind::Star, "a centred dot"},
    {"\u2264", "<=", TokenKind::LessEqual, "a typographic sign"},
    {"\u2265", ">=", TokenKind::GreaterEqual, "a typographic sign"},
    {"\u2260", "!=", TokenKind::NotEqual, "a typographic sign"},
};

struct Foreign {
  std::string_view text;
  std::string_view note;
};

// Signs of other languages that mean something here, said another way.
constexpr Foreign kForeign[] = {
    {"&&", "both of two conditions is their product: (a > 0)*(b > 0)"},
    {"&", "both of two conditions is their product: (a > 0)*(b > 0)"},
    {"||", "one of two conditions is their maximum: max(a > 0, b > 0)"},
    {"|", "an absolute value is abs(x); one of two conditions is max(a > 0, b > 0)"},
    {"!", "not of a condition c is 1 - c; unequal is '!='"},
    {"?", "a choice is where(condition, a, b)"},
    {"%", "there is no remainder; a counter that wraps is where(n >= 2, 0, n + 1)"},
    {"//", "a comment begins with '#'"},
    {"/*", "a comment begins with '#' and ends with the line"},
    {"\"", "there are no texts in a cell file; a comment begins with '#'"},
    {"\\", "a line goes on after a comma, after an operator, and inside parentheses"},
};

class Lexer {
 public:
  Lexer(const SourceText& source, Diagnostics& diagnostics) : text_(source.text()), diagnostics_(diagnostics) {}

  std::vector<Token> run() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark, which some editors write
    while (at_ < text_.size()) next();
    std::uint32_t end = 0;
    for (auto it = tokens_.rbegin(); it != tokens_.rend(); ++it) {
      if (it->kind == TokenKind::Newline) continue;
      end = it->end();
      break;
    }
    tokens_.push_back({TokenKind::End, {end, 0}, {}});
    return std::move(tokens_);
  }

 private:
  void next() {
    const char c = text_[at_];
    if (c == ' ' || c == '\t') {
      ++at_;
    } else if (c == '\n') {
      push(TokenKind::Newline, 1);
    } else if (c == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
      ++at_;
    } else if (c == '#') {
      comment();
    } else if (is_letter(c)) {
      name();
    } else if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      number();
    } else if (!lookalike() && !foreign() && !sign()) {
      stray();
    }
  }

  void comment() {
    while (at_ < text_.size() && text_[at_] != '\n') {
      if (text_[at_] == '\0') {
        report(1, "a NUL byte in a comment", "a cell file is plain text");
      }
      ++at_;
    }
  }

  void name() {
    std::size_t end = at_;
    while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) ++end;
    const std::string_view word = text_.substr(at_, end - at_);
    const bool reserved = std::find(keywords().begin(), keywords().end(), word) != keywords().end();
    push(reserved ? TokenKind::Keyword : TokenKind::Name, word.size());
  }

  void number() {
    std::size_t end = at_;
    bool integer = true;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    if (end < text_.size() && text_[end] == '.') {
      integer = false;
      ++end;
      while (end < text_.size() && is_digit(text_[end])) ++end;
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      std::size_t digits = end + 1;
      if (digits < text_.size() && (text_[digits] == '+' || text_[digits] == '-')) ++digits;
      if (digits < text_.size() && is_digit(text_[digits])) {
        integer = false;
        end = digits;
        while (end < text_.size() && is_digit(text_[end])) ++end;
      }
    }
    const std::string_view digits = text_.substr(at_, end - at_);
    if (end < text_.size() && (is_letter(text_[end]) || text_[end] == '.')) {
      std::size_t rest = end;
      while (rest < text_.size() && (is_letter(text_[rest]) || is_digit(text_[rest]) || text_[rest] == '.')) ++rest;
      const std::string_view all = text_.substr(at_, rest - at_);
      const bool dotted = all.substr(digits.size()).find('.') != std::string_view::npos;
      report(all.size(), fmt::format("'{}' is neither a number nor a name", shortened(all)),
             dotted ? std::string()
                    : fmt::format("multiplication is written out: {}*{}", shortened(digits),
                                  shortened(all.substr(digits.size()))));
      push(TokenKind::Error, all.size());
      return;
    }
    Token token{TokenKind::Number, span(digits.size()), digits, 0, integer};
    const auto [stop, status] = std::from_chars(digits.data(), digits.data() + digits.size(), token.number);
    if (status != std::errc() || stop != digits.data() + digits.size()) {
      report(digits.size(), fmt::format("the number '{}' is out of range", shortened(digits)),
             "numbers are 64-bit floating point: from about 1e-308 to 1e308");
      token.number = 1;
    }
    tokens_.push_back(token);
    at_ = end;
  }

  bool lookalike() {
    for (const Lookalike& l : kLookalikes) {
      if (!text_.substr(at_).starts_with(l.text)) continue;
      const std::string meant = l.kind == TokenKind::Prime ? "an apostrophe" : fmt::format("'{}'", l.meant);
      report(l.text.size(), fmt::format("expected {}, found {}", meant, l.name),
             l.kind == TokenKind::Caret ? "a power is written x^2, with an integer; pow(x, y) takes any exponent"
             : l.kind == TokenKind::Prime
                 ? "the value after the step is written with the plain apostrophe of the keyboard: h'"
                 : fmt::format("write '{}'", l.meant));
      tokens_.push_back({l.kind, span(l.text.size()), l.meant});
      at_ += l.text.size();
      return true;
    }
    return false;
  }

  bool foreign() {
    for (const Foreign& f : kForeign) {
      if (!text_.substr(at_).starts_with(f.text)) continue;
      if (f.text == "!" && text_.substr(at_).starts_with("!=")) return false;
      report(f.text.size(), fmt::format("'{}' is not part of the cell language", f.text), std::string(f.note));
      push(TokenKind::Error, f.text.size());
      // What follows a foreign comment sign is prose: reading it would only add noise.
      if (f.text == "//" || f.text == "/*") comment();
      return true;
    }
    return false;
  }

  bool sign() {
    static constexpr struct {
      std::string_view text;
      TokenKind kind;
    } kSigns[] = {
        {"<=", TokenKind::LessEqual},  {">=", TokenKind::GreaterEqual},
        {"==", TokenKind::EqualEqual}, {"!=", TokenKind::NotEqual},
        {"(", TokenKind::LeftParen},   {")", TokenKind::RightParen},
        {"[", TokenKind::LeftBracket}, {"]", TokenKind::RightBracket},
        {"{", TokenKind::LeftBrace},   {"}", TokenKind::RightBrace},
        {",", TokenKind::Comma},       {".", TokenKind::Dot},
        {":", TokenKind::Colon},       {";", TokenKind::Semicolon},
        {"=", TokenKind::Assign},      {"+", TokenKind::Plus},
        {"-", TokenKind::Minus},       {"*", TokenKind::Star},
        {"/", TokenKind::Slash},       {"@", TokenKind::At},
        {"^", TokenKind::Caret},       {"<", TokenKind::Less},
        {">", TokenKind::Greater},     {"'", TokenKind::Prime},
    };
    for (const auto& s : kSigns) {
      if (!text_.substr(at_).starts_with(s.text)) continue;
      push(s.kind, s.text.size());
      return true;
    }
    return false;
  }

  // Length of the UTF-8 character here, or nothing where the bytes are not one.
  std::optional<std::size_t> utf8_length() const {
    const auto lead = static_cast<unsigned char>(text_[at_]);
    if (lead < 0x80) return 1;
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || at_ + length > text_.size()) return std::nullopt;
    for (std::size_t i = 1; i < length; ++i) {
      if ((static_cast<unsigned char>(text_[at_ + i]) & 0xC0) != 0x80) return std::nullopt;
    }
    return length;
  }

  // A character of no use here. A run of bad bytes is one mistake (a picture, an archive), not many.
  void stray() {
    const std::optional<std::size_t> length = utf8_length();
    const auto byte = static_cast<unsigned char>(text_[at_]);
    std::size_t run = length.value_or(1);
    if (!length || byte < 0x20 || byte == 0x7F) {
      const std::size_t start = at_;
      while (at_ + 1 < text_.size()) {
        ++at_;
        const auto b = static_cast<unsigned char>(text_[at_]);
        const bool bad = !utf8_length() || (b < 0x20 && b != '\t' && b != '\n' && b != '\r') || b == 0x7F;
        if (!bad) break;
        ++run;
      }
      at_ = start;
      report(run,
             byte == 0      ? std::string("a NUL byte")
             : !length      ? fmt::format("the byte 0x{:02x} is not UTF-8 text", byte)
             : byte == '\r' ? std::string("a carriage return without a line feed")
                            : fmt::format("the control character 0x{:02x}", byte),
             "a cell file is plain text");
    } else {
      const std::string_view character = text_.substr(at_, run);
      report(run, fmt::format("'{}' is not part of the cell language", character),
             byte >= 0x80
                 ? "names are made of the letters a-z, A-Z, digits and '_'; other letters may stand in comments"
                 : "");
    }
    push(TokenKind::Error, run);
  }

  static std::string shortened(std::string_view text) {
    return text.size() <= 40 ? std::string(text) : std::string(text.substr(0, 37)) + "...";
  }

  Span span(std::size_t length) const { return {static_cast<std::uint32_t>(at_), static_cast<std::uint32_t>(length)}; }
  void report(std::size_t length, std::string message, std::string note) {
    diagnostics_.error(span(length), std::move(message), std::move(note));
  }
  void push(TokenKind kind, std::size_t length) {
    tokens_.push_back({kind, span(length), text_.substr(at_, length)});
    at_ += length;
  }

  std::string_view text_;
  Diagnostics& diagnostics_;
  std::size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

const std::vector<std::string>& keywords() {
  static const std::vector<std::string> words = {"cell", "fn",     "state",      "input", "param",
                                                 "out",  "return", "derivative", "in",    "reverse"};
  return words;
}

std::vector<Token> lex(const SourceText& source, Diagnostics& diagnostics) { return Lexer(source, diagnostics).run(); }

}  // namespace cellc
