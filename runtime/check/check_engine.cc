#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/graph/delay_lines.h"
#include "runtime/check/check_claims.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/lagged_arrays.h"
#include "runtime/data/random_fill.h"
#include "runtime/evaluate/reference.h"
#include "runtime/evaluate/rounding.h"
#include "runtime/evaluate/row_difference.h"
#include "runtime/gradient/shifted_rows.h"

namespace cellc {
namespace {

/// Every step of a run as a sequence of one step that starts where the run's own step started. So
/// a cell that amplifies does not turn one step's rounding into a failure many steps later.
BoundRun single_steps(const CellGraph& cell, const BoundRun& run, const RunOutput& output) {
  BoundRun steps = run;
  steps.reverse = false;
  const std::int64_t rows = run.offsets.back();
  steps.offsets.clear();
  for (std::int64_t i = 0; i <= rows; ++i) steps.offsets.push_back(i);
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const int s = cell.updates[u].symbol;
    std::vector<std::int64_t> shape = run.symbols[s].shape();
    shape[0] = rows;
    Array starts(run.symbols[s].dtype(), shape);
    const std::int64_t entries = rows > 0 ? starts.count() / rows : 0;
    for (std::size_t b = 0; b + 1 < run.offsets.size(); ++b)
      for (std::int64_t row = run.offsets[b]; row < run.offsets[b + 1]; ++row)
        for (std::int64_t i = 0; i < entries; ++i)
          starts.set(row * entries + i, row == run.offsets[b]
                                            ? run.symbols[s].get(static_cast<std::int64_t>(b) * entries + i)
                                            : output.states[u].get((row - 1) * entries + i));
    steps.symbols[s] = starts;
  }
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Array& history = run.histories[s];
    if (history.shape().empty() || history.shape().size() < 2) continue;
    std::vector<std::int64_t> shape = history.shape();
    const std::int64_t depth = shape[1];
    shape[0] = rows;
    Array histories(history.dtype(), shape);
    const std::int64_t entries = rows > 0 && depth > 0 ? histories.count() / rows / depth : 0;
    const Array& before = rows_of_symbol(cell, run, output, s);
    for (std::size_t b = 0; b + 1 < run.offsets.size(); ++b)
      for (std::int64_t row = run.offsets[b]; row < run.offsets[b + 1]; ++row)
        for (std::int64_t j = 0; j < depth; ++j) {
          const std::int64_t from = row - 1 - j;
          for (std::int64_t i = 0; i < entries; ++i)
            histories.set(
                (row * depth + j) * entries + i,
                from >= run.offsets[b]
                    ? before.get(from * entries + i)
                    : history.get((static_cast<std::int64_t>(b) * depth + run.offsets[b] - 1 - from) * entries + i));
        }
    steps.histories[s] = histories;
  }
  return steps;
}

/// The run with every number moved by a few roundings of its dtype: how far that moves the answer
/// is how far a kernel that rounds as it computes may be off.
BoundRun jittered(const BoundRun& run, double relative, std::uint64_t seed) {
  BoundRun moved = run;
  RandomStream random(seed, "jitter");
  const auto move = [&](Array& array) {
    if (array.count() == 0) return;
    Array copy(Dtype::F64, array.shape());
    for (std::int64_t i = 0; i < array.count(); ++i) copy.set(i, array.get(i) * (1 + relative * random.uniform(-1, 1)));
    array = copy;
  };
  for (Array& array : moved.symbols) move(array);
  for (Array& array : moved.histories)
    if (!array.shape().empty()) move(array);
  return moved;
}

std::vector<std::pair<std::string, const Array*>> listed(const CellGraph& cell, const RunOutput& output) {
  std::vector<std::pair<std::string, const Array*>> arrays;
  for (std::size_t u = 0; u < cell.updates.size(); ++u)
    arrays.emplace_back(cell.symbol_of(cell.updates[u]).name, &output.states[u]);
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    if (output.outs[o].data()) arrays.emplace_back(cell.outs[o].name, &output.outs[o]);
  return arrays;
}

}  // namespace

CheckItem check_each_step(const CellGraph& cell, const std::string& strategy, const RunOutput& output,
                          const Binding& binding, double tolerance, double rounding) {
  CheckItem item;
  item.what = fmt::format("{} {}, each step against the f64 reference", strategy, to_string(binding.dtype));
  const BoundRun steps = single_steps(cell, binding.run, output);
  const RunOutput reference = reference_run(cell, steps);
  const auto want = listed(cell, reference), got = listed(cell, output);
  std::vector<std::vector<double>> spread;
  for (const auto& [name, array] : want) spread.emplace_back(static_cast<std::size_t>(array->count()), 0.0);
  for (std::uint64_t seed = 0; seed <= 4; ++seed) {
    const RunOutput other = reference_run(cell, seed == 0 ? steps : jittered(steps, rounding, seed),
                                          rounding_of(binding.dtype, rounding, seed));
    const auto moved = listed(cell, other);
    for (std::size_t a = 0; a < want.size(); ++a)
      for (std::int64_t i = 0; i < want[a].second->count(); ++i) {
        double& s = spread[a][static_cast<std::size_t>(i)];
        const double d = std::abs(moved[a].second->get(i) - want[a].second->get(i));
        s = std::isnan(d) ? INFINITY : std::max(s, d);
      }
  }
  const double largest = largest_number(binding.dtype);
  const std::vector<std::int64_t>& offsets = binding.run.offsets;
  for (std::size_t a = 0; a < got.size(); ++a) {  // states, and outs where the run has them
    const std::int64_t entries = offsets.back() > 0 ? want[a].second->count() / offsets.back() : 0;
    const std::vector<double> sizes = lane_sizes(*want[a].second, offsets);
    std::size_t sequence = 0;
    for (std::int64_t i = 0; i < want[a].second->count(); ++i) {
      while (i >= offsets[sequence + 1] * entries) ++sequence;
      const double size = sizes[sequence * static_cast<std::size_t>(entries) + static_cast<std::size_t>(i % entries)];
      const double w = want[a].second->get(i), g = got[a].second->get(i);
      const double allowed = tolerance * (std::abs(w) + size) + 4 * spread[a][static_cast<std::size_t>(i)];
      // Where the reference is beyond all numbers of the dtype, or next to that, infinity is as good an answer, and
      // where something on the way to it is, so is anything.
      if (!(std::abs(w) + allowed <= largest)) {
        ++item.skipped;
        continue;
      }
      ++item.tried;
      const double ratio = g == w ? 0 : std::isfinite(g) ? std::abs(g - w) / allowed : INFINITY;
      if (ratio > item.worst) {
        item.worst = ratio;
        if (ratio > 1)
          item.detail = fmt::format("{}, entry {}: {:.9g}, the reference has {:.9g}", got[a].first, i, g, w);
      }
      if (!(ratio <= 1)) item.passed = false;
    }
  }
  return item;
}

namespace {

bool same_bits(const Array& a, const Array& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.count() == 0 ||
          std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.count()) * size_of(a.dtype())) == 0);
}

/// The arrays of `from` steps on, as a run of its own (one sequence, f64 or f32).
Array rows_of(const Array& array, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> shape = array.shape();
  const std::int64_t entries = shape[0] > 0 ? array.count() / shape[0] : 0;
  shape[0] = end - begin;
  Array part(array.dtype(), shape);
  const std::size_t bytes = static_cast<std::size_t>(entries) * size_of(array.dtype());
  if (part.count() > 0)
    std::memcpy(part.data(), static_cast<const std::byte*>(array.data()) + static_cast<std::size_t>(begin) * bytes,
                static_cast<std::size_t>(end - begin) * bytes);
  return part;
}

CheckItem resumed(const CellGraph& cell, const Program& program, const BindRequest& request) {
  CheckItem item;
  item.what = "a run resumed from its final states equals the whole";
  BindRequest one = request;
  one.batch = 1;
  const Binding whole = bind(cell, one);
  const std::int64_t cut = whole.length / 3;
  const RunOutput all = program.run(whole.run);
  Binding first = whole;
  first.length = cut;
  first.run.offsets = {0, cut};
  Binding second = whole;
  second.run.offsets = {0, whole.length - cut};
  second.length = whole.length - cut;
  for (std::size_t s = 0; s < cell.symbols.size(); ++s)
    if (is_given_input(cell.symbols[s])) {
      first.run.symbols[s] = rows_of(whole.run.symbols[s], 0, cut);
      second.run.symbols[s] = rows_of(whole.run.symbols[s], cut, whole.length);
    }
  const RunOutput head = program.run(first.run);
  for (std::size_t u = 0; u < cell.updates.size(); ++u) second.run.symbols[cell.updates[u].symbol] = head.finals[u];
  for (const auto& [name, array] : written_arrays(cell, first, head))
    for (std::size_t s = 0; s < cell.symbols.size(); ++s)
      if (is_given_input(cell.symbols[s]) && name == cell.symbols[s].name + ".lag") second.run.histories[s] = array;
  for (const DelayLine& line : delay_lines(cell))
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      if (cell.updates[u].symbol == line.state) {
        const auto symbol = static_cast<std::size_t>(line.symbol);
        second.run.histories[symbol] = final_history(first.run, line.symbol, head.states[u]);
      }
  const RunOutput tail = program.run(second.run);
  const auto compare_to = [&](const std::string& name, const Array& part, const Array& full, std::int64_t begin) {
    item.tried += part.count();
    if (same_bits(part, rows_of(full, begin, begin + part.shape()[0]))) return;
    item.passed = false;
    item.worst = INFINITY;
    item.detail = fmt::format("{} differs when the run is cut at step {}", name, cut);
  };
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const std::string& name = cell.symbol_of(cell.updates[u]).name;
    compare_to(name, head.states[u], all.states[u], 0);
    compare_to(name, tail.states[u], all.states[u], cut);
    compare_to(name + ".final", tail.finals[u], all.finals[u], 0);
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o) compare_to(cell.outs[o].name, tail.outs[o], all.outs[o], cut);
  return item;
}

/// Sequences of lengths 0, 1, … packed into one array equal the same sequences on their own.
CheckItem packed(const CellGraph& cell, const Program& program, const BindRequest& request) {
  CheckItem item;
  item.what = "packed sequences, empty ones among them, equal single ones";
  BindRequest ragged = request;
  ragged.batch.reset();
  ragged.length.reset();
  Array offsets(Dtype::I64, {6});
  const std::int64_t ends[] = {0, 0, 1, 1, 8, 10};
  std::memcpy(offsets.data(), ends, sizeof ends);
  ragged.offsets = GivenArray{"check", offsets};
  const Binding binding = bind(cell, ragged);
  const RunOutput together = program.run(binding.run);
  for (std::int64_t b = 0; b < binding.batch; ++b) {
    const std::int64_t begin = binding.run.offsets[b], end = binding.run.offsets[b + 1];
    BoundRun alone = binding.run;
    alone.offsets = {0, end - begin};
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      if (is_given_input(cell.symbols[s])) alone.symbols[s] = rows_of(alone.symbols[s], begin, end);
      if (cell.symbols[s].kind == SymbolKind::State) alone.symbols[s] = rows_of(alone.symbols[s], b, b + 1);
      if (alone.histories[s].shape().size() >= 2) alone.histories[s] = rows_of(alone.histories[s], b, b + 1);
    }
    const RunOutput single = program.run(alone);
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      item.tried += single.states[u].count() + single.finals[u].count();
      if (same_bits(single.states[u], rows_of(together.states[u], begin, end)) &&
          same_bits(single.finals[u], rows_of(together.finals[u], b, b + 1)))
        continue;
      item.passed = false;
      item.worst = INFINITY;
      item.detail = fmt::format("{} of sequence {} differs", cell.symbol_of(cell.updates[u]).name, b);
    }
  }
  return item;
}

/// Every strategy that a stage admits, over segments of a few steps; stages that do not admit it step by step.
void strategies(const CellGraph& cell, const Structure& structure, const CompileOptions& compile,
                const Binding& binding, double tolerance, double rounding, std::vector<CheckItem>& items) {
  Solver solver(cell, structure, compile);
  for (const StrategyFacts& f : cellc::strategies()) {
    if (!f.on_cpu || f.strategy == Strategy::Sequential) continue;  // that one is tried above
    const Strategy strategy = f.strategy;
    SolveOptions options;
    std::size_t admitted = 0;
    for (std::size_t k = 0; k < structure.stages.size(); ++k) {
      const bool admits = !solver.refusal(static_cast<int>(k), strategy, binding.run);
      admitted += admits;
      options.plan.push_back(admits ? StagePlan{strategy, 8, 4, "check"} : StagePlan{});
    }
    if (admitted == 0) continue;
    if (f.takes == StrategyFacts::Takes::SomeStages) {  // the solver finds them
      options.plan.clear();
      options.solver = strategy;
    }
    SolveReport report;
    RunOutput output = solver.run(binding.run, options, report);
    // What is promised is each state; an out may amplify what is left of it.
    for (std::size_t o = 0; o < cell.outs.size(); ++o) output.outs[o] = Array();
    items.push_back(check_each_step(cell, to_string(strategy), output, binding, tolerance, rounding));
    if (report.converged) continue;
    items.back().passed = false;
    items.back().detail = fmt::format("reported as not converged, residual {:.2g}", report.max_residual);
  }
}

}  // namespace

void check_strategies(const CellGraph& cell, const Structure& structure, const CompileOptions& compile,
                      const Binding& binding, std::vector<CheckItem>& items) {
  strategies(cell, structure, compile, binding, 1e-12 + default_tolerance(Dtype::F64), 1e-15, items);
}

void check_engine(const CellGraph& cell, const Structure& structure, const BindRequest& request,
                  const std::string& cache_directory, std::vector<CheckItem>& items) {
  struct Precision {
    Dtype dtype;
    double tolerance, rounding;
  };
  for (const Precision p : {Precision{Dtype::F64, 1e-12, 1e-15}, Precision{Dtype::F32, 1e-5, 5e-7}}) {
    CompileOptions options;
    options.dtype = p.dtype;
    options.cache_directory = cache_directory;
    const Program program = Program::compile(cell, structure, options);
    BindRequest batch = request;
    batch.dtype = p.dtype;
    batch.batch = 3;
    const Binding binding = bind(cell, batch);
    items.push_back(check_each_step(cell, "sequential", program.run(binding.run), binding, p.tolerance, p.rounding));
    items.push_back(resumed(cell, program, batch));
    items.push_back(packed(cell, program, batch));
    items[items.size() - 2].what += fmt::format(" ({})", to_string(p.dtype));
    items[items.size() - 1].what += fmt::format(" ({})", to_string(p.dtype));
    batch.length = 40;
    strategies(cell, structure, options, bind(cell, batch), p.tolerance + default_tolerance(p.dtype), p.rounding,
               items);
  }
}

}  // namespace cellc
