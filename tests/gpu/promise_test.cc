// What every run promises, on a GPU: each step is within the tolerance of what that GPU's sequential kernel makes of
// the rows before it, as they were written. By a strategy that the seed draws: of odd seeds from host arrays, of even
// ones on arrays of a caller. A failure prints how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_gpu --gtest_filter='Promise.*'
//
// CELLC_CELLS=10000 tries that many, from CELLC_SEED on; CELLC_TEST_DEVICE=gpu on a card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/strategy/choose_strategy.h"
#include "tests/engines/promises.h"
#include "tests/generate/try_cells.h"
#include "tests/gpu/aot_on_device.h"
#include "tests/gpu/call_setting.h"

namespace cellc {
namespace {

struct Counts {
  std::map<Strategy, int> runs;
  int calls = 0;
};

StepRecheck recheck_on(Device& device, const LoweredCell& cell, Dtype dtype, const SourceText& source) {
  auto solver = std::make_shared<CudaSolver>(*device.gpu, cell.graph, cell.structure, dtype, &source);
  return {cell.graph, [solver](const BoundRun& run) {
            SolveOptions options;
            options.solver = Strategy::Sequential;
            SolveReport report;
            return solver->run(run, options, report);
          }};
}

/// The same run on arrays of a caller.
RunOutput called(Device& device, const LoweredCell& cell, const SourceText& source, Dtype dtype, const BoundRun& run,
                 const SolveOptions& options, SolveReport& report) {
  Binding binding;
  binding.run = run;
  binding.dtype = dtype;
  binding.packed = true;
  binding.batch = static_cast<std::int64_t>(run.offsets.size()) - 1;
  binding.length = run.offsets.back();
  CallArrays arrays(*device.gpu, cell.graph, binding, dtype, {});
  Calls calls(*device.gpu, cell, &source, dtype, arrays.shape(), options);
  calls.pool.run(arrays.arrays(), 0, arrays.status(), &report);
  return arrays.read(binding);
}

std::string failure(Device& device, const std::string& text, std::uint64_t seed, Counts* counts) {
  return try_cell(text, [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    oracle::Random random(seed ^ 0x77f1);
    const Dtype dtype = random.chance(0.7) ? Dtype::F32 : Dtype::F64;
    PromiseShape shape{{67, random.below(30), 41}, random.chance(0.5) ? 3 : 32};
    shape.reverse = random.chance(0.3);
    const BoundRun run = promise_run(cell.graph, dtype, shape, random);
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
    const StepRecheck recheck = recheck_on(device, cell, dtype, source);
    std::vector<Forced> strategies = forced(solver, cell, run.sizes);
    // Sequential is what the others are held against; and a call is asked for a solver, not for a plan.
    const bool calls = seed % 2 == 0;
    std::erase_if(strategies, [&](const Forced& f) {
      return f.strategy == Strategy::Sequential || (calls && !f.options.plan.empty());
    });
    const Forced& drawn = strategies[static_cast<std::size_t>(random.below(static_cast<int>(strategies.size())))];
    device.reorder(seed);
    SolveReport report;
    const RunOutput output = calls ? called(device, cell, source, dtype, run, drawn.options, report)
                                   : solver.run(run, drawn.options, report);
    if (counts) ++counts->runs[drawn.strategy], counts->calls += calls;
    const std::string wrong = broken_promise(recheck, run, output, report, default_tolerance(dtype));
    if (wrong.empty()) return {};
    return fmt::format("{}{}: {}{}: {}", calls ? "call, " : "", to_string(drawn.strategy), to_string(dtype),
                       shape.reverse ? ", reversed" : "", wrong);
  });
}

TEST(Promise, HoldsForCellsOfItsOwn) {
  Device device = open_device();
  const generate::Seeds seeds(4);
  Counts counts;
  generate::try_seeds(
      seeds, promise_cell,
      [&](const std::string& text, std::uint64_t seed, bool again) {
        return failure(device, text, seed, again ? nullptr : &counts);
      },
      "test_gpu --gtest_filter='Promise.*'", [](const std::string& why) { ADD_FAILURE() << why; });
  if (seeds.count_given || seeds.first_given) return;
  EXPECT_GE(counts.runs.size(), 2u);
  EXPECT_EQ(counts.calls, 2);
}

/// What does not hold of a cell whose first stage is scanned and read by later ones: on a caller's arrays, and as
/// shipped. `scans`: how many runs there were whose stages before the last were scanned.
std::string fed_failure(Device& device, const std::string& text, std::uint64_t seed, int* scans) {
  return try_cell(text, [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    oracle::Random random(seed);
    PromiseShape shape{{257}, 32};
    if (seed % 2 == 0) shape.lengths = {97, 0, 160};
    shape.reverse = seed % 3 == 0;
    const BoundRun run = promise_run(cell.graph, Dtype::F32, shape, random);
    const StepRecheck recheck = recheck_on(device, cell, Dtype::F32, source);
    SolveReport said;
    SolveOptions options;
    options.solver = Strategy::Scan;
    for (const Stage& stage : cell.structure.stages)
      if (no_scan(stage, "")) options.solver = Strategy::Auto;
    const RunOutput output = called(device, cell, source, Dtype::F32, run, options, said);
    if (scans && said.stages[0].plan.strategy == Strategy::Scan) ++*scans;
    if (std::string wrong = broken_promise(recheck, run, output, said, 1e-6); !wrong.empty()) return "call: " + wrong;
    ShipRequest request;
    request.card = device.gpu->facts();
    request.prefix = "shipped";
    request.lengths = run.sizes;
    request.solver = options.solver;
    const AotCell shipped(cell.graph, cell.structure, request);
    AotOnDevice program(*device.gpu, shipped);
    Binding binding;
    binding.run = run;
    binding.packed = true;
    binding.batch = static_cast<std::int64_t>(run.offsets.size()) - 1;
    binding.length = run.offsets.back();
    RunOutput made = output;
    const std::map<std::string, Array> written = program.run(binding, Dtype::F32, {});
    for (std::size_t u = 0; u < cell.graph.updates.size(); ++u) {
      const Symbol& symbol = cell.graph.symbol_of(cell.graph.updates[u]);
      if (symbol.lag_of >= 0) continue;  // looked at through what it is a copy of
      made.states[u] = written.at(symbol.name).with_shape(output.states[u].shape());
      made.finals[u] = written.at(symbol.name + ".final").with_shape(output.finals[u].shape());
    }
    for (std::size_t o = 0; o < cell.graph.outs.size(); ++o)
      made.outs[o] = written.at(cell.graph.outs[o].name).with_shape(output.outs[o].shape());
    said = {};
    said.converged = true;  // status 0
    if (std::string wrong = broken_promise(recheck, run, made, said, 1e-6); !wrong.empty()) return "shipped: " + wrong;
    return {};
  });
}

TEST(Promise, HoldsWhereAScanFeedsAStage) {
  Device device = open_device();
  int scans = 0;
  EXPECT_EQ(fed_failure(device, kScanFeedsStage.text, 5, &scans), "");
  EXPECT_EQ(scans, 1);
}

}  // namespace
}  // namespace cellc
