// Delay lines against plain loops over arrays: lags below, at and beyond what is a state of its own, runs shorter and
// longer than the lag, ragged, reversed, resumed, in one pass and in blocks of steps.
#include "compiler/graph/delay_lines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compiler/front_end.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/bind.h"
#include "runtime/evaluate/reference.h"

namespace cellc {
namespace {

AnalysedCell load(const std::string& text) { return analyse_text(SourceText("test", text)); }

/// Two states with lags of `n` steps, beside a lag of two, and an out that looks back.
std::string text_of(int n) {
  return fmt::format(R"(cell line[d] {{
  state h[d] = 0.25, g[d]
  input x[d]
  h' = 0.5*x + 0.3*lag(h, {0})*g - 0.2*lag(h, 2) + 0.4*h
  g' = tanh(0.4*g + 0.7*lag(h', {0}))
  out y = lag(g', {0}) + h'
}}
)",
                     n);
}

struct Case {
  int lag;
  std::vector<std::int64_t> lengths;
  bool reverse = false;
};

constexpr std::int64_t kWidth = 3;

double drawn(std::int64_t i) { return std::sin(static_cast<double>(i * i % 1009) + 0.3 * static_cast<double>(i)); }

Array filled(Dtype dtype, const std::vector<std::int64_t>& shape, std::int64_t from) {
  Array array(dtype, shape);
  for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, drawn(from + i));
  return array;
}

/// What the recurrence gives, written as a loop; `h` and `g` by step, with what was before the first in front.
struct Loop {
  std::vector<double> h, g, y;  ///< [rows, kWidth] in the order of the arrays
  std::vector<double> h_lag, g_lag;

  Loop(const Case& c, const Array& x, const Array* before_h, const Array* before_g) {
    std::int64_t row = 0;
    const std::int64_t deep_h = std::max(c.lag, 2), deep_g = std::max(c.lag - 1, 0);
    for (std::size_t b = 0; b < c.lengths.size(); ++b) {
      const std::int64_t steps = c.lengths[b];
      for (std::int64_t i = 0; i < kWidth; ++i) {
        // at[k]: the state after step k - deep - 1; the last of what was before is the start.
        std::vector<double> hs, gs;
        for (std::int64_t j = deep_h; j >= 1; --j)
          hs.push_back(before_h ? before_h->get((static_cast<std::int64_t>(b) * deep_h + j - 1) * kWidth + i) : 0.25);
        hs.push_back(0.25);
        for (std::int64_t j = deep_g; j >= 1; --j)
          gs.push_back(before_g ? before_g->get((static_cast<std::int64_t>(b) * deep_g + j - 1) * kWidth + i) : 0);
        gs.push_back(0);
        h.resize(static_cast<std::size_t>((row + steps) * kWidth));
        g.resize(h.size());
        y.resize(h.size());
        for (std::int64_t t = 0; t < steps; ++t) {
          const std::int64_t at = (row + (c.reverse ? steps - 1 - t : t)) * kWidth + i;
          const auto back = [](const std::vector<double>& s, std::int64_t n) {
            return s[s.size() - 1 - static_cast<std::size_t>(n)];
          };
          const double h1 =
              0.5 * x.get(at) + 0.3 * back(hs, c.lag) * back(gs, 0) - 0.2 * back(hs, 2) + 0.4 * back(hs, 0);
          const double g1 = std::tanh(0.4 * back(gs, 0) + 0.7 * back(hs, c.lag - 1));
          h[static_cast<std::size_t>(at)] = h1;
          g[static_cast<std::size_t>(at)] = g1;
          y[static_cast<std::size_t>(at)] = back(gs, c.lag - 1) + h1;
          hs.push_back(h1);
          gs.push_back(g1);
        }
        h_lag.resize(static_cast<std::size_t>(static_cast<std::int64_t>(b + 1) * deep_h * kWidth));
        for (std::int64_t j = 1; j <= deep_h; ++j)
          h_lag[static_cast<std::size_t>((static_cast<std::int64_t>(b) * deep_h + j - 1) * kWidth + i)] =
              hs[hs.size() - 1 - static_cast<std::size_t>(j)];
        g_lag.resize(static_cast<std::size_t>(static_cast<std::int64_t>(b + 1) * deep_g * kWidth));
        for (std::int64_t j = 1; j <= deep_g; ++j)
          g_lag[static_cast<std::size_t>((static_cast<std::int64_t>(b) * deep_g + j - 1) * kWidth + i)] =
              gs[gs.size() - 1 - static_cast<std::size_t>(j)];
      }
      row += steps;
    }
  }
};

void expect_near(const std::vector<double>& wanted, const Array& got, double within, const std::string& name) {
  ASSERT_EQ(static_cast<std::int64_t>(wanted.size()), got.count()) << name;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(wanted[i], got.get(static_cast<std::int64_t>(i)), within) << name << "[" << i << "]";
}

std::int64_t rows_of(const Case& c) {
  std::int64_t rows = 0;
  for (const std::int64_t n : c.lengths) rows += n;
  return rows;
}

BindRequest request_for(const Case& c, Dtype dtype, const Array& x) {
  BindRequest request;
  request.dtype = dtype;
  request.reverse = c.reverse;
  request.threads = 1;
  request.inputs["x"] = {"x", x};
  Array offsets(Dtype::I64, {static_cast<std::int64_t>(c.lengths.size()) + 1});
  std::int64_t end = 0;
  for (std::size_t b = 0; b < c.lengths.size(); ++b) {
    end += c.lengths[b];
    std::memcpy(static_cast<std::int64_t*>(offsets.data()) + b + 1, &end, sizeof end);
  }
  request.offsets = GivenArray{"offsets", offsets};
  return request;
}

void expect_as_the_loop(const Loop& loop, const AnalysedCell& c, const Binding& binding, const RunOutput& output,
                        double within) {
  for (const auto& [name, array] : written_arrays(c.cell, binding, output)) {
    if (name == "h") expect_near(loop.h, array, within, name);
    if (name == "g") expect_near(loop.g, array, within, name);
    if (name == "y") expect_near(loop.y, array, within, name);
    if (name == "h.lag") expect_near(loop.h_lag, array, within, name);
    if (name == "g.lag") expect_near(loop.g_lag, array, within, name);
  }
}

class DelayLines : public testing::TestWithParam<int> {};

std::vector<Case> cases_of(int lag) {
  return {{lag, {std::max(1, lag - 1), lag, 0, lag + 1}},
          {lag, {2 * lag + 5, 1}, true},
          {lag, {5}},
          {lag, {3 * lag + 40}, false}};
}

TEST_P(DelayLines, AsAPlainLoopHasThem) {
  const AnalysedCell c = load(text_of(GetParam()));
  EXPECT_EQ(c.cell.has_lines(), GetParam() > 15);
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    Solver solver(c.cell, c.structure, {.dtype = dtype});
    for (const Case& at : cases_of(GetParam()))
      for (const bool histories : {false, true}) {
        SCOPED_TRACE(
            fmt::format("{} rows, reverse {}, histories {}, {}", rows_of(at), at.reverse, histories, to_string(dtype)));
        const Array x = filled(dtype, {rows_of(at), kWidth}, 1);
        const auto sequences = static_cast<std::int64_t>(at.lengths.size());
        const Array before_h = filled(dtype, {sequences, std::max(at.lag, 2), kWidth}, 77);
        const Array before_g = filled(dtype, {sequences, at.lag - 1, kWidth}, 999);
        BindRequest request = request_for(at, dtype, x);
        if (histories) {
          request.states["h.lag"] = {"h.lag", before_h};
          if (at.lag > 1) request.states["g.lag"] = {"g.lag", before_g};
        }
        const Binding binding = bind(c.cell, request);
        const Loop loop(at, x, histories ? &before_h : nullptr, histories && at.lag > 1 ? &before_g : nullptr);
        const double within = dtype == Dtype::F64 ? 1e-12 : 2e-5;
        SolveReport report;
        expect_as_the_loop(loop, c, binding, solver.run(binding.run, {}, report), within);
        if (dtype == Dtype::F64) expect_as_the_loop(loop, c, binding, reference_run(c.cell, binding.run), 1e-12);
        if (!c.cell.has_lines()) continue;
        SolveOptions blocks;
        blocks.solver = Strategy::Segmented;
        const RunOutput in_blocks = solver.run(binding.run, blocks, report);
        EXPECT_TRUE(report.converged);
        EXPECT_NE(report.stages.at(0).plan.reason.find("in blocks of"), std::string::npos);
        expect_as_the_loop(loop, c, binding, in_blocks, dtype == Dtype::F64 ? 1e-9 : 1e-4);
      }
  }
}

TEST_P(DelayLines, AResumedRunHasTheBitsOfTheWhole) {
  const AnalysedCell c = load(text_of(GetParam()));
  for (const Dtype dtype : {Dtype::F32, Dtype::BF16, Dtype::F16}) {
    Solver solver(c.cell, c.structure, {.dtype = dtype});
    const std::int64_t all = 2 * GetParam() + 9, cut = GetParam() + 3;
    const Array x = filled(dtype, {all, kWidth}, 5);
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      Array rows(dtype, {end - begin, kWidth});
      for (std::int64_t i = 0; i < rows.count(); ++i) rows.set(i, x.get(begin * kWidth + i));
      return rows;
    };
    const auto run = [&](const Array& rows, const std::map<std::string, GivenArray>& states) {
      BindRequest request = request_for({GetParam(), {rows.shape()[0]}}, dtype, rows);
      request.states = states;
      const Binding binding = bind(c.cell, request);
      SolveReport report;
      std::map<std::string, Array> written;
      for (auto& [name, array] : written_arrays(c.cell, binding, solver.run(binding.run, {}, report)))
        written[name] = array;
      return written;
    };
    std::map<std::string, Array> whole = run(x, {}), head = run(part(0, cut), {});
    std::map<std::string, GivenArray> states;
    for (const char* name : {"h", "g"}) {
      states[name] = {name, head.at(std::string(name) + ".final")};
      const std::string history = std::string(name) + ".lag";
      if (head.contains(history)) states[history] = {history, head.at(history)};
    }
    std::map<std::string, Array> tail = run(part(cut, all), states);
    for (const char* name : {"h", "g", "y"})
      for (std::int64_t i = 0; i < tail.at(name).count(); ++i)
        ASSERT_EQ(tail.at(name).get(i), whole.at(name).get(cut * kWidth + i)) << name << i << to_string(dtype);
    for (const auto& [name, array] : tail)
      for (std::int64_t i = 0; name.find('.') != std::string::npos && i < array.count(); ++i)
        ASSERT_EQ(array.get(i), whole.at(name).get(i)) << name << i << to_string(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Lags, DelayLines, testing::Values(1, 2, 15, 16, 63, 64, 1000, 4096),
                         [](const auto& info) { return fmt::format("Lag{}", info.param); });

TEST(DelayLinesInBlocks, BringWhatRowsOfSixteenBitsHold) {
  for (const int lag : {16, 64, 1000})
    for (const Dtype dtype : {Dtype::BF16, Dtype::F16}) {
      const AnalysedCell c = load(text_of(lag));
      Solver solver(c.cell, c.structure, {.dtype = dtype});
      const Case at{lag, {3 * lag + 40}};
      const Binding binding = bind(c.cell, request_for(at, dtype, filled(dtype, {rows_of(at), kWidth}, 1)));
      SolveReport report;
      const RunOutput want = solver.run(binding.run, {}, report);
      SolveOptions blocks;
      blocks.solver = Strategy::Segmented;
      const RunOutput got = solver.run(binding.run, blocks, report);
      // Rounded once, of numbers that f32 tells apart at most: but for a few, all bits are the same.
      std::int64_t other = 0;
      for (std::int64_t i = 0; i < want.states[0].count(); ++i) other += want.states[0].get(i) != got.states[0].get(i);
      EXPECT_LE(other, want.states[0].count() / 50) << to_string(dtype) << ", lag " << lag;
    }
}

TEST(DelayLinesOfSums, AreReadOnceATerm) {
  // As many operations as there are terms, however they are written.
  const char* const sums[] = {"sum[w](k*lag[w](y))", "k@lag[w](y)", "sum[w](lag[w](y)*k)"};
  for (const char* sum : sums) {
    const AnalysedCell c =
        load(fmt::format("cell taps[w=200] {{\n  state y\n  input x\n  param k[w]\n  y' = x + 0.3*{}\n}}\n", sum));
    int selects = 0, reads = 0;
    for (NodeId id = 0; id < c.cell.graph.size(); ++id) {
      selects += c.cell.graph[id].op == Op::Where;
      reads += c.cell.graph[id].op == Op::Read;
    }
    EXPECT_EQ(selects, 0) << sum;
    EXPECT_LE(reads, 2 * 200 + 40) << sum;
    BindRequest request;
    request.dtype = Dtype::F64;
    request.batch = 1;
    request.length = 450;
    request.inputs["x"] = {"x", filled(Dtype::F64, {1, 450}, 3)};
    request.params["k"] = {"k", filled(Dtype::F64, {200}, 8)};
    for (std::int64_t i = 0; i < 200; ++i) request.params["k"].array.set(i, 0.02 * drawn(8 + i));
    const Binding binding = bind(c.cell, request);
    Solver solver(c.cell, c.structure, {.dtype = Dtype::F64});
    SolveReport report;
    const RunOutput output = solver.run(binding.run, {}, report);
    std::vector<double> y(200, 0.0);  // newest last
    for (std::int64_t t = 0; t < 450; ++t) {
      double total = 0;
      for (std::size_t n = 0; n < 200; ++n)
        total += request.params["k"].array.get(static_cast<std::int64_t>(n)) * y[y.size() - 1 - n];
      y.push_back(request.inputs["x"].array.get(t) + 0.3 * total);
      ASSERT_NEAR(y.back(), output.states[0].get(t), 1e-12) << sum << " step " << t;
    }
  }
}

}  // namespace
}  // namespace cellc
