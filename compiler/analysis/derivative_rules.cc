// Kinks (documented in docs/language.md): relu'(0) = 0, abs'(0) = sign(0) = 0; max and min at a tie give the slope to
// their first operand; clip has slope 1 on the closed interval. Comparisons and sign jump.
#include "compiler/analysis/derivative_rules.h"

#include <cmath>
#include <stdexcept>

namespace cellc {

namespace {

using namespace formulas;

struct Slopes {
  int count = 0;
  std::array<Formula, 3> by{};
  template <typename... Each>
  constexpr Slopes(const Each&... each) : count(sizeof...(each)), by{Formula(each)...} {}
};

// The operands, the operator's value at them, and the slope of a jump.
constexpr Formula a = Formula::operand(0), b = Formula::operand(1), c = Formula::operand(2);
constexpr Formula y = Formula::value(), jump = Formula::jump();

constexpr double kBell = 0.39894228040143270286;  // 1/sqrt(2 pi)

// No operator has slopes but by a rule below.
template <Op op>
constexpr Slopes slopes() = delete;
#define SLOPES(Name, ...)               \
  template <>                           \
  constexpr Slopes slopes<Op::Name>() { \
    return {__VA_ARGS__};               \
  }

// clang-format off
//     operator  by a, by b, by c
SLOPES(Add,      1, 1)
SLOPES(Sub,      1, -1)
SLOPES(Mul,      b, a)
SLOPES(Div,      1 / b, -(y / b))
SLOPES(Neg,      -1)
SLOPES(Pow,      b * pow(a, b - 1), y * log(a))
SLOPES(Square,   2 * a)
SLOPES(Exp,      y)
SLOPES(Log,      1 / a)
SLOPES(Sqrt,     0.5 / y)
SLOPES(Rsqrt,    -0.5 * pow(y, 3))
SLOPES(Sin,      cos(a))
SLOPES(Cos,      -sin(a))
SLOPES(Tanh,     1 - square(y))
SLOPES(Sigmoid,  y * (1 - y))
SLOPES(Silu,     sigmoid(a) + y * (1 - sigmoid(a)))
SLOPES(Gelu,     0.5 * (1 + erf(M_SQRT1_2 * a)) + a * (kBell * exp(-0.5 * square(a))))
SLOPES(Softplus, sigmoid(a))
SLOPES(Erf,      M_2_SQRTPI * exp(-square(a)))
SLOPES(Abs,      sign(a))
SLOPES(Relu,     a > 0)
SLOPES(Min,      a <= b, a > b)
SLOPES(Max,      a >= b, a < b)
SLOPES(Clip,     (b <= a) * (a <= c), (a < b) * (b <= c), max(a, b) > c)
SLOPES(Sign,     jump)
SLOPES(Lt,       jump, jump)
SLOPES(Le,       jump, jump)
SLOPES(Gt,       jump, jump)
SLOPES(Ge,       jump, jump)
SLOPES(Eq,       jump, jump)
SLOPES(Ne,       jump, jump)
SLOPES(Where,    jump, where(a, 1, 0), where(a, 0, 1))
SLOPES(StopGradient, 1)
// clang-format on
#undef SLOPES

constexpr Slopes kSlopes[] = {
#define CELLC_OP(Name, ...) slopes<Op::Name>(),
#include "compiler/graph/ops.def"
};

#define CELLC_OP(Name, text, arity, ...) \
  static_assert(slopes<Op::Name>().count == arity, #Name ": a slope for each operand");
#include "compiler/graph/ops.def"

}  // namespace

const Formula& slope_formula(Op op, int i) {
  if (!is_elementwise(op)) throw std::logic_error("slope_formula: not an elementwise operator");
  return kSlopes[static_cast<std::size_t>(op)].by[static_cast<std::size_t>(i)];
}

NodeId slope_of(Graph& graph, NodeId node, int i, SlopeRule rule) {
  const Formula& formula = slope_formula(graph[node].op, i);
  if (!formula.jumps()) return formula.build(graph, node, kNoNode);
  if (rule == SlopeRule::True) return graph.constant(0);
  // None of the cell's own values: sign(h)/sign(h - 1) would cancel against them. The number is one that nobody
  // writes.
  const NodeId opaque = graph.op(Op::Sin, {graph.op(Op::Add, {node, graph.constant(0.7310585786300049)})});
  return formula.build(graph, node, opaque);
}

}  // namespace cellc
