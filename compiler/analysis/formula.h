#pragma once
// Formulas over the operands and the value of one operator: what derivative_rules.cc is written in. A formula is a
// constant of the compiler, so it can be asked what it reads; build() makes it nodes of a graph.
#include <array>
#include <initializer_list>

#include "compiler/graph/graph.h"

namespace cellc {

/// In postfix order, which is the order in which build() makes nodes: operands from left to right, of a product from
/// right to left. It decides the order of statements in emitted code.
class Formula {
 public:
  struct Token {
    enum Kind { Number, Operand, Value, Jump, Apply } kind = Number;
    double number = 0;
    int operand = 0;
    Op op = Op::Constant;
  };

  constexpr Formula() = default;
  constexpr Formula(double number) { append({Token::Number, number}); }
  static constexpr Formula operand(int i) { return Formula(Token{Token::Operand, 0, i}); }
  /// The operator's own value.
  static constexpr Formula value() { return Formula(Token{Token::Value}); }
  /// The slope of a step: 0, but where a dependence may not be lost something that is not.
  static constexpr Formula jump() { return Formula(Token{Token::Jump}); }
  static constexpr Formula apply(Op op, std::initializer_list<Formula> operands) {
    Formula result;
    const auto take = [&result](const Formula& f) {
      for (int i = 0; i < f.size_; ++i) result.append(f.tokens_[i]);
    };
    if (op == Op::Mul)
      for (auto f = operands.end(); f != operands.begin();) take(*--f);
    else
      for (const Formula& f : operands) take(f);
    result.append({Token::Apply, 0, 0, op});
    const bool compares = op >= Op::Lt && op <= Op::Ne;
    result.chooses_ = compares || op == Op::Mul;
    if (op == Op::Mul)
      for (const Formula& f : operands) result.chooses_ = result.chooses_ && f.chooses_;
    return result;
  }

  /// 1 for what is taken and 0 for what is not: comparisons, and products of them.
  constexpr bool chooses() const { return chooses_; }
  constexpr bool reads_operand(int i) const {
    for (int k = 0; k < size_; ++k)
      if (tokens_[k].kind == Token::Operand && tokens_[k].operand == i) return true;
    return false;
  }
  constexpr bool reads_value() const { return has(Token::Value); }
  constexpr bool jumps() const { return has(Token::Jump); }

  /// The formula at `node`, an elementwise operator of `graph`. `jump` stands for jump(). A factor of 0 or 1 is
  /// worked out.
  NodeId build(Graph& graph, NodeId node, NodeId jump) const;

 private:
  constexpr explicit Formula(Token token) { append(token); }
  constexpr void append(Token token) { tokens_.at(static_cast<std::size_t>(size_++)) = token; }
  constexpr bool has(Token::Kind kind) const {
    for (int k = 0; k < size_; ++k)
      if (tokens_[k].kind == kind) return true;
    return false;
  }

  std::array<Token, 24> tokens_{};
  int size_ = 0;
  bool chooses_ = false;
};

// Signs and functions of the language, as in a cell.
constexpr Formula operator+(const Formula& a, const Formula& b) { return Formula::apply(Op::Add, {a, b}); }
constexpr Formula operator-(const Formula& a, const Formula& b) { return Formula::apply(Op::Sub, {a, b}); }
constexpr Formula operator*(const Formula& a, const Formula& b) { return Formula::apply(Op::Mul, {a, b}); }
constexpr Formula operator/(const Formula& a, const Formula& b) { return Formula::apply(Op::Div, {a, b}); }
constexpr Formula operator-(const Formula& a) { return Formula::apply(Op::Neg, {a}); }
constexpr Formula operator<(const Formula& a, const Formula& b) { return Formula::apply(Op::Lt, {a, b}); }
constexpr Formula operator<=(const Formula& a, const Formula& b) { return Formula::apply(Op::Le, {a, b}); }
constexpr Formula operator>(const Formula& a, const Formula& b) { return Formula::apply(Op::Gt, {a, b}); }
constexpr Formula operator>=(const Formula& a, const Formula& b) { return Formula::apply(Op::Ge, {a, b}); }

namespace formulas {
#define CELLC_DECLARE_1(Name, text) \
  constexpr Formula text(const Formula& a) { return Formula::apply(Op::Name, {a}); }
#define CELLC_DECLARE_2(Name, text) \
  constexpr Formula text(const Formula& a, const Formula& b) { return Formula::apply(Op::Name, {a, b}); }
#define CELLC_DECLARE_3(Name, text)                                              \
  constexpr Formula text(const Formula& a, const Formula& b, const Formula& c) { \
    return Formula::apply(Op::Name, {a, b, c});                                  \
  }
#define CELLC_CALL(Name, text, arity, ...) CELLC_DECLARE_##arity(Name, text)
#include "compiler/graph/ops.def"
#undef CELLC_DECLARE_1
#undef CELLC_DECLARE_2
#undef CELLC_DECLARE_3
}  // namespace formulas

}  // namespace cellc
