#include "runtime/cpu/run_in_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "compiler/analysis/jacobian.h"
#include "compiler/derive/pipeline.h"
#include "runtime/cpu/solve.h"
#include "runtime/cpu/time_window.h"
#include "runtime/data/bind.h"
#include "runtime/data/lagged_arrays.h"

namespace cellc {
namespace {

std::int64_t row_of(const BoundRun& run, std::int64_t sequence, std::int64_t step) {
  const auto s = static_cast<std::size_t>(sequence);
  return run.reverse ? run.offsets[s + 1] - 1 - step : run.offsets[s] + step;
}

std::int64_t steps_of(const BoundRun& run, std::int64_t sequence) {
  const auto s = static_cast<std::size_t>(sequence);
  return run.offsets[s + 1] - run.offsets[s];
}

void copy_rows(const Array& from, std::int64_t from_row, Array& to, std::int64_t to_row, std::int64_t bytes,
               std::int64_t rows = 1) {
  if (rows * bytes <= 0) return;
  std::memcpy(static_cast<std::byte*>(to.data()) + to_row * bytes,
              static_cast<const std::byte*>(from.data()) + from_row * bytes, static_cast<std::size_t>(rows * bytes));
}

std::int64_t row_bytes(const Array& rows) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(rows.dtype()));
  for (std::size_t i = 1; i < rows.shape().size(); ++i) bytes *= rows.shape()[i];
  return bytes;
}

}  // namespace

BlocksOfSteps::BlocksOfSteps(const CellGraph& cell, const CompileOptions& options)
    : cell_(cell), options_(options), block_(block_of(cell, options.derive)) {
  structure_ = analyse(block_.block.cell, differentiate(block_.block.cell));
  CompileOptions wide = options;
  wide.dtype = arithmetic_of(options.dtype);
  solver_ = std::make_unique<Solver>(block_.block.cell, structure_, wide);
}

BlocksOfSteps::~BlocksOfSteps() = default;

int BlocksOfSteps::state_of(const LineTap& tap) const {
  const int state = cell_.symbols[static_cast<std::size_t>(tap.line)].line_of;
  for (std::size_t u = 0; u < cell_.updates.size(); ++u)
    if (cell_.updates[u].symbol == state) return static_cast<int>(u);
  return -1;
}

/// A line brings what rows hold, which in 16-bit storage is rounded.
Array BlocksOfSteps::as_written(const Array& states) const {
  return options_.dtype == states.dtype() ? states : convert(convert(states, options_.dtype), states.dtype());
}

/// For all steps of the run, of which the first are what the history says.
Array BlocksOfSteps::tap(const LineTap& tap, const BoundRun& run) const {
  const auto line = static_cast<std::size_t>(tap.line);
  const Array history = convert(history_as_started(cell_, run, line), arithmetic_of(options_.dtype));
  const std::int64_t depth = history.shape()[1];
  std::vector<std::int64_t> shape = history.shape();
  shape.erase(shape.begin() + 1);
  shape[0] = run.offsets.back();
  Array rows = Array::uninitialised(history.dtype(), shape);
  const std::int64_t bytes = row_bytes(rows);
  for (std::int64_t s = 0; s + 1 < static_cast<std::int64_t>(run.offsets.size()); ++s)
    for (std::int64_t t = 0; t < std::min<std::int64_t>(tap.lag, steps_of(run, s)); ++t)
      copy_rows(history, s * depth + tap.lag - 1 - t, rows, row_of(run, s, t), bytes);
  return rows;
}

void BlocksOfSteps::add(SolveReport& all, const SolveReport& block, const std::vector<std::int64_t>& sequences,
                        std::int64_t begin) {
  compile_ms_ = block.compile_ms;  // of all runs
  if (begin == 0) {
    all.stages = block.stages;
    for (StageReport& s : all.stages)
      s.plan.reason = fmt::format("in blocks of {} steps, for which delay lines bring what is known: {}", block_.steps,
                                  s.plan.reason);
  }
  for (std::size_t k = 0; begin > 0 && k < std::min(all.stages.size(), block.stages.size()); ++k) {
    StageReport& to = all.stages[k];
    const StageReport& from = block.stages[k];
    to.iterations = std::max(to.iterations, from.iterations);
    to.repair_rounds = std::max(to.repair_rounds, from.repair_rounds);
    to.max_residual = std::max(to.max_residual, from.max_residual);
    to.error_estimate = std::max(to.error_estimate, from.error_estimate);
    to.misses += from.misses;
    to.boundaries += from.boundaries;
    to.repaired += from.repaired;
  }
  all.max_residual = std::max(all.max_residual, block.max_residual);
  all.error_estimate = std::max(all.error_estimate, block.error_estimate);
  all.repaired += block.repaired;
  for (Unconverged u : block.unconverged) {
    u.sequence = sequences[static_cast<std::size_t>(u.sequence)];
    u.first_bad_step += begin;
    const auto known = std::find_if(all.unconverged.begin(), all.unconverged.end(),
                                    [&](const Unconverged& k) { return k.sequence == u.sequence; });
    if (known == all.unconverged.end())
      all.unconverged.push_back(u);
    else
      known->residual = std::max(known->residual, u.residual);
  }
  all.converged = all.unconverged.empty();
}

RunOutput BlocksOfSteps::run(const BoundRun& given, const SolveOptions& options, SolveReport& report) {
  const CellGraph& cell = block_.block.cell;
  const Dtype arithmetic = arithmetic_of(options_.dtype);
  BoundRun run = given;
  run.symbols.resize(cell.symbols.size() - block_.taps.size());
  run.histories.resize(cell.symbols.size());
  for (std::vector<Array>* arrays : {&run.symbols, &run.histories})
    for (Array& a : *arrays)
      if (a.data()) a = convert(a, arithmetic);
  for (std::size_t s = run.symbols.size(); s < cell.symbols.size(); ++s) run.histories[s] = Array();
  const std::size_t first = run.symbols.size();
  for (const LineTap& t : block_.taps) run.symbols.push_back(tap(t, given));
  RunOutput output = prepare_output(cell, run, arithmetic);
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Array& start = run.symbols[static_cast<std::size_t>(cell.updates[u].symbol)];
    output.finals[u] = convert(start, arithmetic);
    if (output.finals[u].data() == start.data()) {
      output.finals[u] = Array(arithmetic, start.shape());
      for (std::int64_t i = 0; i < start.count(); ++i) output.finals[u].set(i, start.get(i));
    }
  }
  std::int64_t longest = 0;
  for (std::int64_t s = 0; s + 1 < static_cast<std::int64_t>(run.offsets.size()); ++s)
    longest = std::max(longest, steps_of(run, s));
  report = {};
  RunOutput part;
  for (std::int64_t begin = 0; begin < longest; begin += block_.steps) {
    TimeWindow window;
    cut_window(cell, run, output.states, begin, block_.steps, window);
    window.arrays.trajectories.clear();
    SolveReport of_block;
    part = solver_->run(window.run, options, of_block, std::move(part));
    add(report, of_block, window.sequences, begin);
    for (std::size_t i = 0; i < window.sequences.size(); ++i) {
      const std::int64_t s = window.sequences[i], at = static_cast<std::int64_t>(i);
      const std::int64_t rows = steps_of(window.run, at), all = steps_of(run, s);
      // Neighbouring steps are neighbouring rows; backwards the last step has the first.
      const auto low = [&](const BoundRun& of, std::int64_t sequence, std::int64_t step, std::int64_t count) {
        return row_of(of, sequence, of.reverse ? step + count - 1 : step);
      };
      const std::int64_t from = low(window.run, at, 0, rows), to = low(run, s, begin, rows);
      for (std::size_t u = 0; u < cell.updates.size(); ++u)
        copy_rows(part.states[u], from, output.states[u], to, row_bytes(part.states[u]), rows);
      for (std::size_t o = 0; o < cell.outs.size(); ++o)
        copy_rows(part.outs[o], from, output.outs[o], to, row_bytes(part.outs[o]), rows);
      for (std::size_t k = 0; k < block_.taps.size(); ++k) {
        const std::int64_t due = begin + block_.taps[k].lag, count = std::min(rows, all - due);
        const Array states = as_written(part.states[static_cast<std::size_t>(state_of(block_.taps[k]))]);
        if (count > 0)
          copy_rows(states, low(window.run, at, 0, count), run.symbols[first + k], low(run, s, due, count),
                    row_bytes(states), count);
      }
      for (std::size_t u = 0; u < cell.updates.size(); ++u)
        copy_rows(part.finals[u], at, output.finals[u], s, row_bytes(part.finals[u]));
    }
  }
  if (options_.dtype != arithmetic) {
    for (Array& a : output.states) a = convert(a, options_.dtype);
    for (Array& a : output.outs) a = convert(a, options_.dtype);
  }
  return output;
}

}  // namespace cellc
