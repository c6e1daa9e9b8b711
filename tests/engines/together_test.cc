// Sequences that share a matrix, stepped together: the bits that each has alone, whatever their number and lengths, the
// direction of time, what is wanted, and what else a step holds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "compiler/front_end.h"
#include "runtime/build/compile_plan.h"
#include "runtime/cpu/sequential_run.h"
#include "runtime/data/bind.h"

namespace cellc {
namespace {

struct Case {
  const char *name, *text;
};

const Case kCases[] = {
    {"Lstm", R"(cell lstm[d, m] {
  state h[d], c[d] = 0.1
  input x[m]
  param Wi[d,m], Wf[d,m], Wg[d,m], Wo[d,m], Ui[d,d], Uf[d,d], Ug[d,d], Uo[d,d] in (-0.3, 0.3)
  f  = sigmoid(Wf@x + Uf@h)
  i  = sigmoid(Wi@x + Ui@h)
  c' = f*c + i*tanh(Wg@x + Ug@h)
  h' = sigmoid(Wo@x + Uo@h)*tanh(c')
  out y[m] = h'@Wo
})"},
    {"Gru", R"(cell gru[d] {
  state h[d]
  input x[d]
  param Uz[d,d], Ur[d,d], Un[d,d] in (-0.3, 0.3)
  z  = sigmoid(x + Uz@h)
  r  = sigmoid(x + Ur@h)
  h' = (1 - z)*h + z*tanh(x + Un@(r*h))
})"},
    {"BothWays", R"(cell both[d] {
  state h[d] = 0.2
  input x[d]
  param M[d,d] in (-0.3, 0.3)
  h' = 0.5*h + 0.1*tanh(M@h - h@M + x)
})"},
    // A state of one number, sums of all entries, a product with an axis of the matrix fixed, and what params alone
    // make.
    {"Norm", R"(cell norm[d] {
  state h[d], n = 1, k
  input x[d], u
  param M[d,d], w[d] in (-0.3, 0.3), g
  m  = sum[d](h)/size[d]
  s  = sqrt(sum[d]((h - m)^2)/size[d] + 0.01)
  n' = 0.9*n + 0.1*s + g*k
  k' = w@h + u*M[1,2]
  h' = tanh((M@((h - m)/s))*w + x*n')
})"},
    {"Heads", R"(cell heads[a = 3, d] {
  state h[a,d]
  input x[a,d]
  param U[a,d,d] in (-0.4, 0.4), P[a,a] in (-0.4, 0.4)
  mixed[a,d] = P[a,j]@h[j,d]
  h' = tanh(U@h + mixed + x)
})"},
    {"Lags", R"(cell lags[d, w = 4] {
  state h[d]
  input x[d]
  param U[d,d], V[d,d] in (-0.3, 0.3), K[d,w] in (-0.3, 0.3)
  h' = tanh(U@h + V@lag(h, 2) + sum[w](K*lag[w](x)))
})"},
    {"Maxima", R"(cell maxima[d] {
  state h[d] = 0.1
  input x[d]
  param U[d,d] in (-0.5, 0.5)
  top[d] = max[j](U[d,j] + h[j])
  warm[d] = sum[j](tanh(U[d,j])*h[j])
  h' = tanh(top*0.3 + x + warm)
})"},
};

std::string difference(const char* what, const std::vector<Array>& a, const std::vector<Array>& b) {
  if (a.size() != b.size()) return "another number of results";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].shape() != b[i].shape() || a[i].dtype() != b[i].dtype()) return "another shape or dtype";
    const std::size_t size = size_of(a[i].dtype());
    for (std::int64_t k = 0; k < a[i].count(); ++k)
      if (std::memcmp(static_cast<const char*>(a[i].data()) + static_cast<std::size_t>(k) * size,
                      static_cast<const char*>(b[i].data()) + static_cast<std::size_t>(k) * size, size) != 0)
        return fmt::format("{} {}, entry {}: {} alone, {} together", what, i, k, a[i].get(k), b[i].get(k));
  }
  return "";
}

Binding bound(const CellGraph& cell, const std::vector<std::int64_t>& lengths, std::int64_t d, Dtype dtype,
              bool reverse) {
  BindRequest request;
  for (const AxisId a : cell.header)
    if (!cell.graph.axis(a).fixed) request.dims[cell.graph.axis(a).name] = d;
  Array offsets(Dtype::I64, {static_cast<std::int64_t>(lengths.size()) + 1});
  for (std::size_t s = 0; s < lengths.size(); ++s)
    offsets.set(static_cast<std::int64_t>(s) + 1,
                offsets.get(static_cast<std::int64_t>(s)) + static_cast<double>(lengths[s]));
  request.offsets = GivenArray{"offsets", offsets};
  request.reverse = reverse;
  request.random_seed = 7;
  request.dtype = dtype;
  return bind(cell, request);
}

class Together : public testing::TestWithParam<Case> {};

TEST_P(Together, HasTheBitsOfEachAlone) {
  const AnalysedCell cell = analyse_text(SourceText("test", GetParam().text));
  const std::vector<std::vector<std::int64_t>> batches{
      {9, 9, 9, 9}, {700, 3, 0, 41, 41, 40, 1, 700, 13}, {5, 5, 5}, std::vector<std::int64_t>(11, 70)};
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16}) {
    for (const int bits : {128, 256, 512}) {
      if (dtype != Dtype::F32 && bits != 256) continue;
      const CompiledPlan compiled =
          compile_plan(cell.cell, cell.structure, {.dtype = dtype, .cpu = "native", .vector_bits = bits});
      ASSERT_TRUE(compiled.together);
      EXPECT_FALSE(compiled.together->is_compiled());
      for (const std::vector<std::int64_t>& lengths : batches) {
        const std::int64_t d = bits == 256 ? 19 : 7;
        Binding binding = bound(cell.cell, lengths, d, dtype, lengths.size() == 9);
        BoundRun& run = binding.run;
        for (const int wanted : {0, 1, 2}) {
          if (wanted == 1) run.wanted.states.assign(cell.cell.updates.size(), false);
          if (wanted == 2) run.wanted.outs.assign(cell.cell.outs.size(), false);
          for (const int threads : {1, 2}) {
            run.threads = threads;
            SCOPED_TRACE(testing::Message() << to_string(dtype) << ", " << bits << " bits, " << lengths.size()
                                            << " sequences, " << threads << " threads, wanted " << wanted);
            compiled.together->worth = std::int64_t{1} << 62;
            const RunOutput alone = run_sequential(compiled, run);
            compiled.together->worth = 0;
            const RunOutput output = run_sequential(compiled, run);
            ASSERT_EQ(difference("state", alone.states, output.states), "");
            ASSERT_EQ(difference("final", alone.finals, output.finals), "");
            ASSERT_EQ(difference("out", alone.outs, output.outs), "");
          }
        }
      }
      EXPECT_TRUE(compiled.together->is_compiled());
    }
  }
}

// Rows that somebody else wrote: every step is one of its own, so pieces of one sequence are made together.
TEST_P(Together, MakesStepsFromRows) {
  const AnalysedCell cell = analyse_text(SourceText("test", GetParam().text));
  const CompileOptions options{.dtype = Dtype::F32};
  const CompiledPlan whole = compile_plan(cell.cell, cell.structure, options);
  const CompiledPlan steps = compile_plan(cell.cell, cell.structure, options, kNoAxis, false, true);
  ASSERT_TRUE(steps.together);
  Binding binding = bound(cell.cell, {1003, 5, 511}, 19, Dtype::F32, false);
  binding.run.threads = 2;
  const std::vector<Array> rows = run_sequential(whole, binding.run).states;
  BoundRun run = binding.run;
  run.wanted.finals.assign(rows.size(), false);
  run.wanted.outs.assign(cell.cell.outs.size(), false);
  steps.together->worth = 0;
  const std::vector<Array> made = run_sequential(steps, run, {}, &rows).states;
  EXPECT_EQ(difference("state", rows, made), "");
  // Steps of a cell with outs make them, too, in parts of rows that nobody wants: each sequence alone.
  EXPECT_EQ(steps.together->is_compiled(), cell.cell.outs.empty());
}

INSTANTIATE_TEST_SUITE_P(Cells, Together, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Which runs of a cell ask for such kernels, which take time to compile.
TEST(TogetherOf, SequencesEnoughAndWorkEnough) {
  const AnalysedCell cell = analyse_text(SourceText("test", kCases[1].text));
  const auto asks = [&](const std::vector<std::int64_t>& lengths, std::int64_t worth, int runs, int threads) {
    const CompiledPlan compiled = compile_plan(cell.cell, cell.structure, {.dtype = Dtype::F32});
    compiled.together->worth = worth;
    Binding binding = bound(cell.cell, lengths, 64, Dtype::F32, false);
    binding.run.threads = threads;
    for (int i = 0; i < runs; ++i) run_sequential(compiled, binding.run);
    return compiled.together->is_compiled();
  };
  const std::int64_t step = 3 * 64 * 64;
  EXPECT_FALSE(asks({400, 400, 400}, 0, 1, 1));
  EXPECT_TRUE(asks({400, 400, 400, 400}, 1600 * step, 1, 1));
  EXPECT_FALSE(asks({400, 400, 400, 400}, 1600 * step + 1, 1, 1));
  EXPECT_TRUE(asks({400, 400, 400, 400}, 1600 * step + 1, 2, 1));
  EXPECT_FALSE(asks({400, 400, 400, 400}, 0, 1, 2)) << "a thread would be without any";
  EXPECT_TRUE(asks(std::vector<std::int64_t>(8, 400), 0, 1, 2));
}

// Channel-wise cells have no matrix, and cells whose matrices are states or inputs share none.
TEST(TogetherOf, CellsWithoutSharedMatrices) {
  for (const char* const text : {"cell a[d] { state h[d]\n input x[d]\n param u[d]\n h' = tanh(u*h + x) }",
                                 "cell b[d, e] { state S[d,e]\n input k[e], v[d]\n S' = S + (v - S@k)*k }",
                                 "cell c[d] { state h[d]\n input A[d,d]\n h' = tanh(A@h) }"}) {
    SCOPED_TRACE(text);
    const AnalysedCell cell = analyse_text(SourceText("test", text));
    EXPECT_FALSE(compile_plan(cell.cell, cell.structure, {}).together);
  }
}

}  // namespace
}  // namespace cellc
