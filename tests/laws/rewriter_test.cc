// Rewrites and walks of graphs: what no rule speaks of stays as it is, at any depth, whichever policy for what only
// gradients need.
#include "compiler/graph/rewriter.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/graph/lower.h"
#include "compiler/inspect.h"
#include "compiler/syntax/parse.h"

namespace cellc {
namespace {

std::vector<CellGraph> cells_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  const SourceText source(path.string(), text.str());
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  return lower_all(file, diagnostics);
}

std::vector<CellGraph> all_cells() {
  std::vector<CellGraph> all;
  for (const char* folder : {"dsl-examples", "tests/cells"})
    for (const auto& entry : std::filesystem::directory_iterator(std::string(CELLC_SOURCE_DIR) + "/" + folder))
      if (entry.path().extension() == ".cell")
        for (CellGraph& cell : cells_of(entry.path())) all.push_back(std::move(cell));
  return all;
}

std::vector<NodeId> roots_of(const CellGraph& cell) {
  std::vector<NodeId> roots;
  for (const StateUpdate& u : cell.updates) roots.push_back(u.value);
  for (const Out& o : cell.outs) roots.push_back(o.value);
  for (const Symbol& s : cell.symbols)
    if (s.initial != kNoNode) roots.push_back(s.initial);
  return roots;
}

void expect_same(const Node& a, const Node& b, const Rewriter& rewriter) {
  EXPECT_EQ(a.op, b.op);
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(a.symbol, b.symbol);
  EXPECT_EQ(a.index, b.index);
  EXPECT_EQ(a.lag, b.lag);
  EXPECT_EQ(a.lag_axis, b.lag_axis);
  EXPECT_EQ(a.map, b.map);
  EXPECT_EQ(a.bound, b.bound);
  EXPECT_EQ(a.axes, b.axes);
  EXPECT_EQ(a.span.offset, b.span.offset);
  ASSERT_EQ(a.args.size(), b.args.size());
  for (std::size_t i = 0; i < a.args.size(); ++i) EXPECT_EQ(rewriter.image(a.args[i]), b.args[i]);
}

TEST(Rewriter, WithoutRulesMakesAnEqualGraph) {
  std::size_t nodes = 0;
  for (const CellGraph& cell : all_cells()) {
    const std::vector<NodeId> roots = roots_of(cell), needed = reachable(cell.graph, roots);
    Graph copy = cell.graph.without_nodes();
    Rewriter rewriter(cell.graph, copy);
    const std::vector<NodeId> images = rewriter(roots);
    ASSERT_EQ(copy.size(), needed.size()) << cell.name;
    for (std::size_t i = 0; i < needed.size(); ++i) {
      ASSERT_EQ(rewriter.image(needed[i]), i) << cell.name;  // the order is kept as well
      expect_same(cell.graph[needed[i]], copy[static_cast<NodeId>(i)], rewriter);
    }
    for (std::size_t i = 0; i < roots.size(); ++i) EXPECT_EQ(images[i], rewriter.image(roots[i]));
    nodes += needed.size();
  }
  EXPECT_GT(nodes, 1000u);
}

TEST(Rewriter, WithoutRulesChangesNothingInPlace) {
  for (CellGraph& cell : all_cells()) {
    const std::string before = print_graph(cell);
    const std::size_t size = cell.graph.size();
    const std::vector<NodeId> roots = roots_of(cell);
    EXPECT_EQ(Rewriter(cell.graph, cell.graph)(roots), roots);
    EXPECT_EQ(cell.graph.size(), size);
    EXPECT_EQ(print_graph(cell), before);
  }
}

/// sqrt(sqrt(… x)), of so many nodes.
NodeId chain(Graph& g, int count) {
  NodeId value = g.read(0, {});
  for (int i = 0; i < count; ++i) value = g.op(i % 2 ? Op::Sqrt : Op::Tanh, {value});
  return value;
}

constexpr int kDeep = 100'000;

TEST(Rewriter, GraphsMayBeDeeperThanAnyStack) {
  Graph g, copy;
  const NodeId root = chain(g, kDeep);
  EXPECT_EQ(Rewriter(g, copy)(root), root);
  EXPECT_EQ(copy.size(), g.size());
  EXPECT_EQ(reachable(g, {root}).size(), g.size());
  EXPECT_TRUE(depends_on(g, root, {0}));
  EXPECT_FALSE(depends_on(g, root, {1}));
  // From the other end, where what a node needs comes last.
  Graph late;
  int made = 0;
  std::vector<char> done(kDeep, 0);
  postorder(
      0,
      [](NodeId id, std::vector<NodeId>& needs) {
        if (id + 1 < kDeep) needs.push_back(id + 1);
      },
      [&](NodeId id) { return done[id] != 0; },
      [&](NodeId id) {
        EXPECT_TRUE(id + 1 == kDeep || done[id + 1]);
        done[id] = 1;
        ++made;
      });
  EXPECT_EQ(made, kDeep);
}

TEST(Rewriter, DeclaredDerivativesAreKeptOrLeftOut) {
  Graph g;
  const NodeId x = g.read(0, {}), slope = g.op(Op::Exp, {x});
  const NodeId value = g.op(Op::Sign, {x}), declared = g.surrogate(value, {x}, {slope});
  const NodeId root = g.op(Op::Add, {declared, g.op(Op::StopGradient, {x})});
  {
    Graph kept;
    const NodeId image = Rewriter(g, kept)(root);
    EXPECT_EQ(kept[kept[image].args[0]].op, Op::Surrogate);
    EXPECT_EQ(kept[kept[image].args[1]].op, Op::StopGradient);
    EXPECT_EQ(kept.size(), g.size());
  }
  {
    Graph runs;
    const NodeId image = Rewriter(g, runs, {.slopes = DeclaredSlopes::LeftOut})(root);
    EXPECT_EQ(runs[runs[image].args[0]].op, Op::Sign);
    EXPECT_EQ(runs[runs[image].args[1]].op, Op::StopGradient);
    for (NodeId id = 0; id < runs.size(); ++id) EXPECT_NE(runs[id].op, Op::Exp) << "a slope is no part of what runs";
  }
  {
    Graph runs;
    const NodeId image = Rewriter(g, runs, {.slopes = DeclaredSlopes::LeftOut, .drop_stop_gradient = true})(root);
    EXPECT_EQ(runs[runs[image].args[1]].op, Op::Read);
    EXPECT_EQ(runs.size(), 3u);
  }
  EXPECT_EQ(reachable(g, {declared}), (std::vector<NodeId>{x, slope, value, declared}));
  EXPECT_EQ(reachable(g, {declared}, DeclaredSlopes::LeftOut), (std::vector<NodeId>{x, value, declared}));
}

TEST(Rewriter, RulesChangeWhatTheySpeakOf) {
  Graph g;
  const NodeId x = g.read(0, {}), y = g.read(1, {});
  const NodeId deep = g.op(Op::Exp, {g.op(Op::Tanh, {y})});
  const NodeId root = g.op(Op::Add, {g.op(Op::Mul, {x, y}), deep});
  {
    // Symbols that become one make equal values one: x*y + … = x*x + …
    Graph copy;
    const NodeId image = Rewriter(g, copy, {.symbol = [](int) { return 7; }})(root);
    const Node& product = copy[copy[image].args[0]];
    EXPECT_EQ(product.args[0], product.args[1]);
    EXPECT_EQ(copy[product.args[0]].symbol, 7);
  }
  {
    // Below an end nothing is copied.
    Graph copy;
    RewriteRules rules;
    rules.ends = [&](NodeId id) { return id == deep; };
    rules.replace = [&](NodeId id, const Node&) { return id == deep ? copy.constant(3) : kNoNode; };
    const NodeId image = Rewriter(g, copy, std::move(rules))(root);
    EXPECT_TRUE(copy.is_constant(copy[image].args[1], 3));
    EXPECT_EQ(copy.size(), 5u);
  }
  {
    RewriteRules rules;
    Graph copy;
    rules.by_kind[Op::Tanh] = [&](const Node&, const std::vector<NodeId>& args) {
      return copy.op(Op::Sigmoid, {args[0]});
    };
    const NodeId image = Rewriter(g, copy, std::move(rules))(root);
    EXPECT_EQ(copy[copy[copy[image].args[1]].args[0]].op, Op::Sigmoid);
  }
}

TEST(Rewriter, ImagesAreMadeOnceAndKept) {
  Graph g, copy;
  const NodeId x = g.read(0, {}), shared = g.op(Op::Exp, {x});
  const NodeId first = g.op(Op::Add, {shared, x}), second = g.op(Op::Sub, {shared, x});
  Images kept;
  int looked_at = 0;
  const auto count = [&](NodeId, const Node&) {
    ++looked_at;
    return kNoNode;
  };
  Rewriter(g, copy, {.replace = count}, &kept)(first);
  EXPECT_EQ(looked_at, 3);
  Rewriter(g, copy, {.replace = count}, &kept)(second);
  EXPECT_EQ(looked_at, 4);
  EXPECT_EQ(kept.size(), 4u);
}

TEST(Rewriter, AnyRuleMayEndIt) {
  Graph g, copy;
  const NodeId root = chain(g, 10);
  int budget = 4;
  EXPECT_EQ(Rewriter(g, copy, {.may_continue = [&] { return budget-- > 0; }})(root), kNoNode);
  EXPECT_EQ(copy.size(), 4u);
  const auto fails = [&](NodeId id, const Node&) { return id == 7 ? kNoImage : kNoNode; };
  Rewriter rewriter(g, copy, {.replace = fails});
  EXPECT_EQ(rewriter(root), kNoNode);
  EXPECT_NE(rewriter(6), kNoNode);
  EXPECT_EQ(rewriter(7), kNoNode);
}

TEST(Rewriter, NeedsBesideOperandsComeFirst) {
  // Node 0 stands for the value behind it, which has a larger id.
  Graph g, copy;
  const NodeId early = g.read(0, {}), user = g.op(Op::Exp, {early});
  const NodeId behind = g.op(Op::Tanh, {g.read(1, {})});
  RewriteRules rules;
  rules.also_needs = [&](const Node& n, std::vector<NodeId>& needs) {
    if (n.op == Op::Read && n.symbol == 0) needs.push_back(behind);
  };
  Images images;
  rules.replace = [&](NodeId id, const Node&) { return id == early ? images.at(behind) : kNoNode; };
  Rewriter rewriter(g, copy, std::move(rules), &images);
  const NodeId image = rewriter(user);
  EXPECT_EQ(copy[image].op, Op::Exp);
  EXPECT_EQ(copy[copy[image].args[0]].op, Op::Tanh);
}

TEST(Walk, MeetsTheLastRootFirstAndAnswersInOrder) {
  Graph g;
  const NodeId x = g.read(0, {}), y = g.read(1, {}), a = g.op(Op::Exp, {x}), b = g.op(Op::Exp, {y});
  std::vector<NodeId> met;
  const std::vector<NodeId> wanted = walk_down(g, {a, b}, [&](NodeId id) {
    met.push_back(id);
    return id == b ? Visit::Stop : id == x ? Visit::Skip : Visit::Descend;
  });
  EXPECT_EQ(met, (std::vector<NodeId>{b, a, x}));
  EXPECT_EQ(wanted, (std::vector<NodeId>{a, b}));
}

}  // namespace
}  // namespace cellc
