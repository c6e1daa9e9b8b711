// Whole cells on a device by every strategy that they admit, against the oracle: the same tests on the
// emulator and, where CELLC_TEST_DEVICE=gpu asks for it, on a card. What is written must agree with the
// oracle, what is reported with what was asked.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "compiler/diagnostic.h"
#include "compiler/jacobian.h"
#include "compiler/lower.h"
#include "compiler/structure_rules.h"
#include "runtime/cuda/cuda_solver.h"
#include "tests/emulator/emulator.h"
#include "tests/engines/against_oracle.h"
#include "tests/gpu/fixtures.h"

namespace cellc {
namespace {

using oracle::Example;

constexpr Strategy kStrategies[] = {Strategy::Auto,     Strategy::Sequential, Strategy::Segmented,
                                    Strategy::Shooting, Strategy::Newton,     Strategy::Scan};

const std::vector<Example>& examples() {
  static const std::vector<Example> all = oracle::load_all_cells(CELLC_SOURCE_DIR);
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const Example& e : examples()) result.push_back(e.name);
  return result;
}

/// The device under test; the emulator runs threads in another order for every seed.
struct Device {
  std::unique_ptr<Gpu> gpu;
  Emulator* emulator = nullptr;
  void reorder(std::uint64_t seed) {
    if (emulator) emulator->set_seed(seed);
  }
};

Device open_device() {
  Device device;
  if (const char* asked = std::getenv("CELLC_TEST_DEVICE"); asked && std::string(asked) == "gpu") {
    std::string reason;
    device.gpu = open_gpu("", reason);
    if (!device.gpu) throw std::runtime_error(reason);
    return device;
  }
  EmulatorOptions quick;  // what runs here is short: compiling is what takes time
  quick.optimisation = 0;
  auto emulator = open_emulator(quick);
  device.emulator = emulator.get();
  device.gpu = std::move(emulator);
  return device;
}

struct LoweredCell {
  LoweredCell(const Example& file, const Cell& tree) : graph(lowered(file, tree)), structure(analyse(graph, differentiate(graph))), oracle(file.tree, tree.name) {}
  static CellGraph lowered(const Example& file, const Cell& tree) {
    Diagnostics diagnostics;
    std::optional<CellGraph> graph = lower(file.tree, tree, diagnostics);
    if (!graph) throw std::runtime_error(diagnostics.format(file.source));
    return std::move(*graph);
  }
  CellGraph graph;
  Structure structure;
  oracle::Cell oracle;
};

/// A comparison looks at a state.
bool has_jumps(const CellGraph& cell) {
  std::set<int> states;
  for (std::size_t i = 0; i < cell.symbols.size(); ++i)
    if (cell.symbols[i].kind == SymbolKind::State) states.insert(static_cast<int>(i));
  for (NodeId id = 0; id < cell.graph.size(); ++id) {
    const Node& n = cell.graph[id];
    if (!is_elementwise(n.op)) continue;
    const Slope slope = op_info(n.op).slope;
    if ((slope == Slope::Step && depends_on(cell.graph, id, states)) ||
        (slope == Slope::Select && depends_on(cell.graph, n.args[0], states)))
      return true;
  }
  return false;
}

class CudaStrategies : public testing::TestWithParam<std::string> {
 protected:
  const Example& file() {
    return *std::find_if(examples().begin(), examples().end(), [](const Example& e) { return e.name == GetParam(); });
  }

  /// What asks for `strategy` on every stage that admits it, and for nothing on the others.
  static std::optional<SolveOptions> forced(CudaSolver& solver, const LoweredCell& cell, Strategy strategy, const BoundRun& run) {
    SolveOptions options;
    options.solver = strategy;
    if (strategy == Strategy::Auto || strategy == Strategy::Sequential) return options;
    bool any = false, all = true;
    for (std::size_t k = 0; k < cell.structure.stages.size(); ++k) {
      const bool admitted = !solver.refusal(static_cast<int>(k), strategy, run);
      any = any || admitted;
      all = all && admitted;
      options.plan.push_back(admitted ? StagePlan{strategy, strategy == Strategy::Newton ? 1 : 16, strategy == Strategy::Segmented ? 8 : 0, "test"} : StagePlan{});
    }
    // A stage that couples too much for a thread takes the whole cell to row kernels.
    for (std::size_t k = 0; k < cell.structure.stages.size(); ++k)
      if (!any || solver.refusal(static_cast<int>(k), Strategy::Segmented, run)) return std::nullopt;
    if (all) options.plan.clear();
    return options;
  }

  static std::string judge(const Trial& trial, CudaSolver& solver, const Binding& binding, const SolveOptions& options,
                           const std::vector<std::int64_t>& lengths) {
    SolveReport report;
    const RunOutput output = solver.run(binding.run, options, report);
    if (!report.converged || !report.unconverged.empty()) return "reported as not converged";
    if (!(report.max_residual <= *options.tolerance * 1.001)) return fmt::format("a reported residual of {}", report.max_residual);
    return trial.verify(binding.run, output, lengths);
  }
};

TEST_P(CudaStrategies, AgreeWithOracle) {
  Device device = open_device();
  std::uint64_t seed = 0;
  for (const Cell& tree : file().tree.cells) {
    const LoweredCell cell(file(), tree);
    for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
      CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &file().source);
      oracle::Random random(91);
      // Odd channels; and as many as fill a warp, whose rows are copied whole.
      for (const auto& axes : std::vector<std::vector<std::int64_t>>{{3, 2, 3, 2}, {32, 2, 2, 2}}) {
        if (axes[0] == 32 && dtype == Dtype::F64) continue;
        for (const bool reverse : {false, true}) {
          if (reverse && axes[0] != 3) continue;
          Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, axes), .steps = 67};
          with.starts_given = axes[0] == 3;
          with.reverse = reverse;
          with.step_by_step = file().amplifies.count(tree.name) > 0;
          with.f64_tolerance = 1e-11;
          const Trial trial(cell.graph, cell.oracle, file().ranges, random, with);
          // A residual within the tolerance tips a comparison now and then: what is promised is each step.
          with.step_by_step = with.skip_jumps = true;
          const Trial steps(cell.graph, cell.oracle, file().ranges, random, with);
          const bool jumps = has_jumps(cell.graph);
          const BoundRun shape = trial.bound({67, 67, 67}, false, 1).run;
          for (const Strategy strategy : kStrategies) {
            std::optional<SolveOptions> solve = forced(solver, cell, strategy, shape);
            if (!solve) continue;
            solve->tolerance = dtype == Dtype::F64 ? 1e-13 : 1e-6;
            SCOPED_TRACE(fmt::format("{} by {}, {}, {} channels{}", tree.name, to_string(strategy), to_string(dtype), axes[0],
                                     reverse ? ", reversed" : ""));
            const auto run = [&](const std::vector<std::int64_t>& lengths, bool packed) {
              device.reorder(seed++);
              const Trial& with = jumps && strategy != Strategy::Sequential ? steps : trial;
              return judge(with, solver, with.bound(lengths, packed, 1), *solve, lengths);
            };
            if (axes[0] == 3 && !reverse) {
              for (const std::int64_t steps : {0, 1, 2, 31, 33})
                ASSERT_EQ(run({steps, steps}, false), "") << "T=" << steps;
              ASSERT_EQ(run({}, false), "") << "an empty batch";
            }
            ASSERT_EQ(run({67, 67, 67}, false), "") << "B=3 T=67";
            ASSERT_EQ(run({64, 0, 67}, true), "") << "packed";
          }
        }
      }
    }
  }
}

/// A linear stage in a single pass: one channel along time, rows of 32, and what fits neither; pieces that wait for
/// each other, and the same scratch from call to call.
TEST(CudaScan, PiecesAreThoseOfThePlan) {
  Device device = open_device();
  const Example& file = *std::find_if(examples().begin(), examples().end(), [](const Example& e) { return e.name == "08_gilr"; });
  const LoweredCell cell(file, file.tree.cells.at(0));
  ASSERT_EQ(cell.structure.stages.size(), 1u);
  for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &file.source);
    oracle::Random random(17);
    for (const std::int64_t channels : {64, 37, 1}) {
      Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, {channels, 2, 2, 2}), .steps = 700};
      with.starts_given = true;
      with.f64_tolerance = 1e-11;
      const Trial trial(cell.graph, cell.oracle, file.ranges, random, with);
      for (const std::vector<std::int64_t>& lengths : std::vector<std::vector<std::int64_t>>{{700, 700, 700}, {130, 0, 700}}) {
        const Binding binding = trial.bound(lengths, lengths[0] != lengths[2], 1);
        for (const std::int64_t segment : {64, 0}) {
          SolveOptions options;
          options.solver = Strategy::Scan;
          if (segment) options.plan.push_back({Strategy::Scan, segment, 0, "test"});
          SolveReport report;
          const RunOutput output = solver.run(binding.run, options, report);
          SCOPED_TRACE(fmt::format("{} channels, {}, segment {}", channels, to_string(dtype), segment));
          ASSERT_EQ(trial.verify(binding.run, output, lengths), "");
          EXPECT_TRUE(report.converged);
          EXPECT_EQ(report.stages[0].misses, 0);
          EXPECT_EQ(report.stages[0].max_residual, 0);
          // One channel shares a warp with nobody: 32 threads of 8 steps at least.
          if (segment) {
            EXPECT_EQ(report.stages[0].plan.segment, channels == 1 ? 256 : 64);
          } else if (dtype == Dtype::F32) {
            EXPECT_EQ(report.stages[0].plan.segment, channels == 1 ? 8192 : 256);
          }
        }
      }
    }
  }
}

/// Long sequences of few channels stream through the blocks: along time, by rows, and entry by entry.
TEST(CudaScan, LongSequencesOfFewChannelsStream) {
  Device device = open_device();
  if (device.emulator) {
    EmulatorOptions small;  // ten pieces a multiprocessor
    small.optimisation = 0;
    small.multiprocessors = 1;
    device.gpu = open_emulator(small);
  }
  const Example& file = *std::find_if(examples().begin(), examples().end(), [](const Example& e) { return e.name == "08_gilr"; });
  const LoweredCell cell(file, file.tree.cells.at(0));
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16}) {
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &file.source);
    oracle::Random random(18);
    for (const std::int64_t channels : {1, 2, 3, 4}) {
      // 4480 steps a piece of one channel; 16 bits hold twice as many, 64 half.
      const std::int64_t steps = 10 * device.gpu->facts().multiprocessors * 9600 / channels + 1237;
      Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, {channels, 2, 2, 2}), .steps = static_cast<int>(steps)};
      with.starts_given = true;
      with.f64_tolerance = 1e-11;
      const Trial trial(cell.graph, cell.oracle, file.ranges, random, with);
      // A card needs a million steps to stream, and the oracle seconds for each.
      if (!device.emulator && (channels == 3 || dtype != Dtype::F32)) continue;
      for (const bool packed : {false, true}) {
        const std::vector<std::int64_t> lengths = packed ? std::vector<std::int64_t>{17, 0, steps} : std::vector<std::int64_t>{steps};
        const Binding binding = trial.bound(lengths, packed, 1);
        SolveOptions options;
        options.solver = Strategy::Scan;
        SolveReport report;
        const RunOutput output = solver.run(binding.run, options, report);
        SCOPED_TRACE(fmt::format("{} channels, {}, {}", channels, to_string(dtype), packed ? "packed" : "one sequence"));
        ASSERT_EQ(trial.verify(binding.run, output, lengths), "");
        EXPECT_TRUE(report.converged);
        if (channels == 1) {
          EXPECT_EQ(report.stages[0].plan.segment, 7 * 32 * 5 * 16 / static_cast<std::int64_t>(size_of(dtype)));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, CudaStrategies, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cellc
