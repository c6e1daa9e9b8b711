// Random cells on arrays of a caller, and as shipped code: strides, finals over starts, defaults, packed and
// empty sequences, lengths of axes from 1 on, against the oracle. All of it follows from the seed. A failure
// prints the smallest cell that still fails and how to run it again:
//
//   CELLC_SEED=N CELLC_CELLS=1 test_gpu --gtest_filter='RandomCalls.*'
//
// CELLC_CELLS=10000 tries that many, from CELLC_SEED on; CELLC_TEST_DEVICE=gpu on a card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/data/errors.h"
#include "tests/engines/lowered_cell.h"
#include "tests/generate/random_cell.h"
#include "tests/generate/try_cells.h"
#include "tests/gpu/aot_on_device.h"
#include "tests/gpu/call_setting.h"
#include "tests/gpu/needed_lengths.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

struct Counts {
  int cells = 0, shipped = 0;
  std::int64_t compared = 0, skipped = 0;
};

Array shaped(const Array& flat, const CellGraph& cell, const BoundRun& run, std::int64_t first,
             const std::vector<AxisId>& axes) {
  std::vector<std::int64_t> shape = lengths(cell, run, axes);
  shape.insert(shape.begin(), first);
  return flat.with_shape(shape);
}

/// What a shipped call wrote, in the order of a RunOutput.
RunOutput output_of(const CellGraph& cell, const Binding& binding, const std::map<std::string, Array>& written,
                    Dtype dtype) {
  RunOutput output;
  const BoundRun& run = binding.run;
  const std::int64_t rows = run.offsets.back(), sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
  for (const StateUpdate& u : cell.updates) {
    const Symbol& symbol = cell.symbols[u.symbol];
    if (symbol.lag_of < 0) {
      output.states.push_back(shaped(written.at(symbol.name), cell, run, rows, symbol.axes));
      output.finals.push_back(shaped(written.at(symbol.name + ".final"), cell, run, sequences, symbol.axes));
    } else {
      std::vector<std::int64_t> shape = lengths(cell, run, symbol.axes);
      shape.insert(shape.begin(), rows);
      output.states.emplace_back(dtype, shape);
      shape[0] = sequences;
      output.finals.emplace_back(arithmetic_of(dtype), shape);
    }
  }
  for (const Out& o : cell.outs) output.outs.push_back(shaped(written.at(o.name), cell, run, rows, o.index));
  follow_lags(cell, run, output);
  return output;
}

/// Why the cell fails ("call: …" or "shipped: …"), or empty. "invalid: …" of a text that is no valid cell.
std::string failure(Device& device, const std::string& text, std::uint64_t seed, Counts* counts) {
  return try_cell(text, [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    oracle::Random random(seed ^ 0x3c6e);
    const Dtype dtype = random.chance(0.6) ? Dtype::F64 : Dtype::F32;
    static const std::vector<std::vector<std::int64_t>> kAxes = {{3, 4, 2}, {32, 2, 2}, {1, 1, 1},
                                                                 {5, 1, 3}, {33, 2, 1}, {1, 7, 2}};
    Trial::Options with{.dtype = dtype,
                        .sizes = oracle::axis_lengths(
                            cell.oracle, kAxes[static_cast<std::size_t>(random.below(static_cast<int>(kAxes.size())))]),
                        .steps = 67,
                        .sequences = 3};
    with.step_by_step = with.skip_jumps = true;
    with.starts_given = random.chance(0.5);
    with.reverse = random.chance(0.4);
    with.f64_tolerance = 1e-11;
    const Trial trial(cell.graph, cell.oracle, {}, random, with);
    static const std::vector<std::vector<std::int64_t>> kLengths = {{67, 67, 67}, {67, 0, 13}, {0, 67, 1}, {1, 1, 1},
                                                                    {67},         {2, 66, 0},  {0, 0}};
    const std::vector<std::int64_t>& steps =
        kLengths[static_cast<std::size_t>(random.below(static_cast<int>(kLengths.size())))];
    const bool even = std::all_of(steps.begin(), steps.end(), [&](std::int64_t n) { return n == steps[0]; });
    const Binding binding = trial.bound(steps, !even || random.chance(0.3), 1);
    SolveOptions solve;
    solve.tolerance = dtype == Dtype::F64 ? 1e-13 : 1e-6;
    static const Strategy kSolvers[] = {Strategy::Auto,     Strategy::Auto,   Strategy::Sequential, Strategy::Segmented,
                                        Strategy::Shooting, Strategy::Newton, Strategy::Scan};
    solve.solver = kSolvers[random.below(7)];
    CallLook look;
    look.strided = random.chance(0.5);
    look.in_place = with.starts_given && random.chance(0.5);
    look.leave_out = !with.starts_given && random.chance(0.7);
    const std::string how =
        fmt::format("{} {} [{}] of {}{}{}{}{}{}", to_string(dtype), to_string(solve.solver), fmt::join(steps, ", "),
                    fmt::join(lengths(cell.graph, binding.run, cell.graph.header), "x"),
                    binding.packed ? ", packed" : "", with.reverse ? ", reversed" : "", look.strided ? ", strided" : "",
                    look.in_place ? ", in place" : "", look.leave_out ? ", with defaults" : "");
    device.reorder(seed);
    std::unique_ptr<Calls> calls;
    CallArrays arrays(*device.gpu, cell.graph, binding, dtype, look);
    try {
      calls = std::make_unique<Calls>(*device.gpu, cell, &source, dtype, arrays.shape(), solve);
    } catch (const SolverError&) {  // a stage does not admit it
      solve.solver = Strategy::Auto;
      calls = std::make_unique<Calls>(*device.gpu, cell, &source, dtype, arrays.shape(), solve);
    }
    for (int time = 0; time < 3; ++time) {
      if (time) arrays.fill(binding);
      SolveReport report;  // after which the plan may be another one
      calls->pool.run(arrays.arrays(), 0, arrays.status(), time == 1 ? &report : nullptr);
      const RunOutput output = arrays.read(binding);
      std::string wrong = trial.verify(binding.run, output, steps);
      if (wrong.empty()) wrong = arrays.wrong_histories(binding, output);
      if (wrong.empty() && arrays.statuses() != std::vector<int>(steps.size(), 0)) wrong = "a status is not 0";
      if (wrong.empty() && !report.converged) wrong = "reported as not converged";
      if (!wrong.empty()) return fmt::format("call: {}, time {}: {}", how, time, wrong);
    }
    if (counts) ++counts->cells;
    ShipRequest request;
    request.dtype = dtype;
    request.lengths = needed_lengths(cell, with.sizes, random.chance(0.4));
    request.card = device.gpu->facts();
    request.prefix = "shipped";
    request.solver = solve.solver;
    std::unique_ptr<AotCell> shipped;
    for (int attempt = 0; !shipped; ++attempt) {
      try {
        shipped = std::make_unique<AotCell>(cell.graph, cell.structure, request);
      } catch (const UsageError&) {  // a length along channels is asked for, too; or the solver is refused
        if (attempt == 2) throw;
        if (attempt == 0)
          request.lengths = needed_lengths(cell, with.sizes, true);
        else
          request.solver = Strategy::Auto;
      }
    }
    AotOnDevice program(*device.gpu, *shipped);
    AotOnDevice::Options options;
    options.gap = look.strided ? 1 + random.below(3) : 0;
    options.defaults = look.leave_out;
    options.in_place = look.in_place;
    options.less_memory = random.chance(0.5);
    const RunOutput output = output_of(cell.graph, binding, program.run(binding, dtype, options), dtype);
    if (const std::string wrong = trial.verify(binding.run, output, steps); !wrong.empty())
      return fmt::format("shipped: {}, {} lengths known: {}", how, request.lengths.size(), wrong);
    if (counts) ++counts->shipped, counts->compared += trial.compared(), counts->skipped += trial.skipped();
    return {};
  });
}

/// Where two runs differ, or nothing.
std::string difference(const CellGraph& cell, const RunOutput& a, const RunOutput& b) {
  const auto differ = [](const Array& x, const Array& y) -> std::int64_t {
    for (std::int64_t i = 0; i < x.count(); ++i)
      if (x.get(i) != y.get(i) && !(std::isnan(x.get(i)) && std::isnan(y.get(i)))) return i;
    return -1;
  };
  const auto say = [](const std::string& name, const Array& x, const Array& y, std::int64_t at) {
    return fmt::format("{}[{}] is {}, a run's {}", name, at, x.get(at), y.get(at));
  };
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Symbol& symbol = cell.symbol_of(cell.updates[u]);
    if (symbol.lag_of >= 0) continue;
    if (const std::int64_t at = differ(a.states[u], b.states[u]); at >= 0)
      return say(symbol.name, a.states[u], b.states[u], at);
    if (const std::int64_t at = differ(a.finals[u], b.finals[u]); at >= 0)
      return say(symbol.name + ".final", a.finals[u], b.finals[u], at);
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    if (const std::int64_t at = differ(a.outs[o], b.outs[o]); at >= 0)
      return say(cell.outs[o].name, a.outs[o], b.outs[o], at);
  return "";
}

/// Of 16 bits, step by step: calls and shipped code have the bits of a run. "invalid: …" of a text that is no
/// valid cell.
std::string narrow_failure(Device& device, const std::string& text, std::uint64_t seed) {
  return try_cell(text, [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    oracle::Random random(seed ^ 0xa54f);
    const Dtype dtype = random.chance(0.5) ? Dtype::F16 : Dtype::BF16;
    static const std::vector<std::vector<std::int64_t>> kAxes = {
        {3, 4, 2}, {64, 2, 2}, {1, 1, 1}, {8, 1, 3}, {33, 2, 1}};
    Trial::Options with{.dtype = dtype,
                        .sizes = oracle::axis_lengths(
                            cell.oracle, kAxes[static_cast<std::size_t>(random.below(static_cast<int>(kAxes.size())))]),
                        .steps = 37,
                        .sequences = 3};
    with.step_by_step = true;  // the oracle is not asked
    with.starts_given = random.chance(0.5);
    with.reverse = random.chance(0.4);
    const Trial trial(cell.graph, cell.oracle, {}, random, with);
    static const std::vector<std::vector<std::int64_t>> kLengths = {
        {37, 37, 37}, {37, 0, 13}, {0, 37, 1}, {1, 1, 1}, {37}};
    const std::vector<std::int64_t>& steps =
        kLengths[static_cast<std::size_t>(random.below(static_cast<int>(kLengths.size())))];
    const bool even = std::all_of(steps.begin(), steps.end(), [&](std::int64_t n) { return n == steps[0]; });
    const Binding binding = trial.bound(steps, !even || random.chance(0.3), 1);
    SolveOptions solve;
    solve.solver = Strategy::Sequential;
    // A start that follows from params is computed in f32 by a call, and in f64 elsewhere.
    const bool computes = std::any_of(cell.graph.symbols.begin(), cell.graph.symbols.end(), [&](const Symbol& s) {
      return s.kind == SymbolKind::State && s.initial != kNoNode && cell.graph.graph[s.initial].op != Op::Constant;
    });
    CallLook look;
    look.strided = random.chance(0.5);
    look.in_place = with.starts_given && random.chance(0.5);
    look.leave_out = !with.starts_given && !computes && random.chance(0.7);
    const std::string how =
        fmt::format("{} [{}] of {}{}{}{}{}{}", to_string(dtype), fmt::join(steps, ", "),
                    fmt::join(lengths(cell.graph, binding.run, cell.graph.header), "x"),
                    binding.packed ? ", packed" : "", with.reverse ? ", reversed" : "", look.strided ? ", strided" : "",
                    look.in_place ? ", in place" : "", look.leave_out ? ", with defaults" : "");
    SolveReport report;
    const RunOutput run =
        CudaSolver(*device.gpu, cell.graph, cell.structure, dtype, &source).run(binding.run, solve, report);
    CallArrays arrays(*device.gpu, cell.graph, binding, dtype, look);
    Calls calls(*device.gpu, cell, &source, dtype, arrays.shape(), solve);
    calls.pool.run(arrays.arrays(), 0, arrays.status(), nullptr);
    const RunOutput called = arrays.read(binding);
    std::string wrong = difference(cell.graph, called, run);
    if (wrong.empty()) wrong = arrays.wrong_histories(binding, called);
    if (!wrong.empty()) return fmt::format("call: {}: {}", how, wrong);
    ShipRequest request;
    request.dtype = dtype;
    request.lengths = needed_lengths(cell, with.sizes, true);
    request.card = device.gpu->facts();
    request.prefix = "shipped";
    request.solver = Strategy::Sequential;
    const AotCell shipped(cell.graph, cell.structure, request);
    AotOnDevice program(*device.gpu, shipped);
    AotOnDevice::Options options;
    options.gap = look.strided ? 1 + random.below(3) : 0;
    options.defaults = look.leave_out;
    options.in_place = look.in_place;
    wrong = difference(cell.graph, output_of(cell.graph, binding, program.run(binding, dtype, options), dtype), run);
    if (!wrong.empty()) return fmt::format("shipped: {}: {}", how, wrong);
    return {};
  });
}

TEST(RandomCalls, OfSixteenBitsHaveTheBitsOfARun) {
  Device device = open_device();
  const generate::Seeds seeds(4, turns::Turn().part(2));
  generate::try_seeds(
      seeds, generate::random_cell_with_defaults,
      [&](const std::string& text, std::uint64_t seed, bool) { return narrow_failure(device, text, seed); },
      "test_gpu --gtest_filter='RandomCalls.*'", [](const std::string& why) { ADD_FAILURE() << why; });
}

TEST(RandomCalls, AgreeWithOracle) {
  Device device = open_device();
  const generate::Seeds seeds(6, turns::Turn().part(3));
  Counts counts;
  generate::try_seeds(
      seeds, generate::random_cell_with_defaults,
      [&](const std::string& text, std::uint64_t seed, bool again) {
        return failure(device, text, seed, again ? nullptr : &counts);
      },
      "test_gpu --gtest_filter='RandomCalls.*'", [](const std::string& why) { ADD_FAILURE() << why; });
  RecordProperty("cells", counts.cells);
  if (!seeds.whole) return;
  EXPECT_EQ(counts.shipped, static_cast<int>(seeds.count));
  EXPECT_LE(counts.skipped, counts.compared / 100) << "numbers left out at jumps";
}

}  // namespace
}  // namespace cellc
