// The emitted code against the f64 reference, where loops, chunks and threads have their edges.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "compiler/analysis/structure.h"
#include "compiler/front_end.h"
#include "compiler/plan/plan.h"
#include "runtime/cpu/engine.h"
#include "runtime/cpu/products.h"
#include "runtime/data/bind.h"
#include "runtime/data/read_text.h"
#include "runtime/evaluate/reference.h"

namespace cellc {
namespace {

AnalysedCell compile(const std::string& text) { return analyse_text(SourceText("test", text)); }

struct Shape {
  std::map<std::string, std::int64_t> dims;
  std::int64_t batch = 1, length = 1;
  bool reverse = false;
};

Binding draw(const CellGraph& cell, const Shape& shape, Dtype dtype) {
  BindRequest request;
  request.dims = shape.dims;
  request.batch = shape.batch;
  request.length = shape.length;
  request.reverse = shape.reverse;
  request.random_seed = 11;
  request.dtype = dtype;
  request.threads = 1;
  return bind(cell, request);
}

double tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::F64:
      return 1e-12;
    case Dtype::F32:
      return 1e-5;
    case Dtype::F16:
      return std::ldexp(1, -10) + 1e-4;
    default:
      return std::ldexp(1, -7) + 1e-4;
  }
}

void expect_right(const std::string& text, const std::vector<Shape>& shapes,
                  const std::vector<Dtype>& dtypes = {Dtype::F32, Dtype::F64},
                  const std::vector<int>& vector_bits = {0}) {
  const AnalysedCell c = compile(text);
  for (const Dtype dtype : dtypes) {
    for (const int bits : vector_bits) {
      const Program program =
          Program::compile(c.cell, c.structure, {.dtype = dtype, .cpu = "native", .vector_bits = bits});
      for (const Shape& shape : shapes) {
        const Binding b = draw(c.cell, shape, dtype);
        const Deviation d = compare(c.cell, b.run, program.run(b.run), reference_run(c.cell, b.run));
        EXPECT_LE(d.error, tolerance(dtype))
            << c.cell.name << ' ' << to_string(dtype) << ", vectors of " << bits << ", B=" << shape.batch
            << " T=" << shape.length << " first length " << (shape.dims.empty() ? 0 : shape.dims.begin()->second)
            << ": " << d.array << " of sequence " << d.sequence << ", step " << d.step;
      }
    }
  }
}

std::vector<Shape> shapes_of(const std::string& axis) {
  std::vector<Shape> shapes;
  for (const std::int64_t d : {1, 7, 8, 15, 16, 17, 33, 64}) {
    for (const std::int64_t steps : {0, 1, 2, 19}) shapes.push_back({{{axis, d}}, 2, steps, d % 2 == 0});
  }
  shapes.push_back({{{axis, 5}}, 0, 3});
  return shapes;
}

const std::string kParaGru(read_text(CELLC_SOURCE_DIR "/dsl-examples/01_para_gru.cell").text());

const char* const kLstm = R"(cell lstm[d, m] {
  state c[d], h[d]
  input x[m]
  param Wi[d,m], Wf[d,m], Wg[d,m], Wo[d,m], Ui[d,d], Uf[d,d], Ug[d,d], Uo[d,d]
  param bi[d], bf[d], bg[d], bo[d]
  c' = sigmoid(Wf@x + Uf@h + bf)*c + sigmoid(Wi@x + Ui@h + bi)*tanh(Wg@x + Ug@h + bg)
  h' = sigmoid(Wo@x + Uo@h + bo)*tanh(c')
})";

const char* const kMamba = R"(cell mamba[d, n, r, w=4] {
  state h[d,n]
  input x[d], gate[d]
  param conv[d,w], cb[d], W1[r,d], W2[d,r], bt[d], WB[n,d], WC[n,d], A_log[d,n], D[d] = 1
  u  = silu(sum[w](conv*lag[w](x)) + cb)
  dt = softplus(W2@W1@u + bt)
  h' = exp(-dt*exp(A_log))*h + dt*u*(WB@u)
  out y = (h'@(WC@u) + D*u)*silu(gate)
})";

TEST(Emit, ChannelwiseInEveryWidthAndStorage) {
  expect_right(kParaGru, shapes_of("d"), {Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16}, {0, 128, 256});
}

TEST(Emit, SeveralStatesReadOldValues) {
  expect_right("cell swap[d] { state a[d] = 1, b[d]\n input u[d]\n a' = b + u\n b' = a\n }", shapes_of("d"),
               {Dtype::F32, Dtype::F64, Dtype::F16});
}

TEST(Emit, ScalarizedCells) {
  expect_right(R"(cell lorenz { state x = 1, y = 1, z = 20
    dt = 0.01
    x' = x + dt*10*(y - x)
    y' = y + dt*(x*(28 - z) - y)
    z' = z + dt*(x*y - 8/3*z)
    out s = x' + y' })",
               {{{}, 1, 0}, {{}, 1, 1}, {{}, 3, 20, true}});
}

TEST(Emit, NumbersStayInRegisters) {
  // States of one number among wider ones, read by loops and by sums; swapped; numbers of params at places of their
  // own.
  expect_right(R"(cell numbers[d, k=3] {
    state n, p = 1, q = 2, c[d]
    input x, u[d]
    param a[k] in (-0.5, 0.5), b in (-0.5, 0.5), w[d] in (-0.5, 0.5)
    n' = max(a[1] + n, x) + 0.1*sum[d](w*c)
    p' = q
    q' = b*p + a[2]*tanh(q)
    c' = exp(-abs(n - n'))*c + a[0]*u + q
    out y[d] = n'*c + n
    out z = p + sum[d](w*c')*q })",
               shapes_of("d"), {Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16}, {0, 128});
}

TEST(Emit, MoreNumbersThanAreHeld) {
  // Of 90 states and 180 params some stay and some do not; of 110 states none.
  for (const int count : {90, 110}) {
    std::string states, lines;
    for (int i = 0; i < count; ++i) {
      states += fmt::format("{}h{}", i ? ", " : "", i);
      lines += fmt::format("  h{0}' = 0.5*a[{0},0]*h{0} + a[{0},1]*{1}\n", i, i ? fmt::format("h{}", i - 1) : "x");
    }
    expect_right(fmt::format("cell chain[n={}, c=2] {{\n  state {}\n  input x\n  param a[n,c] in (-1, 1)\n{}}}\n",
                             count, states, lines),
                 {{{}, 2, 0}, {{}, 1, 1}, {{}, 2, 7, true}});
  }
}

TEST(Emit, DenseWithHoistedProducts) {
  std::vector<Shape> shapes;
  for (const std::int64_t d : {1, 15, 16, 17, 33}) shapes.push_back({{{"d", d}, {"m", d + 2}}, 2, 13, d == 16});
  expect_right(kLstm, shapes, {Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16}, {0, 256});
}

TEST(Emit, LongSequencesGoThroughChunks) {
  const std::vector<Shape> shapes = {{{{"d", 9}, {"m", 5}}, 2, 1100},
                                     {{{"d", 9}, {"m", 5}}, 1, 700, true},
                                     {{{"d", 9}, {"m", 5}}, 40, 30},
                                     {{{"d", 9}, {"m", 5}}, 40, 30, true}};
  expect_right(kLstm, shapes, {Dtype::F32, Dtype::F16});
}

TEST(Emit, ProductsOfProductsAndLagAxes) {
  std::vector<Shape> shapes;
  for (const std::int64_t d : {1, 16, 21}) {
    for (const std::int64_t steps : {1, 3, 30, 600}) {
      shapes.push_back({{{"d", d}, {"n", 5}, {"r", 2}}, steps > 100 ? 1 : 2, steps, steps == 3});
    }
  }
  expect_right(kMamba, shapes, {Dtype::F32, Dtype::F64, Dtype::BF16});
}

TEST(Emit, LaterStagesReadEarlierOnesThroughProducts) {
  expect_right(R"(cell gilr_lstm[d] {
    state g[d], c[d]
    input ua[d], ub[d], uf[d], ui[d], uz[d], uo[d]
    param Vf[d,d], Vi[d,d], Vz[d,d], Vo[d,d]
    a  = sigmoid(ua)
    g' = a*g + (1 - a)*tanh(ub)
    c' = sigmoid(Vf@g + uf)*c + sigmoid(Vi@g + ui)*tanh(Vz@g + uz)
    out h = sigmoid(Vo@g' + uo)*tanh(c') })",
               shapes_of("d"), {Dtype::F32, Dtype::F64, Dtype::BF16});
}

TEST(Emit, MatrixStatesInBothOrders) {
  std::vector<Shape> shapes;
  for (const std::int64_t v : {1, 9, 17}) {
    for (const std::int64_t k : {1, 4, 16, 19}) shapes.push_back({{{"v", v}, {"k", k}}, 2, 9});
  }
  expect_right(R"(cell a[v, k] { state S[v,k]
    input key[k] in (-0.2, 0.2), val[v], query[k], beta in (0, 1)
    S' = S + beta*(val - S@key)*key
    out y = S'@query })",
               shapes);
  expect_right(R"(cell b[k, v] { state S[k,v]
    input f in (0, 1), key[k], val[v], query[k]
    param W[v,v]
    S' = f*S + (1 - f)*tanh(S@W + key*val)
    out y = query@S' })",
               shapes);
}

TEST(Emit, BatchedBlocksReductionsAndSoftmax) {
  std::vector<Shape> shapes;
  for (const std::int64_t k : {1, 5, 16, 18}) shapes.push_back({{{"heads", 3}, {"k", k}}, 2, 9});
  expect_right(R"(cell blocks[heads, k] {
    state h[heads,k]
    input u[heads,k], x[heads,k]
    param R[heads,k,k], W[heads,k,k]
    s  = tanh(R@h + W@x + u)
    e  = s - mean[k](s)
    g  = softmax[heads](s)
    h' = g*e*rsqrt(mean[k](e^2) + 1e-2) + max[k](u)*sum[heads,k](u)/size[k] })",
               shapes, {Dtype::F32, Dtype::F64, Dtype::F16});
}

TEST(Emit, TransposesDiagonalsLiteralsAndIdentities) {
  std::vector<Shape> shapes;
  for (const std::int64_t d : {1, 6, 16, 19}) shapes.push_back({{{"d", d}}, 2, 5});
  expect_right(R"(cell odd[j=3, d] {
    state P[d,d] = eye[d,d], h[d]
    input x[j,d]
    param A[d,d], B[d,d]
    P'[i,k] = 0.3*P[k,i] + 0.1*A[i,l]@P[l,k] + 0.2*eye[i,k] + 0.1*B[k,i]
    q[i]    = sum[m](P[i,m]*h[m])
    h'[i]   = tanh(q[i] + x[0,i] - 0.5*x[2,i] + 0.1*h[0] + sum[j](x[j,i]) + h[i]*sum[k](eye[i,k]*A[i,k])) })",
               shapes);
}

TEST(Emit, FixedShortAxes) {
  expect_right(R"(cell pairs[d, c=2] { state h[d,c], g[c]
    input x[d,c]
    param R[c,c]
    h'[d,c] = tanh(R[c,e]@h[d,e] + x + g)
    g' = 0.5*g + sum[d](h)/size[d] })",
               shapes_of("d"));
}

TEST(Emit, LagsComeFromHistory) {
  expect_right(R"(cell biquad[d] { state y[d]
    input x[d]
    param b0, b1, b2, a1 in (-0.3, 0.3), a2 in (-0.3, 0.3)
    y' = b0*x + b1*lag(x, 1) + b2*lag(x, 2) - a1*y - a2*lag(y, 1) })",
               shapes_of("d"), {Dtype::F32, Dtype::F64, Dtype::F16});
}

TEST(Emit, ValuesThatNeedNoStep) {
  expect_right(R"(cell plain[d] { state h[d], k[d]
    input u[d]
    param w[d], s
    h' = 0
    k' = exp(-exp(w))*s + 1
    out a = w
    out b = s*2
    out c = u
    out e = h + k })",
               shapes_of("d"), {Dtype::F32, Dtype::BF16});
}

TEST(Emit, NotANumberIsKept) {
  const AnalysedCell c = compile(R"(cell kinks[d] { state h[d]
    input u[d]
    out a = relu(u)
    out b = min(u, 1)
    out e = max(1, u)
    out f = clip(u, 0, 1)
    out g = where(u, 1, 2)
    out i = u < 1
    out j = u != u
    out k = max[d](u)
    h' = u })");
  const Program program = Program::compile(c.cell, c.structure, {});
  Binding b = draw(c.cell, {{{"d", 19}}, 1, 1}, Dtype::F32);
  Array& u = b.run.symbols[c.cell.find_symbol("u")];
  u.set(0, std::numeric_limits<double>::quiet_NaN());
  u.set(18, std::numeric_limits<double>::infinity());
  const RunOutput got = program.run(b.run), expected = reference_run(c.cell, b.run);
  for (std::size_t o = 0; o < got.outs.size(); ++o) {
    for (std::int64_t i = 0; i < got.outs[o].count(); ++i) {
      const double x = got.outs[o].get(i), y = expected.outs[o].get(i);
      EXPECT_TRUE(x == y || (std::isnan(x) && std::isnan(y)))
          << c.cell.outs[o].name << ' ' << i << ": " << x << ' ' << y;
    }
  }
}

bool same_bits(const Array& a, const Array& b) {
  return a.count() == b.count() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.count()) * size_of(a.dtype())) == 0;
}

void expect_same(const RunOutput& a, const RunOutput& b, const std::string& what) {
  for (std::size_t i = 0; i < a.states.size(); ++i) {
    EXPECT_TRUE(same_bits(a.states[i], b.states[i])) << what << ", state " << i;
    EXPECT_TRUE(same_bits(a.finals[i], b.finals[i])) << what << ", final " << i;
  }
  for (std::size_t i = 0; i < a.outs.size(); ++i) EXPECT_TRUE(same_bits(a.outs[i], b.outs[i])) << what << ", out " << i;
}

TEST(Emit, BitsDoNotDependOnThreads) {
  for (const std::string& text : {kParaGru, std::string(kLstm), std::string(kMamba)}) {
    const AnalysedCell c = compile(text);
    Shape shape{{}, 1, 1500};
    for (const AxisId a : c.cell.header) {
      const Axis& axis = c.cell.graph.axis(a);
      if (!axis.fixed) shape.dims[axis.name] = axis.name == "d" ? 50 : 7;
    }
    for (const std::int64_t batch : {1, 3, 8}) {
      shape.batch = batch;
      for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
        const Program program = Program::compile(c.cell, c.structure, {.dtype = dtype});
        Binding b = draw(c.cell, shape, dtype);
        const RunOutput one = program.run(b.run);
        for (const int threads : {2, 3, 5}) {
          b.run.threads = threads;
          expect_same(one, program.run(b.run), fmt::format("{} B={} threads={}", c.cell.name, batch, threads));
        }
      }
    }
  }
}

/// Rows [begin, end) of an array of rows.
Array rows(const Array& array, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> shape = array.shape();
  const std::int64_t each = shape[0] ? array.count() / shape[0] : 0;
  shape[0] = end - begin;
  Array result(array.dtype(), shape);
  const std::size_t bytes = static_cast<std::size_t>(each) * size_of(array.dtype());
  std::memcpy(result.data(), static_cast<const std::byte*>(array.data()) + static_cast<std::size_t>(begin) * bytes,
              static_cast<std::size_t>(end - begin) * bytes);
  return result;
}

/// Whether equal rows of one product are equal wherever they stand: not in f32 by OpenBLAS's kernels for Haswell
/// and Zen (docs/notes/plan.md).
bool blas_adds_rows_alike(Dtype dtype) {
  constexpr std::int64_t kWidth = 37, kDepth = 37;
  Array matrix(dtype, {kWidth, kDepth}), operand(dtype, {kProductRows, kDepth}), result(dtype, {kProductRows, kWidth});
  for (std::int64_t i = 0; i < matrix.count(); ++i) matrix.set(i, std::sin(1.7 * static_cast<double>(i)));
  for (std::int64_t i = 0; i < operand.count(); ++i) operand.set(i, std::cos(2.3 * static_cast<double>(i % kDepth)));
  multiply_rows({1, kWidth, kDepth}, true, dtype, matrix.data(), operand.data(), result.data(), kProductRows);
  for (std::int64_t i = kWidth; i < result.count(); ++i)
    if (result.get(i) != result.get(i % kWidth)) return false;
  return true;
}

TEST(Emit, ResumedRunHasTheBitsOfTheWhole) {
  for (const auto& [text, own_products] :
       {std::pair{kParaGru, false}, std::pair{std::string(kLstm), false}, std::pair{std::string(kLstm), true}}) {
    const AnalysedCell c = compile(text);
    for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16}) {
      if (text == kLstm && !own_products && !blas_adds_rows_alike(arithmetic_of(dtype))) {
        std::puts("this BLAS adds by a row's place: bits compared with own products only");
        continue;
      }
      CompileOptions options;
      options.dtype = dtype;
      options.own_products = own_products;
      const Program program = Program::compile(c.cell, c.structure, options);
      Shape shape{{{"d", 37}}, 1, 700};
      if (c.cell.header.size() > 1) shape.dims["m"] = 21;
      const Binding b = draw(c.cell, shape, dtype);
      const RunOutput whole = program.run(b.run);
      std::vector<Array> start = b.run.symbols;
      std::int64_t from = 0;
      for (const std::int64_t to : {1, 129, 600, 700}) {
        BoundRun part = b.run;
        part.offsets = {0, to - from};
        for (std::size_t s = 0; s < part.symbols.size(); ++s) {
          if (c.cell.symbols[s].kind == SymbolKind::Input) part.symbols[s] = rows(b.run.symbols[s], from, to);
          if (c.cell.symbols[s].kind == SymbolKind::State) part.symbols[s] = start[s];
        }
        const RunOutput got = program.run(part);
        for (std::size_t i = 0; i < got.states.size(); ++i) {
          EXPECT_TRUE(same_bits(got.states[i], rows(whole.states[i], from, to)))
              << c.cell.name << ' ' << to_string(dtype) << " steps " << from << " to " << to;
          start[c.cell.updates[i].symbol] = got.finals[i];
        }
        from = to;
      }
    }
  }
}

TEST(Plan, SaysWhatRunsWhere) {
  const AnalysedCell c = compile(kLstm);
  const Plan plan = make_plan(c.cell, c.structure);
  EXPECT_EQ(plan.products.size(), 4u);
  EXPECT_EQ(plan.phases.size(), 5u);
  EXPECT_EQ(plan.split_axis, kNoAxis);
  const std::string text = print_plan(c.cell, plan);
  EXPECT_NE(text.find("Wi[d,m] @ x[m]"), std::string::npos) << text;
  // The four recurrent products share the loops and what they read of h.
  std::size_t reductions = 0;
  for (const Nest& nest : plan.kernels[plan.phases.back().index].nests) reductions += nest.is_reduction();
  EXPECT_EQ(reductions, 1u) << text;
}

TEST(Plan, ChannelwiseIsOneLoopThatThreadsShare) {
  const AnalysedCell c = compile(kParaGru);
  const Plan plan = make_plan(c.cell, c.structure);
  ASSERT_EQ(plan.phases.size(), 1u);
  EXPECT_EQ(plan.kernels[0].nests.size(), 1u);
  EXPECT_EQ(plan.split_axis, c.cell.header[0]);
  EXPECT_TRUE(plan.temps.empty());
}

}  // namespace
}  // namespace cellc
