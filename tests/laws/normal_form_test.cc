// Normal forms are what the cell computes: clips and Möbius maps the update itself, diagonals and outer products the
// Jacobian of the stage; at random points, of every example and test cell that has one.
#include "compiler/analysis/normal_form.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "compiler/analysis/semiring.h"
#include "compiler/front_end.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/graph_walk.h"
#include "tests/generate/semiring_cell.h"
#include "tests/generate/try_cells.h"
#include "tests/oracle/examples.h"

namespace cellc {
namespace {

/// Numbers between 0.2 and 0.9, the same for the same place; below zero some of those that may be.
Environment somewhere(const CellGraph& cell, std::size_t seed) {
  Environment environment;
  std::int64_t length = 2;
  for (const AxisId a : cell.header) environment.sizes[a] = cell.graph.axis(a).fixed.value_or(length++);
  environment.read = [seed, &cell](int symbol, const std::vector<std::int64_t>& position, int lag) {
    std::size_t h = seed * 7919 + static_cast<std::size_t>(symbol) * 104729 + static_cast<std::size_t>(lag) * 1299709;
    for (const std::int64_t p : position) h = h * 31 + static_cast<std::size_t>(p) + 17;
    h = (h ^ (h >> 13)) * 0xbf58476d1ce4e5b9ull;
    const double unit = static_cast<double>((h >> 20) % 100003) / 100003;
    const std::optional<Range>& range = cell.symbols[static_cast<std::size_t>(symbol)].range;
    return (h & 4096 || (range && range->low >= 0) ? 1 : -1) * (0.2 + 0.7 * unit);
  };
  return environment;
}

/// Where two values differ; nothing where they do not.
std::string difference(const CellGraph& cell, NodeId one, NodeId other, const std::vector<AxisId>& axes) {
  for (const std::size_t seed : {1, 2, 3}) {
    Evaluator evaluator(cell, somewhere(cell, seed));
    const Tensor a = evaluator.value_over(one, axes), b = evaluator.value_over(other, axes);
    if (a.data.size() != b.data.size()) return "they have other axes";
    for (std::size_t i = 0; i < a.data.size(); ++i)
      if (!(std::fabs(a.data[i] - b.data[i]) <= 1e-9 * (1 + std::fabs(a.data[i]))))
        return fmt::format("entry {} is {} and {}", i, a.data[i], b.data[i]);
  }
  return {};
}

void expect_equal(const CellGraph& cell, NodeId one, NodeId other, const std::vector<AxisId>& axes,
                  const std::string& what) {
  EXPECT_EQ(difference(cell, one, other, axes), "") << what;
}

NodeId read_of(CellGraph& cell, int update) {
  const int symbol = cell.updates[static_cast<std::size_t>(update)].symbol;
  std::vector<Index> index;
  for (const AxisId a : cell.symbols[static_cast<std::size_t>(symbol)].index) index.push_back({a, 0});
  return cell.graph.read(symbol, index);
}

/// Σ of the form's parts for one pair of states, identities spelled out; kNoNode: there are none.
NodeId spelled_out(CellGraph& cell, const Stage& stage, const JacobianBlock& block) {
  Graph& g = cell.graph;
  const std::vector<AxisId>& column = cell.symbol_of(cell.updates[static_cast<std::size_t>(block.column)]).index;
  const auto tied = [&](NodeId value, bool mixed_too) {
    for (std::size_t p = 0; p < column.size(); ++p) {
      const bool channel =
          std::find(stage.channel_axes.begin(), stage.channel_axes.end(), column[p]) != stage.channel_axes.end();
      if (channel || mixed_too) value = g.op(Op::Mul, {value, g.eye({column[p], 0}, {block.column_axes[p], 0})});
    }
    return value;
  };
  NodeId total = kNoNode;
  const auto add = [&](NodeId value) { total = total == kNoNode ? value : g.op(Op::Add, {total, value}); };
  for (const LowRankForm::Diagonal& d : stage.low_rank->diagonal)
    if (d.row == block.row && d.column == block.column) add(tied(d.coefficient, true));
  for (const LowRankForm::OuterProduct& p : stage.low_rank->products) {
    if (p.row != block.row || p.column != block.column) continue;
    NodeId product = g.op(Op::Mul, {p.left, p.right});
    if (p.through != kNoAxis) product = g.reduce_sum({p.through}, product);
    add(tied(g.op(Op::Mul, {p.scale, product}), false));
  }
  return total;
}

/// The new states of a stage put together of its terms and offsets: what is wrong with them.
std::string wrong_semiring(CellGraph& cell, const Stage& stage) {
  Graph& g = cell.graph;
  for (const int u : stage.states) {
    NodeId total = kNoNode;
    const auto add = [&](NodeId term) {
      total = total == kNoNode ? term : semiring_sum(g, stage.scannable, total, term);
    };
    for (const SemiringMap::Term& t : stage.semiring->terms) {
      if (t.row != u) continue;
      const NodeId read = g.read(cell.updates[static_cast<std::size_t>(t.column)].symbol, t.at);
      add(semiring_sum_over(g, stage.scannable, t.bound, g.op(Op::Add, {t.coefficient, read})));
      for (const int other : stage.states)
        if (depends_on(g, t.coefficient, {cell.updates[static_cast<std::size_t>(other)].symbol}))
          return "a coefficient reads a state";
    }
    for (const SemiringMap::Offset& o : stage.semiring->offsets)
      if (o.row == u) add(o.value);
    const StateUpdate& update = cell.updates[static_cast<std::size_t>(u)];
    if (std::string wrong = difference(cell, update.value, total, cell.symbol_of(update).index); !wrong.empty())
      return cell.symbol_of(update).name + ": " + wrong;
  }
  return {};
}

TEST(NormalForms, AreWhatTheCellComputes) {
  int clips = 0, maps = 0, semirings = 0, blocks = 0, products = 0;
  for (const oracle::Example& example : oracle::all_cells())
    for (const Cell& tree : example.tree.cells) {
      AnalysedCell c = analyse_text(example.source, tree.name);
      CellGraph& cell = c.cell;
      Graph& g = cell.graph;
      for (const Stage& stage : c.structure.stages) {
        EXPECT_EQ(stage.clip.has_value(), stage.scannable == Scannable::Clip) << tree.name;
        EXPECT_EQ(stage.moebius.has_value(), stage.scannable == Scannable::Moebius) << tree.name;
        const StateUpdate& update = cell.updates[static_cast<std::size_t>(stage.states[0])];
        const std::vector<AxisId>& axes = cell.symbol_of(update).index;
        if (const auto& m = stage.clip) {
          ++clips;
          const NodeId s = read_of(cell, stage.states[0]);
          const NodeId affine = g.op(Op::Add, {g.op(Op::Mul, {m->a, s}), m->b});
          expect_equal(cell, update.value, g.op(Op::Clip, {affine, m->low, m->high}), axes, tree.name);
          for (const NodeId part : {m->a, m->b, m->low, m->high})
            EXPECT_FALSE(depends_on(g, part, {update.symbol})) << tree.name;
        }
        if (const auto& m = stage.moebius) {
          ++maps;
          const NodeId s = read_of(cell, stage.states[0]);
          const NodeId above = g.op(Op::Add, {g.op(Op::Mul, {m->a, s}), m->b});
          const NodeId below = g.op(Op::Add, {g.op(Op::Mul, {m->c, s}), m->d});
          expect_equal(cell, update.value, g.op(Op::Div, {above, below}), axes, tree.name);
        }
        EXPECT_EQ(stage.semiring.has_value(), is_semiring(stage.scannable)) << tree.name;
        if (stage.semiring) {
          EXPECT_EQ(wrong_semiring(cell, stage), "") << tree.name;
          semirings += static_cast<int>(stage.states.size());
        }
        if (!stage.low_rank) continue;
        products += static_cast<int>(stage.low_rank->products.size());
        for (const int row : stage.states)
          for (const JacobianBlock& block : c.jacobian.row(row)) {
            if (std::find(stage.states.begin(), stage.states.end(), block.column) == stage.states.end()) continue;
            ++blocks;
            std::vector<AxisId> over = cell.symbol_of(cell.updates[static_cast<std::size_t>(row)]).index;
            over.insert(over.end(), block.column_axes.begin(), block.column_axes.end());
            const NodeId form = spelled_out(cell, stage, block);
            ASSERT_NE(form, kNoNode) << tree.name;
            expect_equal(cell, block_as_node(cell, block), form, over, tree.name);
          }
      }
    }
  EXPECT_GE(clips, 3);
  EXPECT_GE(maps, 1);
  EXPECT_GE(semirings, 8);
  EXPECT_GE(blocks, 8);
  EXPECT_GE(products, 12);
}

Stage only_stage(CellGraph& cell, const std::string& text) {
  AnalysedCell c = analyse_text(SourceText("c.cell", text));
  cell = std::move(c.cell);
  return c.structure.stages.at(0);
}

// CELLC_CELLS=30000 test_laws --gtest_filter='NormalForms.OfRandomSemirings' goes through many more.
TEST(NormalForms, OfRandomSemirings) {
  const generate::Seeds seeds(300);
  std::map<Scannable, int> found;
  int stages = 0;
  generate::try_seeds(
      seeds, generate::semiring_cell,
      [&](const std::string& text, std::uint64_t, bool again) -> std::string {
        AnalysedCell c = analyse_text(SourceText("random.cell", text));
        for (const Stage& stage : c.structure.stages) {
          if (!again) ++stages, ++found[stage.semiring ? stage.scannable : Scannable::No];
          if (!stage.semiring) continue;
          if (std::string wrong = wrong_semiring(c.cell, stage); !wrong.empty()) return wrong;
        }
        return {};
      },
      "test_laws --gtest_filter='NormalForms.OfRandomSemirings'", [](const std::string& why) { ADD_FAILURE() << why; });
  if (seeds.count < 100) return;
  // The generator must not degenerate.
  for (const Scannable kind : {Scannable::MaxPlus, Scannable::MinPlus, Scannable::LogPlus})
    EXPECT_GE(found[kind], stages / 20) << to_string(kind);
  EXPECT_GE(found[Scannable::LogPlus], stages / 4);
}

// What two of a kind are written as.
TEST(NormalForms, TheGreaterAndTheSmallerAreTheTwo) {
  for (const char* value : {
           "max(h + a, x) + log(1 + exp(-abs(h + a - x)))",
           "log(exp(-abs(x - a - h)) + 1) + max(x, a + h)",
           "max(h + a, x) + softplus(-abs(x - h - a))",
           "min(h + a, x) + log(1 + exp(abs(h + a - x)))",
           "max(h, x) + log(1 + exp(min(h, x) - max(h, x)))",
           "where(h > x, h + log(1 + exp(x - h)), x + log(1 + exp(h - x)))",
           "log(exp(h + a) + exp(x))",
           "softplus(softplus(h + x))",
           "log(exp(h) + exp(h - a) + 1)",
       }) {
    CellGraph cell;
    const Stage stage =
        only_stage(cell, std::string("cell c {\n  state h\n  input x\n  param a\n  h' = ") + value + "\n}\n");
    EXPECT_EQ(stage.scannable, Scannable::LogPlus) << value;
    if (stage.semiring) {
      EXPECT_EQ(wrong_semiring(cell, stage), "") << value;
    }
  }
  // Of other two, or another way round, it is something else.
  for (const char* value : {"max(h, x) + log(1 + exp(-abs(h - a)))", "max(h, x) + log(1 + exp(abs(h - x)))",
                            "min(h, x) + log(1 + exp(-abs(h - x)))", "max(h, x) - log(1 + exp(-abs(h - x)))",
                            "where(h > x, h + log(1 + exp(x - h)), x + log(1 + exp(x - h)))"}) {
    CellGraph cell;
    EXPECT_EQ(
        only_stage(cell, std::string("cell c {\n  state h\n  input x\n  param a\n  h' = ") + value + "\n}\n").scannable,
        Scannable::No)
        << value;
  }
}

// One clip of a clip is one clip; a factor below zero turns the interval round, and a factor of zero closes it.
TEST(NormalForms, NestedClipsBecomeOne) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  for (const char* value : {"relu(a*h + x)", "min(a*relu(0.5*h + x) - 1, x)", "max(x - 2*min(h, a), 0.1)",
                            "clip(0.3*h, -1, 1) + x", "relu(relu(h - a) - a)", "x - relu(h)", "max(0.9*h, x)"}) {
    CellGraph cell;
    const Stage stage =
        only_stage(cell, std::string("cell c {\n  state h\n  input x\n  param a\n  h' = ") + value + "\n}\n");
    ASSERT_TRUE(stage.clip) << value;
    Graph& g = cell.graph;
    const NodeId affine = g.op(Op::Add, {g.op(Op::Mul, {stage.clip->a, read_of(cell, 0)}), stage.clip->b});
    expect_equal(cell, cell.updates[0].value, g.op(Op::Clip, {affine, stage.clip->low, stage.clip->high}), {}, value);
  }
  CellGraph cell;
  const Stage relu = only_stage(cell, "cell c {\n  state h\n  input x\n  param a\n  h' = relu(a*h + x)\n}\n");
  EXPECT_EQ(cell.graph[relu.clip->a].op, Op::Read);
  EXPECT_EQ(cell.graph[relu.clip->b].op, Op::Read);
  EXPECT_TRUE(cell.graph.is_constant(relu.clip->low, 0));
  EXPECT_TRUE(cell.graph.is_constant(relu.clip->high, infinite));
}

TEST(NormalForms, SizesAreExpressions) {
  CellGraph cell;
  const Stage stage = only_stage(cell,
                                 "cell c[k, d] {\n  state h[k], g\n  param U[k,k], w[k]\n"
                                 "  h' = tanh(U@h) + g\n  g' = 0.5*g + sum[k](w*h)\n}\n");
  EXPECT_EQ(stage.block.text, "k + 1");
  EXPECT_FALSE(stage.block.number);
  ASSERT_EQ(stage.block.terms.size(), 2u);
  EXPECT_EQ(stage.block.value({{cell.header[0], 7}, {cell.header[1], 3}}), 8);
  EXPECT_EQ(stage.mask, (Mask{{Coupling::Full, Coupling::Diagonal}, {Coupling::Full, Coupling::Diagonal}}));
}

}  // namespace
}  // namespace cellc
