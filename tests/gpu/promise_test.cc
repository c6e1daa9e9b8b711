// What every run promises, on a GPU: each step is within the tolerance of what that GPU's sequential kernel makes of
// the rows before it, as they were written. By a strategy that the seed draws: of odd seeds from host arrays, of even
// ones on arrays of a caller. A failure prints how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_gpu --gtest_filter='Promise.HoldsForCells*'
//
// CELLC_CELLS=10000 tries that many, from CELLC_SEED on; CELLC_TEST_DEVICE=gpu on a card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
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
      "test_gpu --gtest_filter='Promise.HoldsForCells*'", [](const std::string& why) { ADD_FAILURE() << why; });
  if (seeds.count_given || seeds.first_given) return;
  EXPECT_GE(counts.runs.size(), 2u);
  EXPECT_EQ(counts.calls, 2);
}

/// Cells of two to four stages, all but the last scanned, each of which reads new values of earlier ones and makes up
/// to ten thousand times as much of them: bends, jumps, and sums that are scanned in turn.
std::string fed_cell(std::uint64_t seed) {
  oracle::Random random(seed ^ 0x5fed);
  const auto pick = [&](const std::vector<std::string>& of) {
    return of[static_cast<std::size_t>(random.below(static_cast<int>(of.size())))];
  };
  const auto filled = [](std::string text, const std::map<std::string, std::string>& marks) {
    for (const auto& [mark, by] : marks)
      for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += by.size())
        text.replace(at, mark.size(), by);
    return text;
  };
  const int stages = 2 + random.below(3);
  std::string states, inputs, lines;
  std::vector<std::string> known;  // whose new values may be read
  for (int i = 0; i < stages; ++i) {
    std::map<std::string, std::string> marks{{"$s", fmt::format("s{}", i)},
                                             {"$q", fmt::format("q{}", i)},
                                             {"$u", fmt::format("u{}", i)},
                                             {"$a", fmt::format("a{}", i)}};
    inputs += filled(i ? ", $u[d], $a[d] in (0.85, 1)" : "$u[d], $a[d] in (0.85, 1)", marks);
    states += filled(i ? ", $s[d]" : "$s[d]", marks);
    std::string fed = "$u";
    if (i > 0) {
      const std::string gain = fmt::format("{:.0f}", std::pow(10.0, random.uniform(0, 4)));
      marks["$f"] = known[static_cast<std::size_t>(random.below(i))];
      marks["$g"] = gain;
      fed = pick({"sin($g*$f')", "tanh($g*($f' - $u))", "where($g*$f' > $u, 1, -1)", "clip($g*$f', -1, 1)*$u",
                  "sin($g*$f' + lag($f, 1))", "0.3*(sin($g*$f') + sin(7*$f))"});
    }
    if (i + 1 == stages) {
      marks["$x"] = fed;
      lines += filled(
          "  $s' = " + pick({"0.9*$s + $x", "tanh($a*$s + $x)", "0.8*$s + 0.1*sin($s) + $x", "sigmoid($u)*$s + $x"}) +
              "\n",
          marks);
      lines = filled(lines, marks);
      continue;
    }
    marks["$x"] = fed;
    const std::string kind = pick({"  $s' = $a*$s + $x\n", "  $s' = max($a*$s, $x)\n", "  $s' = relu($a*$s + $x)\n",
                                   "  $s' = clip(0.97*$s + $x, -1, 1)\n", "  $s' = ($a*$s + abs($x))/(0.3*$s + 2)\n",
                                   "  $s' = $a*(0.8*$s - 0.6*$q) + $x\n  $q' = $a*(0.6*$s + 0.8*$q)\n"});
    if (kind.find("$q'") != std::string::npos) states += filled(", $q[d]", marks);
    lines += filled(filled(kind, marks), marks);
    known.push_back(marks["$s"]);
  }
  if (random.chance(0.5)) lines += fmt::format("  out y = {}' + s{}'\n", known.back(), stages - 1);
  return fmt::format("cell fed[d] {{\n  state {}\n  input {}\n{}}}\n", states, inputs, lines);
}

/// What does not hold of a cell whose first stage is scanned and read by later ones: on a caller's arrays, or as
/// shipped. `scans`: how many calls there were whose first stage was scanned.
enum Way { kCall = 1, kShipped = 2 };
std::string fed_failure(Device& device, const std::string& text, std::uint64_t seed, int ways, int* scans) {
  return try_cell(text, [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    oracle::Random random(seed);
    const Dtype dtype = seed % 5 == 0 ? Dtype::F64 : Dtype::F32;
    const double tolerance = default_tolerance(dtype);
    PromiseShape shape{{257}, 32};
    if (seed % 4 > 1) shape.lengths = {97, 0, 160};
    shape.reverse = seed % 3 == 0;
    const BoundRun run = promise_run(cell.graph, dtype, shape, random);
    const StepRecheck recheck = recheck_on(device, cell, dtype, source);
    SolveReport said;
    SolveOptions options;
    options.solver = Strategy::Scan;
    for (const Stage& stage : cell.structure.stages)
      if (no_scan(stage, "")) options.solver = Strategy::Auto;
    if (ways & kCall) {
      const RunOutput output = called(device, cell, source, dtype, run, options, said);
      if (scans && said.stages[0].plan.strategy == Strategy::Scan) ++*scans;
      const std::string wrong = broken_promise(recheck, run, output, said, tolerance);
      if (!wrong.empty() || ways == kCall) return wrong.empty() ? wrong : "call: " + wrong;
    }
    ShipRequest request;
    request.card = device.gpu->facts();
    request.prefix = "shipped";
    request.dtype = dtype;
    request.lengths = run.sizes;
    request.solver = options.solver;
    const AotCell shipped(cell.graph, cell.structure, request);
    AotOnDevice program(*device.gpu, shipped);
    Binding binding;
    binding.run = run;
    binding.packed = true;
    binding.batch = static_cast<std::int64_t>(run.offsets.size()) - 1;
    binding.length = run.offsets.back();
    RunOutput made;
    const std::map<std::string, Array> written = program.run(binding, dtype, {});
    const auto take = [&](const std::string& name, std::int64_t first, const std::vector<AxisId>& axes) {
      std::vector<std::int64_t> lengths_of = lengths(cell.graph, run, axes);
      lengths_of.insert(lengths_of.begin(), first);
      const auto found = written.find(name);
      return found == written.end() ? Array(dtype, lengths_of) : found->second.with_shape(lengths_of);
    };
    for (const StateUpdate& u : cell.graph.updates) {
      const Symbol& symbol = cell.graph.symbol_of(u);
      made.states.push_back(take(symbol.name, run.offsets.back(), symbol.axes));
      made.finals.push_back(take(symbol.name + ".final", binding.batch, symbol.axes));
    }
    for (const Out& o : cell.graph.outs) made.outs.push_back(take(o.name, run.offsets.back(), o.index));
    follow_lags(cell.graph, run, made);  // copies that lag are of nobody's arrays
    said = {};
    said.converged = true;  // status 0
    if (std::string wrong = broken_promise(recheck, run, made, said, tolerance); !wrong.empty())
      return "shipped: " + wrong;
    return {};
  });
}

TEST(Promise, HoldsWhereAScanFeedsAStage) {
  Device device = open_device();
  int scans = 0;
  EXPECT_EQ(fed_failure(device, kScanFeedsStage.text, 7, kCall | kShipped, &scans), "");
  EXPECT_EQ(scans, 1);
}

TEST(Promise, HoldsWhereRandomScansFeedStages) {
  Device device = open_device();
  const generate::Seeds seeds(4);  // odd ones are calls, even ones are shipped
  int scans = 0;
  generate::try_seeds(
      seeds, fed_cell,
      [&](const std::string& text, std::uint64_t seed, bool again) {
        return fed_failure(device, text, seed, seed % 2 ? kCall : kShipped, again ? nullptr : &scans);
      },
      "test_gpu --gtest_filter='Promise.HoldsWhereRandom*'", [](const std::string& why) { ADD_FAILURE() << why; });
  if (!seeds.count_given && !seeds.first_given) EXPECT_GE(scans, 1);
}

}  // namespace
}  // namespace cellc
