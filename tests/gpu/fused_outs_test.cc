// Outs that lanes make (compiler/derive/fused_outs.h): which they are, and what is left of the cell after the stages.
// Whether lanes make them right is for backward_test.cc, which compares gradients.
#include <gtest/gtest.h>

#include "compiler/derive/pipeline.h"
#include "compiler/front_end.h"

namespace cellc {
namespace {

struct Fused {
  AnalysedCell analysed;
  StagedCell staged;
  std::optional<StageCells> stage;
};
Fused fuse(const char* text, int stage = 0, const AccumulatedOuts& accumulated = {}) {
  Fused f{analyse_text(SourceText("test.cell", text)), {}, {}};
  f.staged = split_stages(f.analysed.cell, f.analysed.structure);
  f.stage = fuse_outs(f.staged, stage, accumulated);
  return f;
}
std::vector<int> written(const Fused& f) {
  std::vector<int> outs;
  for (const LaneOut& o : f.stage ? f.stage->outs : std::vector<LaneOut>()) outs.push_back(o.out);
  return outs;
}

TEST(FusedOuts, AreThoseOfTheChannels) {
  const Fused f = fuse(R"(cell c[d, m] {
    state h[d]
    input x[d], g[d], w[m]
    param a[d], W[m,d]
    h' = tanh(a*h + x)
    out y[d] = h'*g
    out before[d] = h + g*x
    out mixed[m] = W@h'
    out total = sum[d](h')
    out other[d] = x*g
  })");
  ASSERT_TRUE(f.stage);
  EXPECT_EQ(written(f), (std::vector<int>{0, 1})) << "others have other axes, or nothing of the state";
  EXPECT_EQ(f.stage->lanes.cell.updates.size(), 3u);
  EXPECT_EQ(f.stage->states.size(), 1u);
  const DerivedCell left = without_outs(f.staged.after, {0, 1});
  ASSERT_EQ(left.cell.outs.size(), 3u);
  EXPECT_EQ(left.cell.outs[0].name, "mixed");
  EXPECT_EQ(left.sinks[0].id, 2) << "by the numbers that outs have in the cell";
  EXPECT_EQ(without_outs(f.staged.after, {0, 1, 2, 3, 4}).role, Role::None);
}

TEST(FusedOuts, SymbolsOfThePlainLanesKeepTheirNumbers) {
  const Fused f = fuse("cell c[d] {\n state h[d]\n input x[d]\n h' = 0.5*h + x\n out y[d] = h*x\n}");
  ASSERT_TRUE(f.stage);
  const DerivedCell &plain = f.staged.stages[0].lanes, &lanes = f.stage->lanes;
  ASSERT_GT(lanes.sources.size(), plain.sources.size());
  for (std::size_t s = 0; s < plain.sources.size(); ++s) EXPECT_EQ(lanes.sources[s], plain.sources[s]);
  EXPECT_EQ(lanes.sources.back(), (ArraySource{ArraySource::Kind::Out, 0}));
}

TEST(FusedOuts, ThoseThatAreAddedUpComeLast) {
  const Fused f = fuse(
      "cell c[d] {\n state h[d]\n input x[d]\n h' = 0.5*h + x\n out a[d] = h*x\n out b[d] = h'\n out e[d] = h + x\n}",
      0, {true, false, false});
  EXPECT_EQ(written(f), (std::vector<int>{1, 2, 0}));
  EXPECT_TRUE(f.stage->outs.back().accumulated);
  EXPECT_FALSE(f.stage->outs.front().accumulated);
}

TEST(FusedOuts, WhatALaterStageMakesIsNotThereYet) {
  const char* const text = R"(cell c[d] {
    state a[d], b[d]
    input x[d]
    a' = 0.5*a + x
    b' = 0.5*b + a'
    out y[d] = a'*x
    out z[d] = a'*b'
  })";
  EXPECT_EQ(written(fuse(text, 0)), (std::vector<int>{0}));
  EXPECT_EQ(written(fuse(text, 1)), (std::vector<int>{1})) << "of earlier stages there are rows";
}

/// Outs of a cell's adjoint, and how many of them its lanes make.
std::pair<std::size_t, std::size_t> outs_of_adjoint(const char* text) {
  const AnalysedCell cell = analyse_text(SourceText("test.cell", text));
  AdjointOf of;
  of.multiplies_factors = true;
  AdjointCell adjoint = adjoint_of(cell.cell, of);
  const Structure structure = analyse(adjoint.adjoint.cell, differentiate(adjoint.adjoint.cell));
  const StagedCell staged = split_stages(adjoint.adjoint.cell, structure);
  const std::optional<StageCells> stage = fuse_outs(staged, 0, {});
  return {adjoint.adjoint.cell.outs.size(), stage ? stage->outs.size() : 0};
}
using Counts = std::pair<std::size_t, std::size_t>;

TEST(FusedOuts, TheAdjointOfAGatedCellIsMadeByItsLanesAlone) {
  EXPECT_EQ(outs_of_adjoint(R"(cell gru[d] {
    state h[d]
    input xz[d], xc[d]
    param az[d], ac[d]
    z = sigmoid(az*h + xz)
    h' = (1 - z)*h + z*tanh(ac*h + xc)
  })"),
            Counts(4, 4))
      << "two gradients of inputs, two summands";
  EXPECT_EQ(outs_of_adjoint("cell c[d] {\n state h[d]\n input a[d], x[d]\n h' = a*h + x\n}"), Counts(2, 2));
}

}  // namespace
}  // namespace cellc
