#include "runtime/relax_stage.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "runtime/row_difference.h"
#include "runtime/threads.h"

namespace cellc {

namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

std::unique_ptr<Relaxation> Relaxation::make(const CellGraph& cell, const Structure& structure, int stage,
                                             const CompileOptions& options) {
  const auto start = Clock::now();
  std::optional<RelaxedCell> relaxed = relax(cell, structure, stage);
  if (!relaxed) return nullptr;
  std::unique_ptr<Relaxation> result(new Relaxation(cell, structure.stages[stage].states, std::move(*relaxed), options));
  result->compile_ms_ = ms_since(start);
  return result;
}

Relaxation::Relaxation(const CellGraph& cell, const std::vector<int>& states, RelaxedCell relaxed, const CompileOptions& options)
    : cell_(cell), states_(states), relaxed_(std::move(relaxed)), options_(options) {
  const Jacobian jacobian = differentiate(relaxed_.cell);
  structure_ = analyse(relaxed_.cell, jacobian);
  inner_ = std::make_unique<Solver>(relaxed_.cell, structure_, options_);
  mixing_.emplace(Program::compile(relaxed_.mixing.cell, Structure{}, options_));
  if (!relaxed_.fixed.cell.outs.empty()) fixed_.emplace(Program::compile(relaxed_.fixed.cell, Structure{}, options_));
  step_.emplace(Program::compile(relaxed_.step.cell, Structure{}, options_));
  for (const auto* p : {&fixed_, &mixing_, &step_})
    if (*p) caches_.push_back((*p)->cache());
}

BoundRun Relaxation::bound(const RunArrays& arrays, const std::vector<ArraySource>& sources,
                           const std::vector<Array>& mixing, const std::vector<Array>& fixed, bool starts) const {
  const BoundRun& run = *arrays.run;
  BoundRun result;
  result.sizes = run.sizes;
  result.offsets = run.offsets;
  result.reverse = run.reverse;
  result.threads = run.threads;
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

StageOutcome Relaxation::run(RunArrays& arrays, const SolveOptions& options, double tolerance) {
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
  const int most = options.fixed_iterations.value_or(options.max_iterations);
  RunOutput terms, last, fixed;
  if (fixed_) fixed = fixed_->run(bound(arrays, relaxed_.fixed.sources, {}, {}, false));
  double best = std::numeric_limits<double>::infinity();
  int idle = 0;
  bool converged = false;
  for (int k = 0; k < most && !converged; ++k) {
    terms = mixing_->run(bound(arrays, relaxed_.mixing.sources, {}, {}, false), std::move(terms));
    SolveReport solved;
    const double compiled = compile_ms_;
    RunOutput next = inner_->run(bound(arrays, relaxed_.sources, terms.outs, fixed.outs, true), inner, solved, std::move(last));
    compile_ms_ = std::max(compiled, solved.compile_ms);
    if (k == 0) caches_.push_back(solved.cache);
    double change = 0;
    last = {};
    for (std::size_t i = 0; i < states_.size(); ++i) {
      Array& now = arrays.trajectories[states_[i]];
      change = std::max(change, largest_change(next.states[i], now, threads));
      last.states.push_back(std::exchange(now, next.states[i]));
      next.states[i] = Array();
    }
    ++report.iterations;
    report.trace.push_back({change, run.offsets.back()});
    if (report.trace.size() > 1 && report.trace[report.trace.size() - 2].change > 0)
      report.contraction = change / report.trace[report.trace.size() - 2].change;
    converged = change <= tolerance && !options.fixed_iterations;
    idle = change < 0.9 * best ? 0 : idle + 1;
    best = std::min(best, change);
    if (idle >= 20 && !options.fixed_iterations) break;  // it does not contract
  }

  // Every step against f of the trajectory itself.
  const RunOutput f = step_->run(bound(arrays, relaxed_.step.sources, {}, {}, false));
  for (std::int64_t s = 0; s + 1 < static_cast<std::int64_t>(run.offsets.size()); ++s) {
    Unconverged bad{s, std::numeric_limits<std::int64_t>::max(), 0};
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const Furthest r = furthest(arrays.trajectories[states_[i]], f.outs[i], run.offsets[s], run.offsets[s + 1], tolerance, run.reverse);
      report.max_residual = std::max(report.max_residual, r.far);
      if (r.row < 0) continue;
      bad.first_bad_step = std::min(bad.first_bad_step, run.reverse ? run.offsets[s + 1] - 1 - r.row : r.row - run.offsets[s]);
      bad.residual = std::max(bad.residual, r.far);
    }
    if (bad.residual > 0) outcome.unconverged.push_back(bad);
  }
  // A contraction by q leaves at most r/(1 − q) of an error.
  const double q = report.contraction.value_or(0);
  report.error_estimate = q < 1 ? report.max_residual / (1 - q) : std::numeric_limits<double>::infinity();
  if (report.max_residual == 0) report.error_estimate = 0;
  return outcome;
}

}  // namespace cellc
