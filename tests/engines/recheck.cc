#include "tests/engines/recheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace cellc {
namespace {

/// Row of a sequence's step.
std::int64_t row_of(const BoundRun& run, std::int64_t sequence, std::int64_t step) {
  return run.reverse ? run.offsets[sequence + 1] - 1 - step : run.offsets[sequence] + step;
}

std::int64_t sequences_of(const BoundRun& run) { return static_cast<std::int64_t>(run.offsets.size()) - 1; }

/// Rows are slices along the first axis.
std::size_t row_bytes(const Array& a) {
  std::size_t bytes = size_of(a.dtype());
  for (std::size_t i = 1; i < a.shape().size(); ++i) bytes *= static_cast<std::size_t>(a.shape()[i]);
  return bytes;
}
Array with_rows(const Array& like, std::int64_t rows) {
  std::vector<std::int64_t> shape = like.shape();
  shape[0] = rows;
  return Array(like.dtype(), shape);
}
void copy_row(const Array& from, std::int64_t row, Array& to, std::int64_t at) {
  const std::size_t n = row_bytes(from);
  if (n)
    std::memcpy(static_cast<std::byte*>(to.data()) + at * n, static_cast<const std::byte*>(from.data()) + row * n, n);
}

/// What lies behind a step of a lagged input: row `at` of `to` [rows, depth, a…].
void put_history(const Array& input, const Array& history, const BoundRun& run, std::int64_t sequence,
                 std::int64_t step, Array& to, std::int64_t at) {
  const std::int64_t depth = history.shape()[1];
  const std::size_t n = row_bytes(input);
  for (std::int64_t j = 1; j <= depth && n; ++j) {
    const std::byte* from = step - j >= 0
                                ? static_cast<const std::byte*>(input.data()) + row_of(run, sequence, step - j) * n
                                : static_cast<const std::byte*>(history.data()) + (sequence * depth + j - step - 1) * n;
    std::memcpy(static_cast<std::byte*>(to.data()) + (at * depth + j - 1) * n, from, n);
  }
}

bool has_history(const BoundRun& run, std::size_t symbol) {
  return symbol < run.histories.size() && run.histories[symbol].data() && run.histories[symbol].shape().size() >= 2;
}

}  // namespace

double residual_between(double written, double made) {
  if (written == made || (std::isnan(written) && std::isnan(made))) return 0;
  const double far = std::fabs(written - made) / (1 + std::fabs(written));
  return std::isfinite(far) ? far : std::numeric_limits<double>::infinity();
}

Recheck::Recheck(const CellGraph& cell, const Structure& structure, Dtype dtype)
    : cell_(cell), program_(Program::compile(cell, structure, {.dtype = dtype})) {}

BoundRun Recheck::single_steps(const BoundRun& run, const RunOutput& output) const {
  BoundRun one = run;
  const std::int64_t rows = run.offsets.back();
  one.reverse = false;
  one.threads = 1;
  one.offsets.clear();
  for (std::int64_t r = 0; r <= rows; ++r) one.offsets.push_back(r);
  for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
    const std::size_t symbol = static_cast<std::size_t>(cell_.updates[u].symbol);
    Array before = with_rows(run.symbols[symbol], rows);
    const std::int64_t n = rows ? before.count() / rows : 0;
    for (std::int64_t s = 0; s < sequences_of(run); ++s)
      for (std::int64_t t = 0; t < run.offsets[s + 1] - run.offsets[s]; ++t) {
        if (t == 0) {
          copy_row(run.symbols[symbol], s, before, row_of(run, s, 0));
          continue;
        }
        for (std::int64_t i = 0; i < n; ++i)
          before.set(row_of(run, s, t) * n + i, output.states[u].get(row_of(run, s, t - 1) * n + i));
      }
    one.symbols[symbol] = before;
  }
  for (std::size_t symbol = 0; symbol < cell_.symbols.size(); ++symbol) {
    if (cell_.symbols[symbol].kind != SymbolKind::Input || !has_history(run, symbol)) continue;
    one.histories[symbol] = with_rows(run.histories[symbol], rows);
    for (std::int64_t s = 0; s < sequences_of(run); ++s)
      for (std::int64_t t = 0; t < run.offsets[s + 1] - run.offsets[s]; ++t)
        put_history(run.symbols[symbol], run.histories[symbol], run, s, t, one.histories[symbol], row_of(run, s, t));
  }
  return one;
}

Recheck::Found Recheck::operator()(const BoundRun& run, const RunOutput& output, double tolerance) const {
  Found found;
  const RunOutput made = program_.run(single_steps(run, output));
  for (std::int64_t s = 0; s < sequences_of(run); ++s) {
    const std::int64_t steps = run.offsets[s + 1] - run.offsets[s];
    Unconverged u{s, steps, 0};
    for (std::size_t k = 0; k < cell_.updates.size(); ++k) {
      const Array& start = run.symbols[cell_.updates[k].symbol];
      const std::int64_t n = start.count() / sequences_of(run);
      for (std::int64_t t = 0; t < steps; ++t)
        for (std::int64_t i = 0; i < n; ++i) {
          const std::int64_t at = row_of(run, s, t) * n + i;
          const double r = residual_between(output.states[k].get(at), made.states[k].get(at));
          found.largest = std::max(found.largest, r);
          if (!(r <= tolerance)) u.first_bad_step = std::min(u.first_bad_step, t), u.residual = std::max(u.residual, r);
        }
      for (std::int64_t i = 0; i < n; ++i) {
        const double last = steps ? output.states[k].get(row_of(run, s, steps - 1) * n + i) : start.get(s * n + i);
        const double final = output.finals[k].get(s * n + i);
        if (final != last && !(std::isnan(final) && std::isnan(last)))
          found.wrong = fmt::format("{}.final[{}] of sequence {} is {:.17g}, the last step {:.17g}",
                                    cell_.symbol_of(cell_.updates[k]).name, i, s, final, last);
      }
    }
    if (u.first_bad_step < steps) found.beyond.push_back(u);
  }
  return found;
}

BoundRun steps_of(const CellGraph& cell, const BoundRun& run, std::int64_t from, std::int64_t to,
                  const std::vector<Array>* starts) {
  BoundRun part = run;
  part.offsets = {0};
  for (std::int64_t s = 0; s < sequences_of(run); ++s) {
    const std::int64_t steps = run.offsets[s + 1] - run.offsets[s];
    part.offsets.push_back(part.offsets.back() +
                           std::max<std::int64_t>(0, std::min(steps, to) - std::min(steps, from)));
  }
  for (std::size_t symbol = 0; symbol < cell.symbols.size(); ++symbol) {
    if (cell.symbols[symbol].kind != SymbolKind::Input) continue;
    part.symbols[symbol] = with_rows(run.symbols[symbol], part.offsets.back());
    for (std::int64_t s = 0; s < sequences_of(run); ++s) {
      const std::int64_t steps = part.offsets[s + 1] - part.offsets[s],
                         first = std::min(from, run.offsets[s + 1] - run.offsets[s]);
      for (std::int64_t t = 0; t < steps; ++t)
        copy_row(run.symbols[symbol], row_of(run, s, first + t), part.symbols[symbol], row_of(part, s, t));
    }
    if (!has_history(run, symbol)) continue;
    part.histories[symbol] = with_rows(run.histories[symbol], sequences_of(run));
    for (std::int64_t s = 0; s < sequences_of(run); ++s)
      put_history(run.symbols[symbol], run.histories[symbol], run, s,
                  std::min(from, run.offsets[s + 1] - run.offsets[s]), part.histories[symbol], s);
  }
  if (starts)
    for (std::size_t u = 0; u < cell.updates.size(); ++u) part.symbols[cell.updates[u].symbol] = (*starts)[u];
  return part;
}

void put_steps(const BoundRun& whole, std::int64_t from, const BoundRun& part, const RunOutput& output,
               RunOutput& all) {
  const auto put = [&](const std::vector<Array>& of, std::vector<Array>& to) {
    to.resize(of.size());
    for (std::size_t k = 0; k < of.size(); ++k) {
      if (!to[k].data()) to[k] = with_rows(of[k], whole.offsets.back());
      for (std::int64_t s = 0; s < sequences_of(whole); ++s)
        for (std::int64_t t = 0; t < part.offsets[s + 1] - part.offsets[s]; ++t)
          copy_row(of[k], row_of(part, s, t), to[k], row_of(whole, s, from + t));
    }
  };
  put(output.states, all.states);
  put(output.outs, all.outs);
  all.finals = output.finals;
}

}  // namespace cellc
