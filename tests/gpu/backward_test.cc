// Gradients on a device against the adjoint step after step in f64: rows of other steps, sums over all rows of every
// shape, batches whole, ragged and empty, both directions of time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/front_end.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/bind.h"
#include "runtime/data/random_fill.h"
#include "runtime/evaluate/reference.h"
#include "runtime/gradient/sum_axes.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

struct TestCell {
  const char* name;
  const char* text;
};

const TestCell kCells[] = {
    {"gru", R"(cell gru[d] {
  state h[d]
  input xz[d], xr[d], xc[d]
  param az[d], ar[d], ac[d]
  z = sigmoid(az*h + xz)
  r = sigmoid(ar*h + xr)
  c = tanh(ac*(r*h) + xc)
  h' = (1 - z)*h + z*c
})"},
    {"dense", R"(cell dense[d, m] {
  state h[d]
  input x[m]
  param W[d,m], U[d,d], b[d], scale = 0.5
  h' = tanh(W@x + 0.3*(U@h) + 0.2*(h@U) + scale*b)
  out y[m] = h'@W
})"},
    {"heads", R"(cell heads[k, d, n] {
  state h[k,d,n]
  input u[k,d], B[k,n], C[n]
  param A[k,n] in (0.1, 0.9), D[d], P[d,n]
  h' = A*h + B*u + 0.1*P
  out y[k,d] = sum[n](C*h') + D*u
})"},
    {"lags", R"(cell lags[d, w=3] {
  state h[d], s
  input x[d]
  param k[w], a
  h' = tanh(0.4*h + 0.3*lag(h, 2) + sum[w](k*lag[w](x)) + a*lag(x, 2))
  s' = 0.5*s + sum[d](h'*a)
})"},
    {"delay_lines", R"(cell delays[d] {
  state h[d], s[d] = 0.25
  input x[d]
  param a, q[d] = 0.7
  h' = tanh(0.4*h*lag(s, 18) + 0.3*lag(h, 2) + a*x)
  s' = q*s + 0.2*lag(h', 30)*x
  out y = lag(s', 40)*a
})"},
    {"stages", R"(cell stages[d] {
  state a[d], b[d]
  input x[d]
  param p, q[d] = 0.7
  a' = 0.9*a + p*x
  b' = q*b + relu(a')*x
  out y = sum[d](b)
})"},
};

struct Shape {
  std::vector<std::int64_t> offsets;
  bool reverse;
};
const Shape kShapes[] = {
    {{0, 37, 74}, false}, {{0, 0, 5, 5, 70}, false}, {{0, 33, 66, 99}, true}, {{0, 1}, false},
    {{0, 1, 40}, true},   {{0, 0}, false},           {{0, 700}, false},
};

/// The plainest sum over steps.
void sum_plainly(const StepSum& sum) {
  const SumAxes axes = sum_axes(sum);
  const std::int64_t rows = sum.left.shape()[0];
  const std::int64_t left_row = rows ? sum.left.count() / rows : 0,
                     right_row = rows && sum.right ? sum.right->count() / rows : 0;
  std::vector<AxisStrides> all;
  for (const auto* part : {&axes.shared, &axes.left, &axes.right, &axes.summed, &axes.repeated})
    all.insert(all.end(), part->begin(), part->end());
  for (std::int64_t row = 0; row < rows; ++row)
    each_position(all, [&](std::int64_t l, std::int64_t r, std::int64_t into) {
      const double term = sum.left.get(row * left_row + l) * (sum.right ? sum.right->get(row * right_row + r) : 1.0);
      sum.into.set(into, sum.into.get(into) + term);
    });
}

class Backward : public testing::TestWithParam<std::size_t> {};

TEST_P(Backward, AgreesWithTheAdjointStepByStep) {
  const AnalysedCell analysed = analyse_text(SourceText("test.cell", kCells[GetParam()].text));
  const CellGraph& cell = analysed.cell;
  Device device = open_device();
  turns::Turn turn;
  for (const Shape& shape : turn.of(std::vector<Shape>(std::begin(kShapes), std::end(kShapes)))) {
    BoundRun run;
    const std::int64_t rows = shape.offsets.back(), sequences = static_cast<std::int64_t>(shape.offsets.size()) - 1;
    run.offsets = shape.offsets;
    run.reverse = shape.reverse;
    std::int64_t length = 5;
    for (const AxisId a : cell.header) run.sizes[a] = cell.graph.axis(a).fixed.value_or(length += 2);
    std::uint64_t seed = 1;
    const auto drawn = [&](std::vector<std::int64_t> before, const std::vector<AxisId>& axes, double low, double high) {
      for (const std::int64_t n : lengths(cell, run, axes)) before.push_back(n);
      Array array(Dtype::F64, before);
      fill_uniform(array, ++seed, "x", low, high);
      return array;
    };
    run.histories.resize(cell.symbols.size());
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      const Symbol& symbol = cell.symbols[s];
      const double low = symbol.range ? symbol.range->low : -1, high = symbol.range ? symbol.range->high : 1;
      std::vector<std::int64_t> first;
      if (symbol.kind == SymbolKind::Input) first = {rows};
      if (symbol.kind == SymbolKind::State) first = {sequences};
      run.symbols.push_back(drawn(first, symbol.axes, low, high));
      if (symbol.kind == SymbolKind::Input && symbol.max_lag != 0)
        run.histories[s] = drawn({sequences, symbol.max_lag > 0 ? symbol.max_lag : 2}, symbol.axes, low, high);
    }
    Cotangents cotangents;
    for (const StateUpdate& u : cell.updates) {
      const Symbol& state = cell.symbol_of(u);
      cotangents.states.push_back(state.lag_of < 0 ? drawn({rows}, state.axes, -1, 1) : Array());
      cotangents.finals.push_back(state.lag_of < 0 ? drawn({sequences}, state.axes, -1, 1) : Array());
    }
    for (const Out& out : cell.outs) cotangents.outs.push_back(drawn({rows}, out.index, -1, 1));

    const AdjointRun adjoint(cell, results_with(cotangents));
    const RunOutput output = reference_run(cell, run);
    const BoundRun bound = adjoint.bind(run, output, cotangents, Dtype::F64);
    const Gradients expected = adjoint.gather(run, bound, reference_run(adjoint.cell(), bound), sum_plainly);

    for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
      BackwardOnGpu backward(*device.gpu, cell, adjoint, dtype);
      SolveReport report;
      const Gradients found = backward.run(run, output, cotangents, {}, report);
      const Gradients again = backward.run(run, output, cotangents, {}, report);
      bool scans = false;
      for (const StageReport& stage : report.stages) scans = scans || stage.plan.strategy == Strategy::Scan;
      const auto compare = [&](const std::string& name, const Array& got, const Array& twice, const Array& reference) {
        ASSERT_EQ(got.shape(), reference.shape()) << name;
        double size = 0;
        for (std::int64_t i = 0; i < reference.count(); ++i) size = std::max(size, std::abs(reference.get(i)));
        for (std::int64_t i = 0; i < reference.count(); ++i) {
          ASSERT_NEAR(got.get(i), reference.get(i), (dtype == Dtype::F32 ? 3e-5 : 1e-11) * (size + 1e-30))
              << kCells[GetParam()].name << ": " << name << "[" << i << "], rows " << rows << ", " << to_string(dtype);
          // A scan on a card composes maps as they come, so its last bits may be others in another run.
          if (!scans || !on_card()) {
            ASSERT_EQ(got.get(i), twice.get(i)) << name << ": other bits the second time";
          }
        }
      };
      for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
        compare(cell.symbols[s].name, found.symbols[s], again.symbols[s], expected.symbols[s]);
        compare(cell.symbols[s].name + ".lag", found.histories[s], again.histories[s], expected.histories[s]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Backward, testing::Range<std::size_t>(0, std::size(kCells)),
                         [](const auto& info) { return std::string(kCells[info.param].name); });

}  // namespace
}  // namespace cellc
