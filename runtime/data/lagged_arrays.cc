#include "runtime/data/lagged_arrays.h"

#include <cstddef>
#include <cstring>

namespace cellc {
namespace {

/// Entries from `axis` on, in bytes.
std::size_t part_bytes(const Array& array, std::size_t axis) {
  std::size_t bytes = size_of(array.dtype());
  for (std::size_t i = axis; i < array.shape().size(); ++i) bytes *= static_cast<std::size_t>(array.shape()[i]);
  return bytes;
}

/// Part `to` of an array becomes part `from` of another.
void copy_part(Array& array, std::int64_t to, const Array& other, std::int64_t from, std::size_t bytes) {
  std::memcpy(static_cast<std::byte*>(array.data()) + static_cast<std::size_t>(to) * bytes,
              static_cast<const std::byte*>(other.data()) + static_cast<std::size_t>(from) * bytes, bytes);
}

}  // namespace

Array lag_of_history(const Array& history, int lag) {
  std::vector<std::int64_t> shape = history.shape();
  const std::int64_t sequences = shape[0], depth = shape[1];
  shape.erase(shape.begin() + 1);
  Array copy(history.dtype(), shape);
  for (std::int64_t s = 0; s < sequences; ++s) copy_part(copy, s, history, s * depth + lag - 1, part_bytes(copy, 1));
  return copy;
}

Array history_of_lags(const std::vector<const Array*>& lags) {
  std::vector<std::int64_t> shape = lags[0]->shape();
  const auto sequences = shape[0], depth = static_cast<std::int64_t>(lags.size());
  shape.insert(shape.begin() + 1, depth);
  Array history(lags[0]->dtype(), shape);
  for (std::int64_t s = 0; s < sequences; ++s)
    for (std::int64_t j = 0; j < depth; ++j)
      copy_part(history, s * depth + j, *lags[static_cast<std::size_t>(j)], s, part_bytes(history, 2));
  return history;
}

Array history_of_line(const Array& start, const Array& history, std::int64_t depth) {
  std::vector<std::int64_t> shape = start.shape();
  const std::int64_t sequences = shape[0];
  shape.insert(shape.begin() + 1, depth);
  Array line(start.dtype(), shape);
  for (std::int64_t s = 0; s < sequences; ++s)
    for (std::int64_t j = 0; j < depth; ++j) {
      const bool known = j > 0 && history.data();
      copy_part(line, s * depth + j, known ? history : start, known ? s * (depth - 1) + j - 1 : s, part_bytes(line, 2));
    }
  return line;
}

Array history_of_start(const Array& start, std::int64_t depth) { return history_of_line(start, Array(), depth); }

Array history_as_started(const CellGraph& cell, const BoundRun& run, std::size_t line) {
  const Array& given = run.histories[line];
  Array history(given.dtype(), given.shape());
  std::memcpy(history.data(), given.data(), static_cast<std::size_t>(given.count()) * size_of(given.dtype()));
  const std::int64_t sequences = given.shape()[0], depth = given.shape()[1];
  const std::int64_t entries = sequences * depth > 0 ? given.count() / (sequences * depth) : 0;
  const int state = cell.symbols[line].line_of;
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    if (static_cast<int>(s) != state && symbol.lag_of != state) continue;
    const std::int64_t back = symbol.lag_of < 0 ? 0 : symbol.lag;
    for (std::int64_t b = 0; b < sequences; ++b)
      for (std::int64_t i = 0; i < entries; ++i)
        history.set((b * depth + back) * entries + i, run.symbols[s].get(b * entries + i));
  }
  return history;
}

Array history_of_line_and_lags(const Array& line, const std::vector<const Array*>& lags, Dtype dtype) {
  std::vector<std::int64_t> shape = line.shape();
  const std::int64_t sequences = shape[0], depth = --shape[1];
  Array history(dtype, shape);
  const std::int64_t entries = sequences * depth > 0 ? history.count() / (sequences * depth) : 0;
  for (std::int64_t s = 0; s < sequences; ++s)
    for (std::int64_t j = 0; j < depth; ++j) {
      const bool copied = static_cast<std::size_t>(j) < lags.size();
      for (std::int64_t i = 0; i < entries; ++i)
        history.set((s * depth + j) * entries + i, copied ? lags[static_cast<std::size_t>(j)]->get(s * entries + i)
                                                          : line.get((s * (depth + 1) + j + 1) * entries + i));
    }
  return history;
}

Array final_history(const BoundRun& run, int symbol, const Array& rows) {
  const Array& before = run.histories[static_cast<std::size_t>(symbol)];
  Array after(before.dtype(), before.shape());
  const std::int64_t depth = before.shape()[1];
  for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s) {
    const std::int64_t begin = run.offsets[s], end = run.offsets[s + 1], first = static_cast<std::int64_t>(s) * depth;
    for (std::int64_t j = 0; j < depth; ++j) {
      const bool given = j >= end - begin;
      const std::int64_t from = given ? first + j - (end - begin) : run.reverse ? begin + j : end - 1 - j;
      copy_part(after, first + j, given ? before : rows, from, part_bytes(before, 2));
    }
  }
  return after;
}

}  // namespace cellc
