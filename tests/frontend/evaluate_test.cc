// The plain interpreter, node by node, against numbers worked out by hand.
#include "compiler/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/verify.h"

namespace cellc {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

/// A cell with one matrix A[n,m] and one input x[n]; A's entries are 10*row + column + 1, and the
/// input's are 100*lag + position.
struct Fixture {
  CellGraph cell;
  AxisId n, m;
  NodeId a, x;

  Fixture() {
    n = cell.graph.add_header_axis("n", std::nullopt);
    m = cell.graph.add_header_axis("m", 3);
    cell.header = {n, m};
    cell.symbols.resize(2);
    cell.symbols[0].name = "A";
    cell.symbols[0].kind = SymbolKind::Param;
    cell.symbols[0].axes = cell.symbols[0].index = {n, m};
    cell.symbols[1].name = "x";
    cell.symbols[1].axes = cell.symbols[1].index = {n};
    a = cell.graph.read(0, {{n, 0}, {m, 0}});
    x = cell.graph.read(1, {{n, 0}});
  }
  Environment environment(std::int64_t length = 2) {
    Environment e;
    e.sizes[n] = length;
    e.read = [](int symbol, const std::vector<std::int64_t>& p, int lag) {
      return symbol == 0 ? 10.0 * p[0] + p[1] + 1 : 100.0 * lag + p[0];
    };
    return e;
  }
  std::vector<double> value(NodeId node, std::int64_t length = 2) {
    verify(cell);
    Evaluator evaluator(cell, environment(length));
    return evaluator.value(node).data;
  }
};

using Data = std::vector<double>;

TEST(Evaluate, ReadsAndBroadcasts) {
  Fixture f;
  EXPECT_EQ(f.value(f.a), (Data{1, 2, 3, 11, 12, 13}));
  EXPECT_EQ(f.value(f.cell.graph.op(Op::Sub, {f.a, f.x})), (Data{1, 2, 3, 10, 11, 12}));
  EXPECT_EQ(f.value(f.cell.graph.read(0, {{kNoAxis, 1}, {f.m, 0}})), (Data{11, 12, 13}));
}

TEST(Evaluate, Reductions) {
  Fixture f;
  Graph& g = f.cell.graph;
  EXPECT_EQ(f.value(g.reduce_sum({f.m}, f.a)), (Data{6, 36}));
  EXPECT_EQ(f.value(g.reduce_sum({f.n}, f.a)), (Data{12, 14, 16}));
  EXPECT_EQ(f.value(g.reduce_max({f.n, f.m}, f.a)), (Data{13}));
  EXPECT_EQ(f.value(g.reduce_sum({f.m}, f.x)), (Data{0, 3}));
  EXPECT_EQ(f.value(g.reduce_sum({f.n}, f.x), 0), (Data{0}));
  EXPECT_EQ(f.value(g.reduce_max({f.n}, f.x), 0), (Data{-kInf}));
  EXPECT_EQ(f.value(f.a, 0), Data{});
  const Data soft = f.value(g.softmax({f.n}, f.a));
  EXPECT_NEAR(soft[0], 1 / (1 + std::exp(10.0)), 1e-15);
  EXPECT_NEAR(soft[3], 1 / (1 + std::exp(-10.0)), 1e-15);
}

TEST(Evaluate, ReindexOfACompoundValue) {
  Fixture f;
  Graph& g = f.cell.graph;
  const AxisId i = g.renamed_axis("i", f.n);
  const NodeId twice = g.op(Op::Mul, {f.a, g.constant(2)});
  EXPECT_EQ(f.value(g.reindex(twice, {{f.m, {kNoAxis, 1}}})), (Data{4, 24}));
  // Renamed to an axis that sorts after m, the rows run innermost.
  EXPECT_EQ(f.value(g.reindex(twice, {{f.n, {i, 0}}})), (Data{2, 22, 4, 24, 6, 26}));
  const NodeId outer = g.op(Op::Sub, {f.x, g.read(1, {{i, 0}})});
  const NodeId swapped = g.reindex(outer, {{f.n, {i, 0}}, {i, {f.n, 0}}});
  EXPECT_EQ(f.value(outer), (Data{0, -1, 1, 0}));
  EXPECT_EQ(f.value(swapped), (Data{0, 1, -1, 0}));
  EXPECT_EQ(f.value(g.reindex(outer, {{i, {f.n, 0}}})), (Data{0, 0}));
}

TEST(Evaluate, LeavesWithoutSymbols) {
  Fixture f;
  Graph& g = f.cell.graph;
  const AxisId i = g.copy_axis(f.n, 1);
  EXPECT_EQ(f.value(g.eye({f.n, 0}, {i, 0})), (Data{1, 0, 0, 1}));
  EXPECT_EQ(f.value(g.eye({f.m, 0}, {kNoAxis, 2})), (Data{0, 0, 1}));
  EXPECT_EQ(f.value(g.size(f.n), 5), (Data{5}));
  EXPECT_EQ(f.value(g.size(f.m)), (Data{3}));
}

TEST(Evaluate, Lags) {
  Fixture f;
  Graph& g = f.cell.graph;
  EXPECT_EQ(f.value(g.read(1, {{f.n, 0}}, {}, 2)), (Data{200, 201}));
  EXPECT_EQ(f.value(g.read(1, {{f.n, 0}}, {}, 1, f.m)), (Data{100, 200, 300, 101, 201, 301}));
}

TEST(Evaluate, LaidOutOverMoreAxes) {
  Fixture f;
  Evaluator evaluator(f.cell, f.environment());
  const Tensor t = evaluator.value_over(f.x, {f.m, f.n});
  EXPECT_EQ(t.shape, (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(t.data, (Data{0, 1, 0, 1, 0, 1}));
}

TEST(Evaluate, EntriesPastTheEndAreSaid) {
  Fixture f;
  EXPECT_THROW(f.value(f.cell.graph.read(1, {{kNoAxis, 2}})), std::invalid_argument);
  EXPECT_THROW(f.value(f.cell.graph.eye({f.n, 0}, {kNoAxis, 9})), std::invalid_argument);
}

/// `op` of numbers that the graph cannot fold.
double run_op(Op op, const Data& numbers) {
  CellGraph cell;
  std::vector<NodeId> args;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    cell.symbols.emplace_back().name = std::to_string(i);
    args.push_back(cell.graph.read(static_cast<int>(i), {}));
  }
  const NodeId node = cell.graph.op(op, args);
  Environment e;
  e.read = [&](int symbol, const std::vector<std::int64_t>&, int) { return numbers[symbol]; };
  return Evaluator(cell, e).value(node).data[0];
}

TEST(Evaluate, NotANumber) {
  for (Op op :
       {Op::Neg, Op::Square, Op::Exp, Op::Log, Op::Sqrt, Op::Rsqrt, Op::Sin, Op::Cos, Op::Tanh, Op::Sigmoid,
        Op::Silu, Op::Gelu, Op::Softplus, Op::Erf, Op::Abs, Op::Relu, Op::Sign, Op::StopGradient})
    EXPECT_TRUE(std::isnan(run_op(op, {kNan}))) << op_info(op).name;
  for (Op op : {Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Min, Op::Max}) {
    EXPECT_TRUE(std::isnan(run_op(op, {kNan, 1}))) << op_info(op).name;
    EXPECT_TRUE(std::isnan(run_op(op, {1, kNan}))) << op_info(op).name;
  }
  EXPECT_TRUE(std::isnan(run_op(Op::Clip, {kNan, 0, 1})));
  EXPECT_EQ(run_op(Op::Where, {kNan, 2, 3}), 2);
  EXPECT_EQ(run_op(Op::Lt, {kNan, 1}), 0);
  EXPECT_EQ(run_op(Op::Ne, {kNan, kNan}), 1);
}

TEST(Evaluate, FarOut) {
  EXPECT_EQ(run_op(Op::Sigmoid, {-1000}), 0);
  EXPECT_EQ(run_op(Op::Sigmoid, {1000}), 1);
  EXPECT_EQ(run_op(Op::Sigmoid, {-kInf}), 0);
  EXPECT_GT(run_op(Op::Sigmoid, {-700}), 0);
  EXPECT_EQ(run_op(Op::Softplus, {1000}), 1000);
  EXPECT_NEAR(run_op(Op::Softplus, {-700}), std::exp(-700.0), 1e-310);
  EXPECT_EQ(run_op(Op::Softplus, {kInf}), kInf);
  EXPECT_EQ(run_op(Op::Silu, {1000}), 1000);
  EXPECT_EQ(run_op(Op::Silu, {-1000}), 0);
  EXPECT_EQ(run_op(Op::Gelu, {100}), 100);
  EXPECT_LT(run_op(Op::Gelu, {-10}), 0);
  EXPECT_EQ(run_op(Op::Rsqrt, {4}), 0.5);
  EXPECT_EQ(run_op(Op::Rsqrt, {0}), kInf);
  EXPECT_EQ(run_op(Op::Sign, {0}), 0);
  EXPECT_EQ(run_op(Op::Sign, {-kInf}), -1);
  EXPECT_EQ(run_op(Op::Clip, {7, -1, 1}), 1);
  EXPECT_EQ(run_op(Op::Where, {-0.0, 2, 3}), 3);
  EXPECT_EQ(run_op(Op::Relu, {-2}), 0);
}

// Folding at compile time and running must not differ.
TEST(Evaluate, AgreesWithConstantFolding) {
  const Data numbers = {-3, -0.5, 0, 0.25, 1, 40, -800, 800, kInf, -kInf, kNan};
#define CELLC_OP(Name, text, arity, call, slope, latex)                                            \
  for (double x : numbers)                                                                         \
    for (double y : numbers) {                                                                     \
      Data args = {x, y, 1.5};                                                                     \
      args.resize(arity);                                                                          \
      Graph graph;                                                                                 \
      std::vector<NodeId> nodes;                                                                   \
      for (double a : args) nodes.push_back(graph.constant(a));                                    \
      const double folded = graph[graph.op(Op::Name, nodes)].number, run = run_op(Op::Name, args); \
      if (std::isnan(folded) || std::isnan(run) || std::isinf(folded) || std::isinf(run))          \
        EXPECT_TRUE(folded == run || (std::isnan(folded) && std::isnan(run)))                      \
            << #Name << ' ' << x << ' ' << y << ": " << folded << ' ' << run;                      \
      else                                                                                         \
        EXPECT_NEAR(folded, run, 4e-15 * std::fabs(folded)) << #Name << ' ' << x << ' ' << y;      \
    }
#include "compiler/ops.def"
#undef CELLC_OP
}

}  // namespace
}  // namespace cellc
