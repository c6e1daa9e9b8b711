// Gradients on a device against the adjoint step after step in f64: rows of other steps, sums over all rows of every
// shape, batches whole, ragged and empty, both directions of time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "compiler/front_end.h"
#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/random_fill.h"
#include "runtime/evaluate/reference.h"
#include "tests/gpu/backward_trial.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

const GradientShape kShapes[] = {
    {{0, 37, 74}, false}, {{0, 0, 5, 5, 70}, false},  {{0, 33, 66, 99}, true},
    {{0, 1}, false},      {{0, 1, 40}, true},         {{0, 0}, false},
    {{0, 700}, false},    {{0, 300, 600}, false, 64}, {{0, 333}, true, 32},
};

/// Each of these alone decides which kernels there are.
struct Way {
  const AdjointRun* adjoint;
  Dtype dtype;
  Strategy solver;
  bool checks = true;  ///< otherwise short sequences are scanned by clusters
  PersistentWish persistent{};
  WideProducts wide = WideProducts::WherePaid;
};
std::vector<Way> ways_of(const AdjointRun& adjoint, const AdjointRun& multiplied) {
  std::vector<Way> ways;
  for (const AdjointRun* a : {&adjoint, &multiplied})
    for (const Dtype dtype : {Dtype::F32, Dtype::F64})
      for (const Strategy solver : {Strategy::Auto, Strategy::Sequential, Strategy::Scan, Strategy::Shooting})
        if (a == &multiplied ? dtype == Dtype::F32 || solver == Strategy::Scan : solver == Strategy::Auto) {
          ways.push_back({a, dtype, solver});
          if (solver == Strategy::Scan && dtype == Dtype::F32) ways.push_back({a, dtype, solver, false});
        }
  // Where weights rest in clusters of several blocks.
  ways.push_back({&adjoint, Dtype::F32, Strategy::Persistent, true, {4, 2, 256}});
  ways.push_back({&adjoint, Dtype::F64, Strategy::Persistent, true, {2, 1, 256}});
  ways.push_back({&adjoint, Dtype::F32, Strategy::Auto, true, {}, WideProducts::Always});
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) ways.push_back({&adjoint, dtype, Strategy::Stepped});
  ways.push_back({&adjoint, Dtype::F32, Strategy::Persistent, true, {3, 2, 256, PersistentWish::Exchange::Group}});
  return ways;
}

bool admitted(BackwardOnGpu& backward, const AdjointRun& adjoint, const BoundRun& run, Strategy solver) {
  for (std::size_t k = 0; k < adjoint.structure().stages.size(); ++k)
    if (solver != Strategy::Auto && backward.refusal(static_cast<int>(k), solver, run)) return false;
  return true;
}

class Backward : public testing::TestWithParam<std::size_t> {};

TEST_P(Backward, AgreesWithTheAdjointStepByStep) {
  const GradientCell& of = gradient_cells()[GetParam()];
  const AnalysedCell analysed = analyse_text(SourceText("test.cell", of.text));
  const CellGraph& cell = analysed.cell;
  Device device = open_device();
  const std::vector<Stage>& stages = analysed.structure.stages;
  const bool mixes = std::any_of(stages.begin(), stages.end(), [](const Stage& s) { return s.channel_axes.empty(); });
  turns::Turn turn;
  for (GradientShape shape : turn.of(std::vector<GradientShape>(std::begin(kShapes), std::end(kShapes)))) {
    if (shape.channels > 7 && cell.header.size() > 1) continue;  // many lanes, and no more to see
    // Where channels mix, a step is work for all of them: the emulator had nearly three minutes of 600 steps of 64.
    if (shape.channels > 7 && mixes) shape = {{0, 40}, shape.reverse, shape.channels / 2};
    const BackwardTrial trial(cell, shape);
    const BoundRun& run = trial.run;
    const AdjointRun adjoint(cell, results_with(trial.cotangents)),
        multiplied(cell, results_with(trial.cotangents, true));
    const Gradients expected = trial.expected(adjoint);

    for (const Way& way : ways_of(adjoint, multiplied)) {
      const Dtype dtype = way.dtype;
      BackwardOnGpu backward(*device.gpu, cell, *way.adjoint, dtype);
      SolveOptions options;
      options.solver = way.solver;
      options.check_scans = way.checks;
      options.persistent = way.persistent;
      options.wide_products = way.wide;
      SolveReport report;
      backward.prepare(run, {});
      if (!admitted(backward, *way.adjoint, run, way.solver)) continue;
      const Gradients found = backward.run(run, trial.output, trial.cotangents, options, report);
      const Gradients again = backward.run(run, trial.output, trial.cotangents, options, report);
      const auto compare = [&](const std::string& name, const Array& got, const Array& twice, const Array& reference) {
        ASSERT_EQ(got.shape(), reference.shape()) << name;
        expect_same(fmt::format("{} of {}, {} rows, {}, {}{}", name, of.name, run.offsets.back(), to_string(dtype),
                                to_string(way.solver), way.adjoint == &multiplied ? ", added up in lanes" : ""),
                    got, twice, reference, dtype == Dtype::F32 ? 3e-5 : 1e-11);
      };
      for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
        compare(cell.symbols[s].name, found.symbols[s], again.symbols[s], expected.symbols[s]);
        compare(cell.symbols[s].name + ".lag", found.histories[s], again.histories[s], expected.histories[s]);
      }
    }
  }
}

// What `--products storage` of a bf16 cell stands for: as near as factors of 8 bits are, and no nearer, so they are
// used.
TEST(BackwardProducts, OfBf16AreThoseOfItsStorage) {
  EXPECT_EQ(gradient_products(Products::Storage, Dtype::BF16), Products::Bf16);
  EXPECT_EQ(tangent_products(Products::Storage, Dtype::BF16), Products::Bf16);
  EXPECT_EQ(gradient_products(Products::Storage, Dtype::F32), Products::Storage);
  EXPECT_EQ(gradient_products(Products::Tf32, Dtype::BF16), Products::Tf32);
  const AnalysedCell analysed = analyse_text(SourceText("test.cell", gradient_cells()[7].text));
  const CellGraph& cell = analysed.cell;
  Device device = open_device();
  const BackwardTrial trial(cell, {{0, 9, 18}, false, 19});
  const AdjointRun adjoint(cell, results_with(trial.cotangents));
  const Gradients expected = trial.expected(adjoint);
  for (const PersistentWish::Exchange exchange : {PersistentWish::Exchange::Cluster, PersistentWish::Exchange::Group}) {
    BackwardOnGpu backward(*device.gpu, cell, adjoint, Dtype::F32);
    SolveOptions options;
    options.solver = Strategy::Persistent;
    options.persistent = {2, 2, 256, exchange};
    options.products = Products::Bf16;
    SolveReport report;
    const Gradients found = backward.run(trial.run, trial.output, trial.cotangents, options, report);
    double furthest = 0;
    for (std::size_t s = 0; s < cell.symbols.size(); ++s)
      for (std::int64_t i = 0; i < expected.symbols[s].count(); ++i) {
        const double want = expected.symbols[s].get(i);
        furthest = std::max(furthest, std::abs(found.symbols[s].get(i) - want) / (1 + std::abs(want)));
      }
    EXPECT_LT(furthest, 0.05);
    EXPECT_GT(furthest, 1e-5);
  }
}

Cotangents with_each(const Cotangents& of, const std::function<double(double)>& made) {
  Cotangents result = of;
  for (auto* arrays : {&result.states, &result.finals, &result.outs})
    for (Array& a : *arrays) {
      if (!a.data()) continue;
      Array copy(a.dtype(), a.shape());  // an array shares its numbers with what it was made from
      for (std::int64_t i = 0; i < a.count(); ++i) copy.set(i, made(a.get(i)));
      a = copy;
    }
  return result;
}

/// The largest error of gradients that are `scale` times what is expected, over the largest number of each array.
double error_of(const Gradients& found, const Gradients& expected, double scale) {
  double furthest = 0;
  for (const auto list : {&Gradients::symbols, &Gradients::histories})
    for (std::size_t s = 0; s < (expected.*list).size(); ++s) {
      double most = 0, error = 0;
      const Array& want = (expected.*list)[s];
      for (std::int64_t i = 0; want.data() && i < want.count(); ++i) {
        const double far = std::abs((found.*list)[s].get(i) / scale - want.get(i));
        most = std::max(most, std::abs(want.get(i)));
        error = std::max(error, std::isnan(far) ? std::numeric_limits<double>::infinity() : far);
      }
      if (most > 0) furthest = std::max(furthest, error / most);
    }
  return furthest;
}

// Gradients of a mean are far below what f16 holds, and those of a sum of squares may be far above it: as they are,
// products would be zeros and infinities.
TEST(BackwardProducts, OfF16AreScaledIntoItsRange) {
  EXPECT_EQ(gradient_products(Products::Storage, Dtype::F16), Products::F16);
  EXPECT_EQ(tangent_products(Products::Storage, Dtype::F16), Products::Tf32);
  EXPECT_FALSE(products_named("f16"));
  const char* const kLags =
      "cell c[d, m=24] {\n  state h[d]\n  input x[m]\n  param W[d,m]\n"
      "  h' = 0.5*h + 0.2*lag(h, 2) + W@lag(x, 1)\n}\n";
  for (const char* text : {gradient_cells()[7].text, kLags}) {
    const AnalysedCell analysed = analyse_text(SourceText("test.cell", text));
    const CellGraph& cell = analysed.cell;
    Device device = open_device();
    const BackwardTrial trial(cell, {{0, 9, 9, 18}, false, 19});
    const AdjointRun adjoint(cell, results_with(trial.cotangents));
    const Gradients expected = trial.expected(adjoint);
    for (const Strategy solver : {Strategy::Persistent, Strategy::Auto})
      for (const double scale : {0x1p-60, 1.0, 0x1p60}) {
        if (solver == Strategy::Persistent && text == kLags) continue;  // nothing mixes there
        const Cotangents cotangents = with_each(trial.cotangents, [&](double value) { return value * scale; });
        BackwardOnGpu backward(*device.gpu, cell, adjoint, Dtype::F32);
        SolveOptions options;
        options.solver = solver;
        if (solver == Strategy::Persistent) options.persistent = {2, 2, 256, PersistentWish::Exchange::Cluster};
        options.products = Products::F16;
        SolveReport report;
        const double error =
            error_of(backward.run(trial.run, trial.output, cotangents, options, report), expected, scale);
        EXPECT_LT(error, 4e-3) << to_string(solver) << " " << scale;
        EXPECT_GT(error, 1e-6) << to_string(solver) << " " << scale;  // they are of f16
        EXPECT_EQ(report.stages[0].plan.reason.find("no numbers"), std::string::npos);
      }
  }
}

// An adjoint that grows by more than f16 holds. Products over all steps make again what is not finite, but blocks that
// tell each other numbers of 16 bits have nothing to make it of: then all is made again, with the range of f32. Where
// cotangents are no numbers nothing is.
TEST(BackwardProducts, OfF16ThatLeaveItsRangeAreMadeAgain) {
  const char* const kMixes = "cell c[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = U@h + x\n}\n";
  const char* const kDoesNotMix =
      "cell c[d, m=64] {\n  state h[d]\n  input x[m]\n  param W[d,m]\n  h' = 3*h + W@x\n}\n";
  for (const char* text : {kMixes, kDoesNotMix}) {
    const bool mixes = text == kMixes;
    const AnalysedCell analysed = analyse_text(SourceText("test.cell", text));
    const CellGraph& cell = analysed.cell;
    Device device = open_device();
    const BackwardTrial trial(cell, {{0, mixes ? 16 : 40}, false, 64});
    const AdjointRun adjoint(cell, results_with(trial.cotangents));
    const Gradients expected = trial.expected(adjoint);
    BackwardOnGpu backward(*device.gpu, cell, adjoint, Dtype::F32);
    SolveOptions options;
    options.products = Products::F16;
    if (mixes) {
      options.solver = Strategy::Persistent;
      options.persistent = {2, 2, 256, PersistentWish::Exchange::Group};
    }
    SolveReport report;
    const Gradients found = backward.run(trial.run, trial.output, trial.cotangents, options, report);
    EXPECT_LT(error_of(found, expected, 1), 4e-3);
    EXPECT_EQ(report.stages[0].plan.reason.find("no numbers") != std::string::npos, mixes);
    // What has left the range once is not tried again.
    backward.run(trial.run, trial.output, trial.cotangents, options, report);
    EXPECT_EQ(report.stages[0].plan.reason.find("no numbers") != std::string::npos, mixes);
    const Cotangents none = with_each(trial.cotangents, [](double) { return std::nan(""); });
    BackwardOnGpu other(*device.gpu, cell, adjoint, Dtype::F32);
    other.run(trial.run, trial.output, none, options, report);
    EXPECT_EQ(report.stages[0].plan.reason.find("no numbers"), std::string::npos);
  }
}

// A relaxed adjoint whose iterations do not suffice goes step by step, by the factors that were asked for.
TEST(BackwardProducts, OfF16ThatARelaxationLeavesAreMadeStepByStep) {
  for (const double factor : {0.2, 0.9}) {
    const std::string text = fmt::format(
        "cell c[d] {{\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = tanh({}*(U@h) + x)\n}}\n", factor);
    const AnalysedCell analysed = analyse_text(SourceText("test.cell", text.c_str()));
    const CellGraph& cell = analysed.cell;
    Device device = open_device();
    const BackwardTrial trial(cell, {{0, 20}, false, 16});
    const AdjointRun adjoint(cell, results_with(trial.cotangents));
    BackwardOnGpu backward(*device.gpu, cell, adjoint, Dtype::F32);
    SolveOptions options;
    options.products = Products::F16;
    options.solver = Strategy::Relaxation;
    options.max_iterations = factor < 0.5 ? 50 : 3;
    SolveReport report;
    const Gradients found = backward.run(trial.run, trial.output, trial.cotangents, options, report);
    EXPECT_LT(error_of(found, trial.expected(adjoint), 1), 4e-3) << factor;
    EXPECT_TRUE(report.converged) << factor;
    if (factor > 0.5) EXPECT_GT(report.repaired, 0);
    EXPECT_EQ(report.stages[0].plan.reason.find("no numbers"), std::string::npos) << report.stages[0].plan.reason;
  }
}

/// Which kernels were compiled.
class ListingGpu : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  GpuModule load(const GpuSource& source) override {
    text += source.text;
    return WrappedGpu::load(source);
  }
  std::string text;
};

// What lanes share has a sum over lanes as its gradient: of u[d] along the innermost channels, of B[n] along the
// outermost, where every block leaves a part. Lanes of whole blocks make them; others leave them to a kernel behind.
TEST(BackwardSums, OverLanesAreMadeByLanes) {
  struct Case {
    const char* text;
    std::int64_t channels;
    int outer;  ///< sums along the outermost channels that lanes make; -1: they make none
  };
  const char* const kS6 =
      "cell s[d, n=16] {\n  state h[d,n]\n  input u[d], dt[d], B[n], C[n]\n  param A[d,n], D[d]\n  delta = "
      "softplus(dt)\n"
      "  h' = exp(-delta*exp(A))*h + delta*u*B\n  out y = h'@C + D*u\n}\n";
  const Case kCases[] = {
      {kS6, 32, 2},
      {kS6, 64, 2},
      {kS6, 7, -1},  // blocks would be of several sequences
      {"cell few[d, n=4] {\n  state h[d,n]\n  input u[d], B[n]\n  h' = 0.9*h + tanh(u*B)*h\n  out y = sum[n](h')\n}\n",
       64, 1},
      {"cell heads[d, n=32] {\n  state h[d,n]\n  input g[n], x[d,n]\n  h' = sigmoid(g)*h + x\n}\n", 8, 1},
      {"cell wide[d, n=64] {\n  state h[d,n]\n  input g[n], x[d,n]\n  h' = sigmoid(g)*h + x\n}\n", 8, -1},
  };
  Device device = open_device();
  turns::Turn turn;
  const auto shapes = turn.of(std::vector<GradientShape>{{{0, 37, 74}}, {{0, 3, 3, 20}, true}, {{0, 8, 16, 24, 32}}});
  const auto dtypes = turn.of(std::vector<Dtype>{Dtype::F32, Dtype::F64});
  for (const Case& c : kCases) {
    const AnalysedCell analysed = analyse_text(SourceText("test.cell", c.text));
    const CellGraph& cell = analysed.cell;
    for (GradientShape of : shapes) {
      of.channels = c.channels;
      const BackwardTrial trial(cell, of);
      const AdjointRun adjoint(cell, results_with(trial.cotangents, true));
      const Gradients expected = trial.expected(adjoint);
      for (const Dtype dtype : dtypes) {
        ListingGpu listing(*device.gpu);
        BackwardOnGpu backward(listing, cell, adjoint, dtype);
        SolveOptions options;
        options.solver = Strategy::Sequential;
        SolveReport report;
        const Gradients found = backward.run(trial.run, trial.output, trial.cotangents, options, report);
        const Gradients again = backward.run(trial.run, trial.output, trial.cotangents, options, report);
        const bool makes = listing.text.find(fmt::format("kOuterSums = {};", c.outer)) != std::string::npos;
        EXPECT_EQ(makes, c.outer > 0) << cell.name << c.channels;
        for (std::size_t s = 0; s < cell.symbols.size(); ++s)
          expect_same(
              fmt::format("{} of {}, {} channels, {}", cell.symbols[s].name, cell.name, c.channels, to_string(dtype)),
              found.symbols[s], again.symbols[s], expected.symbols[s], dtype == Dtype::F32 ? 3e-5 : 1e-11);
      }
    }
  }
}

/// With a tolerance that no composed map keeps, every chain of a scan is walked after it.
TEST(BackwardScan, WhatIsOffIsWalkedAndMadeAgain) {
  const AnalysedCell analysed = analyse_text(SourceText("test.cell", gradient_cell("gru").text));
  const CellGraph& cell = analysed.cell;
  Device device = open_device();
  BoundRun run;
  run.offsets = {0, 300, 700};
  for (const AxisId a : cell.header) run.sizes[a] = 37;
  run.histories.resize(cell.symbols.size());
  std::uint64_t seed = 1;
  const auto drawn = [&](std::int64_t first) {
    Array array(Dtype::F32, first ? std::vector<std::int64_t>{first, 37} : std::vector<std::int64_t>{37});
    fill_uniform(array, ++seed, "x", -1, 1);
    return array;
  };
  for (const Symbol& s : cell.symbols)
    run.symbols.push_back(drawn(s.kind == SymbolKind::Input ? 700 : s.kind == SymbolKind::State ? 2 : 0));
  Cotangents cotangents;
  cotangents.states.push_back(drawn(700));
  cotangents.finals.push_back(drawn(2));
  const AdjointRun adjoint(cell, results_with(cotangents, true));
  const RunOutput output = reference_run(cell, run);
  const auto gradients = [&](Strategy solver, double tolerance, std::int64_t& repaired) {
    BackwardOnGpu backward(*device.gpu, cell, adjoint, Dtype::F32);
    SolveOptions options;
    options.solver = solver;
    options.tolerance = tolerance;
    SolveReport report;
    Gradients found = backward.run(run, output, cotangents, options, report);
    repaired = report.repaired;
    return found;
  };
  std::int64_t none = 0, walked = 0;
  const Gradients want = gradients(Strategy::Sequential, 1e-6, none), found = gradients(Strategy::Scan, 1e-30, walked);
  EXPECT_GT(walked, 0);
  for (std::size_t s = 0; s < want.symbols.size(); ++s) {
    const bool param = cell.symbols[s].kind == SymbolKind::Param;
    for (std::int64_t i = 0; i < want.symbols[s].count(); ++i)
      if (param)
        EXPECT_NEAR(found.symbols[s].get(i), want.symbols[s].get(i), 1e-5 * std::abs(want.symbols[s].get(i)) + 1e-6);
      else  // tiles are walked until a step from either state is the same, which the states then need not be
        ASSERT_NEAR(found.symbols[s].get(i), want.symbols[s].get(i), 2.5e-7 * std::abs(want.symbols[s].get(i)) + 1e-9)
            << cell.symbols[s].name << "[" << i << "]";
  }
}

/// Gradients of `h' = a*h + x` for three sequences of 7 channels, which share warps; `last`: the cotangent of the
/// second one's final state.
Gradients of_three_sequences(Device& device, Strategy solver, double last, std::int64_t& repaired) {
  const AnalysedCell analysed = analyse_text(SourceText("test.cell", kLinearCell));
  const CellGraph& cell = analysed.cell;
  BoundRun run;
  run.offsets = {0, 200, 400, 600};
  for (const AxisId a : cell.header) run.sizes[a] = 7;
  run.histories.resize(cell.symbols.size());
  std::uint64_t seed = 1;
  const auto drawn = [&](std::int64_t first, double low, double high) {
    Array array(Dtype::F32, {first, 7});
    fill_uniform(array, ++seed, "x", low, high);
    return array;
  };
  for (const Symbol& s : cell.symbols)
    run.symbols.push_back(s.kind == SymbolKind::State ? drawn(3, -1, 1)
                          : s.range                   ? drawn(600, s.range->low, s.range->high)
                                                      : drawn(600, -1, 1));
  Cotangents cotangents;
  cotangents.states.push_back(drawn(600, -1e-4, 1e-4));
  cotangents.finals.push_back(drawn(3, -1e-4, 1e-4));
  for (int c = 0; c < 7; ++c) cotangents.finals[0].set(7 + c, last);
  const AdjointRun adjoint(cell, results_with(cotangents, true));
  BackwardOnGpu backward(*device.gpu, cell, adjoint, Dtype::F32);
  SolveOptions options;
  options.solver = solver;
  // Far more than rounding beside 1e-4, and less than that beside 1e9.
  options.tolerance = 1e-15;
  options.absolute_tolerance = 1e-9;
  SolveReport report;
  Gradients found = backward.run(run, reference_run(cell, run), cotangents, options, report);
  repaired = report.repaired;
  return found;
}

/// What composed maps make of a sequence that comes from large numbers to small ones is walked again, and what is no
/// number is compared with nothing: neither moves a bit of another sequence.
TEST(BackwardScan, AnotherSequenceKeepsItsBits) {
  Device device = open_device();
  for (const Strategy solver : {Strategy::Sequential, Strategy::Scan})
    for (const double last : {1e9, std::numeric_limits<double>::quiet_NaN()}) {
      std::int64_t none = 0, walked = 0;
      const Gradients sound = of_three_sequences(device, solver, 1e-4, none),
                      other = of_three_sequences(device, solver, last, walked);
      EXPECT_EQ(none, 0);
      if (solver == Strategy::Scan && last > 0) {
        EXPECT_GT(walked, 0);
      }
      for (std::size_t s = 0; s < sound.symbols.size(); ++s) {
        const Array &want = sound.symbols[s], &found = other.symbols[s];
        const std::int64_t each = want.count() / 3;
        if (s > 0) {
          EXPECT_NE(found.get(2 * each - 1), want.get(2 * each - 1)) << "the last step depends on it";
        }
        for (std::int64_t i = 0; i < want.count(); ++i) {
          if (i / each == 1) continue;
          ASSERT_EQ(found.get(i), want.get(i)) << to_string(solver) << ", symbol " << s << "[" << i << "]";
        }
      }
    }
}

/// Rows of 48 channels come sixteen bytes at a time where all arrays allow it, starts among them. Whether they do is
/// found out each time, and how many parts a sum has follows from it.
TEST(BackwardScan, ArraysMayLieAnywhere) {
  const AnalysedCell analysed = analyse_text(SourceText("test.cell", gradient_cell("gru").text));
  const CellGraph& cell = analysed.cell;
  Device device = open_device();
  Gpu& gpu = *device.gpu;
  BoundRun run;
  run.offsets = {0, 300, 600};
  for (const AxisId a : cell.header) run.sizes[a] = 48;
  run.histories.resize(cell.symbols.size());
  std::uint64_t seed = 1;
  const auto drawn = [&](std::int64_t first) {
    Array array(Dtype::F32, first ? std::vector<std::int64_t>{first, 48} : std::vector<std::int64_t>{48});
    fill_uniform(array, ++seed, "x", -1, 1);
    return array;
  };
  for (const Symbol& s : cell.symbols)
    run.symbols.push_back(drawn(s.kind == SymbolKind::Input ? 600 : s.kind == SymbolKind::State ? 2 : 0));
  const RunOutput output = reference_run(cell, run);
  Cotangents cotangents;
  cotangents.states.push_back(drawn(600));
  cotangents.finals.push_back(drawn(2));
  const AdjointRun adjoint(cell, results_with(cotangents, true));
  for (const Strategy solver : {Strategy::Sequential, Strategy::Scan}) {
    BackwardOnGpu backward(gpu, cell, adjoint, Dtype::F32);
    SolveOptions options;
    options.solver = solver;
    SolveReport report;
    const Gradients want = backward.run(run, output, cotangents, options, report);
    for (const std::size_t start_off : {4, 0})
      for (const std::size_t off : {4, 0}) {
        std::vector<GpuBuffer> kept;
        const auto put = [&](const Array& array, std::size_t by) {
          const Array data = convert(array, Dtype::F32);
          const std::size_t bytes = static_cast<std::size_t>(data.count()) * 4;
          kept.emplace_back(gpu, bytes + 16);
          gpu.copy_in(kept.back().address() + by, data.data(), bytes, 0);
          return kept.back().address() + by;
        };
        BackwardArrays at;
        for (std::size_t s = 0; s < cell.symbols.size(); ++s)
          at.symbols.push_back(put(run.symbols[s], cell.symbols[s].kind == SymbolKind::State ? start_off : off));
        at.histories.resize(cell.symbols.size());
        at.trajectories = {put(output.states[0], off)};
        at.states = {put(cotangents.states[0], off)};
        at.finals = {put(cotangents.finals[0], off)};
        backward.place(at);
        backward.launch(0);
        const Gradients found = backward.download(run);
        for (std::size_t s = 0; s < want.symbols.size(); ++s)
          for (std::int64_t i = 0; i < want.symbols[s].count(); ++i)
            ASSERT_NEAR(found.symbols[s].get(i), want.symbols[s].get(i), 2e-5 * (1 + std::abs(want.symbols[s].get(i))))
                << to_string(solver) << ", off by " << off << ", starts by " << start_off << ", "
                << cell.symbols[s].name << "[" << i << "]";
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Backward, testing::Range<std::size_t>(0, gradient_cells().size()),
                         [](const auto& info) { return std::string(gradient_cells()[info.param].name); });
CELLC_ONE_IN(4, "Cells/Backward");

}  // namespace
}  // namespace cellc
