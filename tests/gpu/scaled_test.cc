// The promise does not depend on units, on a GPU: data of a homogeneous cell that are scaled by a power of two give the
// answer scaled, by every strategy, to the bit (tests/engines/scaled_test.cc, of the CPU).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/gpu/call_setting.h"

namespace cellc {
namespace {

struct Homogeneous {
  const char* name;
  const char* text;     ///< inputs u scale with the states, inputs g do not
  bool rounds = false;  ///< maps are normed by numbers that mix units: what is composed of them is scaled to rounding
  friend void PrintTo(const Homogeneous& cell, std::ostream* out) { *out << cell.name; }
};

constexpr std::int64_t kSteps = 900, kChannels = 33;

/// Peaks, and long quiet stretches between them.
BoundRun scaled_run(const CellGraph& cell, Dtype dtype, int power, std::int64_t steps = kSteps) {
  BoundRun run;
  run.sizes[cell.header[0]] = kChannels;
  run.offsets = {0, steps};
  run.threads = 1;
  oracle::Random random(11);
  for (const Symbol& symbol : cell.symbols) {
    const bool input = symbol.kind == SymbolKind::Input, scales = symbol.name == "u";
    const bool is_narrow = size_of(dtype) == 2;
    Array array(input || !is_narrow ? dtype : Dtype::F32, {input ? steps : 1, kChannels}), rounded(dtype, {1});
    for (std::int64_t t = 0; input && t < steps; ++t)
      for (std::int64_t c = 0; c < kChannels; ++c) {
        const bool quiet = t / 200 % 2 == 1;
        // What is rounded is rounded before it is scaled.
        rounded.set(0, random.uniform(0.5, 1) * (scales && random.chance(0.5) ? -1 : 1) * (scales && quiet ? 0.02 : 1));
        array.set(t * kChannels + c, scales ? std::ldexp(rounded.get(0), power) : rounded.get(0));
      }
    run.symbols.push_back(array);
  }
  return run;
}

/// What may be left beside a number and the size of its state: nothing, or about the tolerance where maps round.
double left(Dtype dtype, bool rounds) { return rounds ? 10 * default_tolerance(dtype) : 0; }

std::string not_scaled(const RunOutput& whole, const RunOutput& scaled, int power, double left) {
  for (std::size_t u = 0; u < whole.states.size(); ++u)
    for (std::int64_t i = 0; i < whole.states[u].count(); ++i) {
      const double want = std::ldexp(whole.states[u].get(i), power), got = scaled.states[u].get(i);
      if (!(std::fabs(got - want) <= left * (std::fabs(want) + std::ldexp(1, power))))
        return fmt::format("times 2^{}: state {} entry {} is {} and not {}", power, u, i, got, want);
    }
  return {};
}

class GpuScaled : public testing::TestWithParam<Homogeneous> {};

TEST_P(GpuScaled, ByPowersOfTwo) {
  Device device = open_device();
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16}) {
    // What f16 holds whole, and not the last bits of.
    const std::vector<int> powers = dtype == Dtype::F16 ? std::vector{0, 3, 6} : std::vector{0, -30, 30};
    const std::string attempt = try_cell(GetParam().text, [&](const SourceText& source, const LoweredCell& cell) {
      std::vector<Forced> strategies;
      {
        CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
        strategies = forced(solver, cell, scaled_run(cell.graph, dtype, 0, 0).sizes);
      }
      for (const Forced& f : strategies) {
        std::vector<RunOutput> outputs;
        std::vector<SolveReport> reports;
        for (const int power : powers) {
          const BoundRun run = scaled_run(cell.graph, dtype, power);
          CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
          device.reorder(0);  // the same order of threads every time
          SolveReport report;
          solver.upload(run, f.options);
          // What calls learn from each other has no units either.
          for (int call = 0; call < (f.strategy == Strategy::Auto ? 2 : 0); ++call) {
            solver.launch(0);
            solver.report(report, 0);
          }
          outputs.push_back(solver.run(run, f.options, report));
          reports.push_back(report);
          const std::string where = fmt::format("{}, {}: ", to_string(f.strategy), to_string(dtype));
          if (!report.converged) return where + "not converged";
          if (!GetParam().rounds && report.repaired != reports[0].repaired)
            return fmt::format("{}{} repaired, and not {}", where, report.repaired, reports[0].repaired);
          if (const std::string wrong = not_scaled(outputs[0], outputs.back(), power, left(dtype, GetParam().rounds));
              !wrong.empty())
            return where + wrong;
        }
      }
      return std::string();
    });
    EXPECT_EQ(attempt, "");
  }
}

TEST_P(GpuScaled, OnArraysOfACaller) {
  Device device = open_device();
  const std::string attempt = try_cell(GetParam().text, [&](const SourceText& source, const LoweredCell& cell) {
    std::vector<RunOutput> outputs;
    for (const int power : {0, -30, 30}) {
      SolveReport report;
      device.reorder(0);  // the same order of threads every time
      outputs.push_back(
          run_called(*device.gpu, cell, source, Dtype::F32, scaled_run(cell.graph, Dtype::F32, power), {}, report));
      if (const std::string wrong = not_scaled(outputs[0], outputs.back(), power, left(Dtype::F32, GetParam().rounds));
          !wrong.empty())
        return wrong;
    }
    return std::string();
  });
  EXPECT_EQ(attempt, "");
}

INSTANTIATE_TEST_SUITE_P(PromiseCells, GpuScaled,
                         testing::Values(Homogeneous{"peak",
                                                     "cell peak[d] {\n  state v[d]\n  input u[d], g[d]\n"
                                                     "  v' = where(abs(u) > v, abs(u), v - 1e-3*v*g)\n}\n"},
                                         Homogeneous{"leaky",
                                                     "cell leaky[d] {\n  state v[d]\n  input u[d], g[d]\n"
                                                     "  v' = 0.99*v + g*u\n}\n"},
                                         Homogeneous{"clipped",
                                                     "cell clipped[d] {\n  state v[d]\n  input u[d], g[d]\n"
                                                     "  v' = min(max(0.95*v, 0.1*u), abs(u))\n}\n"},
                                         Homogeneous{"slow",
                                                     "cell slow[d] {\n  state v[d]\n  input u[d], g[d]\n"
                                                     "  v' = sqrt((1 - 0.002*g)*v^2 + 0.002*u^2)\n}\n"},
                                         Homogeneous{"parallel",
                                                     "cell parallel[d] {\n  state v[d]\n  input u[d], g[d]\n"
                                                     "  v' = (v*g + abs(u))*abs(u)/(0.5*v + abs(u))\n}\n",
                                                     true},
                                         Homogeneous{
                                             "norm",
                                             "cell norm[d] {\n  state v[d], w[d]\n  input u[d], g[d]\n"
                                             "  v' = 0.9*sqrt(v^2 + 0.1*w^2) + 0.1*g*u\n  w' = 0.7*w + 0.2*v\n}\n"}),
                         [](const auto& info) { return std::string(info.param.name); });

/// A peak that is held for long, of data far below 1.
constexpr const char* kQuiet = R"(cell peak[d] {
  state v[d]
  input u[d], g[d]
  v' = where(abs(u) > v, abs(u), v - 1e-4*v*g)
}
)";

TEST(PromiseOfQuietSignals, IsNotKeptByBeingSmall) {
  Device device = open_device();
  const std::string attempt = try_cell(kQuiet, [&](const SourceText& source, const LoweredCell& cell) {
    for (const int power : {-40, -20}) {
      BoundRun run = scaled_run(cell.graph, Dtype::F32, power, 3000);
      // No decay for long, so that nothing is forgotten.
      Array& g = run.symbols[2];
      for (std::int64_t i = 0; i < g.count(); ++i)
        if (i / kChannels / 500 % 2) g.set(i, 0);
      CudaSolver solver(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source);
      SolveReport report;
      const RunOutput output = solver.run(run, {}, report);
      std::vector<double> v(kChannels, 0);
      for (std::int64_t i = 0; i < g.count(); ++i) {
        double& s = v[static_cast<std::size_t>(i % kChannels)];
        const double u = std::fabs(run.symbols[1].get(i));
        s = u > s ? u : s - 1e-4 * s * g.get(i);
        if (!(std::fabs(output.states[0].get(i) - s) <= 1e-3 * s))
          return fmt::format("2^{}: entry {} is {} and not {}", power, i, output.states[0].get(i), s);
      }
    }
    return std::string();
  });
  EXPECT_EQ(attempt, "");
}

// What a caller tolerates in units of a state reaches the kernels: a boundary that is off by less is not repaired.
TEST(PromiseOfUnits, AbsoluteTolerance) {
  Device device = open_device();
  const char* const text = "cell leaky[d] {\n  state v[d]\n  input u[d], g[d]\n  v' = 0.999*v + tanh(0.01*g*u)\n}\n";
  const std::string attempt = try_cell(text, [&](const SourceText& source, const LoweredCell& cell) {
    const BoundRun run = scaled_run(cell.graph, Dtype::F32, 0);
    SolveOptions options;
    options.solver = Strategy::Segmented;
    options.plan = {StagePlan{Strategy::Segmented, 64, 8, "test"}};
    std::vector<std::int64_t> repaired;
    for (const double absolute : {0.0, 100.0}) {
      options.absolute_tolerance = absolute;
      CudaSolver solver(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source);
      SolveReport report;
      solver.run(run, options, report);
      repaired.push_back(report.repaired);
    }
    options.absolute_tolerance = 0;
    options.absolute_tolerances["v"] = 100;
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source);
    SolveReport report;
    solver.run(run, options, report);
    repaired.push_back(report.repaired);
    if (repaired[0] == 0 || repaired[1] != 0 || repaired[2] != 0)
      return fmt::format("repaired {}, {} and {}", repaired[0], repaired[1], repaired[2]);
    return std::string();
  });
  EXPECT_EQ(attempt, "");
}

}  // namespace
}  // namespace cellc
