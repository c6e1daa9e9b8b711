// Laws of the simplifier over every value of every example: idempotent, value-preserving, and the
// cancellations that proofs rest on.
#include "compiler/graph/simplify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/analysis/jacobian.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/lower.h"
#include "compiler/syntax/parse.h"

namespace cellc {
namespace {

std::vector<CellGraph> lowered(const std::string& path, const std::string& text) {
  Diagnostics diagnostics;
  SourceText source(path, text);
  const File file = parse(source, diagnostics);
  std::vector<CellGraph> cells = lower_all(file, diagnostics);
  EXPECT_TRUE(diagnostics.empty()) << diagnostics.format(source);
  return cells;
}

std::vector<CellGraph> examples() {
  std::vector<CellGraph> all;
  for (const auto& entry : std::filesystem::directory_iterator(CELLC_SOURCE_DIR "/dsl-examples")) {
    if (entry.path().extension() != ".cell") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    for (CellGraph& c : lowered(entry.path().string(), text.str())) all.push_back(std::move(c));
  }
  EXPECT_GE(all.size(), 60u);
  return all;
}

// A smooth, bounded, non-zero stand-in for data: every leaf entry its own number in (0.2, 0.8).
Environment environment(const CellGraph& cell) {
  Environment e;
  std::int64_t size = 2;
  for (AxisId a : cell.header) {
    const auto& fixed = cell.graph.axis(a).fixed;
    e.sizes[a] = fixed ? *fixed : size++;
    if (size > 4) size = 2;
  }
  e.read = [](int symbol, const std::vector<std::int64_t>& position, int lag) {
    double x = 0.37 * symbol + 0.61 * lag;
    for (std::size_t i = 0; i < position.size(); ++i) x += (1.7 + 0.9 * i) * (position[i] + 1);
    return 0.5 + 0.3 * std::sin(x);
  };
  return e;
}

TEST(Simplify, IsIdempotent) {
  for (CellGraph& cell : examples()) {
    Simplifier simplifier(cell.graph);
    for (const StateUpdate& u : cell.updates) {
      const NodeId once = simplifier.simplify(u.value);
      EXPECT_EQ(simplifier.simplify(once), once) << cell.name;
      // Also for one that has not seen the first pass.
      EXPECT_EQ(Simplifier(cell.graph).simplify(once), once) << cell.name;
    }
  }
}

TEST(Simplify, PreservesValues) {
  int compared = 0;
  for (CellGraph& cell : examples()) {
    Simplifier simplifier(cell.graph);
    differentiate(cell);
    std::vector<NodeId> values;
    for (const StateUpdate& u : cell.updates) values.push_back(u.value);
    for (const Out& o : cell.outs) values.push_back(o.value);
    for (NodeId value : values) {
      const NodeId simple = simplifier.simplify(value);
      Evaluator evaluator(cell, environment(cell));
      // The simplified value may have lost an axis that cancelled: compare over the original's.
      const std::vector<AxisId> axes = cell.graph[value].axes;
      const Tensor a = evaluator.value_over(value, axes), b = evaluator.value_over(simple, axes);
      ASSERT_EQ(a.data.size(), b.data.size());
      for (std::size_t i = 0; i < a.data.size(); ++i) {
        EXPECT_NEAR(a.data[i], b.data[i], 1e-10 * (1 + std::fabs(a.data[i]))) << cell.name;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 300);
}

class Identity : public testing::TestWithParam<std::pair<const char*, const char*>> {};

// Both expressions must become one node.
TEST_P(Identity, IsSeen) {
  const std::string text =
      std::string("cell c[d, k] {\n  state h[d], S[d,k]\n  input u[d], v[k], w\n  param A[d,d], B[d,k]\n") +
      "  left = " + GetParam().first + "\n  right = " + GetParam().second + "\n  h' = h\n  S' = S\n  out y = w\n}\n";
  std::vector<CellGraph> cells = lowered("identity.cell", text);
  ASSERT_EQ(cells.size(), 1u);
  CellGraph& cell = cells[0];
  NodeId left = kNoNode, right = kNoNode;
  for (const NamedValue& n : cell.named) {
    if (n.name == "left") left = n.node;
    if (n.name == "right") right = n.node;
  }
  ASSERT_NE(left, kNoNode);
  ASSERT_NE(right, kNoNode);
  Simplifier simplifier(cell.graph);
  EXPECT_EQ(simplifier.simplify(left), simplifier.simplify(right));
}

INSTANTIATE_TEST_SUITE_P(Algebra, Identity,
                         testing::Values(std::pair{"h - h + u", "u"}, std::pair{"h*u", "u*h"},
                                         std::pair{"(h + u) + w", "w + (u + h)"}, std::pair{"-(h - u)", "u - h"},
                                         std::pair{"2*(h + u) - 2*h", "2*u"}, std::pair{"h*h", "h^2"},
                                         std::pair{"h/u*u", "h"}, std::pair{"(h - u)*w", "-((u - h)*w)"},
                                         std::pair{"0*h + u", "u"}, std::pair{"where(w > 0, h, h)", "h"},
                                         std::pair{"stop_gradient(h)", "h"}, std::pair{"sum[d](h - mean[d](h))", "0*w"},
                                         std::pair{"A@(w*h)", "w*(A@h)"}, std::pair{"sum[d](h*w)", "w*sum[d](h)"},
                                         std::pair{"sum[k](2*w*v)", "2*w*sum[k](v)"}, std::pair{"max(h, h)", "h"},
                                         std::pair{"exp(h + u)", "exp(u + h)"},
                                         std::pair{"h*(A@(h + u))", "(A@(u + h))*h"}));

TEST(Simplify, KeepsWhatDiffers) {
  CellGraph cell = lowered("differs.cell",
                           "cell c[d] {\n  state h[d]\n  input u[d]\n  param A[d,d]\n"
                           "  a = A@h\n  b = h@A\n  c1 = h - u\n  c2 = u - h\n  h' = h\n}\n")[0];
  Simplifier simplifier(cell.graph);
  std::vector<NodeId> simple;
  for (const NamedValue& n : cell.named) simple.push_back(simplifier.simplify(n.node));
  EXPECT_NE(simple[0], simple[1]);  // U@h and its transpose
  EXPECT_NE(simple[2], simple[3]);
}

// A chain of n additions has n prefixes; without a bound on forms it needs n^2 memory.
TEST(Simplify, LongSumStaysLinear) {
  std::string text = "cell c {\n  state h\n  input u\n  s0 = h";
  for (int i = 0; i < 3000; ++i) {
    if (i % 500 == 499) text += "\n  s" + std::to_string(i) + " = s" + std::to_string(i < 500 ? 0 : i - 500);
    text += " + sin(u*" + std::to_string(i + 2) + ")";
  }
  std::vector<CellGraph> cells = lowered("long.cell", text + "\n  h' = s2999\n}\n");
  ASSERT_EQ(cells.size(), 1u);
  CellGraph& cell = cells[0];
  Simplifier simplifier(cell.graph);
  const NodeId once = simplifier.simplify(cell.updates[0].value);
  EXPECT_EQ(simplifier.simplify(once), once);
}

// A chain of products, too: every prefix would have a form as long as itself.
TEST(Simplify, LongProductStaysLinear) {
  std::string text = "cell c {\n  state h\n  input u\n  s0 = h";
  for (int i = 0; i < 3000; ++i) {
    if (i % 500 == 499) text += "\n  s" + std::to_string(i) + " = s" + std::to_string(i < 500 ? 0 : i - 500);
    text += "*sin(u*" + std::to_string(i + 2) + ")";
  }
  std::vector<CellGraph> cells = lowered("long.cell", text + "\n  h' = s2999\n}\n");
  ASSERT_EQ(cells.size(), 1u);
  CellGraph& cell = cells[0];
  Simplifier simplifier(cell.graph);
  const NodeId once = simplifier.simplify(cell.updates[0].value);
  EXPECT_EQ(simplifier.simplify(once), once);
  const Polynomial form = simplifier.polynomial(once);
  ASSERT_EQ(form.size(), 1u);
  EXPECT_LE(form.begin()->first.size(), 64u);
}

}  // namespace
}  // namespace cellc
