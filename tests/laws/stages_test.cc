// Stages: components of what depends on what, in an order in which they can run, also for thousands
// of states (the language allows 4,096, and a lag makes them fast).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/derive/pipeline.h"
#include "compiler/front_end.h"

namespace cellc {
namespace {

AnalysedCell stages(const std::string& text) { return analyse_text(SourceText("stages", text)); }

/// States s0 … of which the i-th reads itself and the one numbered from(i).
template <typename From>
std::string states(int count, From from) {
  std::string declared, lines;
  for (int i = 0; i < count; ++i) {
    declared += fmt::format("{}s{}", i ? ", " : "", i);
    lines += fmt::format("  s{0}' = 0.5*s{0} + s{1}\n", i, from(i));
  }
  return "cell c {\n  state " + declared + "\n" + lines + "}\n";
}

std::string text(const AnalysedCell& s) {
  std::string all;
  for (const Stage& stage : s.structure.stages) {
    all += all.empty() ? "{" : " {";
    for (std::size_t i = 0; i < stage.states.size(); ++i)
      all += (i ? "," : "") + s.cell.symbol_of(s.cell.updates[stage.states[i]]).name;
    all += "}";
  }
  return all;
}

TEST(Stages, RunAfterWhatTheyRead) {
  EXPECT_EQ(text(stages(states(4, [](int i) { return i; }))), "{s0} {s1} {s2} {s3}");
  EXPECT_EQ(text(stages(states(4, [](int i) { return i < 3 ? i + 1 : i; }))), "{s3} {s2} {s1} {s0}");
  EXPECT_EQ(text(stages(states(4, [](int i) { return (i + 1) % 4; }))), "{s0,s1,s2,s3}");
  // Two circles, of which the first reads the second; then what could run next goes in declared order.
  EXPECT_EQ(
      text(stages("cell c {\n state a, b, p, q, z\n a' = b + p\n b' = a\n p' = q\n q' = 0.5*p\n z' = 0.5*z\n}\n")),
      "{p,q} {a,b} {z}");
  EXPECT_EQ(text(stages("cell c {\n state a, b, z\n a' = 0.5*a + z\n b' = 0.5*b\n z' = 0.5*z\n}\n")), "{b} {z} {a}");
}

TEST(Stages, ThousandsOfStates) {
  const AnalysedCell ring = stages(states(2000, [](int i) { return (i + 1999) % 2000; }));
  ASSERT_EQ(ring.structure.stages.size(), 1u);
  EXPECT_EQ(ring.structure.stages[0].block.number, 2000);
  const AnalysedCell chain = stages(states(1000, [](int i) { return i ? i - 1 : 0; }));
  ASSERT_EQ(chain.structure.stages.size(), 1000u);
  EXPECT_EQ(chain.structure.stages[999].inputs_from.size(), 1u);
  const AnalysedCell lagged = stages("cell c {\n  state h\n  input x\n  h' = 0.5*h + 0.1*lag(h, 4000) + x\n}\n");
  ASSERT_EQ(lagged.structure.stages.size(), 1u);
  EXPECT_EQ(lagged.structure.stages[0].block.number, 1);  // what lies 4000 steps back is no state
}

/// A chain in which every state reads the new value of the one before.
std::string chain_of(int count, const char* step) {
  std::string declared, lines;
  for (int i = 0; i < count; ++i) {
    declared += fmt::format("{}s{}", i ? ", " : "", i);
    lines += fmt::format(fmt::runtime(step), i, i ? fmt::format("s{}'", i - 1) : "x");
  }
  return "cell c {\n  state " + declared + "\n  input x\n" + lines + "}\n";
}

// The cells that a stage is cut into hold what the stage reads, and nothing of the other thousands: neither
// their values, nor their symbols, nor the Jacobian.
TEST(Stages, AreCutIntoCellsOfTheirOwnSize) {
  for (const char* step : {"  s{0}' = 0.5*s{0} + {1}\n", "  s{0}' = tanh(0.5*s{0} + {1})\n"}) {
    const AnalysedCell chain = stages(chain_of(100, step));
    const StagedCell staged = split_stages(chain.cell, chain.structure);
    ASSERT_EQ(staged.stages.size(), 100u);
    for (const StageCells& s : staged.stages) {
      EXPECT_LE(s.lanes.cell.graph.size(), 6u) << step;
      EXPECT_EQ(s.lanes.cell.symbols.size(), 2u) << step;
      EXPECT_EQ(s.before.cell.graph.size() + s.once.cell.graph.size(), 0u) << step;
    }
    EXPECT_EQ(staged.after.cell.graph.size(), 0u) << step;
    EXPECT_LE(staged.step.cell.graph.size(), 6u * 100) << step;
  }
}

std::string outs_of(const DerivedCell& cell) {
  std::string all;
  for (const Out& o : cell.cell.outs) {
    all += all.empty() ? "" : ", ";
    for (const AxisId a : o.index) all += cell.cell.graph.axis(a).name;
    all += " " + std::string(op_info(cell.cell.graph[o.value].op).text);
  }
  return all;
}

// Of channels of several axes, a value of fewer is made once for all of them where it takes long: as much of it as has
// fewer.
TEST(Stages, ValuesOfFewerAxesAreMadeOnce) {
  const auto before = [](const std::string& step, const std::string& header = "d, n") {
    const AnalysedCell c = stages("cell c[" + header + "] {\n  state h[" + header + "]\n  input u[d], dt[d], g, x[" +
                                  header + "]\n  param A[d]\n  h' = " + step + "\n}\n");
    const StagedCell staged = split_stages(c.cell, c.structure);
    EXPECT_EQ(outs_of(staged.stages[0].once), "");
    return outs_of(staged.stages[0].before);
  };
  EXPECT_EQ(before("0.5*h + softplus(dt)*u*x"), "d *");
  EXPECT_EQ(before("exp(-softplus(dt)*x)*h + u"), "d -");
  EXPECT_EQ(before("sigmoid(g)*h + x"), " sigmoid");
  EXPECT_EQ(before("u/dt*h + x"), "d /");
  // A few instructions; all axes; a param's own, which a lane makes once; one axis of channels.
  EXPECT_EQ(before("0.5*h + u*dt + max(g, u)"), "");
  EXPECT_EQ(before("0.5*h + exp(x)"), "");
  EXPECT_EQ(before("exp(A)*h + x"), "");
  EXPECT_EQ(before("sigmoid(g)*h + x", "d"), "");
}

// What all stages say of each other has as many entries as the square of their number, and no more of it is
// kept or looked through for each of them.
TEST(Stages, AThousandThatReadAllBeforeThem) {
  const AnalysedCell chain = stages(chain_of(1000, "  s{0}' = 0.5*s{0} + {1}\n"));
  ASSERT_EQ(chain.structure.stages.size(), 1000u);
  EXPECT_EQ(chain.structure.stages[999].inputs_from.size(), 999u);
  EXPECT_EQ(chain.structure.stages[999].hoisted.size(), 1u);
  EXPECT_EQ(chain.jacobian.row(999).size(), 1000u);
  EXPECT_EQ(chain.jacobian.row(0).size(), 1u);
}

// Each layer reads the one below through two sums: renaming all that lies below a sum anew for each
// would take twice as long with every layer.
TEST(Stages, LayerUponLayer) {
  std::string lines = "  v0 = U@h\n";
  for (int i = 1; i < 40; ++i) lines += fmt::format("  v{0} = U@tanh(v{1})*sigmoid(V@v{1})\n", i, i - 1);
  const AnalysedCell layers = stages("cell c[d] {\n  state h[d]\n  param U[d,d], V[d,d]\n" + lines + "  h' = v39\n}\n");
  ASSERT_EQ(layers.structure.stages.size(), 1u);
  EXPECT_EQ(layers.structure.stages[0].kind, StructureClass::Dense);
}

}  // namespace
}  // namespace cellc
