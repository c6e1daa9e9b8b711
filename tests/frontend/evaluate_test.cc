// The plain interpreter, node by node, against numbers worked out by hand.
#include "compiler/graph/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>

#include "compiler/graph/verify.h"
#include "tests/oracle/functions.h"
#include "tests/oracle/known_values.h"

namespace cellc {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

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

/// The operator that the oracle calls `f`: its spelling, but for the unary minus.
std::optional<Op> op_called(const std::string& f, std::size_t operands) {
#define CELLC_OP(Name, text, arity, ...) \
  if (operands == arity && f == (Op::Name == Op::Neg ? "neg" : text)) return Op::Name;
#include "compiler/graph/ops.def"
  return std::nullopt;
}

double folded(Op op, const Data& numbers) {
  Graph graph;
  std::vector<NodeId> args;
  for (double x : numbers) args.push_back(graph.constant(x));
  const NodeId node = graph.op(op, args);
  EXPECT_EQ(graph[node].op, Op::Constant) << op_info(op).name;
  return graph[node].number;
}

TEST(Evaluate, KnownValues) {
  std::set<Op> met;
  for (const oracle::KnownValue& known : oracle::known_values()) {
    const std::optional<Op> op = op_called(known.f, known.args.size());
    ASSERT_TRUE(op) << to_string(known);
    met.insert(*op);
    const double run = run_op(*op, known.args), at_once = folded(*op, known.args);
    const std::optional<double> oracle = oracle::apply(known.f, known.args);
    EXPECT_TRUE(agrees(run, known)) << "evaluated " << to_string(known) << " = " << run;
    EXPECT_TRUE(agrees(at_once, known)) << "folded " << to_string(known) << " = " << at_once;
    ASSERT_TRUE(oracle) << to_string(known);
    EXPECT_TRUE(agrees(*oracle, known)) << "the oracle has " << to_string(known) << " = " << *oracle;
  }
#define CELLC_OP(Name, ...) EXPECT_TRUE(met.count(Op::Name)) << #Name " has no known values";
#include "compiler/graph/ops.def"
}

}  // namespace
}  // namespace cellc
