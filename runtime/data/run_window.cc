#include "runtime/data/run_window.h"

#include <algorithm>
#include <cstring>

namespace cellc {

namespace {

std::int64_t bytes_of_entry(const Array& array) {
  // [first axis, the rest…]
  std::int64_t count = 1;
  for (std::size_t p = 1; p < array.shape().size(); ++p) count *= array.shape()[p];
  return count * static_cast<std::int64_t>(size_of(array.dtype()));
}

void copy(const Array& from, std::int64_t from_entry, Array& to, std::int64_t to_entry, std::int64_t entries,
          std::int64_t bytes) {
  if (entries <= 0 || bytes == 0) return;
  std::memcpy(static_cast<std::byte*>(to.data()) + to_entry * bytes,
              static_cast<const std::byte*>(from.data()) + from_entry * bytes,
              static_cast<std::size_t>(entries * bytes));
}

std::vector<std::int64_t> with_first(std::int64_t first, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> result = shape;
  result[0] = first;
  return result;
}

std::int64_t row_of(const BoundRun& run, std::int64_t sequence, std::int64_t step) {
  return run.reverse ? run.offsets[sequence + 1] - 1 - step : run.offsets[sequence] + step;
}

/// The lowest row of steps [begin, end).
std::int64_t low_row(const BoundRun& run, std::int64_t sequence, std::int64_t begin, std::int64_t end) {
  return row_of(run, sequence, run.reverse ? end - 1 : begin);
}

/// Calls `each(whole low row, window row, rows)` by sequence.
template <typename Each>
void for_each_sequence(const RunWindow& window, const BoundRun& run, Each&& each) {
  for (std::size_t i = 0; i < window.sequences.size(); ++i) {
    const std::int64_t rows = window.run.offsets[i + 1] - window.run.offsets[i];
    each(low_row(run, window.sequences[i], window.begin, window.begin + rows), window.run.offsets[i], rows);
  }
}

/// Entry j: the value j + 1 steps before the window. A delay line may come without rows where the window is the first.
Array history(const RunWindow& window, const BoundRun& run, const Array& rows, const Array& before,
              std::int64_t depth) {
  std::vector<std::int64_t> shape = rows.shape();
  if (shape.empty())
    shape.assign(before.shape().begin() + 1, before.shape().end());
  else
    shape[0] = depth;
  shape.insert(shape.begin(), static_cast<std::int64_t>(window.sequences.size()));
  Array result(rows.shape().empty() ? before.dtype() : rows.dtype(), shape);
  const std::int64_t parts = shape[0] * depth;
  const std::int64_t bytes =
      parts > 0 ? result.count() / parts * static_cast<std::int64_t>(size_of(result.dtype())) : 0;
  for (std::size_t i = 0; i < window.sequences.size(); ++i) {
    const std::int64_t s = window.sequences[i], at = static_cast<std::int64_t>(i) * depth;
    for (std::int64_t j = 0; j < depth; ++j) {
      const std::int64_t step = window.begin - 1 - j;
      if (step >= 0)
        copy(rows, row_of(run, s, step), result, at + j, 1, bytes);
      else if (before.data())
        copy(before, s * before.shape()[1] - 1 - step, result, at + j, 1, bytes);
    }
  }
  return result;
}

}  // namespace

Array rows_of(const RunWindow& window, const BoundRun& run, const Array& whole) {
  if (!whole.data()) return Array();
  Array part = Array::uninitialised(whole.dtype(), with_first(window.run.offsets.back(), whole.shape()));
  const std::int64_t bytes = bytes_of_entry(whole);
  for_each_sequence(window, run,
                    [&](std::int64_t from, std::int64_t to, std::int64_t n) { copy(whole, from, part, to, n, bytes); });
  return part;
}

void each_row(const RunWindow& window, const BoundRun& run,
              const std::function<void(std::int64_t, std::int64_t)>& visit) {
  for_each_sequence(window, run, [&](std::int64_t whole, std::int64_t part, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) visit(part + i, whole + i);
  });
}

RunWindow cut_run(const CellGraph& cell, const BoundRun& run, const std::vector<Array>& trajectories,
                  std::int64_t begin, std::int64_t steps) {
  RunWindow window;
  window.run.sizes = run.sizes;
  window.run.reverse = run.reverse;
  window.run.threads = run.threads;
  window.begin = begin;
  window.run.offsets = {0};
  for (std::int64_t s = 0; s + 1 < static_cast<std::int64_t>(run.offsets.size()); ++s) {
    const std::int64_t left = run.offsets[s + 1] - run.offsets[s] - begin;
    if (left <= 0) continue;
    window.sequences.push_back(s);
    window.run.offsets.push_back(window.run.offsets.back() + std::min(steps, left));
  }
  const auto sequences = static_cast<std::int64_t>(window.sequences.size());
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    const Array& given = run.symbols[s];
    Array past;
    if (symbol.kind == SymbolKind::Input) {
      window.run.symbols.push_back(rows_of(window, run, given));
      const Array& before = s < run.histories.size() ? run.histories[s] : past;
      const std::int64_t depth = before.shape().size() >= 2 ? before.shape()[1] : symbol.max_lag;
      if (depth > 0) past = history(window, run, given, before, depth);
    } else {
      window.run.symbols.push_back(given);
    }
    window.run.histories.push_back(std::move(past));
  }
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Array& start = run.symbols[cell.updates[u].symbol];
    const bool known = u < trajectories.size() && trajectories[u].data();
    Array from = Array::uninitialised(start.dtype(), with_first(sequences, start.shape()));
    const std::int64_t bytes = bytes_of_entry(start);
    for (std::int64_t i = 0; i < sequences; ++i) {
      const std::int64_t s = window.sequences[static_cast<std::size_t>(i)];
      if (begin == 0 || !known)
        copy(start, s, from, i, 1, bytes);
      else
        copy(trajectories[u], row_of(run, s, begin - 1), from, i, 1, bytes);
    }
    window.run.symbols[cell.updates[u].symbol] = std::move(from);
  }
  return window;
}

void put_rows(const RunWindow& window, const BoundRun& run, const Array& part, Array& whole) {
  const std::int64_t bytes = bytes_of_entry(part);
  for_each_sequence(window, run,
                    [&](std::int64_t to, std::int64_t from, std::int64_t n) { copy(part, from, whole, to, n, bytes); });
}

}  // namespace cellc
