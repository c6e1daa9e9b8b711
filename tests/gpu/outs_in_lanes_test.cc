// Forward runs whose lanes make outs of their channels (compiler/derive/fused_outs.h): by every strategy beside the
// oracle, in how many passes and with which rows, and where a scan's start was off.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "runtime/data/bind.h"
#include "tests/gpu/aot_on_device.h"
#include "tests/gpu/call_setting.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// A pool, whose only out is its lanes'; one that is not linear, with an out of the step before; and two stages with an
// out each, beside one that mixes channels.
constexpr const char* kCells[] = {
    "cell pool[d] {\n  state c[d]\n  input z[d], f[d], o[d]\n  g = sigmoid(f)\n  c' = g*c + (1 - g)*z\n"
    "  out h = o*c'\n}\n",
    "cell gated[d] {\n  state c[d]\n  input x[d], u[d]\n  param v[d]\n  f = sigmoid(v*c + u)\n"
    "  c' = 0.9*f*c + (1 - f)*x\n  out h = f*c' + u*c\n}\n",
    "cell two[d] {\n  state a[d], b[d]\n  input x[d], g[d]\n  param W[d,d]\n  a' = 0.9*sigmoid(g)*a + x\n"
    "  b' = 0.5*b + tanh(a')\n  out p = a'*g\n  out q = b + b'*x\n  out r = W@b'\n}\n",
};

std::int64_t launches_of(Device& device, CudaSolver& solver) {
  const std::int64_t before = device.emulator->counts().launches;
  solver.launch(0);
  device.gpu->synchronize(0);
  return device.emulator->counts().launches - before;
}

class OutsInLanes : public testing::TestWithParam<std::tuple<std::size_t, Dtype>> {};

TEST_P(OutsInLanes, AgreeWithOracle) {
  const auto [number, dtype] = GetParam();
  Device device = open_device(2);
  std::uint64_t seed = 0;
  const std::string wrong =
      try_cell(kCells[number], [&](const SourceText& source, const LoweredCell& cell) -> std::string {
        CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
        oracle::Random random(31);
        for (const std::vector<std::int64_t>& axes : {std::vector<std::int64_t>{32}, {7}}) {
          Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, axes), .steps = 131};
          with.starts_given = true;
          with.f64_tolerance = 1e-11;
          with.reverse = axes[0] == 7;
          const Trial trial(cell.graph, cell.oracle, {}, random, with);
          for (const Forced& by : forced(solver, cell, sizes_of(cell, axes)))
            for (const RunShape& shape : {RunShape{{131, 131}}, RunShape{{0, 1, 67}, true}}) {
              device.reorder(seed++);
              const Binding binding = trial.bound(shape.lengths, shape.packed, 1);
              SolveReport report;
              SolveOptions options = by.options;
              options.tolerance = dtype == Dtype::F64 ? 1e-12 : 1e-6;
              const RunOutput output = solver.run(binding.run, options, report);
              std::string what = trial.verify(binding.run, output, shape.lengths);
              if (!report.converged) what = "reported as not converged";
              const Strategy ran = report.stages[0].plan.strategy;
              // A walk makes all in one pass; behind a scan stands the walk of what was off.
              const bool once = ran == Strategy::Sequential || ran == Strategy::Scan;
              if (what.empty() && device.emulator && number == 0 && once) {
                if (const auto passes = launches_of(device, solver); passes != (ran == Strategy::Scan ? 2 : 1))
                  what = fmt::format("{} passes", passes);
                if (solver.storage() != dtype) what = "rows do not keep the caller's type";
              }
              if (what.empty() && number == 1 && solver.storage() != arithmetic_of(dtype))
                what = "rows of a cell that may be cut are rounded where its outs read them";
              if (!what.empty())
                return fmt::format("{} channels{} by {}: {}", axes[0], shape.packed ? ", packed" : "",
                                   to_string(by.strategy), what);
            }
        }
        return {};
      });
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(CudaLanes, OutsInLanes,
                         testing::Combine(testing::Values(0, 1, 2),
                                          testing::Values(Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), to_string(std::get<1>(info.param)));
                         });
CELLC_ONE_IN(3, "CudaLanes/OutsInLanes");

// A large factor that meets what is left of it: what composed maps round is a large number where the state is none.
// Rows and outs of those chains, and of no others, are made again.
class OutsInLanesAfterAScan : public testing::Test {
 protected:
  static constexpr std::int64_t kSteps = 1200;
  Device device = open_device(1);
  /// So many that a scan of this card makes outs.
  const std::int64_t kChannels = 32 * device.gpu->facts().multiprocessors;

  OutsInLanesAfterAScan() {
    oracle::Random random(7);
    for (std::int64_t c = 0; c < kChannels; ++c) {
      float h = 0;  // products by powers of two are exact, so that this is every kernel's
      for (std::int64_t t = 0; t < kSteps; ++t) {
        const bool meets = c % 8 == 3 && t % 600 == 150,
                   stays = c % 8 == 3 && t % 600 > 150 && t % 600 < 400;  // over several tiles
        const float factor = meets   ? 0x1p50f
                             : stays ? 1.0f
                                     : 0.5f,
                    term = meets ? -factor * h : static_cast<float>(random.uniform(stays ? -1 : 1, stays ? 1 : 2));
        factors.set(t * kChannels + c, factor);
        terms.set(t * kChannels + c, term);
        const float next = factor * h + term;
        rows.push_back(next);
        outs.push_back(2 * next - h);
        h = next;
      }
    }
  }
  /// What is wrong with rows, or with outs; null: they are not wanted. `within`: of rows, whose steps may each be off.
  std::string wrong(const std::function<double(std::int64_t)>& h, const std::function<double(std::int64_t)>& y,
                    double within = 1e-5) const {
    for (std::int64_t c = 0; c < kChannels; ++c)
      for (std::int64_t t = 0; t < kSteps; ++t) {
        const auto at = static_cast<std::size_t>(c * kSteps + t);
        const std::int64_t place = t * kChannels + c;
        if (!(std::abs(h(place) - rows[at]) <= within)) return fmt::format("h[{}] of channel {}", t, c);
        if (y && !(std::abs(y(place) - outs[at]) <= 2 * within)) return fmt::format("y[{}] of channel {}", t, c);
      }
    return "";
  }

  const SourceText source{"test.cell",
                          "cell grows[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = a*h + x\n  out y = 2*h' - h\n}\n"};
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell{source, tree, tree.cells[0]};
  Array factors{Dtype::F32, {kSteps, kChannels}}, terms{Dtype::F32, {kSteps, kChannels}};
  std::vector<float> rows, outs;  ///< by channel and step
};

TEST_F(OutsInLanesAfterAScan, AreMadeAgainWhereAStartWasOff) {
  CudaSolver solver(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source);
  BoundRun run;
  run.offsets = {0, kSteps};
  run.sizes[cell.graph.header[0]] = kChannels;
  for (const Symbol& symbol : cell.graph.symbols) {
    run.symbols.push_back(symbol.name == "a"   ? factors
                          : symbol.name == "x" ? terms
                                               : Array(Dtype::F32, {1, kChannels}));
    run.histories.emplace_back();
  }
  for (std::int64_t c = 0; c < kChannels; ++c) run.symbols[0].set(c, 0);
  SolveOptions options;
  options.solver = Strategy::Scan;
  SolveReport report;
  const RunOutput output = solver.run(run, options, report);
  EXPECT_TRUE(report.converged);
  ASSERT_EQ(report.stages[0].plan.strategy, Strategy::Scan) << report.stages[0].plan.reason;
  EXPECT_GT(report.repaired, 0);
  EXPECT_EQ(wrong([&](std::int64_t i) { return output.states[0].get(i); },
                  [&](std::int64_t i) { return output.outs[0].get(i); }),
            "");
}

// Both forms of the lanes keep what they have learned in one workspace, and mark what was off there in ways of their
// own.
TEST_F(OutsInLanesAfterAScan, ShareAWorkspaceThatIsKept) {
  ShipRequest request;
  request.lengths[cell.graph.header[0]] = kChannels;
  request.card = device.gpu->facts();
  request.prefix = "shipped";
  request.solver = Strategy::Scan;
  const AotCell shipped(cell.graph, cell.structure, request);
  AotOnDevice program(*device.gpu, shipped);
  program.trusts = true;
  std::vector<GpuBuffer> buffers;
  const auto room = [&](const Array* from) {
    buffers.emplace_back(*device.gpu, static_cast<std::size_t>(kSteps * kChannels) * 4);
    if (from) device.gpu->copy_in(buffers.back().address(), from->data(), buffers.back().bytes(), 0);
    return buffers.back().address();
  };
  std::vector<std::uint64_t> arrays(static_cast<std::size_t>(shipped.layout().words));
  std::size_t of_out = 0;
  GpuAddress h = 0, y = 0;
  int inputs = 0;
  for (const CallField& f : shipped.layout().fields) {
    std::uint64_t& word = arrays[static_cast<std::size_t>(f.word)];
    if (f.kind == FieldKind::Input) word = room(inputs++ == 0 ? &factors : &terms);
    if (f.kind == FieldKind::State) word = h = room(nullptr);
    if (f.kind == FieldKind::Out) word = y = room(nullptr), of_out = static_cast<std::size_t>(f.word);
  }
  std::vector<std::uint64_t> lengths{1, kSteps, 0, 0, 0, 0};
  std::int64_t bytes = 0;
  ASSERT_EQ(program.workspace(lengths.data(), nullptr, &bytes), 0);
  const GpuBuffer workspace(*device.gpu, static_cast<std::size_t>(bytes));
  for (int call = 0; call < 6; ++call) {
    const bool makes_outs = call % 2 == 0;
    lengths[5] = call > 0;  // keep
    arrays[of_out] = makes_outs ? y : 0;
    for (const GpuAddress to : {h, y}) device.gpu->zero(to, static_cast<std::size_t>(kSteps * kChannels) * 4, 0);
    ASSERT_EQ(program.forward(lengths.data(), arrays.data(), workspace.address(), bytes, 0), 0);
    EXPECT_EQ(std::any_of(program.launched.begin(), program.launched.end(),
                          [&](int k) {
                            return shipped.kernels[static_cast<std::size_t>(k)].find("rewalk") != std::string::npos;
                          }),
              makes_outs);
    std::vector<float> found_h(static_cast<std::size_t>(kSteps * kChannels)), found_y(found_h.size());
    device.gpu->copy_out(found_h.data(), h, found_h.size() * 4, 0);
    device.gpu->copy_out(found_y.data(), y, found_y.size() * 4, 0);
    const auto of = [](const std::vector<float>& from) {
      return [&from](std::int64_t i) { return static_cast<double>(from[static_cast<std::size_t>(i)]); };
    };
    // Rows that are mended where they stand are so to the tolerance, step by step.
    EXPECT_EQ(makes_outs ? wrong(of(found_h), of(found_y)) : wrong(of(found_h), nullptr, 1e-3), "") << "call " << call;
  }
}

// Sizes that starts are judged by are those of what lanes have made, whether it is written or not.
TEST(OutsInLanesOfShippedCode, HaveTheSameBitsWithoutStates) {
  constexpr std::int64_t kChannels = 32, kSteps = 1200;
  const SourceText source("test.cell",
                          "cell pool[d] {\n  state c[d]\n  input z[d], f[d]\n  c' = f*c + (1 - f)*z\n"
                          "  out h = z*c'\n}\n");
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  Device device = open_device(1);
  ShipRequest request;
  request.lengths[cell.graph.header[0]] = kChannels;
  request.card = device.gpu->facts();
  request.prefix = "shipped";
  const AotCell shipped(cell.graph, cell.structure, request);
  AotOnDevice program(*device.gpu, shipped);
  program.trusts = true;
  std::vector<std::uint64_t> lengths{1, kSteps, 0, 0, 0, 0};
  std::int64_t bytes = 0;
  ASSERT_EQ(program.workspace(lengths.data(), nullptr, &bytes), 0);
  const GpuBuffer workspace(*device.gpu, static_cast<std::size_t>(bytes));
  for (std::uint64_t seed = 1; seed < 13; ++seed) {
    oracle::Random random(seed);
    std::vector<GpuBuffer> buffers;
    std::vector<std::uint64_t> arrays(static_cast<std::size_t>(shipped.layout().words));
    std::size_t of_state = 0;
    GpuAddress y = 0;
    for (const CallField& f : shipped.layout().fields) {
      if (f.kind != FieldKind::Input && f.kind != FieldKind::State && f.kind != FieldKind::Out) continue;
      std::vector<float> some(kSteps * kChannels);
      for (float& number : some) number = static_cast<float>(random.uniform(-1.6, 1.6));
      buffers.emplace_back(*device.gpu, some.size() * 4);
      device.gpu->copy_in(buffers.back().address(), some.data(), some.size() * 4, 0);
      arrays[static_cast<std::size_t>(f.word)] = buffers.back().address();
      if (f.kind == FieldKind::State) of_state = static_cast<std::size_t>(f.word);
      if (f.kind == FieldKind::Out) y = buffers.back().address();
    }
    std::vector<float> outs[2];
    for (std::vector<float>& found : outs) {
      ASSERT_EQ(program.forward(lengths.data(), arrays.data(), workspace.address(), bytes, 0), 0);
      found.resize(kSteps * kChannels);
      device.gpu->copy_out(found.data(), y, found.size() * 4, 0);
      arrays[of_state] = 0;
    }
    EXPECT_EQ(outs[0], outs[1]) << "seed " << seed;
  }
}

/// The same in arithmetic of `Number`: what is wrong with rows, outs or finals, or with how it ran.
template <class Number>
std::string wrong_of(Dtype dtype, std::int64_t channels, const std::vector<std::int64_t>& lengths, bool reverse,
                     Number factor_that_meets, double within, std::int64_t period = 600, std::int64_t until = 400) {
  const SourceText source("test.cell",
                          "cell grows[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = a*h + x\n  out y = 2*h' - h\n}\n");
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  Device device = open_device(1);
  CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
  BoundRun run;
  run.offsets = {0};
  for (const std::int64_t n : lengths) run.offsets.push_back(run.offsets.back() + n);
  run.reverse = reverse;
  run.sizes[cell.graph.header[0]] = channels;
  const std::int64_t all = run.offsets.back(), sequences = static_cast<std::int64_t>(lengths.size());
  Array factors(dtype, {all, channels}), terms(dtype, {all, channels}), starts(dtype, {sequences, channels});
  std::vector<Number> rows(static_cast<std::size_t>(all * channels)), outs(rows.size());
  std::vector<Number> finals(static_cast<std::size_t>(sequences * channels));
  oracle::Random random(7);
  for (std::int64_t s = 0; s < sequences; ++s)
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto of = static_cast<std::size_t>(s);
      Number h = static_cast<Number>(0.25) * static_cast<Number>(c + 1);
      starts.set(s * channels + c, h);
      for (std::int64_t t = 0; t < lengths[of]; ++t) {
        const std::int64_t row = reverse ? run.offsets[of + 1] - 1 - t : run.offsets[of] + t, at = row * channels + c;
        const std::int64_t in = t % period;
        const bool on = (c + s) % 3 == 0, meets = on && in == period / 4, stays = on && in > period / 10 && in < until;
        // Whole numbers, which add up the same in any order: what passes the large factor is off, and nothing else.
        const Number factor = meets ? factor_that_meets : static_cast<Number>(stays ? 1 : 0),
                     term = meets ? -factor * h : static_cast<Number>(std::floor(random.uniform(-8, 9)));
        factors.set(at, factor);
        terms.set(at, term);
        const Number next = factor * h + term;
        rows[static_cast<std::size_t>(at)] = next;
        outs[static_cast<std::size_t>(at)] = 2 * next - h;
        h = next;
      }
      finals[static_cast<std::size_t>(s * channels + c)] = h;
    }
  for (const Symbol& symbol : cell.graph.symbols) {
    run.symbols.push_back(symbol.name == "a" ? factors : symbol.name == "x" ? terms : starts);
    run.histories.emplace_back();
  }
  SolveOptions options;
  options.solver = Strategy::Scan;
  SolveReport report;
  const RunOutput output = solver.run(run, options, report);
  if (!report.converged) return "did not converge";
  if (report.stages[0].plan.strategy != Strategy::Scan) return report.stages[0].plan.reason;
  if (report.repaired == 0) return "nothing was off";
  const auto apart = [](const Array& found, const std::vector<Number>& wanted) {
    double most = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      most = std::max(most, std::abs(found.get(static_cast<std::int64_t>(i)) - static_cast<double>(wanted[i])));
    return most;
  };
  const double of_rows = apart(output.states[0], rows), of_outs = apart(output.outs[0], outs),
               of_finals = apart(output.finals[0], finals);
  return of_rows <= within && of_outs <= 3 * within && of_finals <= within
             ? ""
             : fmt::format("rows are {}, outs {}, finals {} off", of_rows, of_outs, of_finals);
}

// Groups that are full, and such as are not; time in chunks of 16 bytes; sequences of none, of one step and of many;
// numbers of two words. Each of as many entries as a scan of this card makes outs of.
TEST(OutsInLanesOfMarkedTiles, AreRightInEveryShape) {
  const std::int64_t each = open_device(1).gpu->facts().multiprocessors;
  const auto several = [&](std::int64_t need) {
    return std::vector<std::int64_t>{0, each * need / 2, 1, each * need / 3, 0, each * need / 5, 700};
  };
  EXPECT_EQ(wrong_of<double>(Dtype::F64, 32, {1100 * each}, false, 0x1p80, 1e-9), "");
  EXPECT_EQ(wrong_of<double>(Dtype::F64, 7, several(4800), true, 0x1p80, 1e-9), "");
  EXPECT_EQ(wrong_of<float>(Dtype::F32, 40, several(900), true, 0x1p50F, 1e-4), "");
  EXPECT_EQ(wrong_of<float>(Dtype::F32, 1, {33000 * each}, true, 0x1p50F, 1e-4), "");
  EXPECT_EQ(wrong_of<double>(Dtype::F64, 2, several(16500), false, 0x1p80, 1e-9), "");
  // Where all that a state was is forgotten, the next row follows from any; but the out is made of that state.
  EXPECT_EQ(wrong_of<float>(Dtype::F32, 32, {1100 * each}, false, 0x1p50F, 1e-4, 512, 256), "");
}

}  // namespace
}  // namespace cellc
