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

Array final_history(const BoundRun& run, int symbol) {
  const Array &before = run.histories[static_cast<std::size_t>(symbol)],
              &input = run.symbols[static_cast<std::size_t>(symbol)];
  Array after(before.dtype(), before.shape());
  const std::int64_t depth = before.shape()[1];
  for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s) {
    const std::int64_t begin = run.offsets[s], end = run.offsets[s + 1], first = static_cast<std::int64_t>(s) * depth;
    for (std::int64_t j = 0; j < depth; ++j) {
      const bool given = j >= end - begin;
      const std::int64_t from = given ? first + j - (end - begin) : run.reverse ? begin + j : end - 1 - j;
      copy_part(after, first + j, given ? before : input, from, part_bytes(before, 2));
    }
  }
  return after;
}

}  // namespace cellc
