#pragma once
// Inside of the parser: one class over the tokens of a file. parse.cc reads files, cells and
// functions and recovers from errors; parse_line.cc reads header axes, declarations and lines;
// parse_expression.cc reads expressions; parse_hint.cc recognises common mistakes. Other files
// use parse.h.
#include <string>
#include <vector>

#include "compiler/syntax/lex.h"
#include "compiler/syntax/parse.h"

namespace cellc {

// An expression's tree is as deep as its longest chain of operators, and every later stage walks
// it recursively (so do the destructors): these two keep that safe on an 8 MiB stack, also with
// the large frames of a build with sanitizers.
inline constexpr int kMaxExpressionDepth = 1'000;
inline constexpr int kMaxExpressionNodes = 10'000;
inline constexpr int kMaxExponent = 1'000;
inline constexpr std::int64_t kMaxAxisLength = 2'147'483'647;

class Parser {
 public:
  Parser(const SourceText& source, std::vector<Token> tokens, Diagnostics& diagnostics);
  File parse_file();

 private:
  /// Thrown after the error has been reported; caught where reading can go on.
  struct SyntaxError {};
  /// Thrown where reading more would only repeat errors.
  struct GiveUp {};
  struct Sub {
    ExprPtr expr;
    int depth = 1;  ///< of the tree below `expr`
  };
  struct IndexList {
    bool present = false;
    std::vector<IndexEntry> entries;
  };
  struct Nested;  // one level of parentheses, brackets or prefix operators

  // Tokens (parse.cc) --------------------------------------------------------------------------
  const Token& peek();                     ///< inside parentheses, line ends are passed over
  const Token& peek_after(std::size_t n);  ///< n tokens further, line ends counted
  const Token& take();
  bool at(TokenKind kind) { return peek().kind == kind; }
  bool at_keyword(std::string_view word) { return at(TokenKind::Keyword) && peek().text == word; }
  bool accept(TokenKind kind);
  void skip_newlines();
  bool ends_line(const Token& token) const;
  bool starts_line(std::size_t position) const;
  std::size_t line_begun_before(std::size_t assign) const;
  Span span_from(std::uint32_t offset) const;  ///< up to the last token taken
  std::string line_of(std::uint32_t offset) const;

  // Errors ---------------------------------------------------------------------------------------
  [[noreturn]] void fail(Span span, std::string message, std::string note = {});
  /// "expected …, found …" at the next token, with a note for what is often meant by it.
  [[noreturn]] void fail_expected(const std::string& what, std::string note = {});
  [[noreturn]] void fail_unclosed(const Token& open, const std::string& what);
  std::string describe(const Token& token) const;
  /// `after_value`: where an operator could stand. parse_hint.cc
  std::string hint(const Token& found, bool after_value = false) const;
  void recover(std::size_t start);
  void skip_to_top_level();

  // File (parse.cc) ------------------------------------------------------------------------------
  void parse_top_level(File& file);
  void parse_cell(File& file);
  void parse_cell_body(Cell& cell, const Token& open);
  [[noreturn]] void fail_statement();
  void parse_function(File& file);
  void parse_function_body(Function& function, const Token& open);
  void parse_derivative(Function& function);
  bool body_ends(const Token& open, const std::string& what);
  bool skip_to_body();
  void end_of_line();

  // Headers, declarations, lines (parse_line.cc) -----------------------------------------------------
  Token expect_name(const std::string& what);
  std::vector<HeaderAxis> parse_header_axes(bool fixed_allowed);
  HeaderAxis parse_header_axis(bool fixed_allowed);
  void parse_declarations(std::vector<Declaration>& into);
  Declaration parse_declaration(SymbolKind kind, const std::string& word);
  Range parse_range();
  double parse_range_bound();
  Line parse_line();
  Target parse_target();

  // Expressions (parse_expression.cc) --------------------------------------------------------------
  ExprPtr parse_whole_expression();
  std::vector<ExprPtr> parse_expressions();
  Sub parse_expression() { return parse_comparison(); }
  Sub parse_comparison();
  Sub parse_sum();
  Sub parse_product();
  Sub parse_unary();
  Sub parse_contraction();
  Sub parse_power();
  double parse_exponent();
  Sub parse_primary();
  Sub parse_parenthesised();
  Sub parse_named();
  void parse_arguments(Expr& call, int& depth);
  IndexList parse_index_list(const std::string& of, bool integers_allowed);
  void check_named(const Expr& named, bool called);
  Sub leaf(ExprKind kind, const Token& token);
  Sub binary(const Token& sign, Sub left, Sub right, std::uint32_t begin);
  Sub node(Sub made);

  const SourceText& source_;
  std::vector<Token> tokens_;
  Diagnostics& diagnostics_;
  std::size_t at_ = 0;
  std::size_t last_ = 0;  ///< the token taken last
  int brackets_ = 0;      ///< open parentheses and brackets: line ends do not count inside
  int nesting_ = 0;
  int nodes_ = 0;
};

}  // namespace cellc
