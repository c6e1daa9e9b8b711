// Stages that run as one, lane by lane, in whole sequences: the bits of the sequential kernel, whatever the number of
// sequences, their lengths, the direction of time and what is wanted; and cells whose stages cannot.
#include "runtime/cpu/joined_stages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "compiler/front_end.h"
#include "runtime/data/bind.h"
#include "runtime/evaluate/reference.h"

namespace cellc {
namespace {

const char* const kKalman = R"(cell kalman[d] {
  state P[d] = 1, x[d]
  input z[d]
  param f[d] in (0.5, 1), q[d] in (0.1, 1), r[d] in (0.1, 1)
  Pp = f^2*P + q
  K  = Pp/(Pp + r)
  P' = (1 - K)*Pp
  x' = (1 - K)*f*x + K*z
})";

const char* const kCascade = R"(cell cascade[k = 5] {
  state a, b = 0.5, c, d
  input x
  param p[k] in (-0.5, 0.5)
  y  = p[0]*x + a
  a' = p[1]*x - p[3]*y + b
  b' = p[2]*x - p[4]*y
  z  = p[0]*y + c
  c' = p[1]*y - p[3]*z + d
  d' = p[2]*y - p[4]*z
  out w = z
})";

// The second stage reads what the first was two steps ago, an input of before, and an input that all channels share.
const char* const kLagging = R"(cell lagging[d] {
  state a[d], b[d] = 1
  input x[d], u
  param w[d] in (-0.5, 0.5)
  a' = w*a + lag(x, 3)
  b' = 0.5*b + w*lag(a, 2)*u
  out y[d] = a' - b
})";

struct Sequences {
  std::vector<std::int64_t> lengths;
  bool reverse = false;
};

Binding bound(const CellGraph& cell, const Sequences& sequences, Dtype dtype, std::int64_t d) {
  BindRequest request;
  for (const AxisId a : cell.header)
    if (!cell.graph.axis(a).fixed) request.dims[cell.graph.axis(a).name] = d;
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t n : sequences.lengths) offsets.push_back(offsets.back() + n);
  Array packed(Dtype::I64, {static_cast<std::int64_t>(offsets.size())});
  std::memcpy(packed.data(), offsets.data(), offsets.size() * sizeof(offsets[0]));
  request.offsets = GivenArray{"offsets", packed};
  request.reverse = sequences.reverse;
  request.random_seed = 5;
  request.dtype = dtype;
  request.threads = 2;
  Binding result = bind(cell, request);
  // Starts of every sequence's own.
  for (Array& a : result.run.symbols)
    if (&a - result.run.symbols.data() < static_cast<std::ptrdiff_t>(cell.symbols.size()) &&
        cell.symbols[static_cast<std::size_t>(&a - result.run.symbols.data())].kind == SymbolKind::State)
      for (std::int64_t i = 0; i < a.count(); ++i) a.set(i, 0.1 + 0.05 * static_cast<double>(i % 7));
  return result;
}

std::string difference(const Array& a, const Array& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return "another shape or dtype";
  for (std::int64_t i = 0; i < a.count(); ++i)
    if (std::memcmp(static_cast<const std::byte*>(a.data()) + i * static_cast<std::int64_t>(size_of(a.dtype())),
                    static_cast<const std::byte*>(b.data()) + i * static_cast<std::int64_t>(size_of(b.dtype())),
                    size_of(a.dtype())) != 0)
      return fmt::format("entry {}: {} and {}", i, a.get(i), b.get(i));
  return "";
}

std::string difference(const RunOutput& a, const RunOutput& b) {
  for (std::size_t i = 0; i < a.states.size(); ++i)
    if (auto d = difference(a.states[i], b.states[i]); !d.empty()) return fmt::format("state {}, {}", i, d);
  for (std::size_t i = 0; i < a.finals.size(); ++i)
    if (auto d = difference(a.finals[i], b.finals[i]); !d.empty()) return fmt::format("final {}, {}", i, d);
  for (std::size_t i = 0; i < a.outs.size(); ++i)
    if (auto d = difference(a.outs[i], b.outs[i]); !d.empty()) return fmt::format("out {}, {}", i, d);
  return "";
}

/// A few sequences, which fill part of a vector; many; awkward lengths, ragged ones, and some without steps.
std::vector<Sequences> shapes() {
  std::vector<Sequences> all;
  for (const std::int64_t count : {1, 2, 3, 4, 5, 8, 10, 15, 16, 17, 21, 33})
    for (const std::int64_t steps : {1, 15, 64, 129})
      all.push_back({std::vector<std::int64_t>(static_cast<std::size_t>(count), steps), (count + steps) % 3 == 0});
  for (const bool reverse : {false, true}) {
    all.push_back({{70, 0, 3, 64, 65, 1, 16, 130}, reverse});
    std::vector<std::int64_t> ragged(40);
    for (std::size_t i = 0; i < ragged.size(); ++i) ragged[i] = static_cast<std::int64_t>(i * 37 % 101);
    all.push_back({ragged, reverse});
  }
  return all;
}

class Joined : public testing::TestWithParam<const char*> {};

TEST_P(Joined, HasTheBitsOfTheSequentialKernel) {
  const AnalysedCell c = analyse_text(SourceText("test", GetParam()));
  ASSERT_GE(c.structure.stages.size(), 2u);
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16}) {
    Solver solver(c.cell, c.structure, {.dtype = dtype});
    const auto together = JoinedStages::make(c.cell, c.structure, {.dtype = dtype});
    ASSERT_NE(together, nullptr);
    SolveOptions sequential;
    sequential.solver = Strategy::Sequential;
    for (const Sequences& sequences : shapes()) {
      const std::int64_t d = static_cast<std::int64_t>(sequences.lengths.size()) % 2 + 1;
      Binding b = bound(c.cell, sequences, dtype, d);
      if (b.run.offsets.back() == 0) continue;
      SolveReport report;
      const RunOutput expected = solver.run(b.run, sequential, report);
      const std::int64_t longest = *std::max_element(sequences.lengths.begin(), sequences.lengths.end());
      SolveOptions whole;
      whole.plan.assign(c.structure.stages.size(), {Strategy::Segmented, longest, 0, "whole"});
      const std::string what = fmt::format("{}, {} sequences, the longest of {}, d={}{}", to_string(dtype),
                                           sequences.lengths.size(), longest, d, sequences.reverse ? ", back" : "");
      EXPECT_EQ(difference(together->run(b.run, {}, whole.plan, report, {}), expected), "") << what;
      // As a plan asks for it.
      EXPECT_EQ(difference(solver.run(b.run, whole, report), expected), "") << what;
      EXPECT_TRUE(report.converged);
      ASSERT_EQ(report.stages.size(), c.structure.stages.size());
      EXPECT_EQ(report.stages[1].plan.reason, "whole");
      EXPECT_EQ(report.max_residual, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Joined, testing::Values(kKalman, kCascade, kLagging), [](const auto& info) {
  const std::string text = info.param;
  return text.substr(5, text.find('[') - 5);
});

TEST(JoinedStages, IsAsRightAsTheReference) {
  const AnalysedCell c = analyse_text(SourceText("test", kKalman));
  const auto together = JoinedStages::make(c.cell, c.structure, {.dtype = Dtype::F64});
  const Binding b = bound(c.cell, {{9, 30, 0, 17, 2, 25}, true}, Dtype::F64, 3);
  SolveReport report;
  const RunOutput got =
      together->run(b.run, {}, std::vector<StagePlan>(2, {Strategy::Segmented, 30, 0, ""}), report, {});
  EXPECT_LE(compare(c.cell, b.run, got, reference_run(c.cell, b.run)).error, 1e-12);
}

TEST(JoinedStages, OnlyWhereLanesAreTheSame) {
  const auto joins = [](const std::string& text) {
    const AnalysedCell c = analyse_text(SourceText("test", text));
    return JoinedStages::make(c.cell, c.structure, {}) != nullptr;
  };
  EXPECT_TRUE(joins("cell two[d] {\n state a[d], b[d]\n input x[d]\n a' = 0.5*a + x\n b' = 0.5*b + a'\n}"));
  EXPECT_FALSE(joins("cell one[d] {\n state a[d]\n input x[d]\n a' = 0.5*a + x\n}")) << "one stage";
  EXPECT_FALSE(
      joins("cell mixes[d] {\n state a[d], b[d]\n input x[d]\n param W[d,d]\n a' = 0.5*a + x\n"
            " b' = 0.5*b + W@a\n}"))
      << "the second reads other channels";
  EXPECT_FALSE(joins("cell wider[d, k] {\n state a[d], b[d,k]\n input x[d]\n a' = 0.5*a + x\n b' = 0.5*b + a\n}"))
      << "other lanes";
  EXPECT_FALSE(
      joins("cell dense[d] {\n state a[d], b[d]\n input x[d]\n param U[d,d]\n a' = 0.5*a + x\n"
            " b' = tanh(U@b + a)\n}"))
      << "a stage that mixes";
}

TEST(JoinedStages, AreChosenForNarrowCellsInBatches) {
  const AnalysedCell c = analyse_text(SourceText("test", kKalman));
  Solver solver(c.cell, c.structure, {});
  for (const std::int64_t count : {10, 64}) {
    const Binding b = bound(c.cell, {std::vector<std::int64_t>(static_cast<std::size_t>(count), 500)}, Dtype::F32, 1);
    SolveReport report;
    solver.run(b.run, {}, report);
    for (const StageReport& s : report.stages) {
      EXPECT_EQ(s.plan.strategy, Strategy::Segmented) << s.plan.reason;
      EXPECT_EQ(s.plan.segment, 500) << s.plan.reason;
    }
  }
}

TEST(JoinedStages, ACascadeOfOneSequenceStaysInRegisters) {
  std::string states, lines = "  y0 = x\n";
  for (int i = 0; i < 8; ++i) {
    states += fmt::format("{}z{}, w{}", i ? ", " : "", i, i);
    lines += fmt::format("  y{1} = k[0]*y{0} + z{0}\n  z{0}' = k[1]*y{0} - k[2]*y{1} + w{0}\n  w{0}' = -k[3]*y{1}\n", i,
                         i + 1);
  }
  const AnalysedCell c = analyse_text(
      SourceText("test", "cell c[n=4] {\n  state " + states + "\n  input x\n  param k[n]\n" + lines + "}\n"));
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    Solver solver(c.cell, c.structure, {.dtype = dtype});
    const Binding b = bound(c.cell, {{20000}}, dtype, 1);
    SolveReport report;
    solver.run(b.run, {}, report);
    for (const StageReport& s : report.stages) EXPECT_EQ(s.plan.strategy, Strategy::Sequential) << s.plan.reason;
    EXPECT_NE(report.stages[0].plan.reason.find("registers"), std::string::npos) << report.stages[0].plan.reason;
  }
}

}  // namespace
}  // namespace cellc
