#include "runtime/cpu/relax_stage.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/cpu/products.h"
#include "runtime/cpu/time_window.h"
#include "runtime/data/bind.h"
#include "runtime/data/offsets.h"
#include "runtime/data/threads.h"
#include "runtime/evaluate/row_difference.h"
#include "runtime/strategy/predict_iterations.h"
#include "runtime/strategy/relaxation_progress.h"

namespace cellc {

namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::size_t entries_of_row(const Array& rows) {
  std::size_t entries = 1;
  for (std::size_t p = 1; p < rows.shape().size(); ++p) entries *= static_cast<std::size_t>(rows.shape()[p]);
  return entries;
}

/// Of all sequences and of some of them, by state, then sequence, then entry: calls each(state, of all, of some,
/// count).
template <typename Each>
void for_each_sequence(const std::vector<std::vector<double>>& all, std::size_t sequences,
                       const std::vector<std::int64_t>& some, Each&& each) {
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t s = 0; s < some.size(); ++s) {
      const std::size_t count = all[i].size() / sequences;
      each(i, static_cast<std::size_t>(some[s]) * count, s * count, count);
    }
}

}  // namespace

std::unique_ptr<Relaxation> Relaxation::make(const CellGraph& cell, const Structure& structure, int stage,
                                             const CompileOptions& options) {
  const auto start = Clock::now();
  std::optional<RelaxedCell> relaxed = relax(cell, structure, stage, options.derive);
  if (!relaxed) return nullptr;
  std::unique_ptr<Relaxation> result(
      new Relaxation(cell, structure.stages[stage].states, std::move(*relaxed), options));
  result->compile_ms_ = ms_since(start);
  return result;
}

Relaxation::Relaxation(const CellGraph& cell, const std::vector<int>& states, RelaxedCell relaxed,
                       const CompileOptions& options)
    : cell_(cell),
      states_(states),
      relaxed_(std::move(relaxed)),
      mixing_plan_(make_plan(relaxed_.mixing.cell, Structure{})),
      options_(options) {}

/// Compiles when a run first asks: whoever weighs the strategies only needs shapes.
void Relaxation::prepare() {
  if (inner_) return;
  const auto start = Clock::now();
  // What was made before a failure is kept.
  const auto compile = [&](std::optional<Program>& program, const CellGraph& cell) {
    if (program || cell.outs.empty()) return;
    program.emplace(Program::compile(cell, Structure{}, options_));
    caches_.push_back(program->cache());
  };
  compile(mixing_, relaxed_.mixing.cell);
  compile(fixed_, relaxed_.fixed.cell);
  compile(step_, relaxed_.step.cell);
  const Jacobian jacobian = differentiate(relaxed_.relaxed.cell);
  structure_ = analyse(relaxed_.relaxed.cell, jacobian);
  inner_ = std::make_unique<Solver>(relaxed_.relaxed.cell, structure_, options_);
  compile_ms_ += ms_since(start);
}

double Relaxation::product_entries(const BoundRun& run) const {
  double entries = 0;
  for (const Product& p : mixing_plan_.products) {
    const ProductShape shape = product_shape(mixing_plan_, p, run.sizes);
    entries += static_cast<double>(shape.in()) * static_cast<double>(shape.width);
  }
  return entries;
}

double Relaxation::iteration_ns(const BoundRun& run) const {
  // What an iteration takes beside its products, by entry of the state: gates, scans, comparisons.
  constexpr double kBeside = 9;
  ProductShape largest{0, 0, 0};
  const auto entries = [](const ProductShape& s) { return static_cast<double>(s.in()) * static_cast<double>(s.width); };
  double coupled = 0;
  for (const Product& p : mixing_plan_.products) {
    const ProductShape shape = product_shape(mixing_plan_, p, run.sizes);
    if (entries(shape) > entries(largest)) largest = shape;
  }
  for (const int u : states_) {
    double count = 1;
    for (const AxisId a : cell_.symbols[cell_.updates[u].symbol].axes)
      count *= static_cast<double>(run.sizes.at(cell_.graph.axis(a).extent_of));
    coupled += count;
  }
  const std::int64_t threads = thread_count(run.threads);
  if (entries(largest) == 0) return kBeside * coupled / static_cast<double>(threads);
  largest.batch_inside = false;
  const Array matrix(options_.dtype, {largest.batch, largest.width, largest.depth});
  const Array operand(options_.dtype, {kManyProductRows, largest.in()});
  Array result(options_.dtype, {kManyProductRows, largest.out()});
  double ns = std::numeric_limits<double>::infinity();  // of one thread: divided by ours below
  for (int i = 0; i < 2; ++i) {                         // the first touches the pages
    const auto start = Clock::now();
    multiply_rows(largest, true, options_.dtype, matrix.data(), operand.data(), result.data(), kManyProductRows);
    ns = std::min(ns, 1e6 * ms_since(start));
  }
  const double products = ns * product_entries(run) / (entries(largest) * kManyProductRows);
  return (products + kBeside * coupled) / static_cast<double>(threads);
}

std::int64_t Relaxation::window_steps(const BoundRun& run) {
  constexpr std::int64_t kRows = 16384, kLeast = 256, kMost = 2048;
  const std::int64_t sequences = std::max<std::int64_t>(1, static_cast<std::int64_t>(run.offsets.size()) - 1);
  const std::int64_t longest = extent_of(run.offsets).longest;
  const std::int64_t wanted = std::clamp(kRows / sequences, kLeast, kMost);
  if (longest <= wanted + wanted / 2) return 0;
  // Windows of one length, in whole products.
  const std::int64_t windows = (longest + wanted - 1) / wanted, each = (longest + windows - 1) / windows;
  return (each + kManyProductRows - 1) / kManyProductRows * kManyProductRows;
}

BoundRun Relaxation::bound(const RunArrays& arrays, const std::vector<ArraySource>& sources,
                           const std::vector<Array>& mixing, const std::vector<Array>& fixed, bool starts) const {
  const BoundRun& run = *arrays.run;
  BoundRun result;
  result.sizes = run.sizes;
  result.offsets = run.offsets;
  result.reverse = run.reverse;
  result.threads = run.threads;
  result.product_rows = kManyProductRows;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const ArraySource source = sources[s];
    Array array, history;
    if (source.kind == ArraySource::Kind::Symbol) {
      array = run.symbols[source.id];
      if (static_cast<std::size_t>(source.id) < run.histories.size()) history = run.histories[source.id];
    } else if (source.kind == ArraySource::Kind::Mixing) {
      array = mixing[source.id];
    } else if (source.kind == ArraySource::Kind::Before) {
      array = fixed[source.id];
    } else {
      const Array& start = run.symbols[cell_.updates[source.id].symbol];
      const bool own = starts && s < states_.size();
      array = own ? start : arrays.trajectories[source.id];
      std::vector<std::int64_t> shape = start.shape();
      shape.insert(shape.begin() + 1, 1);
      if (!own) history = start.with_shape(shape);
    }
    result.symbols.push_back(std::move(array));
    result.histories.push_back(std::move(history));
  }
  return result;
}

StageOutcome Relaxation::run(RunArrays& arrays, const SolveOptions& options, double tolerance, std::int64_t window,
                             int worth) {
  prepare();
  const BoundRun& run = *arrays.run;
  const std::int64_t longest = extent_of(run.offsets).longest;
  if (window <= 0 || window >= longest) return relax_rows(arrays, options, tolerance, worth, nullptr);
  StageOutcome outcome;
  StageReport& report = outcome.report;
  const std::size_t sequences = run.offsets.size() - 1;
  Sizes sizes;
  for (const int u : states_) sizes.emplace_back(sequences * entries_of_row(arrays.trajectories[u]), 0);
  for (std::int64_t begin = 0; begin < longest; begin += window) {
    TimeWindow part;
    cut_window(cell_, run, arrays.trajectories, begin, window, part);
    Sizes of_part;
    for (const std::vector<double>& whole : sizes)
      of_part.emplace_back(whole.size() / sequences * part.sequences.size());
    for_each_sequence(sizes, sequences, part.sequences, [&](std::size_t i, auto from, auto to, auto count) {
      std::copy_n(sizes[i].data() + from, count, of_part[i].data() + to);
    });
    // Who gives up goes step by step from the first step on: the fewer steps are left, the more they may take.
    const double most =
        static_cast<double>(worth) * static_cast<double>(longest) / static_cast<double>(longest - begin);
    StageOutcome found = relax_rows(part.arrays, options, tolerance, static_cast<int>(std::min(most, 1e6)), &of_part);
    for_each_sequence(sizes, sequences, part.sequences, [&](std::size_t i, auto to, auto from, auto count) {
      std::copy_n(of_part[i].data() + from, count, sizes[i].data() + to);
    });
    put_back(part, states_, run, arrays.trajectories);
    report.iterations = std::max(report.iterations, found.report.iterations);
    report.max_residual = std::max(report.max_residual, found.report.max_residual);
    report.error_estimate = std::max(report.error_estimate, found.report.error_estimate);
    if (found.report.contraction)
      report.contraction = std::max(report.contraction.value_or(0), *found.report.contraction);
    if (begin == 0) report.predicted_iterations = found.report.predicted_iterations;
    report.trace.insert(report.trace.end(), found.report.trace.begin(), found.report.trace.end());
    for (Unconverged& u : found.unconverged) {
      u.sequence = part.sequences[static_cast<std::size_t>(u.sequence)];
      u.first_bad_step += begin;
      merge(outcome.unconverged, u);
    }
    // The caller runs the whole stage step by step: nothing is gained by going on.
    if (!outcome.unconverged.empty() && options.repair && !options.fixed_iterations) break;
  }
  return outcome;
}

std::optional<int> Relaxation::predict(const BoundRun& run, double tolerance) {
  constexpr std::int64_t kSteps = 256;
  constexpr int kIterations = 4;
  prepare();
  TimeWindow part;
  cut_window(cell_, run, {}, 0, kSteps, part);
  for (const int u : states_) {
    std::vector<std::int64_t> shape = run.symbols[cell_.updates[u].symbol].shape();
    shape[0] = part.run.offsets.back();
    part.arrays.trajectories[u] = Array(options_.dtype, shape);
  }
  for (std::size_t s = 0; s < part.run.symbols.size(); ++s)
    for (Array* a : {&part.run.symbols[s], &part.run.histories[s]})
      if (a->data() && a->dtype() != options_.dtype) *a = convert(*a, options_.dtype);
  SolveOptions few;
  few.fixed_iterations = kIterations;
  return predict_iterations(relax_rows(part.arrays, few, tolerance, 0, nullptr).report.trace, tolerance, 1);
}

StageOutcome Relaxation::relax_rows(RunArrays& arrays, const SolveOptions& options, double tolerance, int worth,
                                    Sizes* sizes) {
  const BoundRun& run = *arrays.run;
  const int threads = thread_count(run.threads);
  StageOutcome outcome;
  StageReport& report = outcome.report;
  for (const int u : states_) {
    Array& a = arrays.trajectories[u];
    std::memset(a.data(), 0, static_cast<std::size_t>(a.count()) * size_of(a.dtype()));
  }
  SolveOptions inner;
  inner.tolerance = tolerance / 8;
  RunOutput terms, last, fixed;
  if (fixed_) fixed = fixed_->run(bound(arrays, relaxed_.fixed.sources, {}, {}, false));
  RelaxationProgress progress(options, tolerance, report, worth);
  for (;;) {
    while (progress.goes_on() && !progress.settled()) {
      terms = mixing_->run(bound(arrays, relaxed_.mixing.sources, {}, {}, false), std::move(terms));
      SolveReport solved;
      RunOutput next = inner_->run(bound(arrays, relaxed_.relaxed.sources, terms.outs, fixed.outs, true), inner, solved,
                                   std::move(last));
      if (!inner_counted_) {
        inner_counted_ = true;
        compile_ms_ += solved.compile_ms;
        caches_.push_back(solved.cache);
      }
      double change = 0;
      last = {};
      for (std::size_t i = 0; i < states_.size(); ++i) {
        Array& now = arrays.trajectories[states_[i]];
        // Over the sizes of what is new: the first iterate, of zeros, has none.
        change = std::max(change, largest_change(now, next.states[i], threads));
        last.states.push_back(std::exchange(now, next.states[i]));
        next.states[i] = Array();
      }
      progress.moved(change, run.offsets.back());
    }
    outcome.unconverged.clear();
    Sizes grown = sizes ? *sizes : Sizes();
    report.max_residual = check(arrays, options, tolerance, sizes ? &grown : nullptr, outcome.unconverged);
    if (outcome.unconverged.empty() || progress.careful() || !progress.goes_on()) {
      if (sizes) *sizes = std::move(grown);
      break;
    }
    progress.be_careful();
  }
  report.error_estimate = progress.error_estimate(report.max_residual);
  return outcome;
}

/// Every step against f of the trajectory itself; returns the largest residual.
double Relaxation::check(const RunArrays& arrays, const SolveOptions& options, double tolerance, Sizes* sizes,
                         std::vector<Unconverged>& unconverged) {
  const BoundRun& run = *arrays.run;
  const RunOutput f = step_->run(bound(arrays, relaxed_.step.sources, {}, {}, false));
  double most = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Allowed allowed{tolerance, absolute_tolerance(options, cell_.symbol_of(cell_.updates[states_[i]]).name)};
    most = std::max(most, check_steps(arrays.trajectories[states_[i]], f.outs[i], run.offsets, allowed, run.reverse,
                                      unconverged, thread_count(run.threads), sizes ? &(*sizes)[i] : nullptr));
  }
  return most;
}

}  // namespace cellc
