#include "runtime/gradient/shifted_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/lagged_arrays.h"

namespace cellc {
namespace {

/// Where the entries of an earlier step lie.
struct Earlier {
  bool in_history;
  std::int64_t first;
};

/// Calls `visit(row, place along, where)` for each step and each of its lags.
template <typename Visit>
void each_lag(const BoundRun& run, const Array& history, std::int64_t entries, int lag, std::int64_t along,
              Visit&& visit) {
  const std::int64_t depth = history.shape().size() > 1 ? history.shape()[1] : 0;
  for (std::size_t b = 0; b + 1 < run.offsets.size(); ++b) {
    const Steps steps(run, b);
    for (std::int64_t t = 0; t < steps.count; ++t)
      for (std::int64_t w = 0; w < along; ++w) {
        const std::int64_t from = t - lag - w;
        visit(steps.row(t), w,
              from >= 0 ? Earlier{false, steps.row(from) * entries}
                        : Earlier{true, (static_cast<std::int64_t>(b) * depth - from - 1) * entries});
      }
  }
}

std::int64_t entries_of(const Array& rows) { return rows.shape()[0] > 0 ? rows.count() / rows.shape()[0] : 0; }

}  // namespace

void check_kept(const CellGraph& cell, const DerivedCell& derived, const Wanted& wanted, const char* what) {
  std::vector<std::string> lost;
  for (const ArraySource& s : derived.sources) {
    if (s.kind != ArraySource::Kind::Previous || wanted.state(static_cast<std::size_t>(s.id))) continue;
    const Symbol& state = cell.symbol_of(cell.updates[static_cast<std::size_t>(s.id)]);
    const std::string& name = state.lag_of < 0 ? state.name : cell.symbols[static_cast<std::size_t>(state.lag_of)].name;
    if (std::find(lost.begin(), lost.end(), name) == lost.end()) lost.push_back(name);
  }
  if (lost.empty()) return;
  const std::string names = fmt::format("{}", fmt::join(lost, ", "));
  throw RequestError(fmt::format("{} read every step of {}, which the run before them is not asked to write; keep {}",
                                 what, names, names));
}

Array previous_rows(const BoundRun& run, const Array& trajectory, const Array& start, Array reuse) {
  const bool fits = reuse.shape() == trajectory.shape() && reuse.dtype() == trajectory.dtype() && reuse.is_sole_owner();
  Array result = fits ? std::move(reuse) : Array::uninitialised(trajectory.dtype(), trajectory.shape());
  const std::int64_t entries = entries_of(trajectory);
  const std::size_t bytes = static_cast<std::size_t>(entries) * size_of(trajectory.dtype());
  if (bytes == 0) return result;
  for (std::size_t b = 0; b + 1 < run.offsets.size(); ++b) {
    const Steps steps(run, b);
    for (std::int64_t t = 0; t < steps.count; ++t)
      std::memcpy(
          at(result, steps.row(t) * entries),
          t == 0 ? at(start, static_cast<std::int64_t>(b) * entries) : at(trajectory, steps.row(t - 1) * entries),
          bytes);
  }
  return result;
}

Array lagged_rows(const BoundRun& run, const Array& input, const Array& history, int lag,
                  std::optional<std::int64_t> along) {
  const std::int64_t entries = entries_of(input), count = along.value_or(1);
  std::vector<std::int64_t> shape = input.shape();
  if (along) shape.push_back(*along);
  Array result = Array::uninitialised(input.dtype(), shape);
  const std::size_t size = size_of(input.dtype());
  each_lag(run, history, entries, lag, count, [&](std::int64_t row, std::int64_t w, Earlier from) {
    const std::byte* source = at(from.in_history ? history : input, from.first);
    for (std::int64_t i = 0; i < entries; ++i)
      std::memcpy(at(result, (row * entries + i) * count + w), source + static_cast<std::size_t>(i) * size, size);
  });
  return result;
}

const Array& rows_of_symbol(const CellGraph& cell, const BoundRun& run, const RunOutput& output, std::size_t symbol) {
  const int of = cell.symbols[symbol].line_of;
  for (std::size_t u = 0; of >= 0 && u < cell.updates.size(); ++u)
    if (cell.updates[u].symbol == of) return output.states[u];
  return run.symbols[symbol];
}

Array tangent_of_line(const Array& start, const Array& history, std::int64_t depth) {
  if (history.data()) return history_of_line(start, convert(history, start.dtype()), depth);
  std::vector<std::int64_t> shape = start.shape();
  shape.insert(shape.begin() + 1, depth - 1);
  return history_of_line(start, Array(start.dtype(), shape), depth);
}

void add_lagged_rows(const BoundRun& run, const Array& contributed, int lag, std::optional<std::int64_t> along,
                     Array& input, Array& history) {
  const std::int64_t entries = entries_of(input), count = along.value_or(1);
  each_lag(run, history, entries, lag, count, [&](std::int64_t row, std::int64_t w, Earlier from) {
    Array& to = from.in_history ? history : input;
    for (std::int64_t i = 0; i < entries; ++i)
      to.set(from.first + i, to.get(from.first + i) + contributed.get((row * entries + i) * count + w));
  });
}

void add_lagged_history(const BoundRun& run, const Array& contributed, int lag, Array& history) {
  const std::int64_t entries = entries_of(contributed), depth = history.shape()[1];
  for (std::size_t b = 0; b + 1 < run.offsets.size(); ++b) {
    const Steps steps(run, b);
    for (std::int64_t t = 0; t < std::min<std::int64_t>(steps.count, lag); ++t)
      for (std::int64_t i = 0; i < entries; ++i) {
        const std::int64_t to = (static_cast<std::int64_t>(b) * depth + lag - 1 - t) * entries + i;
        history.set(to, history.get(to) + contributed.get(steps.row(t) * entries + i));
      }
  }
}

}  // namespace cellc
