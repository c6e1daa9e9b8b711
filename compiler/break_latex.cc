// Lines are filled with pieces: the text between two places where a line may end, which are before a plus or minus and
// in a product. Brackets are such text as well, so a line may end inside of them. Whatever grows with what it holds
// (\left, \frac, \sqrt, cases) holds it on one line; where that is too wide it becomes brackets of one size.
#include "compiler/break_latex.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

namespace cellc {

namespace {

constexpr double kLine = 72;    // letters on a line of 17 cm in 10 pt, with a reserve
constexpr double kIndent = 4;   // of lines but the first
constexpr double kWidest = 44;  // of what grows with what it holds

struct Piece {
  std::string text;
  double width = 0;
};

/// One token of a formula: a command or a letter, and what it holds.
struct Token {
  std::string_view all;                 ///< as it is written
  std::string_view name;                ///< \frac, \left(, …; or the letter
  std::vector<std::string_view> parts;  ///< what it holds
  std::string_view closing;             ///< of \left: what stands behind \right
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool done() const { return at_ >= text_.size(); }

  Token next() {
    const std::size_t begin = at_;
    Token t;
    if (text_[at_] == '{') {
      t.name = "{";
      t.parts.push_back(group());
    } else if (text_[at_] != '\\') {
      t.name = text_.substr(at_++, 1);
      if (t.name == "^" || t.name == "_") t.parts.push_back(group());
    } else {
      t.name = command();
      if (t.name == "\\frac") {
        t.parts.push_back(group());
        t.parts.push_back(group());
      } else if (t.name == "\\sqrt" || t.name == "\\operatorname" || t.name == "\\mathrm" || t.name == "\\text") {
        t.parts.push_back(group());
      } else if (t.name == "\\begin") {
        group();
        t.parts = rows();
      } else if (t.name == "\\left") {
        const std::size_t bracket = at_++;
        t.name = text_.substr(bracket, 1);
        const std::size_t inner = at_;
        skip_to("\\left", "\\right");
        t.parts.push_back(text_.substr(inner, at_ - inner));
        at_ = std::min(at_ + 6, text_.size());
        t.closing = text_.substr(at_, 1);
        at_ = std::min(at_ + 1, text_.size());
        t.all = text_.substr(begin, at_ - begin);
        return t;
      }
    }
    t.all = text_.substr(begin, at_ - begin);
    return t;
  }

 private:
  bool is_at(std::string_view word) const { return text_.substr(at_, word.size()) == word; }

  std::string_view command() {
    const std::size_t begin = at_++;
    if (at_ < text_.size() && !std::isalpha(static_cast<unsigned char>(text_[at_])))
      ++at_;
    else
      while (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_]))) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  /// The inside of a group in braces, or one letter.
  std::string_view group() {
    if (done()) return {};
    if (text_[at_] != '{') return text_.substr(at_++, 1);
    const std::size_t begin = ++at_;
    for (int depth = 1; at_ < text_.size(); ++at_) {
      if (text_[at_] == '{') ++depth;
      if (text_[at_] == '}' && --depth == 0) break;
    }
    const std::string_view inside = text_.substr(begin, at_ - begin);
    at_ = std::min(at_ + 1, text_.size());
    return inside;
  }

  /// To the `end` that belongs to a `begin` before here. \left is no beginning of \leftarrow: nothing here writes one.
  void skip_to(std::string_view begin, std::string_view end) {
    for (int depth = 1; at_ < text_.size(); ++at_) {
      if (is_at(begin)) ++depth;
      if (is_at(end) && --depth == 0) return;
    }
  }

  /// Value and condition of each row of cases, in turn.
  std::vector<std::string_view> rows() {
    const std::size_t begin = at_;
    skip_to("\\begin{cases}", "\\end{cases}");
    const std::string_view inside = text_.substr(begin, at_ - begin);
    at_ = std::min(at_ + std::string_view("\\end{cases}").size(), text_.size());
    std::vector<std::string_view> parts;
    std::size_t from = 0;
    int depth = 0;
    for (std::size_t i = 0; i < inside.size(); ++i) {
      if (inside.substr(i).starts_with("\\begin{cases}")) ++depth;
      if (inside.substr(i).starts_with("\\end{cases}")) --depth;
      if (depth > 0) continue;
      const std::string_view separator = inside.substr(i).starts_with(" & ")     ? " & "
                                         : inside.substr(i).starts_with("\\\\ ") ? "\\\\ "
                                                                                 : "";
      if (separator.empty()) continue;
      parts.push_back(inside.substr(from, i - from));
      from = i + separator.size();
      i = from - 1;
    }
    parts.push_back(inside.substr(from));
    return parts;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

double width_of(std::string_view formula);

double width_of(const Token& t) {
  if (t.name == "\\frac") return std::max(width_of(t.parts[0]), width_of(t.parts[1])) + 0.5;
  if (t.name == "\\begin") {  // values above each other, and conditions beside them
    double columns[2] = {};
    for (std::size_t i = 0; i < t.parts.size(); ++i) columns[i % 2] = std::max(columns[i % 2], width_of(t.parts[i]));
    return columns[0] + columns[1] + 4;
  }
  if (!t.closing.empty()) return width_of(t.parts[0]) + 2;
  if (t.name == "^" || t.name == "_") return 0.75 * width_of(t.parts[0]);
  if (t.name == "\\sqrt") return width_of(t.parts[0]) + 2;
  if (!t.parts.empty()) return width_of(t.parts[0]);
  if (t.name == " ") return 0;
  if (t.name == "\\,") return 0.4;
  if (t.name == "+" || t.name == "-" || t.name == "=" || t.name == "<" || t.name == ">") return 2.5;
  if (t.name[0] == '\\') {  // a function by its letters, any other sign by itself
    for (const std::string_view word : {"\\exp", "\\log", "\\sin", "\\cos", "\\tanh", "\\min", "\\max"})
      if (t.name == word) return static_cast<double>(word.size()) - 1;
    return t.name == "\\sum" || t.name == "\\le" || t.name == "\\ge" || t.name == "\\ne" ? 2.5 : 1.2;
  }
  return 1;
}

double width_of(std::string_view formula) {
  double sum = 0;
  for (Reader reader(formula); !reader.done();) sum += width_of(reader.next());
  return sum;
}

class Pieces {
 public:
  void add(std::string_view formula) {
    bool first = true;
    for (Reader reader(formula); !reader.done(); first = false) {
      const Token t = reader.next();
      if ((t.name == "+" || t.name == "-") && !first && spaced_) cut();
      if (t.name == "\\,") {
        put(t);
        cut();
      } else if (t.name == "," && t.parts.empty()) {
        put(t);
        cut();
      } else {
        token(t);
      }
      spaced_ = t.name == " ";
    }
  }

  std::vector<Piece> take() {
    cut();
    return std::move(pieces_);
  }

 private:
  void token(const Token& t) {
    const double width = width_of(t);
    if (width <= kWidest) {
      put(t);
    } else if (t.name == "\\frac") {
      bracketed("\\bigl[", t.parts[0], "\\bigr]");
      put("\\big/", 1);
      bracketed("\\bigl[", t.parts[1], "\\bigr]");
    } else if (t.name == "\\sqrt") {
      bracketed("\\bigl[", t.parts[0], "\\bigr]^{1/2}");
    } else if (t.name == "\\begin" && t.parts.size() == 4) {
      bracketed("\\operatorname{where}\\bigl(", t.parts[1], ",\\;", 6);
      cut();
      add(t.parts[0]);
      put(",\\;", 1);
      cut();
      bracketed("", t.parts[2], "\\bigr)");
    } else if (!t.closing.empty()) {
      bracketed("\\bigl" + std::string(t.name), t.parts[0], "\\bigr" + std::string(t.closing));
    } else if (t.name == "{") {
      bracketed("\\bigl[", t.parts[0], "\\bigr]");
    } else {
      put(t);
    }
  }

  void bracketed(const std::string& open, std::string_view inside, const std::string& close, double width = 1) {
    put(open, width);
    add(inside);
    put(close, 1);
  }

  void put(const Token& t) { put(std::string(t.all), width_of(t)); }
  void put(const std::string& text, double width) {
    current_.text += text;
    current_.width += width;
    // A space that TeX needs behind a command before a letter.
    if (text.size() > 1 && text[0] == '\\' && std::isalpha(static_cast<unsigned char>(text.back())))
      current_.text += ' ';
  }

  void cut() {
    if (current_.width > 0) pieces_.push_back(std::move(current_));
    current_ = {};
  }

  std::vector<Piece> pieces_;
  Piece current_;
  bool spaced_ = false;
};

}  // namespace

double latex_width(const std::string& formula) { return width_of(formula); }

std::string latex_equation(const std::string& left, const std::string& right) {
  const double begin = latex_width(left) + 2.5;
  if (begin + latex_width(right) <= kLine) return "\\[ " + left + " = " + right + " \\]\n";
  Pieces pieces;
  pieces.add(right);
  std::string text = "\\begin{align*}\n" + left + " ={}& ";
  double filled = std::min(begin, kLine / 2);
  if (begin > kLine / 2) text += "\\\\ & \\quad ", filled = kIndent;
  bool fresh = true;
  for (const Piece& piece : pieces.take()) {
    if (!fresh && filled + piece.width > kLine) {
      text += " \\\\\n & \\quad ";
      filled = kIndent;
    }
    text += piece.text;
    filled += piece.width;
    fresh = false;
  }
  return text + "\n\\end{align*}\n";
}

}  // namespace cellc
