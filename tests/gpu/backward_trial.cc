#include "tests/gpu/backward_trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "compiler/graph/delay_lines.h"
#include "runtime/data/bind.h"
#include "runtime/data/lagged_arrays.h"
#include "runtime/data/random_fill.h"
#include "runtime/evaluate/reference.h"
#include "runtime/gradient/sum_axes.h"

namespace cellc {

const char* const kLinearCell = R"(cell linear[d] {
  state h[d]
  input a[d] in (0.5, 0.99), x[d]
  h' = a*h + x
})";

const std::vector<GradientCell>& gradient_cells() {
  static const std::vector<GradientCell> cells{
      {"gru", R"(cell gru[d] {
  state h[d]
  input xz[d], xr[d], xc[d]
  param az[d], ar[d], ac[d]
  z = sigmoid(az*h + xz)
  r = sigmoid(ar*h + xr)
  c = tanh(ac*(r*h) + xc)
  h' = (1 - z)*h + z*c
})"},
      {"linear", kLinearCell, false},
      {"idle", R"(cell idle[d] {
  state h[d] = 0.5
  input a[d] in (0.5, 0.99), x[d], still[d]
  param unused[d]
  h' = a*h + x + stop_gradient(still)
  out y[d] = h'*x
})"},
      {"lstm", R"(cell lstm[d] {
  state c[d], h[d]
  input xf[d], xi[d], xo[d], xz[d]
  param af[d], ai[d], ao[d], s
  f = sigmoid(af*h + xf)
  i = sigmoid(ai*c + xi)
  c' = f*c + i*tanh(s*xz)
  h' = sigmoid(ao*c' + xo)*tanh(c')
  out y[d] = h'*xo + c
})",
       false},
      {"square", R"(cell square[d] {
  state h[d,d]
  input x[d,d]
  param a[d,d] in (0.2, 0.9), b[d]
  h'[i,j] = tanh(a[i,j]*h[i,j] + b[j]*x[i,j])
})",
       false},
      {"planes", R"(cell planes[d, n] {
  state h[d,n]
  input u[d,n], g[d]
  param a[d,n] in (0.5, 0.9), b[n], c[d], e
  h' = tanh(a*h + b*u + c*g*h) + e*u
})",
       false},
      {"dense", R"(cell dense[d, m] {
  state h[d]
  input x[m]
  param W[d,m], U[d,d], b[d], scale = 0.5
  h' = tanh(W@x + 0.3*(U@h) + 0.2*(h@U) + scale*b)
  out y[m] = h'@W
})"},
      {"mixing", R"(cell mixing[d] {
  state c[d], h[d]
  input x[d], o[d]
  param Ui[d,d], Uf[d,d], Uo[d,d], b[d]
  c' = sigmoid(Uf@h + x)*c + tanh(Ui@h + b)
  h' = sigmoid(Uo@h + o)*tanh(c')
})",
       false},
      {"heads", R"(cell heads[k, d, n] {
  state h[k,d,n]
  input u[k,d], B[k,n], C[n]
  param A[k,n] in (0.1, 0.9), D[d], P[d,n]
  h' = A*h + B*u + 0.1*P
  out y[k,d] = sum[n](C*h') + D*u
})",
       false},
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
      {"few_heads", R"(cell few[k, d, n=2] {
  state h[k,d,n]
  input u[k,d], B[k,n], C[n]
  param A[k,n] in (0.1, 0.9), D[d], P[d,n]
  h' = A*h + B*u + 0.1*P
  out y[k,d] = sum[n](C*h') + D*u
})"},
  };
  return cells;
}

const GradientCell& gradient_cell(const std::string& name) {
  for (const GradientCell& c : gradient_cells())
    if (c.name == name) return c;
  throw std::logic_error("no cell " + name);
}

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

namespace {

/// Every step of a history has what the start has.
void echo_starts(const CellGraph& cell, BoundRun& run) {
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.lag_of >= 0) run.symbols[s] = run.symbols[static_cast<std::size_t>(symbol.lag_of)];
    if (symbol.line_of < 0) continue;
    const Array& start = run.symbols[static_cast<std::size_t>(symbol.line_of)];
    Array& history = run.histories[s];
    const std::int64_t sequences = start.shape()[0], depth = history.shape()[1],
                       entries = sequences ? start.count() / sequences : 0;
    for (std::int64_t at = 0; at < history.count(); ++at)
      history.set(at, start.get(at / (depth * entries) * entries + at % entries));
  }
}

/// What storage makes of a trajectory: a copy that lags has the start and histories at first, which are not rounded.
void store_rows(Array& rows, std::int64_t lag, const BoundRun& run, Dtype storage) {
  const Array stored = convert(convert(rows, storage), Dtype::F64);
  const std::int64_t entries = rows.shape()[0] ? rows.count() / rows.shape()[0] : 0;
  for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s)
    for (std::int64_t row = run.offsets[s]; row < run.offsets[s + 1]; ++row) {
      const std::int64_t step = run.reverse ? run.offsets[s + 1] - 1 - row : row - run.offsets[s];
      for (std::int64_t i = row * entries; i < (row + 1) * entries && step >= lag; ++i) rows.set(i, stored.get(i));
    }
}

}  // namespace

BackwardTrial::BackwardTrial(const CellGraph& cell, const GradientShape& shape, Dtype storage) {
  const Dtype arithmetic = arithmetic_of(storage);
  run.offsets = shape.offsets;
  run.reverse = shape.reverse;
  std::int64_t length = shape.channels - 2;
  for (const AxisId a : cell.header) run.sizes[a] = cell.graph.axis(a).fixed.value_or(length += 2);
  run.histories.resize(cell.symbols.size());
  const std::int64_t rows = run.offsets.back(), sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
  std::uint64_t seed = 1;
  const auto drawn = [&](std::vector<std::int64_t> before, const std::vector<AxisId>& axes, double low, double high,
                         Dtype of) {
    for (const std::int64_t n : lengths(cell, run, axes)) before.push_back(n);
    Array array(of, before);
    fill_uniform(array, ++seed, "x", low, high);
    return convert(array, Dtype::F64);
  };
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    const double low = symbol.range ? symbol.range->low : -1, high = symbol.range ? symbol.range->high : 1;
    const bool is_input = symbol.kind == SymbolKind::Input;
    std::vector<std::int64_t> first;
    if (is_input) first = {rows};
    if (symbol.kind == SymbolKind::State) first = {sequences};
    run.symbols.push_back(drawn(first, symbol.axes, low, high, is_input ? storage : arithmetic));
    if (is_input && symbol.max_lag != 0)
      run.histories[s] = drawn({sequences, symbol.max_lag > 0 ? symbol.max_lag : 2}, symbol.axes, low, high,
                               symbol.line_of < 0 ? storage : arithmetic);
  }
  if (shape.echoes) echo_starts(cell, run);
  for (const DelayLine& line : delay_lines(cell)) {
    const auto s = static_cast<std::size_t>(line.symbol);
    run.histories[s] = history_as_started(cell, run, s);
  }
  const auto has_line = [&](int state) {
    for (const DelayLine& line : delay_lines(cell))
      if (line.state == state) return true;
    return false;
  };
  for (const StateUpdate& u : cell.updates) {
    const Symbol& state = cell.symbol_of(u);
    cotangents.states.push_back(state.lag_of < 0 ? drawn({rows}, state.axes, -1, 1, storage) : Array());
    // Where there is a delay line the rows of the last steps have what their history would have.
    const bool ends = state.lag_of < 0 || !has_line(state.lag_of);
    cotangents.finals.push_back(ends ? drawn({sequences}, state.axes, -1, 1, arithmetic) : Array());
  }
  for (const Out& out : cell.outs) cotangents.outs.push_back(drawn({rows}, out.index, -1, 1, storage));
  if (shape.some) cotangents.states[0] = Array();
  output = reference_run(cell, run);
  for (std::size_t u = 0; u < cell.updates.size(); ++u)
    store_rows(output.states[u], cell.symbol_of(cell.updates[u]).lag, run, storage);
}

Gradients BackwardTrial::expected(const AdjointRun& adjoint) const {
  const BoundRun bound = adjoint.bind(run, output, cotangents, Dtype::F64);
  return adjoint.gather(run, bound, reference_run(adjoint.cell(), bound), sum_plainly);
}

void expect_same(const std::string& about, const Array& found, const Array& again, const Array& expected,
                 double within) {
  ASSERT_EQ(found.count(), expected.count()) << about;
  double size = 0;
  for (std::int64_t i = 0; i < expected.count(); ++i) size = std::max(size, std::abs(expected.get(i)));
  for (std::int64_t i = 0; i < expected.count(); ++i) {
    ASSERT_NEAR(found.get(i), expected.get(i), within * (size + 1e-30)) << about << " [" << i << "]";
    ASSERT_EQ(found.get(i), again.get(i)) << about << " [" << i << "]: other bits the second time";
  }
}

}  // namespace cellc
