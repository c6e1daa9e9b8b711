// `check` must be able to fail: every kind of false claim is noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/front_end.h"
#include "runtime/check/check_claims.h"
#include "runtime/evaluate/reference.h"

namespace cellc {
namespace {

AnalysedCell derive(const std::string& text) { return analyse_text(SourceText("test.cell", text)); }

/// Texts of the claims that fail.
std::string failures(AnalysedCell& d) {
  BindRequest request;
  for (const AxisId a : d.cell.header) request.dims[d.cell.graph.axis(a).name] = a == d.cell.header[0] ? 5 : 7;
  request.length = 12;
  request.random_seed = 3;
  request.dtype = Dtype::F64;
  std::vector<CheckItem> items;
  check_claims(d.cell, d.jacobian, d.structure, bind(d.cell, request), 3, items);
  std::string text;
  for (const CheckItem& item : items)
    if (!item.passed) text += item.what + "; ";
  return text;
}

const char* kGru = R"(cell c[d] {
  state h[d], g[d]
  input x[d]
  param a[d]
  h' = tanh(a*h + g + x)
  g' = 0.5*g + x*h
}
)";

TEST(Check, TrueClaimsHold) {
  AnalysedCell d = derive(kGru);
  EXPECT_EQ(failures(d), "");
}

// Along a chain of integrators states come to millions, and differences of them to few digits.
TEST(Check, LargeStatesAreNoFailure) {
  std::string text = "cell c {\n  input x\n", updates;
  for (int i = 0; i < 100; ++i) {
    text += "  state s" + std::to_string(i) + "\n";
    updates += "  s" + std::to_string(i) + "' = 0.5*s" + std::to_string(i) + " + " +
               (i ? "s" + std::to_string(i - 1) + "'" : "x") + "\n";
  }
  AnalysedCell d = derive(text + updates + "}\n");
  EXPECT_EQ(failures(d), "");
  d.jacobian.blocks.front().terms[0].coefficient = d.cell.graph.constant(0.6);
  EXPECT_NE(failures(d).find("d s0'/d s0"), std::string::npos);
}

/// What fails of the kernels, or could not be compared at all.
std::string engine_failures(const std::string& text, std::uint64_t seed = 3) {
  const AnalysedCell d = derive(text);
  BindRequest request;
  for (const AxisId a : d.cell.header) request.dims[d.cell.graph.axis(a).name] = 3;
  request.length = 12;
  request.random_seed = seed;
  std::vector<CheckItem> items;
  check_engine(d.cell, d.structure, request, "", items);
  std::string failed;
  for (const CheckItem& item : items)
    if (!item.passed) failed += item.what + ": " + item.detail + "; ";
  return failed;
}

// The kernels are right to f32, which is all that f32 can be.
TEST(Check, WhatF32LosesIsNoFailure) {
  for (const char* step : {
           "h' = 0.5*h + ((x + 1e5) - 1e5)",                 // cancels
           "h' = sqrt((h*1e20)^2)/1e20*0.5 + x",             // overflows on the way
           "h' = where(h > 0.3, 0.3, 0.5) + 0*x",            // 0.3 is another number in f32
           "h' = 0.5*h + sum[d](1e6*x) - sum[d](1e6*x) + x"  // cancels in a sum
       })
    EXPECT_EQ(engine_failures(std::string("cell c[d] {\n  state h[d] = 0.3\n  input x[d]\n  ") + step + "\n}\n"), "")
        << step;
}

/// What check_each_step says of a right trajectory of which one entry, a small one of its lane, was moved by so much of
/// the largest of the lane.
CheckItem moved_step(double unit, double by) {
  const AnalysedCell d = derive("cell c[d] {\n  state h[d] = 0.3\n  input x[d]\n  h' = 0.9*h + x\n}\n");
  BindRequest request;
  request.dims["d"] = 3;
  request.batch = 2;
  request.length = 40;
  request.random_seed = 5;
  request.dtype = Dtype::F64;
  Binding binding = bind(d.cell, request);
  for (Array& array : binding.run.symbols)
    for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, array.get(i) * unit);
  RunOutput output = reference_run(d.cell, binding.run);
  Array& rows = output.states[0];
  const std::int64_t lane = 1, begin = 40 * 3;  // of the second sequence
  double largest = 0;
  std::int64_t small = begin + lane;
  for (std::int64_t i = begin + lane; i < rows.count(); i += 3) {
    largest = std::max(largest, std::abs(rows.get(i)));
    if (std::abs(rows.get(i)) < std::abs(rows.get(small))) small = i;
  }
  EXPECT_LT(std::abs(rows.get(small)), 0.2 * largest);
  rows.set(small, rows.get(small) + by * largest);
  return check_each_step(d.cell, "moved", output, binding, 2e-12, 1e-15);
}

// Errors count over the size of their lane: the same ones are found in any unit, and none that is within the promise.
TEST(Check, StepsAreOverTheSizeOfTheirLane) {
  for (const double unit : {1.0, 0x1p-60, 0x1p60}) {
    const CheckItem right = moved_step(unit, 0), near = moved_step(unit, 1.8e-12), wrong = moved_step(unit, 4e-12);
    EXPECT_TRUE(right.passed && near.passed) << unit << ": " << right.detail << near.detail;
    EXPECT_FALSE(wrong.passed) << unit;
    EXPECT_EQ(right.tried, 240);
    EXPECT_NEAR(wrong.worst, 2, 0.02) << unit;
  }
}

// The core of Mamba: its states are several times 1, and its segments meet within the promise, not within 1e-12 of 1.
TEST(Check, SegmentsThatKeepThePromise) {
  const std::string text =
      "cell s6[d, n] {\n  state h[d,n]\n  input u[d], dt[d], B[n]\n  param A_log[d,n]\n  delta = softplus(dt)\n"
      "  h' = exp(-delta*exp(A_log))*h + delta*u*B\n}\n";
  for (std::uint64_t seed = 0; seed < 4; ++seed) EXPECT_EQ(engine_failures(text, seed), "") << seed;
}

TEST(Check, SlopesThatDifferencesCannotSeeAreNoFailure) {
  // The step of the difference is larger than the states by far.
  AnalysedCell tiny = derive("cell c[d] {\n  state h[d] = 1e-30\n  input x[d]\n  h' = h*h*1e30 + 0*x\n}\n");
  EXPECT_EQ(failures(tiny), "");
  AnalysedCell cancels = derive("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = (1e8*h + x) - 1e8*h\n}\n");
  EXPECT_EQ(failures(cancels), "");
}

// Where differences tell nothing, nothing is compared: a wrong claim must not pass as one that was checked.
TEST(Check, SlopesLostInRoundingAreSkipped) {
  AnalysedCell d = derive("cell c {\n  state h\n  input x\n  h' = 0.5*h + 1e14 + x\n}\n");
  d.jacobian.blocks.front().terms[0].coefficient = d.cell.graph.constant(0.6);
  BindRequest request;
  request.length = 12;
  request.random_seed = 3;
  request.dtype = Dtype::F64;
  std::vector<CheckItem> items;
  check_claims(d.cell, d.jacobian, d.structure, bind(d.cell, request), 3, items);
  const auto item = std::find_if(items.begin(), items.end(), [](const CheckItem& i) { return i.what == "d h'/d h"; });
  ASSERT_NE(item, items.end());
  // At small states. Where the state is large the step of the difference is, too, and tells.
  EXPECT_GT(item->skipped, 0);
  EXPECT_FALSE(item->passed) << item->tried << " compared, worst " << item->worst;
}

TEST(Check, ALeftOutBlockIsNoticed) {
  AnalysedCell d = derive(kGru);
  d.jacobian.blocks.erase(d.jacobian.blocks.begin());
  EXPECT_NE(failures(d).find("blocks proved zero are zero"), std::string::npos);
}

TEST(Check, AWrongBlockIsNoticed) {
  AnalysedCell d = derive(kGru);
  d.jacobian.blocks[0].terms[0].coefficient = d.jacobian.blocks[1].terms[0].coefficient;
  EXPECT_NE(failures(d).find("d h'/d h"), std::string::npos);
}

TEST(Check, AFalseMaskOrClassIsNoticed) {
  AnalysedCell d = derive(kGru);
  ASSERT_EQ(d.structure.stages.size(), 1u);
  d.structure.stages[0].mask = {{Coupling::Diagonal, Coupling::None}, {Coupling::Diagonal, Coupling::Diagonal}};
  EXPECT_NE(failures(d).find("has the mask"), std::string::npos);
  d = derive(kGru);
  d.structure.stages[0].linear = true;
  EXPECT_NE(failures(d).find("is linear"), std::string::npos);
  d = derive(kGru);
  d.structure.stages[0].time_invariant = true;
  EXPECT_NE(failures(d).find("is time-invariant"), std::string::npos);
}

TEST(Check, FalseLanesAndRanksAreNoticed) {
  const char* mixing = "cell c[d, k] {\n  state S[d,k]\n  input x[k]\n  param W[k,k]\n  S' = S@W + x\n}\n";
  AnalysedCell d = derive(mixing);
  EXPECT_EQ(failures(d), "");
  d.structure.stages[0].channel_axes = d.cell.header;
  EXPECT_NE(failures(d).find("moves nothing along d, k"), std::string::npos);

  d = derive(mixing);
  d.structure.stages[0].kind = StructureClass::DiagonalPlusLowRank;
  d.structure.stages[0].rank = size_expression(1);
  EXPECT_NE(failures(d).find("is diagonal plus rank 1"), std::string::npos);

  const char* delta = "cell c[v, k] {\n  state S[v,k]\n  input key[k], w[k]\n  S' = S*w - (S@key)*key\n}\n";
  d = derive(delta);
  EXPECT_EQ(failures(d), "");
  d.structure.stages[0].kind = StructureClass::IdentityPlusLowRank;
  EXPECT_NE(failures(d).find("is identity plus rank 1"), std::string::npos);
}

TEST(Check, FalseScansAreNoticed) {
  const char* logistic = "cell c {\n  state x = 0.4\n  param r\n  x' = r*x*(1 - x)\n}\n";
  for (const Scannable claim : {Scannable::Clip, Scannable::Moebius, Scannable::MaxPlus, Scannable::LogPlus}) {
    AnalysedCell d = derive(logistic);
    d.structure.stages[0].scannable = claim;
    EXPECT_NE(failures(d), "");
  }
}

// What is recognised may be of the right kind and yet another map, which a scan would compose, and repair make good.
TEST(Check, FalseMapsAreNoticed) {
  const auto derived = [](const char* step) {
    return derive(std::string("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = ") + step + "\n}\n");
  };
  for (const char* step : {"max(h + x, 0.3)", "min(h + x, 0.3)", "softplus(h + x)", "clip(0.9*h + x, -1, 1)",
                           "(0.5*h + x + 3)/(4 + 0.2*h)"}) {
    AnalysedCell d = derived(step);
    EXPECT_EQ(failures(d), "") << step;
    Stage& stage = d.structure.stages[0];
    const NodeId one = d.cell.graph.constant(1);
    if (stage.semiring)
      stage.semiring->offsets.at(0).value = d.cell.graph.op(Op::Add, {stage.semiring->offsets.at(0).value, one});
    if (stage.clip) stage.clip->b = d.cell.graph.op(Op::Add, {stage.clip->b, one});
    if (stage.moebius) stage.moebius->b = d.cell.graph.op(Op::Add, {stage.moebius->b, one});
    EXPECT_NE(failures(d), "") << step;
  }
  // As it was once recognised: an offset of softplus(softplus(h + x)) was left out.
  AnalysedCell d = derived("softplus(softplus(h + x))");
  Stage& stage = d.structure.stages[0];
  ASSERT_TRUE(stage.semiring);
  ASSERT_EQ(stage.semiring->offsets.size(), 2u);
  EXPECT_EQ(failures(d), "");
  stage.semiring->offsets.pop_back();
  EXPECT_NE(failures(d).find("linear over"), std::string::npos);
}

// At a kink a difference quotient has no meaning; elsewhere it counts.
TEST(Check, KinksAreSkippedNotFailed) {
  AnalysedCell d = derive("cell c[d] {\n  state h[d]\n  input u[d]\n  h' = relu(h) + where(h > 0, 1, 0) + 0*u\n}\n");
  EXPECT_EQ(failures(d), "");
}

// sqrt is infinitely steep at 0, where this state starts and stays. Its neighbours do not depend on it for
// all that.
TEST(Check, InfiniteSlopesStayOnTheirDiagonal) {
  AnalysedCell d = derive("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = x^2*sqrt(h)\n}\n");
  EXPECT_EQ(failures(d), "");
  d.jacobian.blocks.front().terms[0].identities.clear();
  EXPECT_NE(failures(d).find("d h'/d h"), std::string::npos);
}

// Of the two places of P only the second is a lane.
TEST(Check, APlaceOfARepeatedAxisMayBeALane) {
  AnalysedCell d = derive("cell c[d] {\n  state P[d,d]\n  param A[d,d]\n  P'[i,j] = A[i,k]@P[k,j]\n}\n");
  EXPECT_EQ(d.structure.stages.at(0).channel_axes.size(), 1u);
  EXPECT_EQ(failures(d), "");
  d.structure.stages[0].channel_axes = {d.cell.header[0]};
  EXPECT_NE(failures(d).find("stage {P} moves nothing along d; "), std::string::npos);
}

/// The items about gradients, those that fail with why.
std::string gradient_items(const std::string& text) {
  const AnalysedCell d = derive(text);
  BindRequest request;
  for (const AxisId a : d.cell.header) request.dims[d.cell.graph.axis(a).name] = 3;
  request.length = 12;
  request.batch = 1;
  request.random_seed = 3;
  request.dtype = Dtype::F64;
  std::vector<CheckItem> items;
  check_gradients(d.cell, bind(d.cell, request), request, 3, "", items);
  std::string text_of;
  for (const CheckItem& item : items) {
    EXPECT_GT(item.tried + item.skipped, 0) << item.what;
    if (!item.passed || item.what.starts_with("gradient by"))
      text_of += item.what + (item.passed ? "" : ": " + item.detail) + "; ";
  }
  return text_of;
}

TEST(Check, GradientsAreDifferences) {
  EXPECT_EQ(gradient_items(kGru),
            "gradient by the start of h; gradient by the start of g; gradient by x; gradient by a; ");
  EXPECT_EQ(
      gradient_items("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(h + 0.5*lag(h, 1) + lag(x, 2))\n}\n"),
      "gradient by the start of h; gradient by h 1 steps before the start; gradient by x; gradient by the history of "
      "x; ");
  // At every step on one side of a kink or the other, and chaos.
  EXPECT_EQ(gradient_items("cell c[d] {\n  state h[d] = 0.3\n  input x[d]\n  h' = 3.9*h*(1 - h) + 0*relu(x)\n}\n"),
            "gradient by the start of h; gradient by x; ");
}

// What relaxation makes once may be over axes that a line renamed.
TEST(Check, RelaxationOfRenamedAxes) {
  EXPECT_EQ(
      gradient_items("cell c[s, a] {\n  state q[s] = eye[s,0]\n  input u[a] in (0, 1)\n  param T[s,s,a] in (0, 0.3)\n"
                     "  D[i,j] = T[i,j,a]@u\n  q'[j] = q[i]@D[i,j]\n  out r = D[0,i]@q[i]\n}\n"),
      "gradient by the start of q; gradient by u; gradient by T; ");
}

TEST(Check, DeclaredSlopesAreNoDifferences) {
  EXPECT_EQ(gradient_items("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*stop_gradient(h) + x\n}\n"), "");
}

}  // namespace
}  // namespace cellc
